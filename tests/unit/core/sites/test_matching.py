"""Asks against rooms: splits by weight, tiers, draws, and moves that make room."""

from random import Random

from covey.core.sites.matching import Matching, PilotAsk, SiteOption


def counts(matching: Matching, asks: int) -> list[dict[str, int]]:
    return [
        {name: part.count for name, part in matching.parts(number).items()}
        for number in range(asks)
    ]


def matched(
    free: dict[str, int], *asks: PilotAsk, limited: dict[tuple[str, str], int] | None = None
) -> list[dict[str, int]]:
    matching = Matching(free, limited or {})
    for ask in asks:
        matching.add(ask)
    return counts(matching, len(asks))


def ask(places: float, owner: str = "ann", **sites: SiteOption) -> PilotAsk:
    return PilotAsk(owner, places, sites)


EVEN = SiteOption(1, 1.0)


def test_it_is_split_by_weight() -> None:
    free = dict.fromkeys(("lake", "wood", "hill"), 100)
    even = ask(60, lake=SiteOption(1, 1.0), wood=SiteOption(1, 3.0), hill=SiteOption(1, 2.0))
    assert matched(free, even) == [{"wood": 30, "hill": 20, "lake": 10}]


def test_what_a_site_has_no_room_for_goes_to_the_others() -> None:
    weighted = ask(30, lake=SiteOption(1, 100.0), wood=SiteOption(1, 1.0), hill=SiteOption(1, 2.0))
    assert matched({"lake": 9, "wood": 50, "hill": 50}, weighted) == [
        {"lake": 9, "hill": 14, "wood": 7}
    ]


def test_weight_zero_gets_nothing() -> None:
    assert matched({"lake": 5, "wood": 5}, ask(9, lake=SiteOption(1, 0.0), wood=EVEN)) == [
        {"wood": 5}
    ]


def test_a_later_tier_gets_what_is_left() -> None:
    tiers = ask(
        12,
        lake=SiteOption(1, 1.0, tier=1),
        wood=SiteOption(1, 1.0),
        hill=SiteOption(1, 1.0, tier=2),
    )
    assert matched({"lake": 5, "wood": 5, "hill": 5}, tiers) == [{"wood": 5, "lake": 5, "hill": 2}]


def test_a_pilot_of_many_places_is_enough_for_few_tasks() -> None:
    assert matched({"lake": 5}, ask(3, lake=SiteOption(16, 1.0))) == [{"lake": 1}]
    assert matched({"lake": 5}, ask(17, lake=SiteOption(16, 1.0))) == [{"lake": 2}]


def test_who_was_first_moves_so_that_others_find_room() -> None:
    first = ask(10, "ann", lake=EVEN, wood=EVEN)
    second = ask(10, "bob", lake=EVEN)
    assert matched({"lake": 10, "wood": 10}, first, second) == [{"wood": 10}, {"lake": 10}]


def test_moves_go_over_several_sites() -> None:
    asks = [
        ask(4, lake=SiteOption(1, 9.0), wood=EVEN),
        ask(4, wood=SiteOption(1, 9.0), hill=EVEN),
        ask(4, lake=EVEN),
    ]
    assert matched({"lake": 4, "wood": 4, "hill": 4}, *asks) == [
        {"wood": 4},
        {"hill": 4},
        {"lake": 4},
    ]


def test_who_was_first_keeps_what_they_have_if_there_is_nowhere_else() -> None:
    first, second = ask(4, "ann", lake=EVEN), ask(4, "bob", lake=EVEN)
    assert matched({"lake": 6}, first, second) == [{"lake": 4}, {"lake": 2}]


def test_a_move_takes_as_many_pilots_as_hold_the_same() -> None:
    first = ask(8, lake=SiteOption(4, 100.0), wood=SiteOption(2, 1.0))
    second = ask(8, lake=SiteOption(4, 1.0))
    assert matched({"lake": 2, "wood": 4}, first, second) == [{"wood": 4}, {"lake": 2}]


def test_one_owner_has_a_limit_at_a_site() -> None:
    first, second = ask(4, "ann", lake=EVEN), ask(4, "bob", lake=EVEN)
    limited = {("lake", "ann"): 2}
    assert matched({"lake": 5}, first, second, limited=limited) == [{"lake": 2}, {"lake": 3}]


def test_draws_go_by_weight_and_the_same_seed_draws_the_same() -> None:
    def drawn(seed: int) -> dict[str, int]:
        sites = {"lake": SiteOption(1, 1.0), "wood": SiteOption(1, 3.0), "hill": SiteOption(1, 0.0)}
        [found] = matched(dict.fromkeys(sites, 10_000), PilotAsk("ann", 2000, sites, Random(seed)))
        return found

    assert drawn(1) == drawn(1) != drawn(2)
    assert sum(drawn(1).values()) == 2000
    assert 1400 < drawn(1)["wood"] < 1600
    assert "hill" not in drawn(1)


def test_draws_stop_where_there_is_no_room() -> None:
    sites = {"lake": SiteOption(1, 1000.0), "wood": SiteOption(1, 1.0)}
    drawn = matched({"lake": 3, "wood": 9}, PilotAsk("ann", 10, sites, Random(7)))
    assert drawn == [{"lake": 3, "wood": 7}]


def test_a_bag_of_any_size_takes_no_more_draws_than_there_is_room() -> None:
    class Dice(Random):
        drawn = 0

        def random(self) -> float:
            self.drawn += 1
            return super().random()

    dice = Dice(7)
    asked = PilotAsk("ann", 1e6, {"lake": EVEN, "wood": EVEN}, dice)
    assert matched({"lake": 2, "wood": 3}, asked) == [{"lake": 2, "wood": 3}]
    assert dice.drawn <= 10


def test_when_nothing_is_left_it_says_so() -> None:
    matching = Matching({"lake": 1, "wood": 0}, {})
    assert not matching.full
    matching.add(ask(1, lake=EVEN))
    assert matching.full
