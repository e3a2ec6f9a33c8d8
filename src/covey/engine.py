"""Event in, core, actions out, all through ports. The server and the simulator run this very
class; it has no thread, no clock and no socket of its own.

When a commit fails nothing since the last one happened: the engine drops the scheduler with
everything it decided, tells whoever waits that the server is unavailable, and opens the store
again until that works. Then it goes on as after a restart: pilots are heard, their work adopted.
"""

from typing import assert_never

from covey.core.actions import (
    Action,
    CancelJobs,
    DefineSites,
    LoadBag,
    LoadRows,
    Note,
    Refuse,
    Reply,
    SubmitPilots,
    Write,
)
from covey.core.events import (
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
from covey.core.model import Settings, Snapshot
from covey.core.scheduler import Scheduler
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
    ) -> None:
        self._store = store
        self._tables = tables
        self._replies = replies
        self._sites = sites
        self._clock = clock
        self._log = log
        self._settings = settings
        self._reopen_at = 0.0
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
                self._carry_out(self.scheduler.handle(event, self._clock.now()))
            case Ticked():
                if self._reopen_at and self._clock.now() >= self._reopen_at:
                    self._reopen_at = 0.0
                    self._store.open()
            case _:
                self._turn_away(event)

    def _resume(self, snapshot: Snapshot) -> None:
        now = self._clock.now()
        self.scheduler, actions = Scheduler.recover(snapshot, self._settings, now)
        self.trouble = ""
        self._log.note(Note("server ready", detail=f"epoch {snapshot.epoch}"))
        self._carry_out(actions)
        self._sites.watch(snapshot.jobs)

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
        """What is to be written goes first: the disk is what everybody waits for."""
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
