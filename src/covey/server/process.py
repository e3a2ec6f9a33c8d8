"""One server process: starts its parts in order, and ends them in reverse order.

The engine runs only in the event loop's thread. The threads of the store and of the sites pass
their answers to it with `call_soon_threadsafe`.
"""

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import uvicorn
import uvloop

from covey import __version__
from covey.core.errors import CoveyError, StoreGone
from covey.core.record.actions import Note
from covey.core.record.events import Committed, DrainRequested, DrawContinued, Ticked
from covey.core.record.model import BagId, Settings, SiteSpec
from covey.core.record.suspects import trace
from covey.engine import Engine
from covey.ports import EngineEvent, OpenFailed, Post, Reader, Sites, Store, StoreOpened, Tables
from covey.questions.server_questions import AnyWork, MoreToDo
from covey.server.api.api import Api
from covey.server.api.files import FileRoutes, Holdings, PilotFiles
from covey.server.api.invitations import Invitations, ServerAddress
from covey.server.api.metrics import ServerFacts, renderer
from covey.server.api.pilots import PilotCalls
from covey.server.api.sites import SiteCalls
from covey.server.api.trials import Trials
from covey.server.decider import Decider
from covey.server.limits.admission import Admission, RowFiles
from covey.server.limits.retention import Retention
from covey.server.limits.shares import BODY_BYTES, Shares
from covey.server.limits.tails import Tails
from covey.server.limits.uploads import Uploads
from covey.server.web.addresses import Door
from covey.server.web.app import App
from covey.server.web.connections import Acceptor, Connections, Link
from covey.server.web.gateway import Gateway
from covey.server.web.logs import JsonHandler, JsonLog
from covey.server.web.quick_syncs import protocol_for
from covey.server.web.refusals import Refusals
from covey.server.web.requests import ServerAccess
from covey.server.web.slow_requests import LOOK_SECONDS, end_slow
from covey.server.web.tls import CHECK_SECONDS, Tls

TICK_SECONDS = 0.5
OWN_FILES_SECONDS = 1.0
DATE_SECONDS = 1.0
SWITCH_SECONDS = 0.0005  # short, since the store's thread gives up the interpreter at every step
ANNOUNCE_SECONDS = 1.0  # between tries, on a full disk
GARBAGE_THRESHOLD = 50_000  # high, since our records have no cycles
MOST_ERRORS = 10  # errors of core in a minute; with more, the server ends
HANDSHAKE_SECONDS = 20.0
TLS_SHUTDOWN_SECONDS = 5.0  # how long a closed connection waits for the peer's TLS close message
PILOT_END_SECONDS = 8.0  # how long the server waits for local pilots to end
NUMBERS_PER_SECOND = 1_000_000  # more than the pieces of live output in a second


class ClosableSites(Sites, Protocol):
    """`terminate` ends the pilots on this machine; `alive` counts them."""

    def terminate(self) -> int: ...

    def alive(self) -> int: ...

    def close(self) -> None: ...


class ClosableStore(Store, Protocol):
    def backlog(self) -> int: ...

    def removing(self, bag: BagId) -> bool: ...

    def close(self) -> bool: ...


class SteadyClock:
    """The wall time at the start of the process, plus the monotonic time since then."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()


class ClosableTables(Tables, Protocol):
    def close(self) -> None: ...


class ServerParts(Protocol):
    """What wiring provides."""

    settings: Settings
    token: str
    secret: str
    store_name: str
    doors: Sequence[Door]
    tls: Tls | None
    idle_exit_seconds: float  # 0: never
    keep_logs_days: float  # 0: for ever
    keep_files_days: float
    pilot_file: Path  # what hosts run
    public: str  # the address for other machines

    @property
    def ca(self) -> str: ...

    @property
    def holdings(self) -> Holdings: ...

    @property
    def tables(self) -> RowFiles: ...

    def store(self, post: Post, crashed: Callable[[Exception], None]) -> ClosableStore: ...

    def rows(self, post: Post) -> ClosableTables: ...

    def sites(self, post: Post, note: Callable[[Note], None]) -> ClosableSites: ...

    def check_site(self, spec: SiteSpec) -> SiteSpec:
        """The site, completed by its driver. Raises BadConfig."""
        ...

    def check_files(self) -> None:
        """Raises StoreGone if the record or its lock was removed or replaced."""
        ...

    def reader(self) -> Reader: ...

    def close_readers(self) -> None: ...

    def announce(self) -> None:
        """Write down the server's address for clients and pilots. Raises OSError (a full disk)."""
        ...

    def withdraw(self) -> None:
        """Tell clients and pilots that the server has ended on purpose."""
        ...


class _Http(uvicorn.Server):
    """uvicorn, but ServerProcess handles signals, and some doors have TLS and others do not."""

    def __init__(
        self,
        config: uvicorn.Config,
        doors: Sequence[Door],
        tls: Tls | None,
        connections: Connections,
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._doors = doors
        self._tls = tls
        self._asked = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._asked.set()

    async def main_loop(self) -> None:
        """Runs once a second, when the date in answers changes. uvicorn's own loop runs ten times
        a second, which would be most of the work of an idle server."""
        while not await self.on_tick(0):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._asked.wait(), DATE_SECONDS)

    async def startup(self, sockets: Any = None) -> None:
        await self.lifespan.startup()
        self.servers = [self._accept(door) for door in self._doors]  # type: ignore[misc]
        self.started = True

    def _accept(self, door: Door) -> Acceptor:
        loop = asyncio.get_running_loop()
        secure: dict[str, Any] = {}
        if door.secure and self._tls is not None:
            secure = {
                "ssl": self._tls.context,
                "ssl_handshake_timeout": HANDSHAKE_SECONDS,
                "ssl_shutdown_timeout": TLS_SHUTDOWN_SECONDS,
            }

        async def begin(sock: socket.socket, link: Link) -> bool:
            protocol = self._protocol(link)
            await loop.connect_accepted_socket(lambda: protocol, sock, **secure)
            return protocol.transport is not None  # None: lost during the handshake

        return Acceptor(door.socket, self._connections, begin)

    def _protocol(self, link: Link) -> Any:
        protocol: Any = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        protocol.link = link
        return protocol

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _http_config(app: App, protocol: type[asyncio.Protocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        server_header=False,
        date_header=False,
    )


class ServerProcess:
    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._tried = asyncio.Event()  # opening the store has succeeded or failed
        self._drain = False
        self._failed: Exception | None = None
        self._log = JsonLog()
        logging.basicConfig(handlers=[JsonHandler(self._log)], level=logging.WARNING)
        # uvicorn warns of every malformed request: anybody on the network could fill the disk.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._clock = clock = SteadyClock()
        self._trials = Trials()
        self._rows = parts.rows(self._post)
        self._store = parts.store(self._post, self._crashed)
        self._sites = parts.sites(self._post, self._log.note)
        self._gateway = Gateway(self._handle, self._store.backlog)
        self._engine = Engine(
            store=self._store,
            tables=self._rows,
            replies=self._gateway,
            sites=self._sites,
            clock=clock,
            log=self._log,
            settings=parts.settings,
            most_errors=MOST_ERRORS,
        )
        self._decider = Decider(self._engine, clock.now)
        self._access = ServerAccess(self._gateway, self._decider, parts.reader, clock)
        self._tails = Tails(self._loop.time, first=int(clock.now() * NUMBERS_PER_SECOND))
        self._retention = Retention(
            self._access,
            parts.holdings,
            keep_logs_days=parts.keep_logs_days,
            keep_files_days=parts.keep_files_days,
        )
        self._refusals = Refusals(self._loop.time)
        self._connections = Connections(refused=self._refusals.note)
        self._uploads = Uploads(self._loop.time)
        self._api = self._make_api()
        self._http = self._make_http()

    def _make_api(self) -> Api:
        parts = self._parts
        return Api(
            access=self._access,
            admission=Admission(parts.holdings, parts.tables),
            tails=self._tails,
            files=FileRoutes(parts.holdings, self._uploads),
            token=parts.token,
            store=parts.store_name,
            stop=self.stop,
            more=[
                Invitations(self._access, parts.secret, self._whereabouts, parts.pilot_file),
                SiteCalls(self._access, parts.check_site, self._trials, lambda: parts.public),
            ],
            refusals=self._refusals,
            removing=self._store.removing,
            server_facts=self._server_facts,
        )

    def _server_facts(self) -> ServerFacts:
        try:
            free = shutil.disk_usage(os.path.dirname(self._parts.store_name)).free
        except OSError:
            free = 0
        tls = self._parts.tls
        return ServerFacts(__version__, free, tls.expires if tls is not None else 0.0)

    def _make_http(self) -> _Http:
        parts, refusals, bodies = self._parts, self._refusals, Shares(BODY_BYTES)
        pilots = PilotCalls(
            self._gateway,
            self._decider,
            parts.secret,
            self._tails,
            PilotFiles(parts.holdings, self._decider, self._uploads),
            parts.pilot_file,
            self._clock.now,
        )
        app = App(
            decider=self._decider,
            pilots=pilots,
            api=self._api,
            metrics=renderer(
                self._decider,
                self._store.backlog,
                self._gateway.waiting,
                self._gateway.load,
                refusals,
                self._connections,
                self._server_facts,
            ),
            bodies=bodies,
            refusals=refusals,
        )
        protocol = protocol_for(pilots, bodies, refusals)
        config = _http_config(app, protocol)
        return _Http(config, parts.doors, parts.tls, self._connections)

    def _whereabouts(self) -> ServerAddress:
        return ServerAddress(self._parts.public, self._parts.ca)

    async def run(self) -> int:
        for name in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(name, self.stop, False)
        self._engine.start()
        sockets = [door.socket for door in self._parts.doors]
        http = asyncio.create_task(self._http.serve(sockets))
        ticks = asyncio.create_task(self._tick())
        tasks = (
            self._announce(),
            self._purge(),
            self._end_slow(),
            self._renew_certificates(),
            self._watch_files(),
        )
        others = [asyncio.create_task(task) for task in tasks]
        await self._ending.wait()
        for task in others:
            task.cancel()
        if isinstance(self._failed, StoreGone):
            self._gateway.unavailable(None, str(self._failed))
            self._sites.terminate()  # the results of these pilots could not be recorded
        elif self._failed is None:
            await self._end_pilots()
        ticks.cancel()
        self._access.end()
        self._http.end()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(http, 5)
        self._sites.close()
        self._rows.close()
        self._parts.close_readers()
        self._store.close()
        if self._failed is None:
            self._parts.withdraw()
        self._log.line("server ended", detail=str(self._failed or ""))
        return 1 if self._failed is not None else 0

    def stop(self, drain: bool) -> int:
        """End now; with `drain`, when the running tasks have ended. A second call ends it now."""
        self._drain = drain and not self._ending.is_set()
        self._ending.set()
        self._log.line("shutting down", detail="drain" if self._drain else "now")
        return self._sites.alive()

    async def _announce(self) -> None:
        """Announce the server when it takes requests and has tried to open the store. On a full
        disk, try again until it works."""
        await self._tried.wait()
        while not self._http.started:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        while True:
            try:
                self._parts.announce()
                self._log.line("listening", detail=self._parts.public)
                return
            except OSError as error:
                self._log.line("cannot announce the server", detail=str(error))
            await asyncio.sleep(ANNOUNCE_SECONDS)

    async def _purge(self) -> None:
        await self._tried.wait()
        await self._retention.run()

    async def _end_slow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            ended = end_slow(self._http.server_state.connections, self._loop.time())
            if ended:
                self._log.line("connections closed: too slow", detail=f"{ended} closed")

    async def _watch_files(self) -> None:
        """Check the record's files when there is nothing to write; each commit checks them too."""
        await self._tried.wait()
        try:
            while True:
                await self._loop.run_in_executor(None, self._parts.check_files)
                await asyncio.sleep(OWN_FILES_SECONDS)
        except StoreGone as error:
            self._crashed(error)

    async def _renew_certificates(self) -> None:
        """Use new certificates for new connections. The same error is logged once."""
        tls, logged = self._parts.tls, ""
        while tls is not None:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                before = tls.ca
                pair = await self._loop.run_in_executor(None, tls.look)
                if pair is not None:
                    tls.use(pair)
                    self._log.line("new certificate", detail=pair.origin)
                if tls.ca != before:
                    self._parts.announce()
                logged = ""
            except (OSError, CoveyError) as error:
                if str(error) != logged:
                    logged = str(error)
                    self._log.line("the certificate cannot be renewed", detail=logged)

    async def _end_pilots(self) -> None:
        self._handle(DrainRequested())
        deadline = None if self._drain else self._loop.time() + PILOT_END_SECONDS
        if not self._drain:
            self._sites.terminate()
        while self._sites.alive():
            if deadline is None and not self._drain:  # a second `stop` asked to end now
                self._sites.terminate()
                deadline = self._loop.time() + PILOT_END_SECONDS
            if deadline is not None and self._loop.time() > deadline:
                break
            await asyncio.sleep(0.02)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._handle(Ticked())
            await self._go_on()
            if self._idle() > self._parts.idle_exit_seconds > 0:
                self.stop(False)

    async def _go_on(self) -> None:
        """Let core finish long work in steps, and answer requests between two steps."""
        steps = 0
        while self._decider.ask_if_ready(MoreToDo(steps)):
            steps += 1
            await asyncio.sleep(0)
            self._handle(DrawContinued())

    def _idle(self) -> float:
        """Seconds since the server last had work, a request, or a client that follows output."""
        busy = self._decider.ask_if_ready(AnyWork()) is not False
        if busy or self._api.open_requests or self._tails.followed():
            self._api.last_request = self._loop.time()
        return self._loop.time() - self._api.last_request

    def _post(self, event: EngineEvent) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended; so has the server
            self._loop.call_soon_threadsafe(self._handle, event)

    def _handle(self, event: EngineEvent) -> None:
        try:
            self._trials.heard(event, self._decider, self._clock.now())
            self._engine.handle(event)
        except Exception as error:
            self._crashed(error)
            raise
        if isinstance(event, Committed):
            self._access.note_change()
        elif isinstance(event, StoreOpened | OpenFailed):
            self._tried.set()

    def _crashed(self, error: Exception) -> None:
        """The store cannot be used, or an invariant is broken (our bug). End the server: the record
        is sound and a restart continues from it, but going on here might damage it."""
        self._failed = error
        what = "cannot go on" if isinstance(error, CoveyError) else "internal error"
        words = str(error) if isinstance(error, CoveyError) else trace(error)
        self._log.line(what, detail=f"{type(error).__name__}: {words}")
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ending.set)


def run(parts_for: Callable[[], ServerParts]) -> int:
    """Run a server until it is asked to end."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 50, 100)

    async def main() -> int:
        return await ServerProcess(parts_for()).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())
