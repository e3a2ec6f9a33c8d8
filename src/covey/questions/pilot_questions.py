"""Questions about pilots, their hosts and their enrolments. `viewer`: an owner, who sees their own
pilots and those for everybody; None: an admin, who sees all."""

from msgspec import Struct

from covey.core.bags import estimate
from covey.core.explain.steps import Steps
from covey.core.protocol import host_history
from covey.core.protocol.report_check import shown_tags
from covey.core.record.model import AttemptId, BagId, JobId, PilotId, PilotStatus
from covey.core.state import Pilot, State
from covey.questions.question import LongQuestion, Question
from covey.questions.site_questions import hides
from covey.wire import PilotView

FEW_PILOTS = 50  # looked at in one step


# -- seeing ------------------------------------------------------------------------------------


class ViewsOfPilots(LongQuestion[list[PilotView]], frozen=True):
    """Pilots that are active, or may be; the latest first."""

    viewer: str | None

    def steps(self, state: State, now: float) -> Steps[list[PilotView]]:
        views, viewer = [], self.viewer
        for number, pilot in enumerate(reversed(list(state.pilots.values()))):
            if number % FEW_PILOTS == FEW_PILOTS - 1:
                yield
            if viewer is None or _is_shown(state, pilot, viewer):
                views.append(_pilot_view(pilot, viewer))
        return views


def serves(owner: str, viewer: str | None) -> bool:
    """Whether the viewer sees what pilots of this owner (empty: everybody's) do."""
    return viewer is None or owner in ("", viewer)


def _is_shown(state: State, pilot: Pilot, viewer: str) -> bool:
    record = pilot.record
    return serves(record.owner, viewer) and not hides(state, record.site, viewer)


def _pilot_view(pilot: Pilot, viewer: str | None) -> PilotView:
    record = pilot.record
    running = sum(1 for _ in estimate.in_slots(pilot))
    return PilotView(
        id=record.id,
        host=record.host,
        site=record.site,
        job=record.job,
        slots=record.slots,
        status=pilot.status.value,
        running=running,
        sent=len(pilot.attempts) - running,
        enrolled=record.enrolled,
        heard=pilot.heard,
        tags=record.tags if viewer is None else shown_tags(record.tags, viewer),
        version=record.version,
        memory_mb=record.memory_mb,
        gpus=record.gpus,
        owner=record.owner,
        shortage=pilot.shortage,
    )


class HostNow(Struct, kw_only=True):
    """What pilots do at a host now. Without pilots there: only core's history of the host."""

    error_rate: float | None = None
    banned: dict[str, float] = {}  # owner -> until when
    pilots: int = 0
    slots: int = 0
    running: int = 0
    sent: int = 0
    heard: float = 0.0
    shortage: str = ""
    tags: dict[str, str] = {}  # of the pilot that was heard last


class HostsNow(LongQuestion[dict[str, HostNow]], frozen=True):
    """All hosts that core knows, with those of their pilots that the viewer may see."""

    viewer: str | None

    def steps(self, state: State, now: float) -> Steps[dict[str, HostNow]]:
        hosts: dict[str, HostNow] = {}
        for number, (name, host) in enumerate(list(state.hosts.items())):
            if number % FEW_PILOTS == FEW_PILOTS - 1:
                yield
            history = host.history
            bans = {owner: ban.until for owner, ban in history.bans.items() if ban.until > now}
            rate = host_history.error_rate(state, history, now)
            hosts[name] = HostNow(error_rate=rate, banned=bans)
        for number, pilot in enumerate(list(state.pilots.values())):
            if number % FEW_PILOTS == FEW_PILOTS - 1:
                yield
            if serves(pilot.record.owner, self.viewer) and pilot.status is not PilotStatus.LOST:
                _add(hosts.setdefault(pilot.record.host, HostNow()), pilot)
        return hosts


def _add(host: HostNow, pilot: Pilot) -> None:
    running = sum(1 for _ in estimate.in_slots(pilot))
    host.pilots += 1
    host.slots += pilot.record.slots
    host.running += running
    host.sent += len(pilot.attempts) - running
    host.shortage = host.shortage or pilot.shortage
    if pilot.heard > host.heard:
        host.heard, host.tags = pilot.heard, pilot.record.tags


class OwnerOfPilot(Question[str | None], frozen=True):
    """Whose tasks the pilot runs (empty: anybody's); None: core does not know the pilot."""

    pilot: PilotId

    def answer(self, state: State, now: float) -> str | None:
        pilot = state.pilots.get(self.pilot)
        return pilot.record.owner if pilot is not None else None


# -- who calls ---------------------------------------------------------------------------------


class JobLives(Question[bool], frozen=True):
    """Whether this site job has not ended."""

    job: JobId

    def answer(self, state: State, now: float) -> bool:
        return self.job in state.jobs


class GonePilots(Question[list[PilotId]], frozen=True):
    """Those of these pilots that have gone."""

    pilots: tuple[PilotId, ...]

    def answer(self, state: State, now: float) -> list[PilotId]:
        return [id_ for id_ in self.pilots if id_ not in state.pilots]


# -- what a pilot has --------------------------------------------------------------------------


class ReturnRule(Struct, frozen=True):
    """The owner of the files that a task of the bag returns, and how much a task may return."""

    owner: str
    output_mb: int


class PilotWork(Struct, frozen=True):
    pilot: PilotId
    attempts: list[tuple[AttemptId, BagId]]
    bags: dict[BagId, ReturnRule]  # bags of these attempts that core holds


class WorkOfPilot(Question[PilotWork | None], frozen=True):
    """What the pilot runs; None: unknown, because the pilot must first report it."""

    pilot: PilotId

    def answer(self, state: State, now: float) -> PilotWork | None:
        pilot = state.pilots.get(self.pilot)
        if pilot is None or pilot.resync:
            return None
        attempts = [(attempt.id, attempt.bag) for attempt in pilot.attempts.values()]
        bags = {}
        for _, id_ in attempts:
            if id_ not in bags and id_ in state.bags:
                spec = state.bags[id_].spec
                bags[id_] = ReturnRule(spec.owner, spec.output_mb)
        return PilotWork(self.pilot, attempts, bags)


class HasCallFile(Question[bool], frozen=True):
    """Whether a task of the pilot is a large call that is in this file."""

    pilot: PilotId
    digest: str

    def answer(self, state: State, now: float) -> bool:
        pilot = state.pilots.get(self.pilot)
        for attempt in pilot.attempts.values() if pilot is not None else ():
            bag = state.bags.get(attempt.bag)
            call = bag.call_file(attempt.task) if bag is not None and bag.inputs.large else None
            if call is not None and call.digest == self.digest:
                return True
        return False


class MayReportOutput(Question[list[bool]], frozen=True):
    """For each of these attempts: whether the pilot may report its output. It may for bags whose
    tasks it was given, since the attempt itself may just have ended."""

    pilot: PilotId
    attempts: tuple[tuple[AttemptId, BagId], ...]

    def answer(self, state: State, now: float) -> list[bool]:
        pilot = state.pilots.get(self.pilot)
        if pilot is None:
            return [False] * len(self.attempts)
        return [bag in pilot.bodies or _has(pilot, id_, bag) for id_, bag in self.attempts]


def _has(pilot: Pilot, id_: AttemptId, bag: BagId) -> bool:
    attempt = pilot.attempts.get(id_)
    return attempt is not None and attempt.bag == bag
