"""What there is of pilots and jobs, all together, is what there is of each of them, added up."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from covey.core.record.model import (
    JobId,
    JobRecord,
    PilotId,
    PilotRecord,
    PilotStatus,
    Settings,
    SiteRecord,
    SiteSpec,
)
from covey.core.sites.demand import LATE_SECONDS, Lives, Shape, supplies
from covey.core.state import Job, Pilot, Site, State

NOW = 1000.0
LIVES = [0.0, 60.0, 300.0]
LAKE, WOOD, MUTE, AWAY = "lake", "wood", "mute", "away"  # of the last one nothing is known

pilots = st.builds(
    lambda record, life, **state: Pilot(record, NOW, NOW + life, **state),
    st.builds(
        lambda **said: PilotRecord(
            id=PilotId(0),
            key="",
            credential="",
            host="",
            job=JobId(""),
            tags={},
            version="",
            enrolled=0.0,
            **said,
        ),
        slots=st.integers(1, 3),
        site=st.sampled_from([LAKE, WOOD, AWAY]),
        memory_mb=st.sampled_from([0, 1000]),
        owner=st.sampled_from(["", "ann", "bob"]),
    ),
    st.sampled_from([0.0, 59.0, 60.0, 400.0, math.inf]),
    status=st.sampled_from([PilotStatus.ACTIVE, PilotStatus.SUSPECTED, PilotStatus.LOST]),
    resync=st.booleans(),
    last=st.integers(0, 2),
    want=st.integers(0, 5),
    load=st.integers(0, 6),
)
jobs = st.builds(
    Job,
    st.builds(
        lambda **said: JobRecord(id=JobId(""), submitted=0.0, **said),
        site=st.sampled_from([LAKE, WOOD, MUTE, AWAY]),
        slots=st.integers(1, 3),
        wall_seconds=st.sampled_from([0.0, 59.0, 60.0, 400.0]),
        memory_mb=st.sampled_from([0, 1000]),
        trial=st.sampled_from([False, False, True]),
        wanted_by=st.sampled_from(["ann", "bob"]),
    ),
    st.sampled_from([NOW, NOW - LATE_SECONDS + 1.0, NOW - LATE_SECONDS]),
    pilot=st.sampled_from([None, None, PilotId(1)]),
    cancelled=st.sampled_from([0.0, 0.0, 1.0]),
    vanished=st.sampled_from(["", "", "gone"]),
)


def around(there: list[tuple[Pilot, bool]], asked: list[Job]) -> State:
    state = State(1, Settings(), NOW)
    for name in (LAKE, WOOD, MUTE):
        spec = SiteSpec(name=name, driver="virtual", shared=name == WOOD)
        silent = "not heard" if name == MUTE else ""
        state.sites[name] = Site(SiteRecord(spec=spec), 1, unanswered=silent)
    state.pilots = {PilotId(number): pilot for number, (pilot, _) in enumerate(there)}
    state.queue.hungry = {PilotId(number): None for number, (_, waits) in enumerate(there) if waits}
    state.jobs = {JobId(str(number)): job for number, job in enumerate(asked)}
    return state


def slots(state: State) -> list[tuple[Shape, list[float]]]:
    """In the order in which they cover what is wanted."""
    lives = Lives(())
    lives.wanted = LIVES
    return [
        (shape, [one.free, one.idle, one.busy, one.queued, one.late, one.slow])
        for shape, one in supplies(state, NOW, lives).items()
    ]


@settings(max_examples=300)
@given(st.lists(st.tuples(pilots, st.booleans()), max_size=12), st.lists(jobs, max_size=12))
def test_many_are_as_each_of_them(there: list[tuple[Pilot, bool]], asked: list[Job]) -> None:
    each = [slots(around([one], [])) for one in there] + [slots(around([], [one])) for one in asked]
    summed: dict[Shape, list[float]] = {}
    for shape, counts in (pair for one in each for pair in one):
        before = summed.get(shape, [0.0] * len(counts))
        summed[shape] = [a + b for a, b in zip(before, counts, strict=True)]
    expected = [(shape, [*counts, slow > 0]) for shape, (*counts, slow) in summed.items()]
    assert slots(around(there, asked)) == expected
