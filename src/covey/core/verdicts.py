"""What stands between a pilot and tasks that wait, in the order in which dispatch asks: is it heard
of, large enough, let in by the policy, not banned, not full."""

from collections.abc import Iterable
from typing import NamedTuple

from covey.classad import unparse
from covey.core import blame, matching
from covey.core.findings import Near
from covey.core.fitting import weight
from covey.core.looking import Case, View, parts
from covey.core.model import Need, PilotRecord, PilotStatus
from covey.core.state import Pilot, State

MOST_NEAR = 5
SILENT, SMALL, REFUSED, BANNED, RESTING, TRIED, FULL, LIMITED, FREE = (
    "silent", "small", "refused", "banned", "resting", "tried", "full", "limited", "free",
)  # fmt: skip
ABLE = (FULL, LIMITED, FREE)


class Verdict(NamedTuple):
    """What stands between a pilot and the tasks that wait. `until`: of a ban or a rest, which may
    be over."""

    pilot: Pilot
    kind: str
    near: Near | None = None
    until: float = 0.0
    served: tuple[int, ...] = ()  # which of the cases it could run


def judge(state: State, now: float, view: View, pilot: Pilot, classes: list[Case]) -> Verdict:
    bag, record = view.bag, pilot.record
    if pilot.status is not PilotStatus.ACTIVE:
        return Verdict(pilot, SILENT)
    fits = [number for number, case in enumerate(classes) if weight(bag.needs[case.kind], record)]
    if not fits:
        return Verdict(pilot, SMALL, _too_small(bag.needs[classes[0].kind], record))
    served, near, limit = [], None, float("inf")
    for number in fits:
        view.at(pilot, classes[number])
        if lets(view):
            served.append(number)
            said = matching.as_number(view.named("Concurrency"), -1.0)
            limit = min(limit, said) if said >= 0 else limit
        elif near is None:
            near = _missing(view, record)
    if not served:
        return Verdict(pilot, REFUSED, near)
    kind, until = FULL if pilot.load >= record.slots else FREE, blame.withheld(state, pilot, bag)
    if len(pilot.attempts) >= limit:
        kind = LIMITED
    if until > now:
        kind = BANNED if bag.spec.owner in state.hosts[record.host].history.bans else RESTING
    elif until and blame.is_tried(state, pilot, bag):
        kind = TRIED
    return Verdict(pilot, kind, None, until, tuple(served))


def lets(view: View) -> bool:
    """Whether the policy lets tasks run where the view is."""
    return "JobRequirements" not in view.compiled.texts or view.named("JobRequirements") is True


def lenient(verdicts: list[Verdict]) -> list[Verdict]:
    """Nobody rests or is banned where nobody else, of whom nothing bad is known, can do it."""
    if any(one.served and not one.until for one in verdicts):
        return verdicts
    return [
        one._replace(kind=FULL if one.pilot.load >= one.pilot.record.slots else FREE, until=0.0)
        if one.until
        else one
        for one in verdicts
    ]


def _too_small(need: Need, record: PilotRecord) -> Near:
    missing, values = [], {}
    for wanted, there, unit, name in (
        (need.cores, record.slots, "cores", "Pilot.Slots"),
        (need.gpus, record.gpus, "GPUs", "Host.Gpus"),
        (need.memory_mb, record.memory_mb, "MB of memory", "Host.Memory"),
        (need.disk_mb, record.disk_mb, "MB of disk", "Host.Disk"),
    ):
        said = there or unit in ("cores", "GPUs")
        if said and wanted > there:
            missing.append(f"{wanted:,} {unit}")
            values[name] = str(there)
    return Near(host=record.host, missing=missing, values=values)


def _missing(view: View, record: PilotRecord) -> Near:
    """Which parts of JobRequirements do not hold where the view is."""
    missing, values = [], {}
    for part in parts(view.node("JobRequirements")):
        found = view.value(part)
        if found is not True:
            missing.append(unparse(part))
            values.update(view.values(part))
    return Near(host=record.host, missing=missing, values=values)


def nearest(verdicts: Iterable[Verdict]) -> list[Near]:
    """Those that miss the fewest things, a host once."""
    found = {one.near.host: one.near for one in verdicts if one.near is not None}
    least = min((len(near.missing) for near in found.values()), default=0)
    return [near for near in found.values() if len(near.missing) == least][:MOST_NEAR]
