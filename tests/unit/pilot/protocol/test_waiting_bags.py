"""Attempts that wait for files take no slot; a host without disk space gives its work back; and
nothing is kept for bags that are over."""

from collections import Counter
from random import Random

from covey.pilot.protocol.commands import Prepare, Recall, Send
from covey.pilot.protocol.messages import Answer, Body, End, Input, Sync, Task, WaitingBag
from covey.pilot.protocol.pilot_state import PilotState
from covey.pilot.protocol.waiting_bags import WAITING_SECONDS
from tests.unit.pilot.protocol.test_pilot_state import Desk

PLAIN = Body(2, ["echo"], [])
NEEDY = Body(1, ["cat"], [], inputs=[Input("f", url="http://nowhere/f")])


def brain_with(body: Body, count: int, slots: int = 2) -> PilotState:
    brain = PilotState(7, 1, slots, 20.0, Random(1), 100.0)
    first = syncs(brain, 100.0)[0]
    tasks = [Task(number, body.bag, number, []) for number in range(1, count + 1)]
    brain.answered(first.number, Answer(1, first.number, [body], tasks), 100.0)
    return brain


def syncs(brain: PilotState, now: float) -> list[Sync]:
    return [one.sync for one in brain.step(now) if isinstance(one, Send)]


def test_the_server_hears_of_attempts_that_wait_for_files() -> None:
    brain = brain_with(NEEDY, 2)
    assert not any(sync.waiting for sync in syncs(brain, 100.1)), "most files are there at once"
    (sync,) = [one for one in syncs(brain, 100.1 + WAITING_SECONDS) if one.waiting]
    assert sync.waiting == [WaitingBag(1, 2)]
    assert sync.want == 2
    brain.answered(sync.number - 1, Answer(1, sync.number - 1), 102.0)
    brain.prepared("1.1")
    brain.prepared("1.2")
    assert [one.waiting for one in syncs(brain, 102.0)] == [[]], "and when the files have come"


def test_of_one_bag_a_pilots_worth_waits_and_the_rest_goes_back() -> None:
    brain = brain_with(NEEDY, 50)
    late = 100.1 + WAITING_SECONDS
    sent = syncs(brain, 100.05) + syncs(brain, late)
    ends = [end for sync in sent for end in sync.ends]
    assert Counter(end.outcome for end in ends) == {"returned": 48}
    assert sent[-1].waiting == [WaitingBag(1, 2)], "told together, or they come again"
    assert len(brain.unprepared) == 2


def test_a_host_without_disk_space_gives_back_what_has_not_started() -> None:
    brain = brain_with(PLAIN, 4)
    brain.step(100.0)
    running = brain.next_start()
    assert running is not None
    brain.short_of("no space left", 100.1)
    commands = brain.step(100.1)
    assert [one.keys for one in commands if isinstance(one, Recall)] == [[running.key]]
    (sync,) = [one.sync for one in commands if isinstance(one, Send)]
    assert sync.want == 0
    assert sync.shortage == "no space left"
    assert {(end.sequence, end.outcome) for end in sync.ends} == {
        (number, "returned") for number in (2, 3, 4)
    }
    brain.answered(sync.number, Answer(1, sync.number), 100.2)
    brain.answered(sync.number - 1, Answer(1, sync.number - 1), 100.2)
    brain.step(100.2)
    brain.short_of("", 100.3)
    (sync,) = syncs(brain, 100.3)
    assert sync.want > 0
    assert not sync.shortage


def test_work_that_comes_to_a_host_without_disk_space_goes_back() -> None:
    brain = brain_with(PLAIN, 0)
    brain.short_of("no space left", 100.0)
    (sync,) = syncs(brain, 100.0)
    brain.answered(1, Answer(1, 1, [PLAIN], [Task(1, 2, 1, [])]), 100.1)
    brain.answered(sync.number, Answer(1, sync.number), 100.1)
    assert not brain.holding
    assert not brain.queue


def test_bodies_are_dropped_when_the_server_says_so() -> None:
    brain = PilotState(7, 1, 2, 20.0, Random(1), 100.0)
    now = 100.0
    for bag in range(1, 2000):
        for sync in syncs(brain, now):
            body = Body(bag, ["true"], [])
            answer = Answer(1, sync.number, [body], [Task(bag, bag, 0, [])], forget=[bag - 1])
            brain.answered(sync.number, answer, now)
        start = brain.next_start()
        if start is not None:
            task = start.task
            brain.ended(start.key, End(1, task.sequence, task.bag, task.task, "ok"), now)
        now += 1.0
    assert len(brain.bodies) <= 3


def test_a_body_stays_while_an_attempt_of_its_bag_is_held() -> None:
    brain = brain_with(PLAIN, 1)
    (sync,) = syncs(brain, 101.0)
    brain.answered(sync.number, Answer(1, sync.number, forget=[2]), 101.0)
    assert 2 in brain.bodies
    assert brain.next_start() is not None


def test_bodies_are_dropped_when_all_is_said_again() -> None:
    """The server then sends what it needs once more."""
    brain = brain_with(PLAIN, 1)
    (sync,) = syncs(brain, 101.0)
    brain.bodies[3] = Body(3, ["true"], [])
    brain.answered(sync.number, Answer(2, sync.number, resync=True), 101.0)
    (sync,) = syncs(brain, 102.0)
    brain.answered(sync.number, Answer(2, sync.number), 102.0)
    assert list(brain.bodies) == [2]


def test_waiting_attempts_are_prepared_once() -> None:
    brain = brain_with(NEEDY, 2)
    found = [one for one in brain.step(100.0) if isinstance(one, Prepare)]
    assert len(found) == 2


def test_whoever_gave_up_a_started_attempt_does_not_say_that_nothing_had_started() -> None:
    desk = Desk()
    [first] = desk.sent()
    assert desk.brain.every_start_confirmed()
    desk.work(first.number, 1)
    [key] = desk.start_all()
    assert not desk.brain.every_start_confirmed()
    desk.brain.abandon(key)
    assert desk.brain.holds_nothing()
    assert not desk.brain.every_start_confirmed()
