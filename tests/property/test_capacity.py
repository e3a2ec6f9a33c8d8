"""Whatever comes and goes: what runs fits, and the first in the queue gets its turn."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from covey.pilot.slots.capacity import Ask, Capacity

SLOTS, MEMORY, DISK, GPUS = 4, 1000, 800, ["0", "1", "2"]
PROCESSORS = [4, 5, 6]

asks = st.builds(
    Ask,
    st.integers(1, SLOTS),
    st.sampled_from([0, 0, 100, 250, 251, 600, MEMORY]),
    st.sampled_from([0, 0, 200, 500, DISK]),
    st.sampled_from([0, 0, 0, 1, 2, 3]),
    st.booleans(),
)
plain = st.just(Ask())


@settings(max_examples=300)
@given(st.lists(st.one_of(plain, asks), max_size=60), st.randoms(use_true_random=False))
def test_what_runs_fits_and_all_get_their_turn(wanted: list[Ask], random: object) -> None:
    room = Capacity(SLOTS, MEMORY, DISK, GPUS, PROCESSORS)
    queue = deque((str(number), ask) for number, ask in enumerate(wanted) if not room.never(ask))
    inside: dict[str, Ask] = {}
    grants: dict[str, tuple[list[str], list[int]]] = {}
    while queue or inside:
        while queue and len(inside) < 3 * SLOTS and room.admits(queue[0][1]):
            key, ask = queue.popleft()
            grant = room.take(key, ask)
            inside[key], grants[key] = ask, (grant.gpus, grant.processors)
            assert len(grant.gpus) == ask.gpus
            assert len(grant.processors) == (ask.cores if ask.pin else 0)
        assert inside, "the first in the queue waits for ever"
        _check(inside, grants)
        over = random.choice(sorted(inside))  # type: ignore[attr-defined]
        room.give(over)
        del inside[over], grants[over]
    assert room.free_cores() == SLOTS
    assert room.take("last", Ask(3, MEMORY, DISK, 3, True)).gpus == GPUS


def _check(inside: dict[str, Ask], grants: dict[str, tuple[list[str], list[int]]]) -> None:
    """Any as many as there are slots may run at once."""
    several = inside.values()
    for most, amounts in (
        (SLOTS, [ask.cores for ask in several]),
        (MEMORY, [ask.memory_mb for ask in several]),
        (DISK, [ask.disk_mb for ask in several]),
    ):
        assert sum(sorted(amounts)[-SLOTS:]) <= most
    for place in (0, 1):
        given_out = [one for grant in grants.values() for one in grant[place]]
        assert len(given_out) == len(set(given_out))
