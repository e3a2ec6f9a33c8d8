"""Which tasks a pilot gets, and when others must give some back.

Numbers go out only below the durable mark (`reserve` moves it ahead of demand), so after a crash
everything above it is known never to have been sent.
"""

from covey.core import resting
from covey.core.actions import LeaseChunk, LoadRows, Note, SaveBagStatus
from covey.core.fitting import serves, weight
from covey.core.model import AttemptId, BagId, BagStatus, PilotStatus, TaskNumber
from covey.core.numbering import Loaded
from covey.core.space import Scalar
from covey.core.state import Attempt, Bag, Pilot, Reserving, State
from covey.core.transitions import step
from covey.core.turn import Turn

MOST_SORTED = 4096  # tasks of a chunk that are told apart by class, in one go


def take(turn: Turn, pilot: Pilot) -> list[Attempt]:
    """Attempts for this pilot, oldest bag first. It prefetches only of bags of which it has run
    a task well: what it wants is what it has measured, and this bag's tasks may be a thousand
    times longer, or all fail."""
    most = pilot.load + _room(turn.state, pilot)
    taken: list[Attempt] = []
    for bag in turn.state.bags.values():
        if pilot.load >= most:
            break
        if bag.status is not BagStatus.RUNNING or bag.not_before > turn.state.durable:
            continue
        if not serves(pilot.record, bag):
            continue
        enough = most if bag.id in pilot.proven else min(most, pilot.record.slots)
        if pilot.rests:
            enough = resting.share(turn, pilot, bag, enough)
        _take_from(turn, pilot, bag, enough, taken)
    return taken


def _take_from(turn: Turn, pilot: Pilot, bag: Bag, enough: int, taken: list[Attempt]) -> None:
    weights = [weight(need, pilot.record) for need in bag.needs]
    while pilot.load < enough:
        kind = _next_class(bag, weights, pilot, enough)
        if kind is None:
            break
        taken.append(_send(turn, pilot, bag, kind, weights[kind]))
    reserve(turn, bag, searching=pilot.load < enough and bag.classify is not None)


def _next_class(bag: Bag, weights: list[int], pilot: Pilot, enough: int) -> int | None:
    """The class of the lowest number that this pilot can run. One that is larger than what is
    left of the pilot may go too if the pilot has nothing else: it will wait there for room."""
    if bag.classify is None:
        there = weights[0] and (bag.ready[0] or bag.next < bag.mark)
        return 0 if there and _room_for(weights[0], pilot, enough) else None
    found: int | None = None
    lowest = 0
    for kind, ready in enumerate(bag.ready):
        if ready and weights[kind] and _room_for(weights[kind], pilot, enough):
            least = ready.min()
            if found is None or least < lowest:
                found, lowest = kind, least
    return found


def _room_for(taken: int, pilot: Pilot, enough: int) -> bool:
    return pilot.load + taken <= enough or pilot.load == 0


def hungry(state: State, pilot: Pilot) -> bool:
    return pilot.status is PilotStatus.ACTIVE and pilot.load < pilot.want


def work_available(state: State) -> bool:
    return any(
        bag.status is BagStatus.RUNNING
        and bag.not_before <= state.durable
        and (any(bag.ready) or bag.next < bag.mark)
        for bag in state.bags.values()
    )


def reserve(turn: Turn, bag: Bag, *, searching: bool = False) -> None:
    """Keep the mark ahead: chunks double while they are used up. A pilot that finds nothing of
    its classes (`searching`) makes us look further, within bounds."""
    settings = turn.state.settings
    if bag.asked_mark >= bag.total:
        return
    ahead = bag.asked_mark - bag.next
    if bag.classify is not None:
        ahead += bag.waiting()
    if ahead > bag.chunk // 2:
        looked_far = len(bag.chunks) >= settings.most_lookahead or bag.asked_mark > bag.mark
        if not searching or looked_far:
            return
    largest = settings.largest_chunk
    if bag.classify is not None:
        largest = min(largest, MOST_SORTED)
    bag.chunk = min(max(settings.chunk, bag.chunk * 2), largest)
    part = bag.numbering.part(bag.asked_mark)
    first, stop = bag.asked_mark, min(bag.asked_mark + bag.chunk, part.stop)
    bag.asked_mark = stop
    bag.starts.append(first)
    bag.chunks[first] = stop
    bag.unfinished[first] = stop - first
    turn.write(LeaseChunk(bag.id, first, stop), Reserving(bag.id, first))


def reserved(turn: Turn, bag: Bag, first: int) -> None:
    """The chunk is durable. Its tasks may go out once their values are known."""
    stop = bag.chunks.get(first)
    if stop is None:
        return  # cancelled meanwhile
    if bag.numbering.part(first).rows is None:
        _open_up(bag, first)
    else:
        load_rows(turn, bag, first, stop)


def _open_up(bag: Bag, first: int) -> None:
    """Move the mark over this chunk, and those behind it that were waiting for it."""
    bag.opened.add(first)
    while bag.mark in bag.opened:
        bag.opened.remove(bag.mark)
        bag.mark = bag.chunks[bag.mark]
    if bag.classify is not None and bag.status in (BagStatus.RUNNING, BagStatus.PAUSED):
        for task in range(bag.next, bag.mark):
            bag.ready[bag.class_of(task)].add(task)
        bag.next = bag.mark


def load_rows(turn: Turn, bag: Bag, first: int, stop: int) -> None:
    part = bag.numbering.part(first)
    if part.rows is None:
        return
    bag.awaited[first] = stop
    rows = (part.row_of(first), part.row_of(stop - 1) + 1)
    turn.actions.append(LoadRows(bag.id, first, part.rows, *rows))


def rows_loaded(turn: Turn, id_: BagId, first: int, rows: list[list[Scalar]]) -> None:
    bag = turn.state.bags.get(id_)
    if bag is None or first not in bag.awaited:
        return  # it is over, or they were asked for twice
    stop = bag.awaited.pop(first)
    bag.numbering.loaded[first] = Loaded(bag.numbering.part(first).row_of(first), rows)
    waiting = [task for task in bag.parked if first <= task < stop]
    for task in waiting:
        bag.parked.remove(task)
        bag.free(task)
    if first >= bag.mark:
        _open_up(bag, first)


def rows_failed(turn: Turn, id_: BagId, first: int, reason: str) -> None:
    """The bag cannot go on without them; its owner is told, and may resume it."""
    bag = turn.state.bags.get(id_)
    if bag is not None and first in bag.awaited:
        pause(turn, bag, f"the file of its parameters cannot be read: {reason}")


def pause(turn: Turn, bag: Bag, reason: str) -> None:
    """Nothing more goes out; what runs goes on, what was prefetched is asked back."""
    if bag.status is not BagStatus.RUNNING:
        return
    bag.status = step(bag.status, BagStatus.PAUSED)
    bag.reason = reason
    turn.note(Note("bag paused", bag=bag.id, detail=reason))
    done, failed = len(bag.done), len(bag.failed)
    turn.write(SaveBagStatus(bag.id, bag.status, turn.now, done, failed, reason))
    for attempts in bag.live.values():
        for attempt in attempts:
            recall(turn, attempt)


def recall_surplus(turn: Turn) -> None:
    """Slots stand idle and nothing is left to send: ask for prefetched tasks back.

    A recalled task goes elsewhere only when its pilot says that it had not started."""
    state = turn.state
    idle = sum(
        max(0, state.pilots[id_].record.slots - state.pilots[id_].load) for id_ in state.hungry
    )
    if idle <= 0 or work_available(state):
        return
    for pilot in state.pilots.values():
        surplus = pilot.load - pilot.record.slots
        if surplus <= 0 or pilot.status is not PilotStatus.ACTIVE:
            continue
        share = min((surplus + 1) // 2, idle)
        for attempt in reversed(pilot.attempts.values()):
            if share <= 0:
                break
            if recall(turn, attempt):
                idle -= attempt.weight
                share -= attempt.weight


def recall(turn: Turn, attempt: Attempt) -> bool:
    """Ask for it back, if it has not started. Whether that was asked only now."""
    if attempt.recalled or attempt.cancelled:
        return False
    attempt.recalled = True
    turn.state.pilots[attempt.pilot].recalls.append(attempt)
    turn.state.signalled[attempt.pilot] = None
    return True


def _room(state: State, pilot: Pilot) -> int:
    """How many more this pilot may hold. Near the end of the work nobody prefetches more than
    its share, so that the last tasks do not queue behind one slot while others idle."""
    if state.draining or pilot.status is not PilotStatus.ACTIVE:
        return 0
    room = pilot.want - pilot.load
    idle_slots = pilot.record.slots - pilot.load
    if room <= idle_slots:
        return room
    fair = -(-state.unsent() * pilot.record.slots // max(state.slots(), 1))
    return min(room, max(idle_slots, fair))


def _next_task(bag: Bag, kind: int) -> TaskNumber:
    ready = bag.ready[kind]
    if ready:
        task = ready.min()
        ready.remove(task)
        return TaskNumber(task)
    bag.next += 1
    return TaskNumber(bag.next - 1)


def _send(turn: Turn, pilot: Pilot, bag: Bag, kind: int, taken: int) -> Attempt:
    state = turn.state
    task = _next_task(bag, kind)
    id_ = AttemptId(state.epoch, state.next_sequence)
    state.next_sequence += 1
    attempt = Attempt(id_, bag.id, task, pilot.record.id, turn.now, kind, taken)
    pilot.add(attempt)
    bag.live.setdefault(task, []).append(attempt)
    return attempt
