"""A pilot of a site is its owner's, unless the site is shared; nobody has nothing for long."""

from covey.core.record.actions import Note
from covey.core.record.events import CancelRequested
from covey.core.record.model import BagId, Need, PilotId
from covey.core.sites.demand import LATE_SECONDS
from covey.core.sites.overlay import SURPLUS_SECONDS
from covey.core.sites.owner_turns import QUEUE_SECONDS, TURN_SECONDS
from covey.pilot.protocol.messages import Answer
from tests.unit.core.placing import Grounds, asked, local_site, site, taken_back
from tests.unit.core.table import Hand, end, replies, spec


def tasks_of(hand: Hand, want: int = 1) -> list[int]:
    answers = [*replies(hand.sync(want), Answer), *replies(hand.sync(0), Answer)]
    return [task.bag for answer in answers for task in answer.tasks]


def owner_of(grounds: Grounds, hand: Hand) -> str:
    return grounds.scheduler.state.pilots[PilotId(hand.pilot)].record.owner


def test_a_pilot_runs_the_tasks_of_whom_it_was_asked_for() -> None:
    grounds = Grounds(site())
    ann = grounds.submit(spec(1, owner="ann"))
    [job] = grounds.jobs
    bob = grounds.submit(spec(5, owner="bob"))
    hand = grounds.begin(job, want=0)
    assert owner_of(grounds, hand) == "ann"
    assert tasks_of(hand, 3) == [ann]
    others = [grounds.begin(one, want=0) for one in grounds.jobs[1:]]
    assert {owner_of(grounds, one) for one in others} == {"bob"}
    assert tasks_of(others[0]) == [bob]


def test_where_tasks_are_walled_in_it_is_anybodys() -> None:
    grounds = Grounds(site(shared=True))
    grounds.submit(spec(1, owner="ann"))
    [job] = grounds.jobs
    grounds.submit(spec(1, owner="bob"))
    assert len(grounds.jobs) == 2
    hand = grounds.begin(job, want=0)
    assert owner_of(grounds, hand) == ""
    assert len(tasks_of(hand, 2)) == 1


def test_what_waits_for_one_owner_covers_nothing_of_another() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(2, owner="ann"))
    assert [job.wanted_by for job in asked(grounds.actions)] == ["ann", "ann"]
    grounds.submit(spec(2, owner="bob"))
    assert sorted(job.wanted_by for job in grounds.jobs) == ["ann", "ann", "bob", "bob"]


def test_what_waits_where_tasks_are_walled_in_covers_those_of_all() -> None:
    grounds = Grounds(site(shared=True))
    ann = grounds.submit(spec(2, owner="ann"))
    grounds.waits(*grounds.jobs)
    grounds.handle(CancelRequested(grounds.request(), BagId(ann)))
    grounds.submit(spec(2, owner="bob"))
    assert [job.wanted_by for job in grounds.jobs] == ["ann", "ann"]
    assert not taken_back(grounds.later(2 * SURPLUS_SECONDS)), "bob has them"


def test_of_what_waits_at_a_full_site_one_makes_place() -> None:
    grounds = Grounds(site(running=3))
    grounds.submit(spec(9, owner="ann"))
    grounds.waits(*grounds.jobs)
    latest = grounds.jobs[-1]
    grounds.submit(spec(9, owner="bob"))
    gone = taken_back(grounds.later(2))
    assert gone == [latest.id], "one is enough, and on its way"
    grounds.ends(latest)
    assert sorted(job.wanted_by for job in grounds.jobs) == ["ann", "ann", "bob"]
    assert not taken_back(grounds.later(5)), "bob has something now"


def test_nobody_makes_place_where_the_hosts_are_too_small() -> None:
    grounds = Grounds(site(running=3))
    grounds.submit(spec(9, owner="ann"))
    for job in grounds.jobs:
        grounds.begin(job, memory_mb=24_000)
    grounds.submit(spec(9, owner="bob", need=Need(memory_mb=60_000)))
    grounds.later(TURN_SECONDS + 1)
    notes = [one.what for one in grounds.actions if isinstance(one, Note)]
    assert "pilot makes place" not in notes


def test_of_what_runs_one_makes_place_when_it_had_its_turn() -> None:
    grounds = Grounds(local_site(1, 2))
    grounds.submit(spec(99, owner="ann"))
    [job] = grounds.jobs
    hand = grounds.begin(job, want=0)
    state = grounds.scheduler.state
    pilot = state.pilots[PilotId(hand.pilot)]
    assert len(tasks_of(hand, 2)) == 2
    grounds.submit(spec(99, owner="bob"))
    for _ in range(int(TURN_SECONDS) - 2):
        grounds.later(1)
        hand.sync(0)
    assert pilot.until > grounds.now, "it is at work, and has not been there for long"
    for _ in range(4):
        grounds.later(1)
        hand.sync(0)
    assert pilot.until <= grounds.now
    grounds.ends(job)
    assert [one.wanted_by for one in grounds.jobs] == ["bob"]


def test_one_that_stands_idle_makes_place_at_once() -> None:
    grounds = Grounds(local_site(1, 1))
    grounds.submit(spec(1, owner="ann"))
    [job] = grounds.jobs
    hand = grounds.begin(job, want=0)
    [answer] = replies([*hand.sync(1), *hand.sync(0)], Answer)
    hand.sync(1, [end(answer)])
    pilot = grounds.scheduler.state.pilots[PilotId(hand.pilot)]
    assert not pilot.attempts
    grounds.submit(spec(5, owner="bob"))
    grounds.later(1)
    assert pilot.until <= grounds.now


def test_who_waits_elsewhere_for_long_has_nothing() -> None:
    pond = site("pond", running=1, users=("bob",))
    grounds = Grounds(site(running=2), pond, lease_seconds=1e6)
    grounds.submit(spec(9, owner="ann"))
    for job in grounds.jobs:
        grounds.begin(job)
    grounds.submit(spec(9, owner="bob"))
    grounds.waits(grounds.jobs[-1])
    assert [job.site for job in grounds.jobs] == ["lake", "lake", "pond"]
    pilots = grounds.scheduler.state.pilots.values()
    grounds.later(LATE_SECONDS - 1)
    assert [one.until > grounds.now for one in pilots] == [True, True], "bob's will come"
    grounds.later(1)
    assert sorted(one.until > grounds.now for one in pilots) == [False, True]


def test_nobody_makes_place_for_himself() -> None:
    grounds = Grounds(site(running=2), lease_seconds=1e6)
    grounds.submit(spec(9, owner="ann"))
    grounds.waits(*grounds.jobs)
    assert not taken_back(grounds.later(LATE_SECONDS + 5)), "others would wait as long"
    assert len(grounds.jobs) == 2


def test_nobody_makes_place_where_there_is_room_or_trouble() -> None:
    grounds = Grounds(site(running=4))
    grounds.submit(spec(3, owner="ann"))
    grounds.waits(*grounds.jobs)
    grounds.submit(spec(1, owner="bob"))
    assert len(grounds.jobs) == 4
    assert not taken_back(grounds.later(5))
    full = Grounds(site(running=2))
    full.submit(spec(3, owner="ann"))
    full.waits(*full.jobs)
    full.site().failures = 1
    full.submit(spec(3, owner="bob"))
    assert not taken_back(full.later(5)), "whoever probes a site is left alone"


# -- idle pilots -----------------------------------------------------------------------------


def idle_pilots_of_ann(grounds: Grounds) -> list[Hand]:
    """Her tasks are done, and her pilots are still there."""
    bag = grounds.submit(spec(len(grounds.jobs) or 4, owner="ann"))
    hands = [grounds.begin(job) for job in grounds.jobs]
    grounds.handle(CancelRequested(grounds.request(), BagId(bag)))
    for hand in hands:
        hand.sync(1, held=[])
    return hands


def dismissed(grounds: Grounds) -> int:
    state = grounds.scheduler.state
    return sum(pilot.until <= grounds.now for pilot in state.pilots.values())


def test_idle_pilots_leave_at_once_where_others_wait_and_the_site_is_full() -> None:
    grounds = Grounds(site(running=4))
    idle_pilots_of_ann(grounds)
    grounds.submit(spec(3, owner="bob"))
    assert not [job for job in grounds.jobs if job.wanted_by == "bob"]
    grounds.later(1)
    assert dismissed(grounds) == 3, "as many as bob has tasks"


def test_idle_pilots_stay_where_there_is_room() -> None:
    grounds = Grounds(site(running=10))
    idle_pilots_of_ann(grounds)
    grounds.submit(spec(3, owner="bob"))
    grounds.later(1)
    assert dismissed(grounds) == 0


def test_an_owner_with_one_pilot_is_not_thereby_served() -> None:
    grounds = Grounds(site(running=5))
    idle_pilots_of_ann(grounds)
    grounds.submit(spec(20, owner="bob"))
    [job] = [job for job in grounds.jobs if job.wanted_by == "bob"]
    grounds.begin(job)
    grounds.later(1)
    assert dismissed(grounds) == 4


def test_idle_pilots_leave_when_others_wait_in_the_queue_of_the_site() -> None:
    """Its machines are full, though our own limits are not reached."""
    grounds = Grounds(site(running=100))
    hands = idle_pilots_of_ann(grounds)
    grounds.submit(spec(2, owner="bob"))
    grounds.waits(*[job for job in grounds.jobs if job.wanted_by == "bob"])
    for _ in range(int(QUEUE_SECONDS) + 1):
        grounds.later(1)
        for hand in hands:
            hand.sync(1)
    assert dismissed(grounds) == 2
