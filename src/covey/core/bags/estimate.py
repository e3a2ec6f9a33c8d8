"""When a bag will be over, and which of its tasks hold it up.

What is left is counted per class, each task at the mean time that its class took so far, and
shared among the slots that work on the bag. Tasks of milliseconds take longer to hand out
than to run, so for those the rate at which they end is believed instead. The range comes from how
much times differ, and from how few have been seen; it ends with a last wave of long ones.
"""

from collections.abc import Iterator
from typing import NamedTuple

from covey.core.record.attempts import Attempt
from covey.core.record.model import BagStatus, Need, PilotId
from covey.core.state import Bag, Pilot, State
from covey.core.values.durations import Times

SHORT_SECONDS = 2.0  # the rate is believed for tasks that take less
SURE = 1.28  # deviations: four times in five it is between the two ends
DOUBT = 0.05  # of any mean, however often it was measured
ENOUGH = 3  # ends of tasks of a class, to tell how long they take
FEW = 5  # ends, before a task can be called a straggler
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
    """How long tasks of this class take. As long as few of them have ended, that is told by all
    tasks of the bag, which took some part of their time limits."""
    known, pace = bag.classes[kind], bag.classes.pace
    own, limit = known.times, known.need.limit_seconds
    if own.count >= ENOUGH or pace.count <= own.count or not limit:
        return own
    return Times(pace.count, pace.mean * limit, pace.squares * limit**2)


def classes(bag: Bag) -> list[ClassTimes]:
    """One for each number of a need: what a policy tells apart besides needs the same."""
    counts, sums = [0] * len(bag.classes.by_number), [0.0] * len(bag.classes.by_number)
    for one in bag.classes:
        counts[one.number] += one.times.count
        sums[one.number] += one.times.count * one.times.mean
    return [
        ClassTimes(bag.classes[kind].need, count, total / count if count else 0.0)
        for kind, count, total in zip(bag.classes.by_number, counts, sums, strict=True)
    ]


def estimate(state: State, bag: Bag, now: float) -> Estimate | None:
    """Nothing while nothing is known, or nothing goes on."""
    known = [one.times for one in bag.classes if one.times.count]
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
    wave = min(1.0, slots / left) * SURE * deviation  # the last ones are not shared out
    low = likely * max(0.0, 1.0 - SURE * unsure)
    high = likely * (1.0 + SURE * unsure) + wave
    if left <= slots:  # the last wave: who has been late will be late for about as long again
        late = (
            max((now - attempt.sent for attempt in probably_running(state, bag)), default=0.0)
            - mean
        )
        likely, high = max(likely, late / 2), max(high, 2 * late)
    return Estimate(likely, min(low, likely), high)


def _mixture(bag: Bag, known: list[Times]) -> tuple[float, float, int]:
    """Mean and deviation of what is left, and how many were seen. What is queued or out is of
    known classes; what was never looked at is taken to be like what has ended."""
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
    """Tasks of this bag that run at a time, as things are. Where no other bag has any, a slot that
    is free is so for a moment."""
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
    return all(one.bag == bag.id for one in state.pilots[pilot].attempts.values())


def stragglers(state: State, bag: Bag, now: float, limit: int) -> list[Late]:
    """The worst first."""
    if sum(one.times.count for one in bag.classes) < FEW:
        return []
    found: list[Late] = []
    for attempt in probably_running(state, bag):
        times, seconds = expected(bag, attempt.kind), now - attempt.sent
        bound = max(times.mean + 4 * times.deviation, 2 * times.mean + LATE_SECONDS)
        if times.count >= FEW and seconds > bound:
            found.append(Late(attempt, seconds, times.mean))
    return sorted(found, key=lambda late: (-late.seconds, late.attempt.id))[:limit]


def probably_running(state: State, bag: Bag) -> Iterator[Attempt]:
    """Attempts of a bag that probably run; the others are sent ahead (see `in_slots`)."""
    pilots = dict.fromkeys(one.pilot for attempts in bag.places.live.values() for one in attempts)
    for id_ in pilots:
        for attempt in in_slots(state.pilots[id_]):
            if attempt.bag == bag.id:
                yield attempt


def in_slots(pilot: Pilot) -> Iterator[Attempt]:
    """Attempts that probably have a slot of this pilot: it starts what it has in the order in
    which it came, and what was sent ahead waits behind that."""
    room = pilot.record.slots
    for attempt in pilot.attempts.values():
        if room <= 0:
            return
        room -= attempt.weight
        yield attempt
