"""Pilots are not started for ever where no host can run the tasks."""

from typing import Any

from covey.core.explain import site_answers
from covey.core.explain.steps import finish
from covey.core.record.events import PilotLeft
from covey.core.record.model import Need, PolicySpec
from covey.core.sites import site_fit
from covey.pilot.protocol.messages import Leave
from tests.unit.core.placing import Grounds, asked, site
from tests.unit.core.table import spec


def round_of_idle_pilots(grounds: Grounds, **host: Any) -> int:
    """All that were asked for come, stand idle and leave; how many."""
    jobs = [job for job in grounds.jobs if grounds.scheduler.state.jobs[job.id].pilot is None]
    hands = [grounds.begin(job, **host) for job in jobs]
    for _ in range(4):
        grounds.later(1)
    for hand, job in zip(hands, jobs, strict=True):
        grounds.handle(PilotLeft(grounds.request(), Leave(hand.pilot, 1, "idle")))
        grounds.ends(job)
    grounds.later(1)
    return len(jobs)


def told(grounds: Grounds) -> str:
    state = grounds.scheduler.state
    answer = finish(site_answers.of_site(state, grounds.now, grounds.site()))
    return " ".join(one.text for one in answer.wanting)


def test_a_task_that_wants_more_memory_than_any_host_has() -> None:
    grounds = Grounds(site(ramp=6, queued=6))
    grounds.submit(spec(20, need=Need(memory_mb=60_000)))
    total = sum(round_of_idle_pilots(grounds, memory_mb=24_000) for _ in range(10))
    assert total <= 6 + 6
    assert "hosts of this site had at most 24,000 MB" in told(grounds)
    start = len(grounds.actions)
    grounds.later(site_fit.REMEMBER_SECONDS)
    grounds.later(1)
    assert len(asked(grounds.actions[start:])) == 1, "one pilot finds out whether it is still so"


def test_a_requirement_that_no_host_fulfils() -> None:
    grounds = Grounds(site(ramp=6, queued=6))
    policy = PolicySpec(requirements="Host.Memory > 10000000")
    grounds.submit(spec(20, policy=policy))
    total = sum(round_of_idle_pilots(grounds, memory_mb=24_000) for _ in range(10))
    assert total <= 6 + 6
    assert "its requirements were met on no host of this site" in told(grounds)
    assert "at most 24,000 MB of memory" in told(grounds)
    start = len(grounds.actions)
    grounds.later(site_fit.REMEMBER_SECONDS)
    grounds.later(1)
    assert len(asked(grounds.actions[start:])) == 1


def test_tasks_that_fit_go_on_there() -> None:
    grounds = Grounds(site(ramp=6, queued=6))
    grounds.submit(spec(20, need=Need(memory_mb=60_000)))
    for _ in range(3):
        round_of_idle_pilots(grounds, memory_mb=24_000)
    start = len(grounds.actions)
    grounds.submit(spec(2, need=Need(memory_mb=1000)))
    assert len(asked(grounds.actions[start:])) == 2
