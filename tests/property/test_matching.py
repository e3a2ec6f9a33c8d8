"""Nobody could have had more pilots, whatever else had been done: against all that can be done."""

import itertools
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from covey.core.sites.matching import Matching, PilotAsk, SiteOption

SITES = ("lake", "wood", "hill")
OWNERS = ("ann", "bob")

options = st.builds(
    SiteOption,
    holds=st.just(1),
    weight=st.sampled_from([0.0, 1.0, 2.5, 10.0]),
    tier=st.integers(0, 1),
    most=st.sampled_from([99, 99, 2]),
    whole=st.booleans(),
)
uneven = st.builds(
    SiteOption,
    holds=st.integers(0, 4),
    weight=st.sampled_from([0.0, 1.0, 7.0]),
    tier=st.integers(0, 1),
    most=st.just(99),
    whole=st.booleans(),
)
seeds = st.sampled_from([None, 1, 2])


def asks_of(option: st.SearchStrategy[SiteOption]) -> st.SearchStrategy[list[PilotAsk]]:
    return st.lists(
        st.builds(
            lambda seed, **fields: PilotAsk(dice=Random(seed) if seed else None, **fields),
            seeds,
            owner=st.sampled_from(OWNERS),
            places=st.integers(0, 4).map(float),
            options=st.dictionaries(st.sampled_from(SITES), option, max_size=3),
        ),
        min_size=1,
        max_size=3,
    )


rooms = st.fixed_dictionaries({name: st.integers(0, 4) for name in SITES})
limits = st.dictionaries(
    st.tuples(st.sampled_from(SITES), st.sampled_from(OWNERS)), st.integers(0, 3), max_size=2
)


def matched(
    asks: list[PilotAsk], free: dict[str, int], limited: dict[tuple[str, str], int]
) -> list[dict[str, int]]:
    matching = Matching(free, limited)
    for ask in asks:
        matching.add(ask)
    return [
        {name: part.count for name, part in matching.parts(number).items()}
        for number in range(len(asks))
    ]


def is_legal(
    asks: list[PilotAsk],
    counts: list[dict[str, int]],
    free: dict[str, int],
    limited: dict[tuple[str, str], int],
) -> bool:
    for name in SITES:
        if sum(one.get(name, 0) for one in counts) > free[name]:
            return False
        for owner in OWNERS:
            theirs = (one.get(name, 0) for ask, one in zip(asks, counts, strict=True))
            of_owner = sum(
                count for ask, count in zip(asks, theirs, strict=True) if ask.owner == owner
            )
            if of_owner > limited.get((name, owner), 99):
                return False
    return True


def most(
    asks: list[PilotAsk], free: dict[str, int], limited: dict[tuple[str, str], int]
) -> tuple[int, ...]:
    """As many as the first ask can have, then as many as the second can have beside it, …"""
    ways = []
    for ask in asks:
        able = [name for name, one in ask.options.items() if one.weight > 0]
        ranges = [
            range(min(free[name], int(ask.places), ask.options[name].most) + 1) for name in able
        ]
        ways.append(
            [
                dict(zip(able, counts, strict=True))
                for counts in itertools.product(*ranges)
                if sum(counts) <= ask.places
            ]
        )
    return max(
        tuple(sum(one.values()) for one in plan)
        for plan in itertools.product(*ways)
        if is_legal(asks, list(plan), free, limited)
    )


@settings(max_examples=150, deadline=None)
@given(asks_of(options), rooms)
def test_everybody_gets_as_many_as_beside_those_before(
    asks: list[PilotAsk], free: dict[str, int]
) -> None:
    counts = matched(asks, free, {})
    assert is_legal(asks, counts, free, {})
    assert tuple(sum(one.values()) for one in counts) == most(asks, free, {})


@settings(max_examples=150, deadline=None)
@given(asks_of(options), rooms, limits)
def test_limits_of_owners_hold(
    asks: list[PilotAsk], free: dict[str, int], limited: dict[tuple[str, str], int]
) -> None:
    counts = matched(asks, free, limited)
    assert is_legal(asks, counts, free, limited)
    assert tuple(sum(one.values()) for one in counts) == most(asks, free, limited)


@settings(max_examples=300, deadline=None)
@given(asks_of(uneven), rooms, limits)
def test_nothing_stays_uncovered_where_there_is_room(
    asks: list[PilotAsk], free: dict[str, int], limited: dict[tuple[str, str], int]
) -> None:
    matching = Matching(free, limited)
    for ask in asks:
        matching.add(ask)
    parts = [matching.parts(number) for number in range(len(asks))]
    counts = [{name: part.count for name, part in one.items()} for one in parts]
    assert is_legal(asks, counts, free, limited)
    for ask, got in zip(asks, parts, strict=True):
        for name, part in got.items():
            assert part.places <= part.count * ask.options[name].holds + 1e-6
            assert ask.options[name].weight > 0
        if ask.places - sum(part.places for part in got.values()) < 1e-6:
            continue
        for name, option in ask.options.items():
            used = sum(one.get(name, 0) for one in counts)
            theirs = sum(
                one.get(name, 0)
                for other, one in zip(asks, counts, strict=True)
                if other.owner == ask.owner
            )
            has_room = used < free[name] and theirs < limited.get((name, ask.owner), 99)
            assert not (has_room and option.weight > 0 and option.holds > 0), name
