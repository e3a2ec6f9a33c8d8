"""The server's HTTP side over the real engine and core, in this process: the record behind it is
a shelf that a test fills, and every write is durable at once."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import uvicorn
from starlette.requests import Request

from covey.client.client import Client
from covey.core.errors import BadConfig, InvalidBag
from covey.core.protocol.tokens import hand_job, job_secret, one_word
from covey.core.record.actions import LoadRows, Note, Write
from covey.core.record.broker_rules import BrokerRules
from covey.core.record.events import BagLoaded, Committed, Event
from covey.core.record.model import (
    BagId,
    BagSnapshot,
    JobRecord,
    PolicySpec,
    RequestId,
    Role,
    Rows,
    Settings,
    SiteSpec,
    Snapshot,
)
from covey.core.state import State
from covey.core.values.space import Scalar
from covey.engine import Engine
from covey.ports import EngineEvent, NamedFiles, StoreOpened
from covey.server.api.api import Api
from covey.server.api.files import FileRoutes, Holdings
from covey.server.api.invitations import Invitations, ServerAddress
from covey.server.api.pilots import PilotCalls, respond
from covey.server.api.sites import SiteCalls
from covey.server.api.trials import Trials
from covey.server.decider import Decider
from covey.server.limits.admission import Admission
from covey.server.limits.tails import Tails
from covey.server.web.app import App
from covey.server.web.auth import SEE
from covey.server.web.gateway import Gateway
from covey.server.web.requests import ServerAccess
from covey.server.web.route import look
from covey.wire import (
    BagView,
    HostView,
    InputsView,
    Output,
    PilotView,
    ResultQuery,
    ResultRow,
    SiteJobView,
    WasteView,
)

TOKEN, SECRET = "a token", "a secret"
HERE = ServerAddress("https://here", "a certificate")
API = "/api/v1"
T = TypeVar("T")


def check_driver(spec: SiteSpec) -> SiteSpec:
    if spec.driver != "slurm":
        raise BadConfig(f"site {spec.name}: there is no driver {spec.driver!r}")
    return spec


def digest(letter: str) -> str:
    return letter * 64


class Answer(NamedTuple):
    status: int
    kind: str
    body: bytes
    headers: dict[str, str]

    @property
    def content(self) -> Any:
        return json.loads(self.body)


class Shelf:
    """A Reader: answers what a test has put here, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.views: dict[int, BagView] = {}
        self.policies: dict[int, PolicySpec] = {}
        self.rows: list[ResultRow] = []
        self.parts: Callable[[], Iterator[bytes]] = lambda: iter(())
        self.groups: list[Any] = []
        self.failed: list[int] = []
        self.returned: list[Any] = []
        self.named_inputs: InputsView | None = None
        self.named = NamedFiles({}, {})
        self.owners: dict[str, set[str]] = {}  # of hosts
        self.known_hosts: list[HostView] = []
        self.printed: Output | None = None
        self.wasted = WasteView()
        self.job_ended = ""
        self.error: Exception | None = None

    def _note(self, *question: Any) -> None:
        self.asked.append(question)
        if self.error is not None:
            raise self.error

    def bags(self) -> list[BagView]:
        self._note("bags")
        return [self.views[id_] for id_ in sorted(self.views, reverse=True)]

    def bag(self, bag: int) -> BagView | None:
        self._note("bag", bag)
        return self.views.get(bag)

    def waste(self, bag: int) -> WasteView:
        self._note("waste", bag)
        return self.wasted

    def results(self, bag: int, query: ResultQuery) -> list[ResultRow]:
        self._note("results", bag, query)
        return self.rows

    def export(self, bag: int, query: ResultQuery, form: str) -> Iterator[bytes]:
        self._note("export", bag, query, form)
        return self.parts()

    def failures(self, bag: int, limit: int = 100) -> list[Any]:
        self._note("failures", bag, limit)
        return self.groups

    def failed_tasks(self, bag: int, causes: tuple[str, ...]) -> list[int]:
        self._note("failed_tasks", bag, causes)
        return self.failed

    def policy(self, bag: int) -> PolicySpec | None:
        self._note("policy", bag)
        return self.policies.get(bag)

    def inputs(self, bag: int) -> InputsView | None:
        self._note("inputs", bag)
        return self.named_inputs

    def files(self, bag: int, after: int = -1, limit: int = 1000) -> list[Any]:
        self._note("files", bag, after, limit)
        return self.returned

    def hosts(self) -> list[HostView]:
        self._note("hosts")
        return self.known_hosts

    def named_files(self) -> NamedFiles:
        self._note("named_files")
        return self.named

    def host_owners(self) -> dict[str, set[str]]:
        self._note("host_owners")
        return self.owners

    def stop(self) -> None:
        self._note("stop")

    def close(self) -> None:
        pass

    def unfinished(self, bag: int, after: int = -1, limit: int = 1000) -> list[int]:
        self._note("unfinished", bag, after, limit)
        return []

    def attempts(self, bag: int, task: int) -> list[ResultRow]:
        self._note("attempts", bag, task)
        return self.rows

    def job_ends(self, pilots: Collection[int]) -> dict[int, str]:
        self._note("job_ends", *sorted(pilots))
        return {pilot: self.job_ended for pilot in pilots if self.job_ended}

    def site_jobs(self, site: str, owner: str | None = None, limit: int = 100) -> list[SiteJobView]:
        self._note("site_jobs", site, owner, limit)
        return [SiteJobView(id="1-1", site=site, handle="77", slots=2, state="ok", submitted=5.0)]

    def output(self, bag: int, task: int) -> Output | None:
        self._note("output", bag, task)
        return self.printed

    def pilots(self, limit: int = 1000) -> list[PilotView]:
        return []


class Held:
    """The files that the server has, and what is in them."""

    def __init__(self) -> None:
        self.complete: set[str] = set()
        self.described: dict[tuple[str, str], Rows] = {}
        self.rows: dict[str, list[list[Scalar]]] = {}

    def missing(self, owner: str | None, digests: Iterable[str]) -> list[str]:
        return [one for one in dict.fromkeys(digests) if one not in self.complete]

    def grant(self, owner: str, digests: list[str]) -> None: ...

    def describe(self, digest: str, form: str) -> Rows:
        try:
            return self.described[digest, form]
        except KeyError:
            raise InvalidBag(f"row 3 of this {form} file has 2 columns, not 3") from None

    def every(self, rows: Rows) -> Iterable[list[Scalar]]:
        return self.rows[rows.digest]


class Mounted:
    """Stands for the file routes: shows that they are guarded, and who calls."""

    @look("/files/{digest}", "the digest", SEE)
    async def one(self, request: Request) -> list[str]:
        return [request.path_params["digest"]]

    async def __call__(self, scope: Any, receive: Any, send: Any, pilot: Any) -> None:
        await respond(send, 200, json.dumps([scope["path"], pilot.id]).encode())


class _Ports:
    """Store, tables, sites and log of an engine; `post` is called soon, in the loop."""

    def __init__(self, post: Callable[[EngineEvent], None]) -> None:
        self._post = post
        self.writes: list[Write] = []
        self.snapshots: dict[int, BagSnapshot] = {}
        self.defined: tuple[SiteSpec, ...] = ()
        self.submitted: tuple[JobRecord, ...] = ()
        self.cancelled: tuple[JobRecord, ...] = ()

    def open(self) -> None:
        empty = Snapshot(epoch=1, bags=(), pilots=(), jobs=(), next_bag=1, next_pilot=1, keys={})
        self._post(StoreOpened(empty))

    def write(self, write: Write) -> None:
        self.writes.append(write)
        self._post(Committed(write.number))

    def load(self, request: RequestId, bag: BagId) -> None:
        self._post(BagLoaded(request, bag, self.snapshots.get(bag)))

    def define(self, sites: tuple[SiteSpec, ...]) -> None:
        self.defined = sites

    def submit(self, jobs: tuple[JobRecord, ...]) -> None:
        self.submitted += jobs

    def watch(self, jobs: tuple[JobRecord, ...]) -> None: ...

    def cancel(self, jobs: tuple[JobRecord, ...]) -> None:
        self.cancelled += jobs

    def note(self, note: Note) -> None: ...


class _Tables:
    """Their rows never come."""

    def load(self, load: LoadRows) -> None: ...


async def _no_metrics() -> bytes:
    return b""


class Clock:
    """The time, which a test may move on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return time.time() + self.ahead


class Place:
    """A server to talk to. Its inside is touched through `do` only."""

    def __init__(self, holdings: Holdings | None = None) -> None:
        self.holdings = holdings
        self.pilot_file: Path | None = None
        self.sites: tuple[SiteSpec, ...] = ()  # of its covey.toml
        self.broker = BrokerRules()
        self.shelf = Shelf()
        self.held = Held()
        self.events: list[Event] = []
        self.clock = Clock()
        self.loop = asyncio.new_event_loop()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self.socket.getsockname()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        gateway = Gateway(self._handle, lambda: 0)
        self.ports = ports = _Ports(self._post)
        self.engine = Engine(
            store=ports,
            tables=_Tables(),
            replies=gateway,
            sites=ports,
            clock=self.clock,
            log=ports,
            settings=Settings(poll_seconds=0.2, sites=self.sites, broker=self.broker),
        )
        self.decider = Decider(self.engine, self.clock.now)
        self.access = ServerAccess(gateway, self.decider, lambda: self.shelf, self.clock)
        self.tails = Tails(self.loop.time, first=1_000_000)
        self.trials = Trials()
        self.api = Api(
            access=self.access,
            admission=Admission(self.held, self.held),
            tails=self.tails,
            files=Mounted() if self.holdings is None else FileRoutes(self.holdings),
            token=TOKEN,
            more=[
                Invitations(self.access, SECRET, lambda: HERE, Path("no pilot file")),
                SiteCalls(self.access, check_driver, self.trials, lambda: HERE.address),
            ],
            store="a shelf",
            stop=lambda drain: 7 if drain else 3,
        )
        self.pilots = pilots = PilotCalls(
            gateway,
            self.decider,
            SECRET,
            self.tails,
            Mounted(),
            self.pilot_file,
            now=self.clock.now,
        )
        self.app = App(decider=self.decider, pilots=pilots, api=self.api, metrics=_no_metrics)
        config = uvicorn.Config(self.app, log_config=None, lifespan="off", http="httptools")
        self.http = uvicorn.Server(config)
        self.engine.start()
        self.loop.call_later(0.05, self._ready.set)
        await self.http.serve([self.socket])

    def _post(self, event: EngineEvent) -> None:
        self.loop.call_soon(self._handle, event)

    def _handle(self, event: Any) -> None:
        self.events.append(event)
        self.trials.heard(event, self.decider, self.clock.now())
        self.engine.handle(event)
        if isinstance(event, Committed):
            self.access.note_change()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        self.http.should_exit = True
        self._thread.join(10)

    def do(self, work: Callable[[], T]) -> T:
        """In the server's own thread."""

        async def working() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(working(), self.loop).result(10)

    @property
    def state(self) -> State:
        assert self.engine.scheduler is not None
        return self.engine.scheduler.state

    def client(self, token: str = TOKEN) -> Client:
        return Client(f"http://{self.host}:{self.port}", token, patience_seconds=0)

    def token(self, role: Role, owner: str, seconds: float = 0.0) -> str:
        asked = {"name": f"{owner}'s", "role": role.value, "owner": owner, "seconds": seconds}
        found = self.call("POST", API + "/tokens", asked)
        assert found.status == 201, found.body
        token: str = found.content["token"]
        return token

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=30)

    def call(self, method: str, path: str, body: Any = None, secret: str = TOKEN) -> Answer:
        """`body`: bytes as they are, anything else as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = self.connect()
        try:
            connection.request(method, path, data, {"Authorization": f"Bearer {secret}"})
            found = connection.getresponse()
            kind = found.headers.get("content-type", "")
            return Answer(found.status, kind, found.read(), dict(found.headers.items()))
        finally:
            connection.close()

    def refuses(
        self, status: int, method: str, path: str, body: Any = None, secret: str = TOKEN
    ) -> str:
        """A problem document, and the engine has heard nothing of it. Its words."""
        before = self.do(self._told)
        found = self.call(method, path, body, secret)
        assert found.status == status, found.body
        assert found.kind == "application/problem+json"
        assert found.content["status"] == status
        assert found.content["type"]
        assert self.do(self._told) == before
        words: str = found.content["detail"]
        assert words
        return words

    def _told(self) -> int:
        """How much the engine has written: what a refused request must not change."""
        return len(self.ports.writes)

    def last(self, kind: type[T]) -> T:
        """The last event of its kind."""
        found = [event for event in self.do(lambda: list(self.events)) if isinstance(event, kind)]
        assert found, f"no {kind.__name__}"
        return found[-1]

    def enrol(self, **fields: Any) -> "Pilot":
        key = f"key-of-a-pilot-{time.monotonic_ns()}"
        job = hand_job("*", time.time() + 600, f"{time.monotonic_ns()}")
        enrol = {"key": key, "host": "n1", "slots": 4, "job": job, "shared": True, **fields}
        secret = one_word(enrol["job"], job_secret(SECRET, enrol["job"]))
        found = self.call("POST", "/pilot/v1/enrol", enrol, secret)
        assert found.status == 200, found.body
        return Pilot(self, found.content)


class Pilot:
    def __init__(self, place: Place, enrolled: dict[str, Any]) -> None:
        self.place = place
        self.id = enrolled["pilot"]
        self.credential = enrolled["credential"]
        self.epoch = enrolled["epoch"]
        self.number = 0

    def sync(self, **fields: Any) -> Any:
        self.number += 1
        message = {
            "pilot": self.id, "epoch": self.epoch, "number": self.number,
            "received": self.number - 1, "want": 0, **fields,
        }  # fmt: skip
        found = self.place.call("POST", "/pilot/v1/sync", message, self.credential)
        assert found.status == 200, found.body
        return found.content

    def printed(self, *pieces: list[Any], **how: Any) -> Answer:
        message = {"pilot": self.id, "pieces": list(pieces)}
        return self.place.call("POST", "/pilot/v1/printed", message, self.credential, **how)


@contextmanager
def open_place(holdings: Holdings | None = None) -> Iterator[Place]:
    """With `holdings`, files are really there."""
    place = Place(holdings)
    place.start()
    try:
        yield place
    finally:
        place.stop()
