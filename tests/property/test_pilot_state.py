"""What a pilot says after a restart is everything it has: an attempt that is neither in `ends` nor
in `held` would be given up, and its task run again."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from covey.pilot.protocol import pilot_state as module
from covey.pilot.protocol.commands import Send
from covey.pilot.protocol.messages import OK, Answer, Body, End, Sync, Task
from covey.pilot.protocol.pilot_state import PilotState


def only_sync(brain: PilotState, now: float) -> Sync:
    sends = [command for command in brain.step(now) if isinstance(command, Send)]
    assert len(sends) == 1
    return sends[0].sync


@settings(max_examples=30)
@given(
    tasks=st.integers(0, 2 * module.MOST_ENDS + 100),
    ended=st.integers(0, 3 * module.MOST_ENDS),
    large=st.booleans(),
)
def test_a_full_sync_names_every_attempt(tasks: int, ended: int, large: bool) -> None:
    brain = PilotState(1, 1, 4, 60.0, Random(0), 0.0)
    first = only_sync(brain, 0.0)
    body = Body(1, ["work"], [])
    sent = [Task(number + 1, 1, number, []) for number in range(tasks)]
    brain.answered(first.number, Answer(1, first.number, [body], sent), 0.0)
    parked = only_sync(brain, 0.0)
    for number in range(min(ended, tasks)):
        start = brain.next_start()
        assert start is not None
        size = 60_000 if large else 0
        brain.ended(start.key, End(1, number + 1, 1, number, OK), 0.01, size=size)
    brain.answered(parked.number, Answer(2, parked.number, resync=True), 0.02)
    full = only_sync(brain, 1.0)
    assert full.held is not None
    named = [(end.epoch, end.sequence) for end in full.ends]
    named += [(one.epoch, one.sequence) for one in full.held]
    assert sorted(named) == [(1, task.sequence) for task in sent]
