"""A bag in a person's hands: what it is, how far it is, what came of it, what to do about it.

The object holds the number and what was known last; every question is asked anew. Waiting outlives
a restart of the server, and an interrupt ends the waiting, never the bag.
"""

import math
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from covey.bagfile import empty_rows, found_rows, read_segment
from covey.bagfile.kinds import Growth, Wrong
from covey.bagfile.sheet import Sheet
from covey.cli import places
from covey.cli.base import say
from covey.cli.pull import OfFailed
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
from covey.python import showing
from covey.python.keywords import Groups, Table, in_order, read_keywords
from covey.python.results import Failures, Result, Results
from covey.python.task import Tasks
from covey.wire import BagView, Estimate, ResultQuery, ResultRow

if TYPE_CHECKING:
    from covey.python.aio import AsyncBag
    from covey.python.connection import Connection

FOLLOW_SECONDS = 5.0
BAD_REQUEST = 400
PATIENT_SHARE = 0.1  # of the time waited so far: a short bag is looked at more often


class Progress(NamedTuple):
    """How far a bag is. `estimate` says when it will be over, in seconds from now."""

    status: str  # running, paused, finished, cancelled
    total: int
    done: int
    failed: int
    running: int
    estimate: Estimate | None
    reason: str  # why it is paused, or why nothing runs

    @property
    def over(self) -> bool:
        return self.status not in ("running", "paused")

    @property
    def waiting(self) -> int:
        return 0 if self.over else max(0, self.total - self.done - self.failed - self.running)

    @property
    def fraction(self) -> float:
        """Of the tasks, how many have ended: 0 to 1."""
        return (self.done + self.failed) / self.total if self.total else float(self.over)


class Bag:
    """Made by `submit`, `Connection.bag` and `Connection.bags`. `known` is how it was seen last."""

    def __init__(self, connection: "Connection", known: BagView) -> None:
        self.connection = connection
        self.known = known

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
        told = f"{view.status}, {view.done:,} of {view.total:,} done{failed}"
        return f"<covey.Bag {view.id} {view.name!r}: {told}>"

    def _repr_html_(self) -> str:
        with suppress(CoveyError):  # then as it was seen last
            self.view()
        return showing.bag_html(self.known)

    @cached_property
    def aio(self) -> "AsyncBag":
        """The same, to be awaited: `await bag.aio.wait()`."""
        from covey.python.aio import AsyncBag

        return AsyncBag(self)

    # -- how far it is ---------------------------------------------------------------------

    def view(self) -> BagView:
        """All that there is to know about it now. Raises NotFound if it was purged."""
        return self._seen(self.connection.reader().bag(self.id))

    def progress(self) -> Progress:
        view = self.view()
        return Progress(
            view.status,
            view.total,
            view.done,
            view.failed,
            view.running,
            view.estimate,
            view.reason,
        )

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> "Bag":
        """Wait until the bag is over, and return it. Tasks may have failed: `failures()`.

        A bar shows how far it is, in a terminal and in a notebook; `progress=True` says it
        elsewhere too, `progress=False` never. Ctrl-C ends the waiting; the bag goes on.

        Raises StillRunning (a TimeoutError) after `timeout` seconds, BagPaused if it is paused.
        An open bag is over when it is closed and all its tasks have ended.
        """
        shown = showing.choose(progress)
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
        """How the bag is, as soon as done + failed is not `seen`, or it is over, or after so
        long. A server that died is started again."""
        client = self.connection.client()
        return self._seen(client.bag(self.id, wait_seconds=wait_seconds, seen=seen))

    def check_waiting(self, view: BagView, timeout: float | None, late: bool) -> None:
        """Raises if there is no use in waiting on."""
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
            raise NotFound(f"bag {self.id} is gone; connection.bags() lists what there is")
        self.known = view
        return view

    def _say_interrupted(self) -> None:
        self.connection.close()  # an answer may be half read
        say(
            f"bag {self.id} goes on without you; bag.wait() follows it again, bag.cancel() stops it"
        )

    # -- what came of it -------------------------------------------------------------------

    def results(
        self,
        *,
        where: str | Sequence[str] = (),
        sort: str = "",
        failed: bool = False,
        limit: int | None = None,
    ) -> Results:
        """What has ended so far, in the order of tasks: a sequence of records; `.frame()` for
        pandas. `where` is a test such as `"alpha >= 0.5"`, or several that all must hold, in a
        list; `sort` names a column (`"-energy"`: the largest first). Raises InvalidQuery for a
        question that makes no sense."""
        tests = (where,) if isinstance(where, str) else tuple(where)
        query = ResultQuery(failed_only=failed, where=tests, sort=sort)
        source = self.connection.reader()
        with _misuse(InvalidQuery):
            rows = list(places.all_results(source, self.id, query, limit=limit))
        return Results(self.view(), rows)

    def __iter__(self) -> Iterator[Result]:
        return self.follow()

    def follow(self) -> Iterator[Result]:
        """Results as they come, in the order in which tasks end, until the bag is over. A failed
        task that runs again comes again. Raises BagPaused when nothing more comes."""
        query = ResultQuery(by_row=True, limit=places.PAGE)
        try:
            while True:
                view, page = self.next_page(query)
                yield from Results(view, page)
                if page:
                    query = places.after_page(query, page)
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
        """The bag before, and the results behind the query's place; they are waited for, unless
        none can come."""
        view = self.poll()
        ends = view.over or view.status == "paused"
        client = self.connection.client()
        return view, client.results(self.id, query, 0.0 if ends else wait_seconds)

    def failures(self, limit: int = 100) -> Failures:
        """Why tasks failed: those that failed in the same way together, the most first."""
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
        """Get the files that tasks returned so far, into `folder` (`bag-3`, say), each task's
        in a folder of its own; `layout` names it, such as `"{alpha}/{seed}"`. What is there
        already is left alone. `failed`: only those of failed tasks."""
        client = self.connection.client()
        source = OfFailed(client, self.view()) if failed else client
        return pull(source, self.id, Path(folder or f"bag-{self.id}"), layout)

    # -- what to do about it -----------------------------------------------------------------

    def retry(
        self,
        *,
        causes: str | Iterable[str] = (),
        tasks: Iterable[int] | None = None,
        memory: str | float = 1.0,
        time: str | float = 1.0,
    ) -> int:
        """Run failed tasks again, all of them or those of some `causes` (their beginning is
        enough) or `tasks`; with more memory or time: `"x2"`, `"+50%"` or 1.5. How many."""
        named = (causes,) if isinstance(causes, str) else tuple(causes)
        more = _factor("memory", memory), _factor("time", time)
        chosen = None if tasks is None else [int(task) for task in tasks]
        return self.connection.client().retry(
            self.id, causes=named, tasks=chosen, memory=more[0], time=more[1]
        )

    def cancel(self) -> int:
        """Stop it for good. How many tasks were stopped, or will not run; results stay."""
        return 0 if self.view().over else self.connection.client().cancel(self.id)

    def pause(self, reason: str = "") -> None:
        """Start no more of its tasks for now; those that run come to their end."""
        if self.view().status == "running":
            self.connection.client().pause(self.id, reason)

    def resume(self) -> None:
        """Go on, if it is paused."""
        if self.view().status == "paused":
            self.connection.client().resume(self.id)

    def append(
        self,
        parameters: Table | None = None,
        *,
        zip: Groups | None = None,
        rows: object = None,
    ) -> int:
        """More tasks for an open bag, with the parameters that its first ones have; how many it
        has now. Raises InvalidBag."""
        given = {"parameters": parameters, "zip": zip, "rows": rows}
        sheet = read_keywords(in_order(given, self.known.names), None, "append()")
        if not sheet.tree:
            raise InvalidBag("append(): say which tasks: parameters={…} or rows=…")
        segment, file = read_segment(sheet)
        client = self.connection.client()
        if file is not None:
            sending = Upload(client)
            blob = sending.add(Path(found_rows(file.path).path))
            sending.send()
            segment = msgspec.structs.replace(segment, rows=empty_rows(blob, file.form))
        with _misuse(InvalidBag):
            return client.append(self.id, segment, secrets.token_hex(16)).total

    def close(self) -> None:
        """No more tasks will follow, so that an open bag can finish."""
        self.connection.client().close_bag(self.id)


@contextmanager
def _misuse(kind: type[CoveyError]) -> Iterator[None]:
    """What the server finds wrong with a question is of the kind that we would raise."""
    try:
        yield
    except Refused as error:
        if error.status != BAD_REQUEST:
            raise
        raise kind(str(error)) from None


def _factor(name: str, asked: str | float) -> float:
    if not isinstance(asked, str):
        return float(asked)
    try:
        return Growth().read(Sheet(), (), asked)
    except Wrong as error:
        raise InvalidQuery(f"{name}: {error}") from None
