"""The heart of covey: an event and the time go in, actions come out.

`handle` is the only way state changes. It does nothing itself: the engine carries the actions
out, and their answers come back as events. Read the modules in this order: `model` (what there
is), `events` and `actions` (the vocabulary), then `bags`, `pilots`, `dispatch`, `ends`,
`recovery`, `overlay` (the decisions).
"""

from collections.abc import Mapping
from types import MappingProxyType

from covey.core.after_commit import Answering, Forgetting, Replying, Reserving, Starting, Then
from covey.core.bags import bag_requests, lookahead, quarantine, waiting_programs
from covey.core.broker import service_weights
from covey.core.match import bag_policy, dispatch, policy_budget, replication
from covey.core.protocol import host_history, pilots, recovery, tokens
from covey.core.record.actions import Action
from covey.core.record.events import (
    BagLoaded,
    BagSubmitted,
    CancelRequested,
    CloseRequested,
    Committed,
    DrainRequested,
    DrawContinued,
    Event,
    FollowRequested,
    JobEnded,
    JobRefused,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    JobSuspended,
    JobVanished,
    PauseRequested,
    PilotDismissed,
    PilotEnrolled,
    PilotLeft,
    PolicyRequested,
    ProgramHeard,
    PurgeRequested,
    RequestDropped,
    ResumeRequested,
    RetryRequested,
    RowsFailed,
    RowsLoaded,
    SegmentAppended,
    SiteAnswered,
    SiteEvent,
    SiteFailed,
    SiteMeasured,
    SiteRemoved,
    SiteSaved,
    SiteStatusRequested,
    SiteTried,
    SyncReceived,
    Ticked,
    TokenIssued,
    TokenRevoked,
    TrialEnded,
    WeightsFailed,
    WeightsGiven,
)
from covey.core.record.model import BagId, Settings, Snapshot
from covey.core.record.suspects import Suspect
from covey.core.sites import overlay, site_history, site_table
from covey.core.state import State
from covey.core.turn import Turn


class Scheduler:
    """Decides. `recover` gives one that goes on where the record stops."""

    def __init__(self, state: State) -> None:
        self.state = state

    @classmethod
    def recover(
        cls,
        snapshot: Snapshot,
        settings: Settings,
        now: float,
        suspects: Mapping[BagId, Suspect] = MappingProxyType({}),
    ) -> tuple["Scheduler", list[Action]]:
        """`suspects`: bags that an earlier scheduler could not handle."""
        turn = recovery.rebuild(snapshot, settings, now, suspects)
        quarantine.settle(turn)
        scheduler = cls(turn.state)
        overlay.soon(turn)
        scheduler._finish(turn)
        return scheduler, turn.actions

    def handle(self, event: Event, now: float) -> list[Action]:
        self.state.turns += 1
        turn = Turn(self.state, now)
        _decide(turn, event)
        self._finish(turn)
        return turn.actions

    def _finish(self, turn: Turn) -> None:
        """Do what has become possible: what waited for durability, then waiting pilots."""
        turn.flush()
        state, queue, journal = self.state, self.state.queue, self.state.journal
        while journal.then and journal.then[0][0] <= journal.durable:
            _follow_up(turn, journal.then.popleft()[1])
        while queue.signalled:
            id_ = next(iter(queue.signalled))
            del queue.signalled[id_]
            if id_ in state.pilots:
                pilots.answer_parked(turn, state.pilots[id_])
        if queue.hungry and queue.offered != queue.news:
            queue.offered = queue.news
            for id_ in dispatch.hungry_first(turn):
                if not dispatch.work_available(state):
                    break
                pilots.answer_parked(turn, state.pilots[id_])
        if state.suspects:
            quarantine.settle(turn)
        turn.flush()  # tasks that could not be sent have failed in the steps above


def _decide(turn: Turn, event: Event) -> None:
    match event:
        case SyncReceived(request, sync):
            pilots.sync(turn, request, sync)
        case Committed(through):
            turn.state.journal.durable = through
        case BagSubmitted(request, spec):
            bag_requests.submit(turn, request, spec)
            site_table.note_owner(turn, spec.owner)
            overlay.soon(turn)
        case CancelRequested(request, bag):
            bag_requests.cancel(turn, request, bag)
        case SegmentAppended():
            bag_requests.append(turn, event)
            waiting_programs.heard(turn, event.bag)
            overlay.soon(turn)
        case CloseRequested(request, bag):
            bag_requests.close(turn, request, bag)
        case PauseRequested(request, bag, reason):
            bag_requests.pause(turn, request, bag, reason)
        case ResumeRequested(request, bag):
            bag_requests.resume(turn, request, bag)
            overlay.soon(turn)
        case RetryRequested():
            bag_requests.retry(turn, event)
            overlay.soon(turn)
        case PolicyRequested():
            bag_requests.set_policy(turn, event)
            overlay.soon(turn)
        case PurgeRequested():
            bag_requests.purge(turn, event)
        case TokenIssued() | TokenRevoked():
            tokens.change(turn, event)
            site_table.look_at_owners(turn, tokens=True)
        case PilotDismissed(request, pilot):
            pilots.dismiss(turn, request, pilot)
        case FollowRequested(bag, task):
            pilots.follow(turn, bag, task)
        case ProgramHeard(bag):
            waiting_programs.heard(turn, bag)
        case BagLoaded(request, bag, snapshot):
            bag_requests.loaded(turn, request, bag, snapshot)
            overlay.soon(turn)
        case RowsLoaded(bag, chunk, rows):
            lookahead.rows_loaded(turn, bag, chunk, rows)
        case RowsFailed(bag, chunk, reason):
            lookahead.rows_failed(turn, bag, chunk, reason)
        case PilotEnrolled():
            pilots.enrol(turn, event)
        case PilotLeft(request, leave):
            pilots.leave(turn, request, leave)
            overlay.soon(turn)
        case RequestDropped(request, pilot):
            pilots.dropped(turn, request, pilot)
        case DrainRequested():
            turn.state.draining = True
            host_history.save(turn, at_once=True)
            site_history.save(turn, at_once=True)
            turn.state.queue.signalled.update(dict.fromkeys(turn.state.pilots))
        case DrawContinued():
            replication.go_on(turn)
            policy_budget.go_on(turn)
        case Ticked():
            _tick(turn)
        case _:
            _handle_site_event(turn, event)


def _tick(turn: Turn) -> None:
    turn.state.queue.news += 1  # a ban may be over, a statistic may have changed
    pilots.tick(turn)
    recovery.tick(turn)
    waiting_programs.tick(turn)
    replication.tick(turn)
    dispatch.recall_surplus(turn)
    bag_policy.tick(turn.state, turn.now)
    host_history.save(turn)
    site_history.tick(turn)
    overlay.tick(turn)
    policy_budget.tick(turn)


def _handle_site_event(turn: Turn, event: SiteEvent) -> None:
    """Events of sites and their jobs."""
    match event:
        case JobSubmitted(job, handle):
            overlay.submitted(turn, job, handle)
        case JobStarted(job, seconds):
            overlay.started(turn, job, seconds)
        case JobSuspended(job, suspended):
            overlay.suspended(turn, job, suspended)
        case JobRequeued(job, reason):
            overlay.requeued(turn, job, reason)
        case JobVanished(job, reason):
            overlay.vanished(turn, job, reason)
        case JobRefused(job, reason):
            overlay.refused(turn, job, reason)
        case JobEnded(job, reason):
            overlay.ended(turn, job, reason)
        case SiteFailed(site, reason):
            overlay.site_failed(turn, site, reason)
        case SiteAnswered(site):
            overlay.site_answered(turn, site)
        case SiteMeasured(site, capacity):
            site_table.measured(turn, site, capacity)
        case SiteSaved():
            site_table.save(turn, event)
            overlay.soon(turn)
        case SiteStatusRequested():
            site_table.set_status(turn, event)
            overlay.tick(turn)
        case SiteRemoved():
            site_table.remove(turn, event)
            overlay.tick(turn)
        case WeightsGiven():
            service_weights.given(turn, event)
            overlay.soon(turn)
        case WeightsFailed():
            service_weights.failed(turn, event)
        case SiteTried(request, site, owner):
            overlay.try_out(turn, request, site, owner)
        case TrialEnded(request, job):
            overlay.end_trial(turn, request, job)


def _follow_up(turn: Turn, then: Then) -> None:
    """A step that had to wait until a write was durable."""
    state = turn.state
    match then:
        case Answering(pilot, number):
            if pilot in state.pilots:
                pilots.answer_durable(turn, state.pilots[pilot], number)
        case Replying(request, message):
            turn.reply(request, message)
            state.queue.news += 1  # tasks of a durable bag may go out now
        case Reserving(bag, chunk):
            if bag in state.bags:
                lookahead.reserved(turn, state.bags[bag], chunk)
        case Starting(jobs):
            overlay.start(turn, jobs)
        case Forgetting(bag):
            bag_requests.forget(turn, bag)
