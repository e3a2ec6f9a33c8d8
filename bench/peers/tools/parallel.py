"""GNU parallel: one command that reads arguments; its job log has the exit statuses."""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench import processes
from bench.peers.peer import Peer, Status, serve

SLOT = "PARALLEL_JOBSLOT"


class Parallel(Peer):
    first_slot = 1
    running: "subprocess.Popen[bytes] | None" = None
    replaces_workers = True  # a slot gets its next job, whatever became of the last one

    def start(self, workers: int, slots: int, retries: int, durable: bool) -> None:
        self.jobs = workers * slots
        self.retries = retries
        self.log = Path("joblog").absolute()
        self.resume = False

    def results(self, argv: list[str], count: int) -> Iterator[Status]:
        command = ["parallel", "-j", str(self.jobs), "--joblog", str(self.log)]
        command += ["--retries", str(self.retries)] if self.retries else []
        if self.resume:
            command.append("--resume")
        else:
            self.log.unlink(missing_ok=True)
        command.append(shlex.join(argv).replace("{i}", "{}") + ("" if "{i}" in argv else " # {}"))
        numbers = "".join(f"{i}\n" for i in range(1, count + 1))
        given = Path("arguments")
        given.write_text(numbers)
        with given.open() as lines:
            self.running = subprocess.Popen(command, stdin=lines)
        yield from self._logged(count)

    def _logged(self, count: int) -> Iterator[Status]:
        while not self.log.exists() and self.running.poll() is None:
            time.sleep(0.001)
        seen = 0
        with self.log.open() as log:
            while seen < count:
                over = self.running.poll() is not None
                part = log.readline()
                if part.startswith("Seq") and part.endswith("\n"):
                    continue
                if part.endswith("\n"):
                    fields = part.split("\t")
                    seen += 1
                    yield None if int(fields[7]) else int(fields[6])
                elif over:
                    break
                else:
                    log.seek(log.tell() - len(part))
                    time.sleep(0.001)
        if seen == count:
            self.running.wait()
        yield from [None] * (count - seen)

    def workers(self) -> dict[str, int]:
        """The job in each slot, at this moment."""
        return in_slots(self.running.pid, SLOT) if self.running is not None else {}

    def server(self) -> int:
        return self.running.pid

    def restart(self) -> None:
        self.resume = True


def in_slots(root: int, variable: str) -> dict[str, int]:
    """Children that have a slot's number in their environment."""
    found = {}
    for pid in processes.children(root):
        try:
            text = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        for entry in text.split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == os.fsencode(variable):
                found[value.decode()] = pid
    return found


if __name__ == "__main__":
    serve(Parallel())
