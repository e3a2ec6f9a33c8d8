"""Which tasks a pilot gets, and when others must give some back.

Numbers go out only below the durable mark (`reserve` moves it ahead of demand), so after a crash
everything above it is known never to have been sent.
"""

from covey.core.actions import LeaseChunk
from covey.core.model import AttemptId, BagStatus, PilotStatus, TaskNumber
from covey.core.state import Attempt, Bag, Pilot, Reserving, State
from covey.core.turn import Turn


def take(turn: Turn, pilot: Pilot) -> list[Attempt]:
    """Attempts for this pilot, oldest bag first. It prefetches only of bags of which it has run
    a task: what it wants is what it has measured, and this bag's tasks may be a thousand times
    longer."""
    most = len(pilot.attempts) + _room(turn.state, pilot)
    taken: list[Attempt] = []
    for bag in turn.state.bags.values():
        if len(pilot.attempts) >= most:
            break
        if bag.status is not BagStatus.RUNNING or bag.not_before > turn.state.durable:
            continue
        enough = most if bag.id in pilot.proven else min(most, pilot.record.slots)
        while len(pilot.attempts) < enough:
            task = _next_task(bag)
            if task is None:
                break
            taken.append(_send(turn, pilot, bag, task))
        reserve(turn, bag)
    return taken


def hungry(state: State, pilot: Pilot) -> bool:
    return pilot.status is PilotStatus.ACTIVE and len(pilot.attempts) < pilot.want


def work_available(state: State) -> bool:
    return any(
        bag.status is BagStatus.RUNNING
        and bag.not_before <= state.durable
        and (bag.ready or bag.next < bag.mark)
        for bag in state.bags.values()
    )


def reserve(turn: Turn, bag: Bag) -> None:
    """Keep the mark ahead: chunks double while they are used up."""
    if bag.asked_mark >= bag.total or bag.next + bag.chunk // 2 < bag.asked_mark:
        return
    settings = turn.state.settings
    bag.chunk = min(max(settings.chunk, bag.chunk * 2), settings.largest_chunk)
    first, stop = bag.asked_mark, min(bag.asked_mark + bag.chunk, bag.total)
    bag.asked_mark = stop
    bag.chunks[first] = stop
    bag.unfinished[first] = stop - first
    turn.write(LeaseChunk(bag.id, first, stop), Reserving(bag.id, stop))


def recall_surplus(turn: Turn) -> None:
    """Slots stand idle and nothing is left to send: ask for prefetched tasks back.

    A recalled task goes elsewhere only when its pilot says that it had not started."""
    state = turn.state
    idle = sum(
        max(0, state.pilots[id_].record.slots - len(state.pilots[id_].attempts))
        for id_ in state.hungry
    )
    if idle == 0 or work_available(state):
        return
    for pilot in state.pilots.values():
        surplus = len(pilot.attempts) - pilot.record.slots
        if surplus <= 0 or pilot.status is not PilotStatus.ACTIVE:
            continue
        share = min((surplus + 1) // 2, idle)
        for attempt in reversed(pilot.attempts.values()):
            if share == 0:
                break
            if not attempt.recalled and not attempt.cancelled:
                attempt.recalled = True
                pilot.recalls.append(attempt)
                state.signalled[pilot.record.id] = None
                idle -= 1
                share -= 1


def _room(state: State, pilot: Pilot) -> int:
    """How many more this pilot may hold. Near the end of the work nobody prefetches more than
    its share, so that the last tasks do not queue behind one slot while others idle."""
    if state.draining or pilot.status is not PilotStatus.ACTIVE:
        return 0
    held = len(pilot.attempts)
    room = pilot.want - held
    idle_slots = pilot.record.slots - held
    if room <= idle_slots:
        return room
    fair = -(-state.unsent() * pilot.record.slots // max(state.slots(), 1))
    return min(room, max(idle_slots, fair))


def _next_task(bag: Bag) -> TaskNumber | None:
    if bag.ready:
        task = bag.ready.min()
        bag.ready.remove(task)
        return TaskNumber(task)
    if bag.next < bag.mark:
        bag.next += 1
        return TaskNumber(bag.next - 1)
    return None


def _send(turn: Turn, pilot: Pilot, bag: Bag, task: TaskNumber) -> Attempt:
    state = turn.state
    id_ = AttemptId(state.epoch, state.next_sequence)
    state.next_sequence += 1
    attempt = Attempt(id_, bag.id, task, pilot.record.id, turn.now)
    pilot.attempts[id_] = attempt
    bag.live.setdefault(task, []).append(attempt)
    return attempt
