"""Queues of a world file have run for a while when the world begins."""

from pathlib import Path

from covey.lab.clock import START, Timeline
from covey.lab.sites import site_queues
from covey.lab.sites.batch_queue import BatchQueue, QueuedJob
from covey.lab.worldfile import parse

WORLD = """
[[bags]]
name = "x"
tasks = 1
time = 1
[[sites]]
name = "a"
[sites.queue]
{queue}
"""


def wait_at(queue: str, time: float = 0.0, cores: int = 1) -> float:
    """How long a job waits that is submitted then."""
    world = parse(WORLD.format(queue=queue), "w")
    clock = Timeline(START - site_queues.warm_seconds(world))
    made = site_queues.make(world.sites[0], clock, seed=1)
    clock.run_to(START + time)
    started: list[float] = []
    made.enter(QueuedJob(cores, 10, lambda: started.append(clock.time)))
    while not started:
        clock.step()
    return started[0] - START - time


def test_the_load_of_drawn_waits_changes() -> None:
    queue = "wait = 10\nload = [[60, 5.0]]"
    assert wait_at(queue, 30) == 10
    assert wait_at(queue, 60) == 50


def test_a_background_has_filled_the_cluster() -> None:
    text = "cores = 4\n[sites.queue.background]\nevery = 10\ntime = 100\ncores = 4\n"
    assert wait_at(text) == 0
    assert wait_at(text + 'warm = "200s"') > 1000


def test_the_load_of_a_background_changes() -> None:
    text = "cores = 4\n[sites.queue.background]\nevery = 1000\ntime = 300\ncores = 4\n"
    assert wait_at(text + "load = [[0, 1]]", 5000) <= 300
    assert wait_at(text + "load = [[1000, 10]]", 5000) > 3000


def test_a_trace_begins_where_the_world_says(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    line = "1 {at} 0 100 4 -1 -1 4 100 -1 1 4 -1 -1 -1 -1 -1 -1\n"
    path.write_text(line.format(at=0) + line.format(at=1000) + line.format(at=1010))
    text = f'cores = 4\n[sites.queue.background]\ntrace = "{path}"\nbegin = 1050\n'
    assert wait_at(text) == 0
    assert wait_at(text + "warm = 45") == 60
    assert wait_at(text + "warm = 50") == 150


def test_a_cluster_without_others_is_free() -> None:
    world = parse(WORLD.format(queue="cores = 4"), "w")
    made = site_queues.make(world.sites[0], Timeline(), seed=1)
    assert isinstance(made, BatchQueue)
    assert made.free == 4
