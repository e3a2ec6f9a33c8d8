"""Tiny worlds: each misfortune shows, and equal seeds are equal."""

from typing import Any

import msgspec

from covey.lab import experiment, world
from covey.lab.ledger import Account
from covey.lab.worldfile import parse

BASE = """
{top}
[server]
latency = 0.1
{server}
[[sites]]
name = "a"
pilots = {pilots}
{site}
[[bags]]
name = "x"
tasks = {tasks}
time = "{time}"
{bag}
"""


def lived(seed: int = 1, **fields: Any) -> Account:
    given = {"top": "", "server": "", "site": "", "bag": "", "pilots": 10, "tasks": 100}
    text = BASE.format(**{**given, "time": "1m", **fields})
    return world.run(parse(text, "w"), None, seed)[0]


def figures_of(account: Account) -> dict[str, Any]:
    census = account.census
    assert census is not None
    counts = (census.jobs, census.enrolled, census.mean_pilots(), census.filling())
    return {**vars(account), "census": counts}


def test_nothing_goes_wrong() -> None:
    found = lived()
    assert (found.done, found.attempts, found.failures, found.lost) == (100, 100, 0, 0)
    assert 600 < found.turnaround < 610
    assert 50 < found.tail < 65


def test_equal_seeds_are_equal_and_others_are_not() -> None:
    site = 'preempted = 0.2\npreempted_over = "1m"\nfailed = 0.1\ndiffer = true\nhosts = 20'
    one, same, other = (figures_of(lived(seed, site=site)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_slots_and_speed() -> None:
    assert 50 < lived(pilots=5, site="slots = 4\nspeed = 2").turnaround / 3 < 52


def test_preempted_pilots_lose_their_tasks_until_the_lease_is_over() -> None:
    site = 'preempted = 0.3\npreempted_over = "1m"\nwait = 10'
    found = lived(site=site)
    assert found.done == 100
    assert 20 < found.lost < 80
    patient = lived(site=site, server='lease = "1h"')
    assert patient.turnaround > 3600 > found.turnaround


def test_only_the_deadline_tells_where_pilots_are_not_connected() -> None:
    found = lived(
        site='preempted = 0.3\npreempted_over = "1m"\nwait = 10',
        server='connected = false\nlease = "10d"',
        bag='policy = { deadline = "5m" }',
    )
    assert found.done == 100
    assert found.repeats > 10
    assert found.lost == 0
    assert found.replicas == 0
    assert 600 < found.turnaround < 3600


def test_failures_are_tried_again() -> None:
    found = lived(site="failed = 0.2", tasks=400)
    assert found.done == 400
    assert 60 < found.failures < 140
    given_up = lived(site="failed = 0.2", tasks=400, bag="retries = 0")
    assert 50 < given_up.given_up < 110


def test_black_holes_are_found_out() -> None:
    found = lived(site="black_holes = 0.2")
    assert found.done == 100
    assert 6 <= found.failures < 60
    assert found.turnaround > 700  # eight hosts did the work of ten


def test_stragglers_make_the_tail_long_and_replicas_make_it_short() -> None:
    site = "stragglers = 0.05\nslowdown = 20"
    alone = lived(site=site)
    helped = lived(site=site, bag='policy = { preset = "fast-tail" }')
    assert alone.tail > 2 * helped.tail
    assert helped.replicas
    assert helped.cancelled
    assert not helped.discarded


def test_who_is_not_connected_cannot_be_stopped() -> None:
    found = lived(
        site="stragglers = 0.05\nslowdown = 5",
        server='connected = false\nlease = "1h"',
        bag='policy = { preset = "fast-tail" }',
        tasks=95,
    )
    assert found.replicas
    assert not found.cancelled


def test_hosts_come_and_go_with_the_hour() -> None:
    found = lived(site="availability = [[0, 1.0], [120, 0.1], [1200, 1.0]]")
    assert found.done == 100
    assert found.lost == 9
    assert found.turnaround > 1200


def test_hosts_have_a_history_in_the_next_bag() -> None:
    text = BASE.format(
        top="", server="", pilots=4, site="hosts = 8", tasks=8, time="1m", bag=""
    ) + (
        '[[bags]]\nname = "y"\nafter = "x"\ntasks = 8\ntime = "1m"\n'
        'policy = { requirements = "Host.JobsToday > 0" }\n'
    )
    first, second = world.run(parse(text, "w"), None, 1)
    assert second.created == first.over_at
    assert second.done == 8


def test_what_cannot_end_is_given_up() -> None:
    found = lived(top='limit = "1h"', bag='policy = { requirements = "false" }')
    assert found.stopped == "not over within the limit of the file"


def test_an_experiment_is_a_table_and_json() -> None:
    text = BASE.format(top="", server="", pilots=4, site="", tasks=8, time="1m", bag="") + (
        '[[variants]]\nname = "v"\nabout = "as it is"\npaper = { turnaround = "2m", says = "so" }\n'
        '[[variants]]\nname = "w"\n'
    )
    told: list[experiment.Progress] = []
    result = experiment.run("tiny", parse(text, "w"), 2, told.append)
    assert [(one.run, one.runs, one.name, one.seed) for one in told] == [
        (1, 4, "v", 1),
        (2, 4, "v", 2),
        (3, 4, "w", 1),
        (4, 4, "w", 2),
    ]
    table = experiment.table(result)
    assert table.titles[:3] == ["", "turnaround (min)", "paper"]
    assert [row[0] for row in table.rows] == ["v", "w"]
    assert table.rows[0][1].startswith("2.01 ± ")
    assert [row[2] for row in table.rows] == ["2", "–"]
    assert "| v | 2.01" in experiment.markdown(result)
    again = msgspec.json.decode(msgspec.json.encode(result), type=experiment.Result)
    assert again == result
