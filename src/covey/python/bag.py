"""A bag: its progress, its results, and how to change it.

The object holds the bag's number and its last known state. Every method asks the server, or the
record, again. Waiting goes on when the server restarts. An interrupt ends the waiting, never the
bag.
"""

import math
import os
import secrets
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from covey.bagfile import empty_rows, found_rows, read_segment
from covey.client.client import Client
from covey.client.download import TEMPLATE, Pulled, pull
from covey.client.upload import Upload
from covey.core.errors import (
    BagPaused,
    CoveyError,
    InvalidBag,
    InvalidQuery,
    NotFound,
    Refused,
    StillRunning,
)
from covey.frontend import bag_places, formats
from covey.frontend.amounts import More, read_memory, read_time
from covey.frontend.failed_files import OfFailed
from covey.frontend.terminal import say
from covey.python import showing
from covey.python.keywords import Groups, Table, in_order, read_keywords
from covey.python.results import Failures, Result, Results
from covey.python.task import Tasks
from covey.wire import BagView, Estimate, ResultQuery, ResultRow

if TYPE_CHECKING:
    from covey.frontend.input_changes import RetryFiles
    from covey.python.aio import AsyncBag
    from covey.python.connection import Connection

FOLLOW_SECONDS = 5.0
BAD_REQUEST = 400
PATIENT_SHARE = 0.1  # of the time so far: at first the bag is polled more often


class Progress(NamedTuple):
    """The progress of a bag. `estimate` is the remaining time in seconds."""

    status: str  # running, paused, finished, cancelled
    total: int
    done: int
    failed: int
    running: int
    sent: int
    estimate: Estimate | None
    reason: str  # why it is paused, or why nothing runs

    @property
    def over(self) -> bool:
        return self.status not in ("running", "paused")

    @property
    def waiting(self) -> int:
        if self.over:
            return 0
        return max(0, self.total - self.done - self.failed - self.running - self.sent)

    @property
    def fraction(self) -> float:
        """The share of tasks that have ended, from 0 to 1."""
        return (self.done + self.failed) / self.total if self.total else float(self.over)


class Bag:
    """Made by `submit`, `Connection.bag` and `Connection.bags`. `known` is its last known state,
    which is `new` right after the submission."""

    def __init__(self, connection: "Connection", known: BagView, *, new: bool = False) -> None:
        self.connection = connection
        self.known = known
        self._new = new
        self._shown: showing.Shown | None = None  # by the last wait

    @property
    def id(self) -> int:
        return self.known.id

    @property
    def name(self) -> str:
        return self.known.name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bag):
            return NotImplemented
        return (self.connection.place, self.id) == (other.connection.place, other.id)

    def __hash__(self) -> int:
        return hash((self.connection.place, self.id))

    def __repr__(self) -> str:
        view = self.known
        failed = f", {view.failed:,} failed" if view.failed else ""
        state = f"{view.status}, {view.done:,} of {view.total:,} done{failed}"
        ignored = "".join(f"; values ignored: {why}" for why in view.ignored_results)
        return f"<covey.Bag {view.id} {view.name!r}: {state}{ignored}>"

    def _repr_html_(self) -> str | None:
        """For notebooks. None in a cell where `wait` already shows the progress of this bag."""
        if showing.is_of_this_cell(self._shown):
            return None
        with suppress(CoveyError):  # else show the last known state
            self.view()
        return showing.bag_html(self.known)

    @cached_property
    def aio(self) -> "AsyncBag":
        """The same methods for asyncio: `await bag.aio.wait()`."""
        from covey.python.aio import AsyncBag

        return AsyncBag(self)

    # -- progress --------------------------------------------------------------------------

    def view(self) -> BagView:
        """The present state of the bag. Raises NotFound if it was purged."""
        return self._seen(self.connection.reader().bag(self.id))

    def progress(self) -> Progress:
        view = self.view()
        return Progress(
            view.status,
            view.total,
            view.done,
            view.failed,
            view.running,
            view.sent,
            view.estimate,
            view.reason,
        )

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> "Bag":
        """Wait until the bag is over, and return it. Tasks may have failed: `failures()`.

        A terminal and a notebook show a progress bar; `progress=True` reports progress elsewhere
        too, `progress=False` never. Ctrl-C ends the waiting; the bag goes on.

        Warns (a UserWarning) of files that are not kept because no output pattern names them, and
        of a bag without any output.

        Raises StillRunning (a TimeoutError) after `timeout` seconds, BagPaused if it is paused.
        An open bag is over when it is closed and all its tasks have ended.
        """
        shown = self._shown = showing.choose(progress, self._shown)
        until = math.inf if timeout is None else time.monotonic() + timeout
        began, seen = time.monotonic(), -1
        try:
            while True:
                left = max(0.0, until - time.monotonic())
                view = self.poll(seen, min(shown.wait_seconds, left))
                shown.show(view)
                if view.over:
                    shown.close()
                    shown.end(view)
                    warn_of_lost_output(view)
                    return self
                self.check_waiting(view, timeout, time.monotonic() >= until)
                seen = view.done + view.failed
                now = time.monotonic()
                pause = min(shown.poll_seconds, PATIENT_SHARE * (now - began))
                time.sleep(max(0.0, min(pause, until - now)))
        except KeyboardInterrupt:
            shown.close()
            self._say_interrupted()
            raise
        finally:
            shown.close()

    def poll(self, seen: int = -1, wait_seconds: float = 0.0) -> BagView:
        """The state of the bag, as soon as done + failed is not `seen` or the bag is over, or after
        `wait_seconds`. A server that died is started again."""
        client = self.connection.client()
        return self._seen(client.bag(self.id, wait_seconds=wait_seconds, seen=seen))

    def check_waiting(self, view: BagView, timeout: float | None, late: bool) -> None:
        """Raises BagPaused if the bag is paused, StillRunning if the time is up (`late`)."""
        if view.status == "paused":
            reason = f": {view.reason}" if view.reason else ""
            raise BagPaused(
                view.id,
                view.reason,
                f"bag {view.id} is PAUSED{reason}. Look: bag.failures(); go on: bag.resume(); "
                "give up: bag.cancel()",
            )
        if late:
            ended = view.done + view.failed
            raise StillRunning(
                view.id,
                f"bag {view.id} is not over after {timeout:g} s: {ended:,} of {view.total:,} tasks "
                "have ended. It goes on; bag.wait() waits on, bag.cancel() stops it",
            )

    def _seen(self, view: BagView | None) -> BagView:
        if view is None:
            raise NotFound(f"bag {self.id} is gone; connection.bags() lists all bags")
        self.known = view
        return view

    def _say_interrupted(self) -> None:
        self.connection.close()  # half of an answer may have been read
        say(f"bag {self.id} keeps running; bag.wait() follows it again, bag.cancel() stops it")

    # -- results ---------------------------------------------------------------------------

    def results(
        self,
        *,
        where: str | Sequence[str] = (),
        sort: str = "",
        failed: bool = False,
        limit: int | None = None,
    ) -> Results:
        """The results so far, in the order of tasks: a sequence of records; `.frame()` for pandas.
        `where` is a test such as `"alpha >= 0.5"`, or a list of tests that all must hold. `sort`
        names a column (`"-energy"`: the largest first). Raises InvalidQuery for a wrong test or an
        unknown column."""
        tests = (where,) if isinstance(where, str) else tuple(where)
        query = ResultQuery(failed_only=failed, where=tests, sort=sort)
        source = self.connection.reader()
        with _misuse(InvalidQuery):
            rows = list(bag_places.all_results(source, self.id, query, limit=limit))
        return Results(self.view(), rows)

    def __iter__(self) -> Iterator[Result]:
        return self.follow()

    def follow(self) -> Iterator[Result]:
        """Yield results in the order in which tasks end, until the bag is over. If a task runs
        again, it is yielded again. Raises BagPaused when the bag is paused."""
        query = ResultQuery(by_row=True, limit=bag_places.PAGE)
        try:
            while True:
                view, page = self.next_page(query)
                yield from Results(view, page)
                if page:
                    query = query.behind(page)
                elif view.over:
                    return
                else:
                    self.check_waiting(view, None, False)
        except KeyboardInterrupt:
            self._say_interrupted()
            raise

    def next_page(
        self, query: ResultQuery, wait_seconds: float = FOLLOW_SECONDS
    ) -> tuple[BagView, Sequence[ResultRow]]:
        """The state of the bag, and the results after the query's place. Waits for results, unless
        none can come. Right after the submission its answer is the state."""
        view = self.known if self._new else self.poll()
        self._new = False
        ends = view.over or view.status == "paused"
        client = self.connection.client()
        return view, client.results(self.id, query, 0.0 if ends else wait_seconds)

    def failures(self, limit: int = 100) -> Failures:
        """Why tasks failed: one group for each cause, the largest group first."""
        view = self.view()
        groups = self.connection.reader().failures(self.id, limit) if view.failed else []
        return Failures(view, groups)

    @property
    def tasks(self) -> Tasks:
        return Tasks(self)

    def pull(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        layout: str = TEMPLATE,
        failed: bool = False,
    ) -> Pulled:
        """Get the files that tasks returned so far into `folder` (default: `bag-3` for bag 3). Each
        task has a folder there, named by `layout`, such as `"{alpha}/{seed}"`. Files that exist
        already are not changed. With `failed`, get only the files of failed tasks."""
        client = self.connection.client()
        source = OfFailed(client, self.view()) if failed else client
        return pull(source, self.id, Path(folder or f"bag-{self.id}"), layout)

    # -- changes -----------------------------------------------------------------------------

    def retry(
        self,
        *,
        causes: str | Iterable[str] = (),
        tasks: Iterable[int] | None = None,
        memory: str | float = 1.0,
        time: str | float = 1.0,
        done: bool = False,
        refresh: bool = False,
    ) -> int:
        """Run failed tasks again: all, or those with some `causes` (the first words are enough), or
        some `tasks`. `memory` and `time` give them more (`"x2"`, `"+50%"` or 1.5), or an amount
        (`"2GB"`, `"90m"`). With `done`, tasks that are done run again, too, and their new results
        replace the old ones. Returns the number of tasks that run again.

        Tasks get the input files as they were sent with the bag. A UserWarning says if some have
        changed here since. With `refresh`, the changed files are sent; these tasks, and all that
        start later, run with them. Raises BadFile if there is nothing to send.
        """
        named = (causes,) if isinstance(causes, str) else tuple(causes)
        more_memory, more_time = _more("memory", memory), _more("time", time)
        chosen = None if tasks is None else [int(task) for task in tasks]
        client = self.connection.client()
        files = self._files(client, refresh)
        with _misuse(InvalidQuery):
            count = client.retry(
                self.id,
                causes=named,
                tasks=chosen,
                memory=more_memory.times,
                time=more_time.times,
                memory_mb=int(more_memory.amount),
                limit_seconds=more_time.amount,
                done=done,
                changes=files.send() if files is not None else None,
            )
        if files is not None and count:
            for note in files.notes("bag.retry(refresh=True)"):
                warnings.warn(note, stacklevel=2)
        return count

    def _files(self, client: Client, refresh: bool) -> "RetryFiles | None":
        """The input files of tasks that run again; None if no task has ended."""
        view = self.view()
        if not (view.failed or view.done):
            return None
        from covey.frontend.input_changes import RetryFiles

        return RetryFiles(client, view, self.connection.is_remote, refresh)

    def cancel(self) -> int:
        """Stop the bag for good; results stay. Returns how many tasks were stopped or will not
        run."""
        return 0 if self.view().over else self.connection.client().cancel(self.id)

    def pause(self, reason: str = "") -> None:
        """Start no more tasks of the bag for now. Tasks that are running may finish."""
        if self.view().status == "running":
            self.connection.client().pause(self.id, reason)

    def resume(self) -> None:
        """Continue the bag if it is paused."""
        if self.view().status == "paused":
            self.connection.client().resume(self.id)

    def append(
        self,
        parameters: Table | None = None,
        *,
        zip: Groups | None = None,
        rows: object = None,
    ) -> int:
        """Add tasks to an open bag, with the same parameters as its first tasks. Returns how many
        tasks the bag has now. Raises InvalidBag."""
        keywords = {"parameters": parameters, "zip": zip, "rows": rows}
        sheet = read_keywords(in_order(keywords, self.known.names), None, "append()")
        if not sheet.tree:
            raise InvalidBag("append(): say which tasks: parameters={…} or rows=…")
        segment, file = read_segment(sheet)
        client = self.connection.client()
        if file is not None:
            upload = Upload(client)
            blob = upload.add(Path(found_rows(file.path).path))
            upload.send()
            segment = msgspec.structs.replace(segment, rows=empty_rows(blob, file.form))
        with _misuse(InvalidBag):
            return client.append(self.id, segment, secrets.token_hex(16)).total

    def close(self) -> None:
        """Close an open bag: no more tasks will follow, so the bag can finish."""
        self.connection.client().close_bag(self.id)


@contextmanager
def _misuse(kind: type[CoveyError]) -> Iterator[None]:
    """Raise `kind` if the server refuses a request as wrong."""
    try:
        yield
    except Refused as error:
        if error.status != BAD_REQUEST:
            raise
        raise kind(str(error)) from None


def warn_of_lost_output(view: BagView) -> None:
    """Warn of files that are not kept. The warning names the line of the caller's caller."""
    for line in formats.output_warnings(view):
        warnings.warn(f"bag {view.id}: {line}", stacklevel=3)


def _more(name: str, value: str | float) -> More:
    if not isinstance(value, str):
        return More(float(value))
    try:
        return read_memory(value) if name == "memory" else read_time(value)
    except ValueError:
        amount = "2GB" if name == "memory" else "2h"
        expected = f"expected how much more: 'x2' or '+50%', or an amount such as '{amount}'"
        raise InvalidQuery(f"{name}: {expected}; not {value!r}") from None
