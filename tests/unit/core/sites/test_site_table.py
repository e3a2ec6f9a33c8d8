"""Sites are added, changed, paused, drained and removed while the server runs."""

import pytest

from covey.core.record.actions import Action, DefineSites, Done, ForgetSite, Problem, SaveSite
from covey.core.record.events import SiteRemoved
from covey.core.record.model import BagId, SiteRecord, SiteSpec, SiteStatus
from covey.pilot.protocol.messages import Answer
from tests.unit.core.placing import Grounds, asked, counted, site, taken_back
from tests.unit.core.table import end, only, refusal, replies, spec, writes


def remove(grounds: Grounds, name: str = "lake") -> list[Action]:
    return grounds.handle(SiteRemoved(grounds.request(), name))


def defined(grounds: Grounds) -> list[list[str]]:
    found = [one.sites for one in grounds.actions if isinstance(one, DefineSites)]
    return [[spec.name for spec in specs] for specs in found]


def test_those_of_the_configuration_are_there() -> None:
    grounds = Grounds(site("a"), site("b"))
    assert defined(grounds) == [["a", "b"]]
    assert [one.record.of_file for one in grounds.scheduler.state.sites.values()] == [True, True]


def test_one_that_is_added_is_used_at_once_and_known_after_a_restart() -> None:
    grounds = Grounds()
    grounds.submit(spec(2))
    actions = grounds.save(site())
    assert only(actions, Done)
    assert len(asked(actions)) == 2
    assert defined(grounds) == [[], ["lake"]]
    later = Grounds(site("other"), snapshot=grounds.after())
    assert defined(later) == [["other", "lake"]]
    assert later.site().record == SiteRecord(spec=site())


def test_one_that_is_added_is_durable_before_that_is_said() -> None:
    grounds = Grounds()
    grounds.durable = False
    assert not replies(grounds.save(site()), Done)
    assert replies(grounds.commit(), Done)


def test_what_is_changed_holds_from_then_on() -> None:
    grounds = Grounds()
    grounds.save(site(queued=1))
    grounds.submit(spec(5))
    assert len(grounds.jobs) == 1
    grounds.save(site(queued=3))
    assert len(grounds.jobs) == 3


def test_the_configuration_is_changed_in_its_file() -> None:
    grounds = Grounds(site())
    for actions in (grounds.save(site(queued=1)), remove(grounds)):
        refused = refusal(actions)
        assert refused.problem is Problem.INVALID
        assert "covey.toml" in refused.detail
    later = Grounds(site(queued=7), snapshot=grounds.after())
    assert later.site().record.spec.queued == 7


@pytest.mark.parametrize(
    "spec_",
    [
        site(""),
        site(slots=0),
        site(slots=5000),
        site(ramp=0),
        site(queued=-1),
        site(wall_seconds=-1.0),
        site(memory_mb=-5),
        site(per_user=2**60),
        SiteSpec(name="lake", driver=""),
    ],
)
def test_nonsense_is_refused(spec_: SiteSpec) -> None:
    grounds = Grounds()
    assert refusal(grounds.save(spec_)).problem is Problem.INVALID
    assert not grounds.scheduler.state.sites


@pytest.mark.parametrize("of_file", [True, False])
def test_a_paused_site_gets_nothing_new_until_it_is_on_again(of_file: bool) -> None:
    grounds = Grounds(*([site()] if of_file else []))
    if not of_file:
        grounds.save(site())
    grounds.submit(spec(2))
    hand = grounds.begin(grounds.jobs[0])
    assert only(grounds.turn_to(SiteStatus.PAUSED), Done)
    grounds.submit(spec(5))
    grounds.later(3)
    assert len(grounds.jobs) == 2
    assert not any(one.leave for one in replies(hand.sync(1), Answer))
    later = Grounds(*([site()] if of_file else []), snapshot=grounds.after(), adopt_seconds=1.0)
    later.later(3)
    assert not asked(later.actions)
    assert later.site().record.status is SiteStatus.PAUSED
    assert asked(later.turn_to(SiteStatus.ON))


def test_a_draining_site_is_emptied() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(4))
    busy = grounds.begin(grounds.jobs[0], 0)
    running = busy.ask()
    idle = grounds.begin(grounds.jobs[1], 0)
    assert idle.ask().tasks
    idle.sync(1)
    actions = grounds.turn_to(SiteStatus.DRAINING)
    assert len(taken_back(actions)) == 2, "what waits, at once"
    assert [one.leave for one in replies(actions, Answer)] == [True]
    last = only(busy.sync(1, [end(running)]), Answer)
    assert (last.leave, last.tasks) == (True, [])
    assert not asked(grounds.later(10))


def test_a_site_that_is_removed_goes_when_its_jobs_have() -> None:
    grounds = Grounds()
    grounds.save(site())
    grounds.submit(spec(2))
    actions = remove(grounds)
    assert len(taken_back(actions)) == 2
    grounds.later(3)
    assert "lake" in grounds.scheduler.state.sites
    assert refusal(remove(grounds)).problem is Problem.NOT_FOUND
    grounds.ends(*grounds.jobs)
    actions = grounds.later(1)
    assert [one.name for one in writes(actions, ForgetSite)] == ["lake"]
    assert not grounds.scheduler.state.sites
    assert defined(grounds)[-1] == []
    assert not Grounds(snapshot=grounds.after()).scheduler.state.sites


def test_a_restart_does_not_forget_what_waits_at_a_site_that_was_removed() -> None:
    grounds = Grounds()
    grounds.save(site())
    grounds.submit(spec(2))
    remove(grounds)
    later = Grounds(snapshot=grounds.after())
    assert sorted(taken_back(later.later(1))) == sorted(job.id for job in grounds.jobs)
    later.ends(*later.jobs)
    later.later(1)
    assert not later.scheduler.state.sites


def test_one_that_was_removed_can_be_added_again() -> None:
    grounds = Grounds()
    grounds.save(site())
    grounds.submit(spec(1))
    [job] = grounds.jobs
    remove(grounds)
    grounds.save(site(queued=5))
    assert grounds.site().record.status is SiteStatus.ON
    grounds.ends(job)
    grounds.later(1)
    assert counted(grounds.jobs) == {"lake": 1}
    assert writes(grounds.actions, SaveSite)[-1].site.removed is False


def test_jobs_of_a_site_that_was_unknown_belong_to_it_when_it_comes_back() -> None:
    first = Grounds(site())
    first.submit(spec(1))
    job = first.begin(first.jobs[0], 0)
    assert job.ask().tasks
    later = Grounds(snapshot=first.after())
    later.save(site())
    assert list(later.site().jobs) == [one.id for one in first.jobs]
    later.scheduler.state.check()


def test_who_was_unwell_is_well_when_somebody_says_so() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(2))
    grounds.ends(*grounds.jobs)
    assert not asked(grounds.later(3))
    assert len(asked(grounds.turn_to(SiteStatus.ON))) == 2
    assert BagId(1) in grounds.scheduler.state.bags


def test_status_of_an_unknown_site() -> None:
    grounds = Grounds()
    assert refusal(grounds.turn_to(SiteStatus.PAUSED)).problem is Problem.NOT_FOUND
