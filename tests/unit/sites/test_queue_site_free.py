"""How much of a site is free: when its thread asks, and what it makes of a failure."""

from pathlib import Path

import pytest

from covey.core.record.capacity import SiteCapacity
from covey.core.record.events import JobSubmitted, SiteAnswered, SiteMeasured
from covey.sites.errors import Unclear
from tests.unit.sites.test_queue_site import A, Attending


@pytest.fixture
def stand(tmp_path: Path) -> Attending:
    """It has answered once, and told that seven cores are free."""
    made = Attending(tmp_path)
    made.world.free = 7
    made.site.watch(())
    made.turns(1)
    assert made.heard() == [
        SiteAnswered("there"),
        SiteMeasured("there", SiteCapacity(free_cores=7)),
    ]
    return made


def measures(stand: Attending) -> list[int | None]:
    return [one.capacity.free_cores for one in stand.heard() if isinstance(one, SiteMeasured)]


def test_how_much_is_free_is_asked_after_lists_and_once_a_minute(stand: Attending) -> None:
    stand.turns(10_000)
    assert len(stand.world.calls("measure")) == 1, "no job is there, so nothing is asked"
    stand.site.submit([A])
    stand.turns(301)
    assert 5 <= len(stand.world.calls("measure")) - 1 <= 6
    assert set(measures(stand)) == {7}


def test_a_site_that_cannot_tell_how_much_is_free_works_and_is_asked_rarely(
    stand: Attending,
) -> None:
    stand.world.deaf["measure"] = Unclear("it is down")
    stand.site.submit([A])
    stand.turns(700)
    assert len(stand.world.calls("measure")) - 1 == 2
    assert stand.heard() == [JobSubmitted(A.id, "1_0")]
    assert stand.notes[0].what == "the site's free cores cannot be read"
    del stand.world.deaf["measure"]
    stand.turns(700)
    assert measures(stand)[0] == 7
