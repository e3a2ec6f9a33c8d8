"""One server process: the real engine with virtual ports. It can die between any two actions.

`fuse` counts port calls down and kills the process while the engine carries something out. A dead
process answers nothing and hears nothing; its disk stays.
"""

from collections.abc import Callable

from covey.core.match import policy_budget
from covey.core.record.actions import Change, LoadRows, Note, RecordEnds, Refuse, Reply, Write
from covey.core.record.events import (
    CancelRequested,
    DrawContinued,
    JobEnded,
    JobRefused,
    JobRequeued,
    JobStarted,
    JobVanished,
    PilotEnrolled,
    PilotLeft,
    PolicyRequested,
    RequestDropped,
    RetryRequested,
    RowsLoaded,
    SiteAnswered,
    SiteFailed,
    SiteRemoved,
    SiteStatusRequested,
    SyncReceived,
)
from covey.core.record.model import BagId, JobRecord, PilotId, RequestId, Settings, SiteSpec
from covey.engine import Engine
from covey.lab.clock import Timeline
from covey.pilot.protocol.messages import Answer
from covey.ports import EngineEvent, StoreOpened
from tests.simulator.checkers.ledger import Ledger
from tests.simulator.checkers.promises import Judge
from tests.simulator.machines.network import Call, Failure, Network, Outcome
from tests.simulator.machines.sites import Sites
from tests.simulator.machines.virtual_store import VirtualStore
from tests.simulator.plan.workload import TABLES
from tests.simulator.trace import Trace

CHECK_EVERY = 8  # events
READ_SECONDS = 0.02  # for the rows of a chunk
LIAR = "liar"  # what this sender reports did not happen


class Killed(Exception):
    """The process is dead: leave everything as it is."""


class Server:
    """Implements the ports Store, Replies, Sites and Log, so that every call burns the fuse."""

    def __init__(
        self,
        clock: Timeline,
        trace: Trace,
        network: Network,
        sites: Sites,
        settings: Settings,
        ledger: Ledger,
        judge: Judge,
        died: Callable[[str], None],
    ) -> None:
        self.alive = True
        self.fuse = 0  # 0: none
        self.trap: tuple[type[Change], ...] = ()  # die soon after such a write
        self.trap_seconds = 0.0
        self.trap_slow = False  # the disk is slow from then on
        self.stalled_until = 0.0
        self.store: VirtualStore  # set by the world, which owns the disk
        self.tables = VirtualTables(self, clock)
        self.engine = Engine(
            store=self,
            tables=self.tables,
            replies=self,
            sites=self,
            clock=clock,
            log=self,
            settings=settings,
        )
        self._clock = clock
        self._trace = trace
        self._network = network
        self._sites = sites
        self._ledger = ledger
        self._judge = judge
        self._died = died
        self._waiting: dict[RequestId, Call] = {}
        self._last = 0
        self._handled = 0

    def start(self) -> None:
        self._guarded(self.engine.start)

    def post(self, event: EngineEvent) -> None:
        if not self.alive:
            return
        if self._clock.time < self.stalled_until:
            self._clock.at(self.stalled_until, lambda: self.post(event))
            return
        self._trace.add(f"server: {event_text(event)}")
        if isinstance(event, StoreOpened):
            self._ledger.restarted(self._clock.time)
            self._judge.restarted()
        self._guarded(lambda: self.engine.handle(event))
        self._handled += 1
        if self._handled % CHECK_EVERY == 0:
            self.check()

    def go_on(self) -> None:
        """Continue what core could not finish within its budget."""
        looks = 0
        while self.alive and (scheduler := self.engine.scheduler) is not None:
            if self._clock.time < self.stalled_until or not policy_budget.goes_on(
                scheduler.state, looks
            ):
                break
            looks += 1
            self.post(DrawContinued())

    def check(self) -> None:
        if self.alive and self.engine.scheduler is not None:
            state = self.engine.scheduler.state
            state.check()
            assert not state.counters.quarantines, "a bag is quarantined, though none is bad"

    def kill(self, cause: str = "") -> None:
        """kill -9."""
        if not self.alive:
            return
        self.alive = False
        self.store.kill()
        self._network.server = None
        self._network.server_died(list(self._waiting.values()))
        self._died(cause)

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except Killed:
            self.kill("crash within actions")

    # -- the network's side ----------------------------------------------------------------

    def receive(self, call: Call) -> None:
        if self._clock.time < self.stalled_until:
            self._clock.at(self.stalled_until, lambda: self.receive(call))
            return
        if not self.alive:
            return
        self._last += 1
        request = RequestId(self._last)
        event = call.make(request)
        if call.pilot is not None and not self._authentic(call):
            self._trace.add(f"server: {call.sender} is not authentic")
            self._network.respond(call, Failure("unauthorized"))
            return
        self._waiting[request] = call
        self._observe(event, call)
        self.post(event)

    def hung_up(self, call: Call) -> None:
        for request in [id_ for id_, waiting in self._waiting.items() if waiting is call]:
            del self._waiting[request]
            if call.pilot is not None and call.what == "sync":
                self._ledger.hosts[call.sender].dropped = self._clock.time
                self.post(RequestDropped(request, call.pilot))

    def _authentic(self, call: Call) -> bool:
        """As in the real server: an unknown pilot is let through, and core refuses it."""
        scheduler = self.engine.scheduler
        pilot = scheduler.state.pilots.get(PilotId(call.pilot or 0)) if scheduler else None
        return pilot is None or pilot.record.credential == digest(call.credential)

    def _observe(self, event: EngineEvent, call: Call) -> None:
        now = self._clock.time
        if self.engine.scheduler is None:
            return
        if isinstance(event, PilotLeft):
            self._ledger.hosts[call.sender].dropped = now
        if not isinstance(event, SyncReceived):
            self._ledger.asked(event, now)
            return
        sync = event.sync
        self._ledger.heard(sync.pilot, sync.number, now)
        for end in sync.ends if call.sender != LIAR else ():
            self._ledger.ended((end.epoch, end.sequence), end.outcome, now)
        if call.open:
            host = self._ledger.hosts[call.sender]
            host.contacts.append(now)
            if sync.held is not None and sync.epoch == self.engine.scheduler.state.epoch:
                host.full_syncs.append(now)

    # -- the ports -------------------------------------------------------------------------

    def burn(self) -> None:
        if not self.alive:
            raise Killed
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                raise Killed

    def open(self) -> None:
        self.burn()
        self.store.open()

    def write(self, write: Write) -> None:
        self.burn()
        if isinstance(write.change, self.trap):
            self.trap = ()
            self._clock.after(self.trap_seconds, lambda: self.kill("crash at rare write"))
            if self.trap_slow:
                self.store.slow_down(1.0)
        if isinstance(write.change, RecordEnds):
            for record in write.change.ends:
                self._ledger.ended(record.attempt, record.end.outcome, self._clock.time)
        self.store.write(write)

    def load(self, request: RequestId, bag: BagId) -> None:
        self.burn()
        self.store.load(request, bag)

    def reply(self, reply: Reply) -> None:
        self.burn()
        call = self._waiting.get(reply.request)
        if call is not None and isinstance(reply.message, Answer) and call.pilot is not None:
            self._judge.sent(call.pilot, reply.message, self._clock.time, call.sender)
        self._settle(reply.request, reply.message)

    def refuse(self, refuse: Refuse) -> None:
        self.burn()
        self._settle(refuse.request, refuse)

    def unavailable(self, request: RequestId | None, reason: str) -> None:
        self.burn()
        for waiting in [request] if request is not None else list(self._waiting):
            self._settle(waiting, Failure(reason, 2.0))

    def define(self, sites: tuple[SiteSpec, ...]) -> None:
        self.burn()
        self._sites.define(sites)

    def submit(self, jobs: tuple[JobRecord, ...]) -> None:
        self.burn()
        self._sites.submit(jobs, self.post)

    def cancel(self, jobs: tuple[JobRecord, ...]) -> None:
        self.burn()
        self._sites.cancel(jobs)

    def watch(self, jobs: tuple[JobRecord, ...]) -> None:
        self.burn()
        self._sites.watch(jobs, self.post)

    def note(self, note: Note) -> None:
        self._judge.noted(note, self._clock.time)
        self._trace.add(
            f"note: {note.what} bag {note.bag} task {note.task} attempt {note.attempt} "
            f"pilot {note.pilot} {note.job} {note.detail}"
        )

    def _settle(self, request: RequestId, outcome: Outcome) -> None:
        call = self._waiting.pop(request, None)
        if call is not None:
            self._network.respond(call, outcome)


class VirtualTables:
    """Reading rows takes a moment; the server may be dead by then."""

    def __init__(self, server: Server, clock: Timeline) -> None:
        self._server = server
        self._clock = clock
        self._free_at = 0.0

    def load(self, load: LoadRows) -> None:
        self._server.burn()
        rows = TABLES[load.rows.digest][load.first : load.stop]
        event = RowsLoaded(load.bag, load.chunk, rows)
        self._free_at = max(self._free_at, self._clock.time) + READ_SECONDS
        self._clock.at(self._free_at, lambda: self._server.post(event))


def digest(credential: str) -> str:
    return f"digest of {credential}"


def event_text(event: EngineEvent) -> str:
    match event:
        case SyncReceived(request, sync):
            ends = ",".join(f"{e.epoch}.{e.sequence}={e.outcome}" for e in sync.ends)
            held = "" if sync.held is None else f" held {len(sync.held)}"
            return (
                f"[{request}] sync {sync.number} of pilot {sync.pilot} e{sync.epoch} "
                f"received {sync.received} want {sync.want} [{ends}]{held}"
            )
        case PilotEnrolled(request, enrol):
            return f"[{request}] enrol {enrol.host}"
        case StoreOpened(snapshot):
            return f"opened, epoch {snapshot.epoch}"
        case CancelRequested() | RetryRequested() | PolicyRequested():
            return str(event)
        case JobStarted() | JobRequeued() | JobRefused() | JobEnded() | JobVanished():
            return str(event)
        case SiteFailed() | SiteAnswered() | SiteStatusRequested() | SiteRemoved():
            return str(event)
        case _:
            return type(event).__name__ + str(getattr(event, "through", ""))
