"""Core's overlay asks for pilots at sites of the lab, and each misfortune of a job shows."""

from typing import Any

from covey.lab import world
from covey.lab.census import Census
from covey.lab.ledger import Account
from covey.lab.worldfile import parse

WORLD = """
{top}
[[sites]]
name = "a"
{site}
[sites.queue]
submission = 0
{queue}
[[bags]]
name = "x"
tasks = {tasks}
time = "{time}"
{bag}
"""


def lived(more: str = "", seed: int = 1, **fields: Any) -> tuple[Account, Census]:
    given = {"top": "", "site": "", "queue": "ramp = 100", "bag": "", "tasks": 100, "time": "1m"}
    file = parse(WORLD.format(**{**given, **fields}) + more, "w")
    account = world.run(file, None, seed)[0]
    assert account.census is not None
    return account, account.census


def test_as_many_pilots_as_there_are_tasks() -> None:
    account, census = lived()
    assert (account.done, account.attempts) == (100, 100)
    assert census.jobs == census.enrolled == 100
    assert 60 < account.turnaround < 65


def test_no_more_pilots_than_the_site_may_have() -> None:
    account, census = lived(queue="running = 10\nramp = 100")
    assert census.jobs == 10
    assert 600 < account.turnaround < 610


def test_equal_seeds_are_equal_and_others_are_not() -> None:
    queue = 'wait = "exponential 5m"\nstart_failures = 0.2\nrunning = 20'
    runs = [lived(seed=seed, queue=queue)[0] for seed in (1, 1, 2)]
    assert runs[0].turnaround == runs[1].turnaround != runs[2].turnaround


def test_pilots_have_the_slots_of_the_site() -> None:
    account, census = lived(site="slots = 8", queue="ramp = 100")
    assert census.jobs == 13
    assert 60 < account.turnaround < 65


def test_jobs_wait_and_boot() -> None:
    account, _ = lived(queue='ramp = 100\nwait = "1m"\nboot = 30')
    assert 150 < account.turnaround < 155
    assert 90 < account.waits / account.done < 95
    assert account.longest_wait < 95


def test_a_site_takes_submissions_one_after_the_other() -> None:
    text = WORLD.replace("submission = 0", "submission = 3")
    given = {"top": "", "site": "", "queue": "ramp = 100", "bag": "", "tasks": 20, "time": "10m"}
    account = world.run(parse(text.format(**given), "w"), None, 1)[0]
    assert 660 < account.turnaround < 665


def test_idle_pilots_go_home() -> None:
    more = '[[bags]]\nname = "y"\ntasks = 100\ntime = "1m"\nat = "10m"\n'
    _, kept = lived(more, queue='ramp = 100\nidle = "1h"')
    assert kept.jobs == 100
    _, gone = lived(more, queue='ramp = 100\nidle = "1m"')
    assert gone.jobs == 200


def test_pilots_end_with_their_time() -> None:
    account, census = lived(queue='running = 10\nramp = 100\nwall = "5m"', tasks=200)
    assert account.done == 200
    assert account.lost == 0
    assert census.jobs >= 50


def test_what_a_pilot_cannot_end_in_its_time_is_lost_with_it() -> None:
    account, _ = lived(queue='running = 1\nwall = "90s"', tasks=2, top='limit = "10m"', time="2m")
    assert account.lost >= 1
    assert account.stopped


def test_jobs_that_fail_at_their_start_are_replaced() -> None:
    account, census = lived(queue="running = 10\nstart_failures = 0.3", tasks=200)
    assert account.done == 200
    assert census.jobs > census.enrolled >= 10


def test_preempted_pilots_lose_their_tasks_until_the_site_is_looked_at() -> None:
    site = "preempted = 0.3\npreempted_over = 60"
    account, census = lived(site=site, queue="running = 10\nramp = 100")
    assert account.done == 100
    assert 20 < account.lost < 80
    assert census.jobs > 30


def test_other_peoples_jobs_are_in_the_way() -> None:
    cluster = "ramp = 100\ncores = 16\n"
    free, _ = lived(queue=cluster)
    people = '[sites.queue.background]\nevery = "exponential 2m"\ntime = "20m"\nwarm = "3h"\n'
    crowded, _ = lived(queue=cluster + people)
    assert 420 < free.turnaround < 440
    assert crowded.turnaround > 1.5 * free.turnaround


def test_files_take_time_and_common_ones_once() -> None:
    bag = "common_mb = 300\ninput_mb = 20\noutput_mb = 10"
    account, census = lived(site="mb_per_second = 10", queue="running = 10\nramp = 100", bag=bag)
    assert 660 < account.turnaround < 665
    assert account.work_seconds == 6000
    assert census.filling() > 0.95


def test_tasks_may_take_several_slots() -> None:
    account, _ = lived(site="slots = 8", queue="running = 1", bag="cores = 3", tasks=10)
    assert 300 < account.turnaround < 305


def test_a_slot_needs_a_while_before_each_task() -> None:
    account, _ = lived(site="overhead = 6", queue="running = 10\nramp = 100")
    assert 660 < account.turnaround < 665


def test_what_was_used_is_counted() -> None:
    account, census = lived(queue="running = 10\nramp = 100")
    assert account.work_seconds == 6000
    assert 9 < census.mean_pilots() <= 10
    assert 0.95 < census.filling() <= 1.0


def test_owners_have_pilots_of_their_own() -> None:
    more = '[[bags]]\nname = "y"\nowner = "eve"\ntasks = 10\ntime = "1m"\n'
    _, census = lived(more, tasks=10, bag='owner = "ada"')
    assert census.jobs == 20


def test_the_broker_of_a_bag_splits_its_pilots() -> None:
    more = '[[sites]]\nname = "b"\n[sites.queue]\nramp = 100\nweight = 0\nwait = "1h"\n'
    given: dict[str, Any] = {"queue": "running = 10\nramp = 100", "bag": 'broker = "static"'}
    alone, census = lived(more, **given)
    assert census.jobs == 10
    assert 600 < alone.turnaround < 610
    _, census = lived(more.replace("weight = 0", "weight = 3"), **given)
    assert census.jobs > 10
