"""Estimates when a bag will be over, and finds the tasks that hold it up.

The tasks that are left are counted per class, each at the mean time of its class so far, and shared
among the slots that work on the bag. Tasks of milliseconds take longer to hand out than to run: for
them the rate at which tasks end is used. The range is wide if times differ much, or if few tasks
have ended; it includes a last wave of long tasks."""

from collections.abc import Iterator
from typing import NamedTuple

from covey.core.record.attempts import Attempt
from covey.core.record.model import BagStatus, Need, PilotId
from covey.core.state import Bag, Pilot, State
from covey.core.values.durations import Times

SHORT_SECONDS = 2.0  # the rate is used for tasks that take less
SURE = 1.28  # deviations: the end is within the range four times in five
DOUBT = 0.05  # least uncertainty of a mean, as a part of it
ENOUGH = 3  # ends of tasks of a class from which its times are known
FEW = 5  # ends that are needed before a task can be called a straggler
LATE_SECONDS = 5.0


class Estimate(NamedTuple):
    """Seconds from now."""

    likely: float
    low: float
    high: float


class ClassTimes(NamedTuple):
    need: Need
    ended: int
    mean_seconds: float


class Late(NamedTuple):
    """A running attempt that takes much longer than others of its class did."""

    attempt: Attempt
    seconds: float
    typical_seconds: float


def expected(bag: Bag, kind: int) -> Times:
    """How long tasks of this class take. If few of them have ended, it comes from all tasks of the
    bag: from the part of their time limits that they took."""
    class_, pace = bag.classes[kind], bag.classes.pace
    own, limit = class_.times, class_.need.limit_seconds
    if own.count >= ENOUGH or pace.count <= own.count or not limit:
        return own
    return Times(pace.count, pace.mean * limit, pace.squares * limit**2)


def classes(bag: Bag) -> list[ClassTimes]:
    """One for each need. Classes that only the policy tells apart are added up."""
    counts, sums = [0] * len(bag.classes.by_number), [0.0] * len(bag.classes.by_number)
    for class_ in bag.classes:
        counts[class_.number] += class_.times.count
        sums[class_.number] += class_.times.count * class_.times.mean
    return [
        ClassTimes(bag.classes[kind].need, count, total / count if count else 0.0)
        for kind, count, total in zip(bag.classes.by_number, counts, sums, strict=True)
    ]


def estimate(state: State, bag: Bag, now: float) -> Estimate | None:
    """None if no task has ended yet, or none is left, or the bag does not run."""
    known = [class_.times for class_ in bag.classes if class_.times.count]
    left = bag.total - len(bag.places.done) - len(bag.places.failed)
    if not known or left <= 0 or bag.status is not BagStatus.RUNNING:
        return None
    mean, deviation, seen = _mixture(bag, known)
    slots = min(_slots(state, bag), left)
    likely = left * mean / slots
    elapsed = now - bag.progress.first_end
    if mean < SHORT_SECONDS and bag.progress.ends > FEW and elapsed > 1.0:
        likely = max(likely, left * elapsed / bag.progress.ends)
    spread = deviation / mean if mean > 0 else 0.0
    unsure = (spread**2 / seen + spread**2 / left + DOUBT**2) ** 0.5
    if seen < FEW:
        unsure = max(unsure, 1.0 / (seen + 1))
    wave = min(1.0, slots / left) * SURE * deviation  # the last tasks are not shared among slots
    low = likely * max(0.0, 1.0 - SURE * unsure)
    high = likely * (1.0 + SURE * unsure) + wave
    if left <= slots:  # the last wave: a late task will take about as long again
        late = (
            max((now - attempt.sent for attempt in probably_running(state, bag)), default=0.0)
            - mean
        )
        likely, high = max(likely, late / 2), max(high, 2 * late)
    return Estimate(likely, min(low, likely), high)


def _mixture(bag: Bag, known: list[Times]) -> tuple[float, float, int]:
    """Mean and deviation of the times of the tasks that are left, and how many tasks have ended.
    The classes of waiting and running tasks are known; all others are taken to be like the tasks
    that have ended."""
    waiting = [len(ready) for ready in bag.places.ready]
    for attempts in bag.places.live.values():
        waiting[attempts[0].kind] += 1
    seen = sum(times.count for times in known)
    unknown = max(0, bag.total - bag.places.next) + len(bag.places.parked) + len(bag.places.doubt)
    fallback = sum(times.count * times.mean for times in known) / seen
    total = mean = square = 0.0
    for kind, count in enumerate(waiting):
        share, times = count + unknown * bag.classes[kind].times.count / seen, expected(bag, kind)
        middle = times.mean if times.count else fallback
        spread = times.deviation if times.count > 1 else middle / 2
        total += share
        mean += share * middle
        square += share * (middle**2 + spread**2)
    if total == 0:
        return fallback, fallback / 2, seen
    mean /= total
    return mean, max(0.0, square / total - mean**2) ** 0.5, seen


def _slots(state: State, bag: Bag) -> int:
    """How many tasks of this bag run at a time, as of now. Free slots of pilots that have only
    tasks of this bag count, too: they will have a task in a moment."""
    room: dict[PilotId, int] = {}
    found = 0
    for attempt in probably_running(state, bag):
        found += 1
        pilot = state.pilots[attempt.pilot]
        room[attempt.pilot] = (pilot.record.slots - pilot.load) // attempt.weight
    if "Concurrency" not in bag.policy.texts:
        found += sum(more for id_, more in room.items() if more > 0 and _has_all(state, bag, id_))
    return found or state.slots() or 1


def _has_all(state: State, bag: Bag, pilot: PilotId) -> bool:
    return all(attempt.bag == bag.id for attempt in state.pilots[pilot].attempts.values())


def stragglers(state: State, bag: Bag, now: float, limit: int) -> list[Late]:
    """Attempts that take much longer than others of their class, the worst first."""
    if sum(class_.times.count for class_ in bag.classes) < FEW:
        return []
    late_ones: list[Late] = []
    for attempt in probably_running(state, bag):
        times, seconds = expected(bag, attempt.kind), now - attempt.sent
        bound = max(times.mean + 4 * times.deviation, 2 * times.mean + LATE_SECONDS)
        if times.count >= FEW and seconds > bound:
            late_ones.append(Late(attempt, seconds, times.mean))
    return sorted(late_ones, key=lambda late: (-late.seconds, late.attempt.id))[:limit]


def probably_running(state: State, bag: Bag) -> Iterator[Attempt]:
    """Attempts of a bag that probably run; the others are sent ahead (see `in_slots`)."""
    live = bag.places.live.values()
    for id_ in dict.fromkeys(attempt.pilot for attempts in live for attempt in attempts):
        for attempt in in_slots(state.pilots[id_]):
            if attempt.bag == bag.id:
                yield attempt


def in_slots(pilot: Pilot) -> Iterator[Attempt]:
    """Attempts that probably have a slot of this pilot: it starts attempts in the order in which
    they came, so those that were sent ahead wait behind the others."""
    room = pilot.record.slots
    for attempt in pilot.attempts.values():
        if room <= 0:
            return
        room -= attempt.weight
        yield attempt
