"""What people see of the live state: read from core, never changed here."""

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from covey.core import estimate, explaining, history
from covey.core.model import BagStatus, PilotStatus
from covey.core.space import Scalar
from covey.core.state import Bag, Pilot, State
from covey.wire import (
    BagView,
    ClassView,
    Estimate,
    HostView,
    PilotView,
    RunningRow,
    Straggler,
)

MOST_STRAGGLERS = 5


def bag_view(state: State, bag: Bag, now: float, result_names: list[str]) -> BagView:
    """A bag that core holds runs, or is paused: one whose end is durable is forgotten there, and
    nobody is told of an end that a crash might undo."""
    spec = bag.spec
    paused = bag.status is BagStatus.PAUSED
    return BagView(
        id=bag.id,
        name=spec.name,
        owner=spec.owner,
        argv=list(spec.argv),
        names=[] if spec.calls else bag.body.names,
        status=(BagStatus.PAUSED if paused else BagStatus.RUNNING).value,
        reason=bag.reason if paused else explaining.hindrance(state, bag),
        open=bag.open,
        calls=spec.calls,
        total=bag.total,
        done=len(bag.done),
        failed=len(bag.failed),
        running=len(bag.live),
        in_doubt=len(bag.doubt),
        created=bag.created,
        retries=spec.retries,
        classes=_classes(bag),
        idempotent=spec.idempotent,
        labels=spec.labels,
        notes=spec.notes,
        outputs=[*spec.outputs, *spec.optional_outputs],
        result_names=[] if spec.calls else result_names,
        estimate=_estimate(state, bag, now),
        stragglers=_stragglers(state, bag, now),
    )


def _classes(bag: Bag) -> list[ClassView]:
    return [
        ClassView(
            cores=need.cores,
            memory_mb=need.memory_mb,
            disk_mb=need.disk_mb,
            gpus=need.gpus,
            limit_seconds=need.limit_seconds,
            ended=ended,
            mean_seconds=mean_seconds,
        )
        for need, ended, mean_seconds in estimate.classes(bag)
    ]


def _estimate(state: State, bag: Bag, now: float) -> Estimate | None:
    found = estimate.estimate(state, bag, now)
    return Estimate(likely=found.likely, low=found.low, high=found.high) if found else None


def _stragglers(state: State, bag: Bag, now: float) -> list[Straggler]:
    return [
        Straggler(
            task=attempt.task,
            values=_values(bag, attempt.task),
            host=state.pilots[attempt.pilot].record.host,
            seconds=seconds,
            typical_seconds=typical,
        )
        for attempt, seconds, typical in estimate.stragglers(state, bag, now, MOST_STRAGGLERS)
    ]


def running_rows(state: State, bag: Bag, limit: int) -> list[RunningRow]:
    return list(islice(_running(state, bag), max(0, limit)))


def _running(state: State, bag: Bag) -> Iterator[RunningRow]:
    for task in sorted(bag.live):
        for attempt in bag.live[task]:
            yield RunningRow(
                task=task,
                values=_values(bag, task),
                attempt=str(attempt.id),
                pilot=attempt.pilot,
                host=state.pilots[attempt.pilot].record.host,
                sent=attempt.sent,
            )


def _values(bag: Bag, task: int) -> list[Scalar]:
    """None if the file with the task's row is just being read, or was let go of: the task has
    ended, and another attempt of it goes on. Nor of calls, which nobody can read."""
    if bag.spec.calls:
        return []
    try:
        return bag.values(task)
    except KeyError:
        return []


def pilot_view(pilot: Pilot) -> PilotView:
    record = pilot.record
    return PilotView(
        id=record.id,
        host=record.host,
        site=record.site,
        job=record.job,
        slots=record.slots,
        status=pilot.status.value,
        running=len(pilot.attempts),
        enrolled=record.enrolled,
        heard=pilot.heard,
        tags=record.tags,
        version=record.version,
        memory_mb=record.memory_mb,
        gpus=record.gpus,
        owner=record.owner,
    )


def host_views(state: State, recorded: list[HostView], now: float) -> list[HostView]:
    """The record's hosts, with what their pilots do now and what core remembers of them."""
    there: dict[str, list[Pilot]] = {}
    for pilot in state.pilots.values():
        if pilot.status is not PilotStatus.LOST:
            there.setdefault(pilot.record.host, []).append(pilot)
    return [
        _host_view(_remembered(state, host, now), there.get(host.host, [])) for host in recorded
    ]


def _remembered(state: State, host: HostView, now: float) -> HostView:
    known = state.hosts.get(host.host)
    if known is None:
        return host
    bans = {owner: ban.until for owner, ban in known.history.bans.items() if ban.until > now}
    return replace(host, error_rate=history.error_rate(state, known.history, now), banned=bans)


def _host_view(host: HostView, pilots: list[Pilot]) -> HostView:
    if not pilots:
        return host
    return replace(
        host,
        pilots=len(pilots),
        slots=sum(pilot.record.slots for pilot in pilots),
        running=sum(len(pilot.attempts) for pilot in pilots),
        heard=max(host.heard, *(pilot.heard for pilot in pilots)),
    )
