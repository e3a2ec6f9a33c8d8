"""What every tool is asked to do, and the process in which it does it.

A tool's module has one class with these few functions, and ends in `serve(TheClass())`. It runs
with the tool's own interpreter, so this file and all that it imports use the standard library
alone. The harness sends a request as a line of JSON and gets a line back; whatever the tool prints
goes to its standard error. Times are taken here, next to the tool, not across the pipe.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from bench import processes

TRUE = ["/bin/true"]
Status = int | None  # an exit status; None: the tool has given the task up, or does not say


class NotThere(Exception):
    """The tool has no such thing; the text says what exactly."""


class Peer:
    """A tool. `{i}` in a command stands for the number of the task, from 1."""

    first_slot: int | None = None  # where workers are numbered slots, not processes: the lowest
    replaces_workers = False  # whether it starts another worker itself when one is killed
    is_program = False  # whether the server is the submitting program itself

    def start(self, workers: int, slots: int, retries: int, durable: bool) -> None:
        """With `retries` 0: as it is by default. No workers: it only takes tasks. `durable`: with
        whatever it offers against the end of its server, started again where one was before."""
        raise NotImplementedError

    def results(self, argv: list[str], count: int) -> Iterator[Status]:
        """Run so many process tasks, in the tool's bulk idiom; what is known of each, as it
        becomes known."""
        raise NotImplementedError

    def calls(self, count: int) -> Iterator[object]:
        """Call a function that does nothing so often; each value as it comes."""
        raise NotThere("it has no function calls")

    def submit(self, count: int, distinct: bool) -> None:
        """Until accepted; there are no workers."""
        raise NotThere("it has no queue that could wait for workers")

    def workers(self) -> dict[str, int]:
        """The top process of each worker, by name."""
        raise NotThere("its workers are no processes of their own")

    def add_worker(self) -> None:
        """Start another one in place of one that was killed."""
        raise NotThere("workers cannot be added")

    def server(self) -> int:
        return os.getpid()

    def restart(self) -> None:
        """After the server was killed: what the documentation says."""

    def stop(self) -> None:
        """Politely; the harness ends the rest."""


# -- what the harness asks for -------------------------------------------------------------


class Asked:
    """The requests. Each has a name and arguments, and is answered with a JSON object."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.statuses: list[Status] = []
        self.over = True
        self.error = ""

    def start(
        self, workers: int, slots: int, retries: int = 0, durable: bool = False
    ) -> dict[str, Any]:
        self.peer.start(workers, slots, retries, durable)
        names = ("first_slot", "replaces_workers", "is_program")
        return {name: getattr(self.peer, name) for name in names}

    def check(self) -> dict[str, Any]:
        """Some tasks that succeed, and one whose exit status should come back as 3."""
        warm = list(self.peer.results(TRUE, 20))
        if warm != [0] * 20:
            raise RuntimeError(f"20 × /bin/true came back as {warm}")
        return {"status": next(iter(self.peer.results(["sh", "-c", "exit 3"], 1)))}

    def proc(self, count: int) -> dict[str, Any]:
        began = time.monotonic()
        found = list(self.peer.results(TRUE, count))
        return {"seconds": time.monotonic() - began, **tally(found)}

    def func(self, count: int) -> dict[str, Any]:
        list(self.peer.calls(20))
        began = time.monotonic()
        found = sum(1 for _ in self.peer.calls(count))
        return {"seconds": time.monotonic() - began, "ok": found}

    def latency(self, kind: str, count: int) -> dict[str, Any]:
        def process() -> object:
            return next(iter(self.peer.results(TRUE, 1)))

        def call() -> object:
            return next(iter(self.peer.calls(1)))

        once: Callable[[], object] = process if kind == "process" else call
        for _ in range(5):
            once()
        return {"times": [timed(once) for _ in range(count)]}

    def scale(self, count: int, wanted: int) -> dict[str, Any]:
        """When each of the first `wanted` results was known, from the beginning."""
        began = time.monotonic()
        stamps = []
        for status in islice(self.peer.results(TRUE, count), wanted):
            if status != 0:
                raise RuntimeError(f"a task came back as {status}")
            stamps.append(time.monotonic() - began)
        return {"stamps": stamps}

    def submit(self, count: int, distinct: bool) -> dict[str, Any]:
        began = time.monotonic()
        self.peer.submit(count, distinct)
        return {"began": began, "seconds": time.monotonic() - began}

    def begin(self, argv: list[str], count: int) -> dict[str, Any]:
        """Start them and return; `poll` says how it goes."""
        self.statuses, self.over, self.error = [], False, ""
        thread = threading.Thread(target=self._run, args=(self.statuses, argv, count), daemon=True)
        thread.start()
        return {}

    def _run(self, statuses: list[Status], argv: list[str], count: int) -> None:
        error = ""
        try:
            for status in self.peer.results(argv, count):
                statuses.append(status)
        except BaseException as exception:
            traceback.print_exc()
            error = f"{type(exception).__name__}: {exception}"[:300]
        if statuses is self.statuses:  # it may have been begun again since
            self.over, self.error = True, error

    def poll(self) -> dict[str, Any]:
        return {"over": self.over, "error": self.error, **tally(list(self.statuses))}

    def workers(self) -> dict[str, Any]:
        return {"workers": self.peer.workers()}

    def add_worker(self) -> dict[str, Any]:
        self.peer.add_worker()
        return {}

    def server(self) -> dict[str, Any]:
        return {"pid": self.peer.server()}

    def restart(self) -> dict[str, Any]:
        self.peer.restart()
        return {}

    def stop(self) -> dict[str, Any]:
        self.peer.stop()
        return {}


def tally(statuses: list[Status]) -> dict[str, Any]:
    ok = statuses.count(0)
    return {"done": len(statuses), "ok": ok, "failed": len(statuses) - ok}


def timed(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def serve(peer: Peer) -> None:
    """Answer until the harness closes the pipe."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asked = Asked(peer)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(asked, request.pop("request"))(**request)
        except NotThere as missing:
            answer = {"not_there": str(missing)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # whatever threads the tool has left


# -- for the tools' modules ----------------------------------------------------------------


def fill(argv: list[str], number: int) -> list[str]:
    return [part.replace("{i}", str(number)) for part in argv]


def tops(root: int, has: str) -> dict[str, int]:
    """Processes below `root` whose command line has this in it, except those below another."""
    parent_of = processes.parents()
    found = [p for p in processes.below(root, parent_of) if has in " ".join(processes.command(p))]
    return {str(pid): pid for pid in found if parent_of.get(pid) not in found}
