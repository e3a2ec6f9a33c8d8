"""Numbers of a batch system that make no sense are not believed."""

import pytest

from covey.core.record.capacity import LARGEST, SiteCapacity, believed

GOOD = SiteCapacity(free_cores=3, total_cores=8, free_nodes=0, total_nodes=2, queue_length=7)


def test_a_good_answer_stays_as_it_is() -> None:
    assert believed(GOOD) == GOOD
    assert believed(SiteCapacity(free_cores=3)) == SiteCapacity(free_cores=3)


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (SiteCapacity(queue_length=-1), SiteCapacity()),
        (SiteCapacity(total_cores=LARGEST + 1), SiteCapacity()),
        (SiteCapacity(free_cores=9, total_cores=8), SiteCapacity(total_cores=8)),
        (SiteCapacity(free_nodes=9, total_nodes=8), SiteCapacity(total_nodes=8)),
    ],
)
def test_nonsense_is_left_out(said: SiteCapacity, left: SiteCapacity) -> None:
    assert believed(said) == left
