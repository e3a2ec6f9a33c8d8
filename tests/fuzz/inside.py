"""A server without sockets, threads' delays or a clock: its real HTTP side, engine and core around
the record in memory. Messages are put straight into it, and time passes when a test says so.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from covey.core.record.actions import Change, LoadRows, Note, Write
from covey.core.record.events import BagLoaded, Committed, RowsLoaded, Ticked
from covey.core.record.model import BagId, JobRecord, RequestId, Settings, SiteSpec
from covey.core.scheduler import Scheduler
from covey.core.state import State
from covey.engine import Engine
from covey.pilot.protocol.messages import JOB_HEADER
from covey.ports import EngineEvent, StoreOpened
from covey.server.api.files import PilotFiles
from covey.server.api.pilots import PilotCalls
from covey.server.decider import Decider
from covey.server.limits.tails import Tails
from covey.server.web.gateway import Gateway
from covey.server.web.load import Load, RequestKind
from covey.server.web.problems import HttpProblem
from covey.server.web.quick_syncs import Response, of_problem
from covey.store.files.blobs import Blobs
from covey.store.files.holdings import Holdings
from tests.memory_store.memory_record import MemoryRecord

TOKEN, SECRET = "the token of an admin", "the secret of all pilots"
SETTINGS = Settings(
    poll_seconds=10.0,
    lease_seconds=30.0,
    adopt_seconds=20.0,
    chunk=4,
    largest_chunk=8,
    most_ends=8,
    most_pilots=12,
    most_losses=3,
)
TURNS = 50  # of the event loop, in which whatever can be answered is
PATIENCE_SECONDS = 20.0  # of the real clock: threads work on files
PARKS = ("/pilot/v1/enrol", "/pilot/v1/sync", "/pilot/v1/leave")  # no thread works on these


class Told(NamedTuple):
    """A request: as it is, but for its Content-Length. `parts`: how its body arrives; the sender
    may hang up before the end. `quick`: a sync that goes the short way, past ASGI. `job`: the site
    job of an enrolment."""

    method: str
    path: str
    query: str
    secret: bytes | None
    parts: Sequence[bytes]
    hangs_up: bool = False
    quick: bool = False
    job: str | None = None


class Heard(NamedTuple):
    """`status` 0: whoever asked had gone."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return msgspec.json.decode(self.body)


class Ports:
    """Store, sites, tables, clock and log of the engine."""

    def __init__(self, post: Callable[[EngineEvent], None]) -> None:
        self.record = MemoryRecord()
        self.time = 1_000_000.0
        self.written: list[Change] = []  # until somebody looks
        self._post = post

    def open(self) -> None:
        self._post(StoreOpened(self.record.open()))

    def write(self, write: Write) -> None:
        self.written.append(write.change)
        self.record.apply([write.change])
        self._post(Committed(write.number))

    def load(self, request: RequestId, bag: BagId) -> None:
        self._post(BagLoaded(request, bag, self.record.load(bag)))

    def define(self, sites: tuple[SiteSpec, ...]) -> None: ...

    def submit(self, jobs: tuple[JobRecord, ...]) -> None: ...

    def watch(self, jobs: tuple[JobRecord, ...]) -> None: ...

    def cancel(self, jobs: tuple[JobRecord, ...]) -> None: ...

    def note(self, note: Note) -> None: ...

    def now(self) -> float:
        return self.time


class Tables:
    """There are none: rows come without values."""

    def __init__(self, post: Callable[[EngineEvent], None]) -> None:
        self._post = post

    def load(self, load: LoadRows) -> None:
        self._post(
            RowsLoaded(load.bag, load.chunk, [[row] for row in range(load.first, load.stop)])
        )


class Calm(Load):
    """However busy this machine is."""

    def admit(self, kind: RequestKind, key: object, now: float) -> float:
        return 0.0


class Inside:
    """Made and used within a running event loop."""

    def __init__(self, folder: Path) -> None:
        self.failed: list[BaseException] = []
        self._loop = asyncio.get_running_loop()
        self.ports = Ports(self._post)
        self.gateway = gateway = Gateway(self.handle, lambda: 0, Calm())
        self.engine = Engine(
            store=self.ports,
            tables=Tables(self._post),
            replies=gateway,
            sites=self.ports,
            clock=self.ports,
            log=self.ports,
            settings=SETTINGS,
        )
        self.tails = Tails(self.ports.now, first=1)
        self.blobs = Blobs(folder)
        decider = Decider(self.engine, self.ports.now)
        files = PilotFiles(Holdings(self.blobs), decider)
        self.app: Any = PilotCalls(gateway, decider, SECRET, self.tails, files, now=self.ports.now)
        self.engine.start()

    @property
    def scheduler(self) -> Scheduler:
        assert self.engine.scheduler is not None
        return self.engine.scheduler

    @property
    def state(self) -> State:
        return self.scheduler.state

    def _post(self, event: EngineEvent) -> None:
        self._loop.call_soon(self._handle_posted, event)

    def _handle_posted(self, event: EngineEvent) -> None:
        try:
            self.handle(event)
        except Exception as error:
            logging.exception("the engine")
            self.failed.append(error)

    def handle(self, event: EngineEvent) -> None:
        self.engine.handle(event)

    def pass_time(self, seconds: float) -> None:
        self.ports.time += seconds
        self.handle(Ticked())

    # -- asking ----------------------------------------------------------------------------

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    async def tell(self, told: Told) -> Heard:
        """Its answer. A request that is parked is answered when its time has come; one that has no
        answer even then raises TimeoutError."""
        line = _Line(told)
        way = self._quickly(line, told) if told.quick else self._slowly(line)
        task = self._loop.create_task(way)
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if task.done():
                break
        else:
            await self._wait(task, not told.path.startswith(PARKS))
        task.result()
        await self.settle()
        if self.failed:
            raise self.failed[0]
        return Heard(line.status, line.headers, b"".join(line.sent))

    async def _slowly(self, line: "_Line") -> None:
        await self.app(line.scope, line.receive, line.send)

    async def _quickly(self, line: "_Line", told: Told) -> None:
        answered = asyncio.Event()

        def respond(response: Response) -> None:
            line.start(response.status, response.headers)
            line.sent.append(response.body)
            answered.set()

        try:
            caller = self.app.let_in(line.scope["headers"])
            hang_up = self.app.take_sync(caller, b"".join(told.parts), respond)
        except HttpProblem as problem:
            respond(of_problem(problem))
        else:
            if told.hangs_up:
                hang_up()
                return
        await answered.wait()

    async def _wait(self, task: "asyncio.Task[None]", threads: bool) -> None:
        if threads:
            await asyncio.wait([task], timeout=PATIENCE_SECONDS)
        else:
            self.pass_time(SETTINGS.poll_seconds + 1)
            for _ in range(TURNS):
                await asyncio.sleep(0)
                if task.done():
                    break
        if not task.done():
            task.cancel()
            raise TimeoutError("there is no answer")


class _Line:
    """One request's connection."""

    def __init__(self, told: Told) -> None:
        size = sum(map(len, told.parts))
        headers = [(b"content-length", str(size).encode())]
        if told.secret is not None:
            headers.append((b"authorization", b"Bearer " + told.secret))
        if told.job is not None:
            headers.append((JOB_HEADER.lower().encode(), quote(told.job).encode()))
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": told.method,
            "scheme": "http",
            "path": told.path,
            "raw_path": told.path.encode("utf-8", "surrogateescape"),
            "query_string": told.query.encode("utf-8", "surrogateescape"),
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", 80),
        }
        self._parts = list(told.parts) or [b""]
        self._hangs_up = told.hangs_up
        self.status = 0
        self.headers: dict[str, str] = {}
        self.sent: list[bytes] = []

    async def receive(self) -> dict[str, Any]:
        if self._parts:
            body = self._parts.pop(0)
            more = bool(self._parts) or self._hangs_up
            return {"type": "http.request", "body": body, "more_body": more}
        if not self._hangs_up:
            await asyncio.get_running_loop().create_future()  # it stays as long as it takes
        return {"type": "http.disconnect"}

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        assert not self.status, "answered twice"
        self.status = status
        self.headers = {name.decode("latin-1"): text.decode("latin-1") for name, text in headers}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.start(message["status"], message.get("headers", []))
        else:
            self.sent.append(message.get("body", b""))
