"""Event in, core, actions out, all through ports. The server and the simulator run this very
class; it has no thread, no clock and no socket of its own.

When a commit fails nothing since the last one happened: the engine drops the scheduler with
everything it decided, tells whoever waits that the server is unavailable, and opens the store
again until that works. Then it goes on as after a restart: pilots are heard, their work adopted.

When core raises, its state may be half changed, and the same is done. The bag that core was busy
with is quarantined in the new scheduler (docs/decisions/0018-quarantine.md).
"""

from collections import deque
from typing import assert_never

from covey.core.record.actions import (
    Action,
    CancelJobs,
    DefineSites,
    LoadBag,
    LoadRows,
    Note,
    Problem,
    Refuse,
    Reply,
    SubmitPilots,
    Write,
)
from covey.core.record.events import (
    BagLoaded,
    BagSubmitted,
    CancelRequested,
    CloseRequested,
    Event,
    PauseRequested,
    PilotDismissed,
    PilotEnrolled,
    PilotLeft,
    PolicyRequested,
    PurgeRequested,
    ResumeRequested,
    RetryRequested,
    SegmentAppended,
    SiteRemoved,
    SiteSaved,
    SiteStatusRequested,
    SiteTried,
    SyncReceived,
    Ticked,
    TokenIssued,
    TokenRevoked,
    TrialEnded,
)
from covey.core.record.model import BagId, Settings, Snapshot
from covey.core.record.suspects import Suspect, brief, suspect, trace
from covey.core.scheduler import Scheduler
from covey.core.sites.demand import DemandRow
from covey.core.state import Bag, Candidate
from covey.ports import (
    Clock,
    CommitFailed,
    EngineEvent,
    Log,
    OpenFailed,
    Replies,
    Sites,
    Store,
    StoreOpened,
    Tables,
)

REOPEN_SECONDS = 1.0
ERROR_SECONDS = 60.0

Request = (
    BagSubmitted
    | SegmentAppended
    | CloseRequested
    | CancelRequested
    | PauseRequested
    | ResumeRequested
    | RetryRequested
    | PolicyRequested
    | PurgeRequested
    | TokenIssued
    | TokenRevoked
    | SiteSaved
    | SiteStatusRequested
    | SiteRemoved
    | SiteTried
    | TrialEnded
    | PilotDismissed
    | PilotEnrolled
    | SyncReceived
    | PilotLeft
    | BagLoaded
)


class Engine:
    def __init__(
        self,
        *,
        store: Store,
        tables: Tables,
        replies: Replies,
        sites: Sites,
        clock: Clock,
        log: Log,
        settings: Settings,
        most_errors: int = 0,
    ) -> None:
        """`most_errors`: how many exceptions of core the engine survives within `ERROR_SECONDS`;
        the next one is raised. 0, as in tests and the simulator: every exception is raised."""
        self._store = store
        self._tables = tables
        self._replies = replies
        self._sites = sites
        self._clock = clock
        self._log = log
        self._settings = settings
        self._reopen_at = 0.0
        self._most_errors = most_errors
        self._errors: deque[float] = deque()  # times of the latest exceptions
        self._suspects: dict[BagId, Suspect] = {}
        self.scheduler: Scheduler | None = None
        self.trouble = "the store is being opened"

    def start(self) -> None:
        self._store.open()

    def handle(self, event: EngineEvent) -> None:
        match event:
            case StoreOpened(snapshot):
                self._resume(snapshot)
            case OpenFailed(reason):
                self._halt(f"the store cannot be opened: {reason}")
            case CommitFailed(reason):
                self._halt(f"the store cannot be written: {reason}")
            case _ if self.scheduler is not None:
                self._decide(self.scheduler, event)
            case Ticked():
                if self._reopen_at and self._clock.now() >= self._reopen_at:
                    self._reopen_at = 0.0
                    self._store.open()
            case _:
                self._turn_away(event)

    def _decide(self, scheduler: Scheduler, event: Event) -> None:
        try:
            actions = scheduler.handle(event, self._clock.now())
        except Exception as error:
            self._start_over(event, error)
        else:
            self._carry_out(actions)

    def _start_over(self, event: Event, error: Exception) -> None:
        """Core has raised an exception: a bug. Nothing that it decided in this turn was done. The
        request is refused, all others will come again, and the record is read anew."""
        now = self._clock.now()
        self._errors.append(now)
        while self._errors and self._errors[0] <= now - ERROR_SECONDS:
            self._errors.popleft()
        if len(self._errors) > self._most_errors:
            raise error
        self._log.note(Note("internal error", detail=trace(error)))
        bag = _bag_at_hand(error)
        if bag is not None:
            self._suspects[bag] = suspect("the server could not handle it", error)
        if isinstance(event, Request):
            words = f"the server could not handle this: {brief(error)}; see its log"
            self._replies.refuse(Refuse(event.request, Problem.INTERNAL, words))
        self._halt(f"internal error: {brief(error)}")
        self._reopen_at = 0.0
        self._store.open()

    def _resume(self, snapshot: Snapshot) -> None:
        now = self._clock.now()
        self.scheduler, actions = self._recovered(snapshot, now)
        self._suspects = {}
        self.trouble = ""
        self._log.note(Note("server ready", detail=f"epoch {snapshot.epoch}"))
        self._carry_out(actions)
        self._sites.watch(snapshot.jobs)

    def _recovered(self, snapshot: Snapshot, now: float) -> tuple[Scheduler, list[Action]]:
        """Recover, without bags that core cannot handle: they must not stop all others."""
        while True:
            try:
                return Scheduler.recover(snapshot, self._settings, now, self._suspects)
            except Exception as error:
                bag = _bag_at_hand(error)
                if not self._most_errors or bag is None or bag in self._suspects:
                    raise
                self._log.note(Note("internal error", detail=trace(error)))
                self._suspects[bag] = suspect("the server could not handle it", error)

    def _halt(self, trouble: str) -> None:
        self.scheduler = None
        self.trouble = trouble
        self._reopen_at = self._clock.now() + REOPEN_SECONDS
        self._log.note(Note("server unavailable", detail=trouble))
        self._replies.unavailable(None, trouble)

    def _turn_away(self, event: Event) -> None:
        if isinstance(event, Request):
            self._replies.unavailable(event.request, self.trouble)

    def _carry_out(self, actions: list[Action]) -> None:
        """Writes go first, since everybody waits for the disk."""
        for action in actions:
            if isinstance(action, Write):
                self._store.write(action)
        for action in actions:
            match action:
                case Write():
                    pass
                case Reply():
                    self._replies.reply(action)
                case Refuse():
                    self._replies.refuse(action)
                case LoadBag(request, bag):
                    self._store.load(request, bag)
                case LoadRows():
                    self._tables.load(action)
                case SubmitPilots(jobs):
                    self._sites.submit(jobs)
                case CancelJobs(jobs):
                    self._sites.cancel(jobs)
                case DefineSites(sites):
                    self._sites.define(sites)
                case Note():
                    self._log.note(action)
                case _:
                    assert_never(action)


def _bag_at_hand(error: Exception) -> BagId | None:
    """The bag that core was busy with: the bag of the innermost call that has one."""
    id_, place = None, error.__traceback__
    while place is not None:
        for value in place.tb_frame.f_locals.values():
            bag = value.bag if isinstance(value, Candidate | DemandRow) else value
            if isinstance(bag, Bag):
                id_ = bag.id
        place = place.tb_next
    return id_
