"""Calls on their way to one bag, and their values on the way back.

    submit ──▶ waiting ──(sender)──▶ out ──(receiver)──▶ future
                                           └─(fetcher)──▶ future, of a large value

The sender opens the bag, then appends what waits: at once if it was idle, else a few milliseconds
later, so that many calls are one request. No more calls are out than keep the slots busy for a
while: a call that waits here can be cancelled for good, one that is out is running. The numbers of
tasks are ours to tell before a request is answered, since nobody else appends to our bag.

A large call travels as a file: its bytes wait in the `Stock`, and are uploaded before the batch is
appended, so that batches with large calls have few. Not too many bytes are out, either: the server
and its pilots keep them on disk.

Each thread has a line of its own to the server. They hold on to the lane, never to the executor:
one that is forgotten ends when its calls have.
"""

import contextlib
import logging
import os
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from covey.client.client import Client
from covey.client.upload import Upload
from covey.core.errors import CoveyError, ServerAway, ServerStopped
from covey.core.record.model import BagSpec, Blob, Placed, Segment
from covey.core.values.space import Axis, Values
from covey.executor import answers, program
from covey.executor.answers import CallRow, Origin
from covey.executor.packing import Large, Small
from covey.executor.stock import Dropped, Stock
from covey.executor.unpacking import OBJECTS
from covey.frontend.terminal import say
from covey.pilot.calls.call_records import CALL
from covey.wire import BagView, ResultQuery, ResultRow

PACE_SECONDS = 0.005
EACH_SECONDS, MOST_PACE_SECONDS = 2e-5, 0.02  # between questions for results
MOST_BATCH = 1000
MOST_BATCH_CHARACTERS = 4 << 20
UPLOAD_SHIFT = 4  # so many bits more may be uploaded for a batch than it has itself
PAGE = 5000
WAIT_SECONDS = 10.0
PATIENCE_SECONDS = 300.0
FEW = 16  # calls that are out while nothing is known about them
MOST_OUT = 20_000
MOST_OUT_BYTES = 1 << 30  # of large calls that are out, unless they are few
AHEAD_SECONDS = 1.0  # of work that is out
SHORTEST_SECONDS = 2e-5
LOOK_SECONDS = 2.0  # between looks at how many slots there are
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.5, 10.0  # before a value is asked for again
MOST_NAME = 100  # characters
FORGOTTEN_SECONDS = 5.0  # between looks whether we are, when nobody tells

LOGGER = logging.getLogger("concurrent.futures")  # which tells of other callbacks


class Connecting(Protocol):
    """What `covey.connect` makes."""

    def client(self) -> Client:
        """The calling thread's own."""
        ...


class Opening(Protocol):
    """What bag to open when the first call is sent."""

    prepares: bool  # workers run an initializer

    def spec(self) -> BagSpec: ...

    def program(self) -> bytes:
        """The file that is the worker."""
        ...

    def warning(self) -> str:
        """What people should know; empty if there is nothing. Asked once in a while."""
        ...


class Waiting(NamedTuple):
    future: CallRow
    call: str
    file: Blob | None = None  # that holds the call


class Lane:
    def __init__(
        self,
        connect: Callable[[], Connecting],
        opening: Opening,
        most: int | None = None,
        trust: str = OBJECTS,
    ) -> None:
        """`opening` says what bag to open, and what its workers are; `most` calls may be out;
        `trust` says which values are unpickled."""
        self._connect = connect
        self._opening = opening
        self._most = most
        self._trust = trust
        self._process = os.getpid()
        self._news = threading.Condition(threading.Lock())
        self._waiting: deque[Waiting] = deque()
        self._out: dict[int, CallRow] = {}
        self._stock = Stock()
        self._heavy: dict[int, int] = {}  # large calls that are out -> their bytes
        self.latest_bytes = 0  # of the large call that was submitted last
        self._sent = 0  # calls, so the number of the next
        self._durable = 0  # calls that the server has
        self._closing = False
        self._threads: list[threading.Thread] = []
        self._large: queue.SimpleQueue[tuple[ResultRow, CallRow] | None] = queue.SimpleQueue()
        self._slots = 0
        self._seconds = -1.0  # that a call took lately; not known yet
        self._answered = 0  # calls
        self._heard = 0.0  # when some were, or one went out that was alone
        self._looked = 0.0
        self._said: set[str] = set()  # why nothing came
        self.origin = Origin()
        self._new_call = CallRow.kind_of(self.origin)
        self.broken: BaseException | None = None

    @property
    def bag(self) -> int:
        """The number of its bag; 0 until it is opened."""
        return self.origin.bag

    def counts(self) -> tuple[int, int, int]:
        """Calls that are done, that are with the server, and that wait here."""
        out = len(self._out)
        return self._sent - out, out, len(self._waiting)

    # -- for those who submit ----------------------------------------------------------------

    def submit(self, call: Small | Large, function: Any = None) -> "Future[Any]":
        """The bag is named by the first `function`, if it has no other name. Raises RuntimeError
        when it is closed, BrokenExecutor when it is broken; OSError when a large call finds no
        place to wait."""
        if os.getpid() != self._process:
            raise RuntimeError("this executor belongs to the process that made it: make one here")
        if isinstance(call, Small):
            return self._submit(call, None, function)
        file = self._stock.put(call)
        self.latest_bytes = file.size
        try:
            return self._submit(call, file, function)
        except BaseException:
            self._stock.drop(file)
            raise

    def _submit(self, call: Small | Large, file: Blob | None, function: Any) -> "Future[Any]":
        future = self._new_call()
        future.key = call.key
        with self._news:
            if self.broken is not None:
                raise _broken(self.broken)
            if self._closing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append(Waiting(future, call.text, file))
            if not self._threads:
                self.origin.name = name_of(function)
                self._start(self._send)
                self._start(self._receive)
            elif len(self._waiting) == 1:
                self._news.notify_all()
        return future

    def close(self, *, cancel: bool = False) -> None:
        """No more calls; those that wait are done, or cancelled, unless they were to go next."""
        if os.getpid() != self._process:
            return
        dropped: list[Waiting] = []
        with self._news:
            self._closing = True
            if cancel:
                while len(self._waiting) > max(0, self._room()):
                    dropped.append(self._waiting.pop())
            self._news.notify_all()
        for one in dropped:
            self._forget(one)
            with _unharmed(one.future):
                one.future.cancel()
            one.future.set_running_or_notify_cancel()

    def forgotten(self) -> None:
        """Nobody can submit any more. For finalizers, which run anywhere, even in the middle of
        what is done here: so nothing is waited for, and who is not told sees it himself."""
        if os.getpid() == self._process:
            self._closing = True
            if self._news.acquire(blocking=False):
                self._news.notify_all()
                self._news.release()

    def abort(self) -> None:
        """Nothing is wanted any more, not even what runs."""
        if os.getpid() == self._process:
            self._break(CancelledError("the executor was aborted"))

    def join(self, seconds: float | None = None) -> None:
        """Wait until all is done, for each thread so long."""
        if os.getpid() == self._process:
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(seconds)

    def _start(self, work: Callable[[Client], None]) -> None:
        """A thread, unless it runs. The exit of the interpreter waits for it in its own way."""
        name = f"covey-executor{work.__name__}"
        if all(thread.name != name for thread in self._threads):
            thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, work: Callable[[Client], None]) -> None:
        client: Client | None = None
        try:
            client = self._connect().client()
            client.connection.patience_seconds = PATIENCE_SECONDS
            work(client)
        except BaseException as error:
            self._break(error)
        finally:
            if client is not None:
                client.close()

    def _break(self, error: BaseException) -> None:
        """Nothing will come any more. A future is settled by whoever takes it out of our tables."""
        with self._news:
            if self.broken is None:
                self.broken = error
            futures = [one.future for one in self._waiting] + list(self._out.values())
            self._waiting.clear()
            self._out.clear()
            self._closing = True
            self._large.put(None)
            self._news.notify_all()
        self._stock.clear()
        for future in futures:
            if future.running() or future.set_running_or_notify_cancel():
                with _unharmed(future):
                    future.set_exception(_broken(error))

    @property
    def began(self) -> bool:
        """Whether a call was submitted."""
        return bool(self._threads)

    @property
    def over(self) -> bool:
        return self._closing and not self._waiting and not self._out

    # -- the sender --------------------------------------------------------------------------

    def _send(self, client: Client) -> None:
        while batch := self._next_batch():
            if not self.bag:
                self._open(client)
            files = [one.file for one in batch if one.file is not None]
            try:
                if files:
                    self._stock.send(client, files)
            except Dropped:  # we were aborted
                break
            values = Values(tuple(one.call for one in batch))
            found = client.append(self.bag, Segment(space=Axis(CALL, values)))
            if found.total != self._sent:
                raise CoveyError(
                    f"somebody else has appended tasks to bag {self.bag}, which "
                    f"belongs to an executor"
                )
            del batch, values, files
            with self._news:
                self._durable = found.total
                self._news.notify_all()
            time.sleep(PACE_SECONDS if self._waiting else 0.0)
        if not self.bag:
            return
        if self.broken is None:
            client.close_bag(self.bag)
        else:
            client.connection.patience_seconds = 1.0
            client.cancel(self.bag)

    def _open(self, client: Client) -> None:
        spec = self._opening.spec()
        upload = Upload(client)
        blob = upload.add(self._opening.program())
        upload.send()
        placed = Placed(path=program.NAME, blob=blob)
        key = secrets.token_hex(16)
        name = spec.name or self.origin.name or "executor"
        spec = replace(spec, name=name, inputs=(placed,), key=key, space=Axis(CALL, Values(())))
        bag = client.submit(spec).bag
        self._look(client)
        with self._news:
            self.origin.bag = bag
            self._news.notify_all()

    def _next_batch(self) -> list[Waiting]:
        """What is to be sent now; nothing when there will be nothing more."""
        batch: list[Waiting] = []
        with self._news:
            while not batch and not self.over:
                if not self._waiting or self._room() <= 0:
                    self._news.wait(FORGOTTEN_SECONDS)
                    continue
                size, room = 0, min(self._room(), MOST_BATCH)
                while self._waiting and len(batch) < room and size < MOST_BATCH_CHARACTERS:
                    one = self._waiting.popleft()
                    if not one.future.set_running_or_notify_cancel():
                        self._forget(one)
                        continue
                    batch.append(one)
                    size += len(one.call)
                    if one.file is not None:
                        size += one.file.size >> UPLOAD_SHIFT
            if batch and not self._out:
                self._heard = time.monotonic()
            for one in batch:
                self._out[self._sent] = one.future
                one.future.task = self._sent
                if one.file is not None:
                    self._heavy[self._sent] = one.file.size
                self._sent += 1
            self._news.notify_all()
        return batch

    def _forget(self, one: Waiting) -> None:
        """It will not be sent."""
        if one.file is not None:
            self._stock.drop(one.file)

    def _room(self) -> int:
        most = self._most or self._ahead()
        if self._heavy and sum(self._heavy.values()) >= MOST_OUT_BYTES:
            most = min(most, max(FEW, 2 * self._slots))
        return most - len(self._out)

    def _ahead(self) -> int:
        """How many may be out. Calls that took little say little about those to come: so there are
        few more than have been answered, and only a few when nothing has come for a while."""
        few = max(FEW, 2 * self._slots)
        if self._seconds < 0:
            return few
        silent = time.monotonic() - self._heard if self._out else 0.0
        busy = self._slots * AHEAD_SECONDS / max(self._seconds, silent, SHORTEST_SECONDS)
        return max(few, min(int(busy), 2 * self._answered, MOST_OUT))

    def _look(self, client: Client) -> None:
        self._slots = max(1, client.server().slots)
        self._tell(self._opening.warning())
        self._looked = time.monotonic()

    def _tell(self, words: str) -> None:
        """Once."""
        if words and words not in self._said:
            self._said.add(words)
            say(words)

    # -- the receiver ------------------------------------------------------------------------

    def _receive(self, client: Client) -> None:
        row = -1
        while self._is_awaited():
            query = ResultQuery(by_row=True, after=row, limit=PAGE, brief=True)
            rows = client.results(self.bag, query, WAIT_SECONDS)
            if rows:
                row = rows[-1].row
                self._take(rows)
                del rows
                if time.monotonic() - self._looked > LOOK_SECONDS:
                    self._look(client)
                if len(self._out) > FEW:  # the more there are, the less each of them is awaited
                    time.sleep(min(len(self._out) * EACH_SECONDS, MOST_PACE_SECONDS))
            else:
                self._check_bag(client, query)
        self._large.put(None)

    def _is_awaited(self) -> bool:
        """Nobody asks for results before there can be any: it would only hold up the calls."""
        with self._news:
            while not (self._out and next(iter(self._out)) < self._durable) and not self.over:
                self._news.wait(FORGOTTEN_SECONDS)
            return not self.over

    def _take(self, rows: list[ResultRow]) -> None:
        seconds = sum(row.wall_seconds for row in rows) / len(rows)
        self._seconds = seconds if self._seconds < 0 else (self._seconds + seconds) / 2
        self._answered += len(rows)
        self._heard = time.monotonic()
        with self._news:
            # One with a file is out until its value is here; one that is not out has a second
            # result, a success that came after a failure.
            large = [(row, self._out.get(row.task)) for row in rows if row.files]
            small = [(row, self._out.pop(row.task, None)) for row in rows if not row.files]
            if self._heavy:
                for row in rows:
                    self._heavy.pop(row.task, None)
            self._news.notify_all()
        small.reverse()
        while small:
            row, future = small.pop()
            if future is not None:
                self._settle(row, future, None)
        for row, future in large:
            if future is not None:
                self._large.put((row, future))
                self._start(self._fetch)

    def _settle(self, row: ResultRow, future: CallRow, data: bytes | None) -> None:
        bag, prepares = self.origin.bag, self._opening.prepares
        try:
            answers.settle(future, row, bag, data, future.key, self._trust, prepares)
        except answers.Broken as broken:
            self._break(broken.error)
        except BaseException as error:  # whatever came: nobody is to wait for it for ever
            with _unharmed(future):
                if future.done():
                    raise
                words = f"its answer cannot be understood: {type(error).__name__}: {error}"
                future.set_exception(answers.failed(row, self.bag, words))

    def _check_bag(self, client: Client, query: ResultQuery) -> None:
        """Somebody else may have cancelled or purged it: then nothing will come. If there is a
        reason why nothing comes, people should know."""
        view = client.bag(self.bag)
        if view is None or (view.over and not client.results(self.bag, query, 0.0)):
            status = "gone" if view is None else view.status
            raise CoveyError(f"bag {self.bag} of this executor is {status}")
        self._tell(_hindrance(client, view))

    # -- the fetcher -------------------------------------------------------------------------

    def _fetch(self, client: Client) -> None:
        while True:
            given = self._large.get()
            if given is None:
                if self.over:
                    return
                continue
            row, future = given
            del given
            data, lost = None, None
            try:
                data = self._fetched(client, row)
            except ServerStopped:
                raise
            except CoveyError as error:
                lost = answers.failed(row, self.bag, str(error))
            with self._news:
                if self._out.pop(row.task, None) is None:
                    continue  # we are broken
                self._news.notify_all()
            if lost is None:
                self._settle(row, future, data)
            else:
                with _unharmed(future):
                    future.set_exception(lost)
            del data, future

    def _fetched(self, client: Client, row: ResultRow) -> bytes | None:
        """The value is durable: it is asked for until it comes. None if we are broken; so we are
        when the server is away for too long, whoever notices it first."""
        pause = FIRST_PAUSE_SECONDS
        while self.broken is None:
            try:
                return answers.fetched(client, self.bag, row)
            except ServerStopped:
                raise
            except ServerAway as error:
                words = f"the value of a call has not come yet, and is asked for again: {error}"
                self._tell(words)
            with self._news:
                self._news.wait_for(lambda: self.broken is not None, pause)
            pause = min(2 * pause, MOST_PAUSE_SECONDS)
        return None


def name_of(function: Any) -> str:
    """By which people know a function; empty if it has no name."""
    function = getattr(function, "func", function)  # of a partial
    name = getattr(function, "__qualname__", "") or type(function).__qualname__
    name = name.rpartition("<locals>.")[2] if isinstance(name, str) else ""
    return name[:MOST_NAME] if name.isprintable() else ""


def _hindrance(client: Client, view: BagView) -> str:
    """Why its calls wait, if that will not end by itself."""
    if view.status == "paused":
        why = f" ({view.reason})" if view.reason else ""
        return f"bag {view.id}, of an executor, is paused{why}; go on with: covey resume {view.id}"
    why = view.reason
    if (
        not why and not view.running and not view.sent
    ):  # pilots may be on their way, or nobody can get one
        answer = client.explain(view.id).answer
        reasons = answer.reasons if answer is not None else []
        why = next((one.text for one in reasons if one.kind == "no site"), "")
    return f"bag {view.id}, of an executor, waits: {why}" if why else ""


@contextlib.contextmanager
def _unharmed(future: "Future[Any]") -> Iterator[None]:
    """While its callbacks are called. Exceptions are seen to by the future; what is none, such as
    a `sys.exit`, must end neither our threads nor the news for others."""
    try:
        yield
    except BaseException:
        LOGGER.exception("exception calling callback for %r", future)


def _broken(error: BaseException) -> BaseException:
    if isinstance(error, BrokenExecutor | CancelledError):
        return error
    stopped = isinstance(error, ServerStopped)
    words = "the server was stopped; make a new Executor" if stopped else error
    found = BrokenExecutor(f"this executor has stopped working: {words}")
    found.__cause__ = error
    return found
