"""A cluster starts jobs first come, first served, and fills gaps that delay nobody."""

from random import Random

from covey.lab.clock import START, Timeline
from covey.lab.draws import constant
from covey.lab.sites.batch_queue import Background, BatchQueue, DrawnQueue, QueuedJob
from covey.lab.sites.swf import TraceJob


def waits(cores: int, *jobs: tuple[float, int, float, float]) -> list[float]:
    """Of jobs, each (submitted, cores, seconds, asked). -1: it never started."""
    clock = Timeline()
    people = Background(clock, BatchQueue(clock, cores))
    people.replay([TraceJob(*job, waited=-1) for job in jobs], START)
    clock.run_to(START + 1e6)
    return people.waits


def test_jobs_run_together_as_far_as_there_are_cores() -> None:
    assert waits(4, (0, 2, 50, 50), (1, 2, 50, 50), (2, 2, 50, 50)) == [0, 0, 48]


def test_ends_count_before_arrivals_of_the_same_time() -> None:
    assert waits(4, (0, 4, 50, 50), (50, 4, 10, 10)) == [0, 0]


def test_a_short_job_fills_the_gap_before_a_large_one() -> None:
    assert waits(4, (0, 3, 100, 100), (1, 4, 10, 10), (2, 1, 90, 90)) == [0, 99, 0]


def test_a_long_job_must_not_delay_the_first_one() -> None:
    assert waits(4, (0, 3, 100, 100), (1, 4, 10, 10), (2, 1, 200, 200)) == [0, 99, 108]


def test_a_long_job_may_have_cores_that_the_first_one_leaves() -> None:
    assert waits(4, (0, 3, 100, 100), (1, 3, 10, 10), (2, 1, 200, 200)) == [0, 99, 0]


def test_what_counts_is_the_time_that_jobs_ask_for() -> None:
    # The first job ends early, but nobody knows that before: the third one fits before 100.
    assert waits(4, (0, 3, 20, 100), (1, 4, 10, 10), (2, 1, 90, 90)) == [0, 91, 0]


def test_a_job_that_is_larger_than_the_cluster_never_starts() -> None:
    assert waits(4, (0, 5, 10, 10), (1, 4, 10, 10)) == [-1, 0]


def test_what_is_taken_back_makes_place() -> None:
    clock = Timeline()
    queue = BatchQueue(clock, 4)
    started: list[str] = []
    large = QueuedJob(4, 100, lambda: started.append("large"))
    small = QueuedJob(1, 100, lambda: started.append("small"))
    first = QueuedJob(3, 50, lambda: started.append("first"))
    for job in (first, large, small):
        queue.enter(job)
    clock.run_to(START + 1)
    assert started == ["first"]
    queue.leave(large)
    clock.run_to(START + 2)
    assert started == ["first", "small"]
    queue.leave(first)
    assert queue.free == 3


def test_drawn_jobs_come_at_their_rate() -> None:
    clock, rate = Timeline(), 1.0
    people = Background(clock, BatchQueue(clock, 100))
    people.draw(constant(10), constant(5), constant(1), constant(2), lambda: rate, Random(1))
    clock.run_to(START + 100)
    assert len(people.waits) == 10
    rate = 4.0
    clock.run_to(START + 200)
    assert 45 <= len(people.waits) <= 50


def test_a_drawn_wait_is_longer_under_load_and_ends_with_the_job() -> None:
    clock = Timeline()
    queue = DrawnQueue(clock, constant(10), Random(1))
    started: list[float] = []

    def job() -> QueuedJob:
        return QueuedJob(1, 100, lambda: started.append(clock.time - START))

    queue.enter(job())
    queue.factor = 3.0
    queue.enter(job())
    gone = job()
    queue.enter(gone)
    queue.leave(gone)
    clock.run_to(START + 100)
    assert started == [10, 30]
