"""One owner leaves something for the next one."""

from covey.core.record.owner_share import owner_share


def test_owners_who_come_one_after_another_all_find_something() -> None:
    held = 0
    for _ in range(6):
        share = owner_share(100, held)
        assert share >= 1
        held += share
    assert held < 100


def test_the_last_one_is_given_and_nothing_of_nothing() -> None:
    assert owner_share(10, 9) == 1
    assert owner_share(10, 10) == 0
    assert owner_share(10, 0, part=0.25) == 2
