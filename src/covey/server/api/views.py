"""What people see of the live state: read from core, never changed here."""

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from covey.core.bags import estimate
from covey.core.bags.input_versions import version_in
from covey.core.explain import bag_answers
from covey.core.protocol import host_history
from covey.core.protocol.report_check import shown_tags
from covey.core.record.input_files import summary, views_of
from covey.core.record.model import BagStatus, PilotStatus, Role
from covey.core.state import Bag, Pilot, Site, State
from covey.core.values.space import Scalar
from covey.server.web.auth import Caller
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
MOST_SHOWN_WIDTH = 100_000  # characters of a task's values, where they are only there to read
MOST_PAGE_CHARACTERS = 8 << 20  # of values in one answer: to write it holds the server up


def bag_view(
    state: State,
    bag: Bag,
    now: float,
    result_names: list[str],
    ignored_results: list[str],
) -> BagView:
    """A bag that core holds runs, or is paused: one whose end is durable is forgotten there, and
    nobody is told of an end that a crash might undo."""
    spec = bag.spec
    running = len({attempt.task for attempt in estimate.probably_running(state, bag)})
    paused = bag.status is BagStatus.PAUSED
    return BagView(
        id=bag.id,
        name=spec.name,
        owner=spec.owner,
        argv=list(spec.argv),
        names=[] if spec.calls else bag.body.names,
        readings=bag.numbering.readings,
        status=(BagStatus.PAUSED if paused else BagStatus.RUNNING).value,
        reason=bag.reason if paused else bag_answers.hindrance(state, bag),
        open=bag.open,
        calls=spec.calls,
        total=bag.total,
        done=len(bag.places.done),
        failed=len(bag.places.failed),
        running=running,
        sent=len(bag.places.live) - running,
        in_doubt=len(bag.places.doubt),
        created=bag.created,
        retries=spec.retries,
        overtimes=spec.overtimes,
        grow_time=spec.grow_time,
        classes=_classes(bag),
        idempotent=spec.idempotent,
        labels=spec.labels,
        notes=spec.notes,
        outputs=[*spec.outputs, *spec.optional_outputs],
        result_names=[] if spec.calls else result_names,
        ignored_results=ignored_results,
        unkept=bag.outputs.summary.unkept,
        inputs=summary(spec, views_of(bag.inputs.versions)),
        estimate=_estimate(state, bag, now),
        stragglers=_stragglers(state, bag, now),
    )


def _classes(bag: Bag) -> list[ClassView]:
    all_known = bag.progress.ends >= len(bag.places.done)
    return [
        ClassView(
            cores=need.cores,
            memory_mb=need.memory_mb,
            disk_mb=need.disk_mb,
            gpus=need.gpus,
            limit_seconds=need.limit_seconds,
            ended=ended if all_known else None,
            mean_seconds=mean_seconds if ended else None,
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
            values=_values(bag, attempt.task) if bag.width <= MOST_SHOWN_WIDTH else [],
            host=state.pilots[attempt.pilot].record.host,
            seconds=seconds,
            typical_seconds=typical,
        )
        for attempt, seconds, typical in estimate.stragglers(state, bag, now, MOST_STRAGGLERS)
    ]


def running_rows(state: State, bag: Bag, limit: int) -> list[RunningRow]:
    """Fewer than the limit if the bag's values are long."""
    most = max(1, MOST_PAGE_CHARACTERS // bag.width)
    return list(islice(_running(state, bag), max(0, min(limit, most))))


def _running(state: State, bag: Bag) -> Iterator[RunningRow]:
    started = {attempt.id for attempt in estimate.probably_running(state, bag)}
    for task in sorted(bag.places.live):
        for attempt in bag.places.live[task]:
            yield RunningRow(
                task=task,
                state="running" if attempt.id in started else "sent",
                values=_values(bag, task),
                attempt=str(attempt.id),
                pilot=attempt.pilot,
                host=state.pilots[attempt.pilot].record.host,
                sent=attempt.sent,
                inputs_version=version_in(bag, attempt.id),
            )


def _values(bag: Bag, task: int) -> list[Scalar]:
    """None if the file with the task's row is just being read, or was let go of: the task has
    ended, and another attempt of it goes on. Nor of calls, which nobody can read."""
    if bag.spec.calls:
        return []
    try:
        return bag.values(task)
    except Exception:  # of one that is quarantined, anything
        return []


def pilot_view(pilot: Pilot) -> PilotView:
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
        tags=record.tags,
        version=record.version,
        memory_mb=record.memory_mb,
        gpus=record.gpus,
        owner=record.owner,
        shortage=pilot.shortage,
    )


def pilot_seen_by(state: State | None, caller: Caller, view: PilotView) -> PilotView | None:
    """A pilot that runs the caller's tasks, or might, without what is others'; None: it is not
    for them to see."""
    if caller.may(Role.ADMIN):
        return view
    site = state.sites.get(view.site) if state is not None else None
    if view.owner not in ("", caller.owner) or not (site is None or concerns(caller, site)):
        return None
    return replace(view, tags=shown_tags(view.tags, caller.owner))


def hosts_seen_by(
    state: State | None, caller: Caller, hosts: list[HostView], owners: dict[str, set[str]]
) -> list[HostView]:
    """Those that a pilot which the caller may see is on, or was; `owners` has whose pilots were
    on each. Of hosts of theirs alone, others see nothing; of those that serve several, what is
    the caller's, and what is nobody's."""
    if caller.may(Role.ADMIN):
        return hosts
    found, own = [], {"", caller.owner}
    for host in hosts:
        whose = owners.get(host.host, set())
        if whose & own and _site_concerns(state, caller, host):
            # What another's own pilot said last is not for the caller.
            tags = host.tags if whose <= own or host.pilots else {}
            bans = {owner: ban for owner, ban in host.banned.items() if owner in own}
            found.append(replace(host, tags=shown_tags(tags, caller.owner), banned=bans))
    return found


def _site_concerns(state: State | None, caller: Caller, host: HostView) -> bool:
    site = state.sites.get(host.site) if state is not None else None
    return site is None or concerns(caller, site)


def concerns(caller: Caller, site: Site) -> bool:
    """Whether the caller may use the site, and so may see it."""
    users = site.record.spec.users
    return caller.may(Role.ADMIN) or not users or caller.owner in users


def host_views(
    state: State, recorded: list[HostView], now: float, caller: Caller
) -> list[HostView]:
    """The record's hosts, with what their pilots (those that the caller may see) do now and what
    core remembers of them."""
    there: dict[str, list[Pilot]] = {}
    for pilot in state.pilots.values():
        serves = caller.may(Role.ADMIN) or pilot.record.owner in ("", caller.owner)
        if pilot.status is not PilotStatus.LOST and serves:
            there.setdefault(pilot.record.host, []).append(pilot)
    return [
        _host_view(_remembered(state, host, now), there.get(host.host, [])) for host in recorded
    ]


def _remembered(state: State, host: HostView, now: float) -> HostView:
    known = state.hosts.get(host.host)
    if known is None:
        return host
    bans = {owner: ban.until for owner, ban in known.history.bans.items() if ban.until > now}
    return replace(host, error_rate=host_history.error_rate(state, known.history, now), banned=bans)


def _host_view(host: HostView, pilots: list[Pilot]) -> HostView:
    if not pilots:
        return host
    running = sum(1 for pilot in pilots for _ in estimate.in_slots(pilot))
    return replace(
        host,
        tags=max(pilots, key=lambda pilot: pilot.heard).record.tags,
        pilots=len(pilots),
        slots=sum(pilot.record.slots for pilot in pilots),
        running=running,
        sent=sum(len(pilot.attempts) for pilot in pilots) - running,
        heard=max(host.heard, *(pilot.heard for pilot in pilots)),
        shortage=next((pilot.shortage for pilot in pilots if pilot.shortage), ""),
    )
