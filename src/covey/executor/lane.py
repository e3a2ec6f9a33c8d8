"""The calls of one bag on their way to the server, and their values on the way back.

    submit ──▶ waiting ──(sender)──▶ out ──(receiver)──▶ future
                                           └─(fetcher)──▶ future, of a large value

The sender opens the bag, then appends the waiting calls: at once if it was idle, else a few
milliseconds later, so that one request has many calls. No more calls are out than keep the slots
busy for a while: a call that waits here can really be cancelled, one that is out counts as running.
The lane knows the numbers of tasks before a request is answered: only it appends to its bag.

A large call is sent as a file: its bytes wait in the `Stock`, and are uploaded before the batch is
appended, so batches with large calls are short. The bytes that are out are limited, too: the server
and its pilots keep them on disk.

Each thread has its own connection to the server. The threads refer to the lane, never to the
executor: if an executor is forgotten, its lane ends when its calls are done.
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
UPLOAD_SHIFT = 4  # 16 uploaded bytes count as one character of a batch
PAGE = 5000
WAIT_SECONDS = 10.0
PATIENCE_SECONDS = 300.0
FEW = 16  # calls that may be out before anything is known about them
MOST_OUT = 20_000
MOST_OUT_BYTES = 1 << 30  # in large calls that are out, unless these are few
AHEAD_SECONDS = 1.0  # how much work may be out
SHORTEST_SECONDS = 2e-5
LOOK_SECONDS = 2.0  # between questions how many slots there are
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.5, 10.0  # before a value is asked for again
MOST_NAME = 100  # characters
FORGOTTEN_SECONDS = 5.0  # between checks whether the executor was forgotten

LOGGER = logging.getLogger("concurrent.futures")  # logs errors of other callbacks, too


class Connecting(Protocol):
    """The result of `covey.connect`."""

    def client(self) -> Client:
        """The calling thread's own client."""
        ...


class Opening(Protocol):
    """The bag to open when the first call is sent."""

    prepares: bool  # workers run an initializer

    def spec(self) -> BagSpec: ...

    def program(self) -> bytes:
        """The worker's program file."""
        ...

    def warning(self) -> str:
        """A message for people; empty if there is none. Called once in a while."""
        ...


class Waiting(NamedTuple):
    future: CallRow
    call: str
    file: Blob | None = None  # has the call, if it is large


class Lane:
    def __init__(
        self,
        connect: Callable[[], Connecting],
        opening: Opening,
        most: int | None = None,
        trust: str = OBJECTS,
    ) -> None:
        """`opening` says which bag to open, and what its workers are; up to `most` calls may be
        out; `trust` says which values are unpickled."""
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
        self._sent = 0  # calls; also the number of the next one
        self._durable = 0  # calls that the server has recorded
        self._closing = False
        self._threads: list[threading.Thread] = []
        self._large: queue.SimpleQueue[tuple[ResultRow, CallRow] | None] = queue.SimpleQueue()
        self._slots = 0
        self._seconds = -1.0  # recent duration of a call; negative: not known yet
        self._answered = 0  # calls
        self._heard = 0.0  # when results last came, or the first call went out
        self._looked = 0.0
        self._shown: set[str] = set()  # messages that people have seen
        self.origin = Origin()
        self._new_call = CallRow.kind_of(self.origin)
        self.broken: BaseException | None = None

    @property
    def bag(self) -> int:
        """The number of its bag; 0 until it is opened."""
        return self.origin.bag

    def counts(self) -> tuple[int, int, int]:
        """How many calls are done, are with the server, and wait here."""
        out = len(self._out)
        return self._sent - out, out, len(self._waiting)

    # -- for threads that submit -------------------------------------------------------------

    def submit(self, call: Small | Large, function: Any = None) -> "Future[Any]":
        """The bag gets the name of the first `function`, unless it has a name. Raises RuntimeError
        if the lane is closed, BrokenExecutor if it is broken; OSError if there is no space for a
        large call to wait."""
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
        """Accept no more calls. Those that wait are done, or cancelled, except the next ones."""
        if os.getpid() != self._process:
            return
        dropped: list[Waiting] = []
        with self._news:
            self._closing = True
            if cancel:
                while len(self._waiting) > max(0, self._room()):
                    dropped.append(self._waiting.pop())
            self._news.notify_all()
        for waiting in dropped:
            self._forget(waiting)
            with _unharmed(waiting.future):
                waiting.future.cancel()
            waiting.future.set_running_or_notify_cancel()

    def forgotten(self) -> None:
        """Nobody can submit any more. It is called by finalizers, which run anywhere, even in the
        middle of the code here. So it waits for nothing; threads that are not notified notice it
        themselves."""
        if os.getpid() == self._process:
            self._closing = True
            if self._news.acquire(blocking=False):
                self._news.notify_all()
                self._news.release()

    def abort(self) -> None:
        """Give up everything, even running calls."""
        if os.getpid() == self._process:
            self._break(CancelledError("the executor was aborted"))

    def join(self, seconds: float | None = None) -> None:
        """Wait until all is done, for each thread at most `seconds`."""
        if os.getpid() == self._process:
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(seconds)

    def _start(self, work: Callable[[Client], None]) -> None:
        """Start a thread for this work, unless there is one. The interpreter's exit waits for it in
        its own way."""
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
        """Nothing will come any more. Whoever takes a future out of the tables settles it."""
        with self._news:
            if self.broken is None:
                self.broken = error
            futures = [waiting.future for waiting in self._waiting] + list(self._out.values())
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
            files = [waiting.file for waiting in batch if waiting.file is not None]
            try:
                if files:
                    self._stock.send(client, files)
            except Dropped:  # the lane was aborted
                break
            values = Values(tuple(waiting.call for waiting in batch))
            view = client.append(self.bag, Segment(space=Axis(CALL, values)))
            if view.total != self._sent:
                raise CoveyError(
                    f"somebody else has appended tasks to bag {self.bag}, which "
                    f"belongs to an executor"
                )
            del batch, values, files
            with self._news:
                self._durable = view.total
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
        """The calls to be sent now; empty if there will be no more."""
        batch: list[Waiting] = []
        with self._news:
            while not batch and not self.over:
                if not self._waiting or self._room() <= 0:
                    self._news.wait(FORGOTTEN_SECONDS)
                    continue
                size, room = 0, min(self._room(), MOST_BATCH)
                while self._waiting and len(batch) < room and size < MOST_BATCH_CHARACTERS:
                    waiting = self._waiting.popleft()
                    if not waiting.future.set_running_or_notify_cancel():
                        self._forget(waiting)
                        continue
                    batch.append(waiting)
                    size += len(waiting.call)
                    if waiting.file is not None:
                        size += waiting.file.size >> UPLOAD_SHIFT
            if batch and not self._out:
                self._heard = time.monotonic()
            for waiting in batch:
                self._out[self._sent] = waiting.future
                waiting.future.task = self._sent
                if waiting.file is not None:
                    self._heavy[self._sent] = waiting.file.size
                self._sent += 1
            self._news.notify_all()
        return batch

    def _forget(self, waiting: Waiting) -> None:
        """Drop the bytes of a call that will not be sent."""
        if waiting.file is not None:
            self._stock.drop(waiting.file)

    def _room(self) -> int:
        most = self._most or self._ahead()
        if self._heavy and sum(self._heavy.values()) >= MOST_OUT_BYTES:
            most = min(most, max(FEW, 2 * self._slots))
        return most - len(self._out)

    def _ahead(self) -> int:
        """How many calls may be out. Short calls say little about later ones: so not many more than
        have been answered, and only a few if no result has come for a while."""
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
        """Show a message, once."""
        if words and words not in self._shown:
            self._shown.add(words)
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
                if len(self._out) > FEW:  # the more calls are out, the less one matters
                    time.sleep(min(len(self._out) * EACH_SECONDS, MOST_PACE_SECONDS))
            else:
                self._check_bag(client, query)
        self._large.put(None)

    def _is_awaited(self) -> bool:
        """Wait until there can be results: asking earlier would only delay the calls."""
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
            # A call with a file is out until its value is here. If a call is not out, this is a
            # second result: a success that came after a failure.
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
        except BaseException as error:  # with any answer, the waiting thread must go on
            with _unharmed(future):
                if future.done():
                    raise
                words = f"its answer cannot be understood: {type(error).__name__}: {error}"
                future.set_exception(answers.failed(row, self.bag, words))

    def _check_bag(self, client: Client, query: ResultQuery) -> None:
        """If somebody else has cancelled or purged the bag, nothing will come: raises CoveyError.
        If there is another reason why nothing comes, tell people."""
        view = client.bag(self.bag)
        if view is None or (view.over and not client.results(self.bag, query, 0.0)):
            status = "gone" if view is None else view.status
            raise CoveyError(f"bag {self.bag} of this executor is {status}")
        self._tell(_hindrance(client, view))

    # -- the fetcher -------------------------------------------------------------------------

    def _fetch(self, client: Client) -> None:
        while True:
            item = self._large.get()
            if item is None:
                if self.over:
                    return
                continue
            row, future = item
            del item
            data, lost = None, None
            try:
                data = self._fetched(client, row)
            except ServerStopped:
                raise
            except CoveyError as error:
                lost = answers.failed(row, self.bag, str(error))
            with self._news:
                if self._out.pop(row.task, None) is None:
                    continue  # the lane is broken
                self._news.notify_all()
            if lost is None:
                self._settle(row, future, data)
            else:
                with _unharmed(future):
                    future.set_exception(lost)
            del data, future

    def _fetched(self, client: Client, row: ResultRow) -> bytes | None:
        """The value is durable, so it is asked for until it comes. None if the lane is broken; it
        is if the server is away for too long, whichever thread notices it first."""
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
    """The name by which people know a function; empty if it has none."""
    function = getattr(function, "func", function)  # a partial's function
    name = getattr(function, "__qualname__", "") or type(function).__qualname__
    name = name.rpartition("<locals>.")[2] if isinstance(name, str) else ""
    return name[:MOST_NAME] if name.isprintable() else ""


def _hindrance(client: Client, view: BagView) -> str:
    """Why the bag's calls wait, if that will not end by itself."""
    if view.status == "paused":
        why = f" ({view.reason})" if view.reason else ""
        return f"bag {view.id}, of an executor, is paused{why}; go on with: covey resume {view.id}"
    why = view.reason
    if not why and not view.running and not view.sent:
        # Pilots may be on their way, or there may be no site for them.
        answer = client.explain(view.id).answer
        reasons = answer.reasons if answer is not None else []
        why = next((reason.text for reason in reasons if reason.kind == "no site"), "")
    return f"bag {view.id}, of an executor, waits: {why}" if why else ""


@contextlib.contextmanager
def _unharmed(future: "Future[Any]") -> Iterator[None]:
    """Protects our threads while a future's callbacks are called. The future handles their
    exceptions; but a `sys.exit` in one must not end our thread or leave others without news."""
    try:
        yield
    except BaseException:
        LOGGER.exception("exception calling callback for %r", future)


def _broken(error: BaseException) -> BaseException:
    if isinstance(error, BrokenExecutor | CancelledError):
        return error
    stopped = isinstance(error, ServerStopped)
    words = "the server was stopped; make a new Executor" if stopped else error
    broken = BrokenExecutor(f"this executor has stopped working: {words}")
    broken.__cause__ = error
    return broken
