"""Where cases run: a temporary directory, servers in it, a bound on time, and a clean end.

Settings of the person who measures do not count: no `COVEY_…` variable, no `covey.toml` of
theirs. After every run all processes it started are ended, by pid, and its directory is removed.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TypeVar

from bench import floor, processes
from bench.measures import Floor, Floors
from bench.report import Row
from covey.client import embedded
from covey.client.client import Client
from covey.core.record.model import BagSpec
from covey.core.values.space import ONE_TASK, Axis, Range, Space
from covey.wire import ResultQuery, ResultRow

LONGEST_SECONDS = 175
PAGE = 10_000
WAIT_SECONDS = 10.0
PAUSE_SECONDS = 0.1
STOP_SECONDS = 15.0

T = TypeVar("T")


class TooLong(Exception):
    """A run passed its bound."""


class Broken(Exception):
    """What was measured is not what was asked for."""


class Server(NamedTuple):
    client: Client
    pid: int
    directory: Path

    def command_line(self, *arguments: str) -> list[str]:
        return [covey_program(), "--dir", str(self.directory), *arguments]


class Rig:
    def __init__(self, *, quick: bool = False, cpu: bool = False) -> None:
        self.quick = quick
        self.cpu = cpu
        self.broken = 0
        self.workspace = Path(tempfile.mkdtemp(prefix="covey-bench-"))
        self._made = 0

    def __enter__(self) -> "Rig":
        self._home = os.getcwd()
        os.chdir(self.workspace)
        for name in [name for name in os.environ if name.startswith("COVEY_")]:
            del os.environ[name]
        os.environ["XDG_CONFIG_HOME"] = str(self.workspace)
        processes.adopt_orphans()
        signal.signal(signal.SIGTERM, _interrupted)
        signal.signal(signal.SIGALRM, _too_long)
        return self

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_IGN)
        self.clean()
        os.chdir(self._home)
        shutil.rmtree(self.workspace, ignore_errors=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    # -- runs ------------------------------------------------------------------------------

    def repeat(self, name: str, once: Callable[[int], Row], count: int = 3) -> list[Row]:
        """Run `once` several times (once if quick), each within the bound. A run that breaks is
        a row that says so."""
        count = 1 if self.quick else count
        return [self.bounded(f"{name} {k} of {count}", k, once) for k in range(1, count + 1)]

    def bounded(self, title: str, run: int, once: Callable[[int], Row]) -> Row:
        (row,) = self.bounded_rows(title, run, lambda: [once(run)])
        return row

    def bounded_rows(self, title: str, run: int, once: Callable[[], list[Row]]) -> list[Row]:
        """As `bounded`, of variants that take turns."""
        print(f"… {title}", file=sys.stderr, flush=True)
        signal.alarm(LONGEST_SECONDS)
        try:
            return [{"run": run, **row} for row in once()]
        except Exception as error:
            self.broken += 1
            return [{"run": run, "note": f"BROKEN: {type(error).__name__}: {error}"}]
        finally:
            signal.alarm(0)
            self.clean()

    def clean(self) -> None:
        """End what a run has left, and remove its files."""
        processes.end_descendants()
        for one in self.workspace.iterdir():
            shutil.rmtree(one, ignore_errors=True)

    def floor(self) -> Floor:
        return floor.measure(0.3 if self.quick else floor.SECONDS)

    def with_floors(self, action: Callable[[], T]) -> tuple[T, Floors]:
        before = self.floor()
        found = action()
        return found, Floors(before, self.floor())

    # -- servers ---------------------------------------------------------------------------

    def directory(self) -> Path:
        self._made += 1
        made = self.workspace / str(self._made)
        made.mkdir()
        return made

    @contextmanager
    def server(self, *options: str) -> Iterator[Server]:
        """An embedded server in a directory of its own, started as `covey run` does."""
        directory = self.directory() / ".covey"
        client = embedded.attach_or_start(directory, options)
        pid = client.server().pid
        try:
            yield Server(client, pid, directory)
        finally:
            stop(client, pid)


def stop(client: Client, pid: int) -> None:
    """Stop a server, its pilots with it. Whatever resists is ended after the run."""
    try:
        if processes.alive(pid):
            client.stop()
            processes.wait_gone(pid, STOP_SECONDS)
    finally:
        client.close()


def covey_program() -> str:
    return str(Path(sys.executable).with_name("covey"))


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TooLong(f"more than {LONGEST_SECONDS} s")


# -- bags ----------------------------------------------------------------------------------


def counting(count: int) -> Space:
    """What `-p i=1..COUNT` means."""
    return Axis("i", Range("1", "1", count))


def submit(client: Client, count: int, *argv: str) -> int:
    space = ONE_TASK if count == 1 else counting(count)
    return client.submit(BagSpec(argv=argv, space=space)).bag


def stream(client: Client, bag: int, count: int) -> list[ResultRow]:
    """The first `count` results, in the order in which they were recorded. Between pages it
    pauses for a moment, as a person's program would: a page per commit helps nobody."""
    rows: list[ResultRow] = []
    began = time.monotonic()
    over = False
    while True:
        after = rows[-1].row if rows else -1
        query = ResultQuery(after=after, limit=PAGE, by_row=True)
        page = client.results(bag, query, WAIT_SECONDS)
        rows += page
        if len(rows) >= count:
            return rows
        if not page and over:
            raise Broken(f"bag {bag} is over with {len(rows)} of {count} results")
        over = not page and is_over(client, bag)  # if so, the last results may have come since
        if rows and len(page) < PAGE:
            each = (time.monotonic() - began) / len(rows)
            time.sleep(min(PAUSE_SECONDS, (count - len(rows)) * each / 2))


def is_over(client: Client, bag: int) -> bool:
    view = client.bag(bag)
    return view is None or view.over


def statuses(rows: list[ResultRow], count: int) -> dict[int, int]:
    """Exit status by task. Raises Broken unless every task has succeeded, once."""
    found = {row.task: row.exit_code for row in rows}
    bad = [row for row in rows if row.outcome != "ok" or row.exit_code != 0]
    if len(found) != count or len(rows) != count or bad:
        raise Broken(f"{len(found)} of {count} tasks, {len(rows)} results, {len(bad)} not ok")
    return found


def warm_up(client: Client, count: int = 20) -> None:
    """Some tasks that succeed, and one whose exit status must come back."""
    statuses(stream(client, submit(client, count, "/bin/true"), count), count)
    failed = stream(client, submit(client, 1, "sh", "-c", "exit 3"), 1)[0]
    if failed.exit_code != 3 or failed.outcome != "failed":
        raise Broken(f"'exit 3' came back as {failed.outcome}, {failed.exit_code}")
