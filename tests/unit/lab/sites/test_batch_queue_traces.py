"""The cluster gives the waits that others compute for a year of a real machine; waits that are
drawn from measured ones are like others that were measured there."""

import csv
import gzip
from pathlib import Path
from random import Random
from statistics import fmean, median

import pytest

from covey.lab.clock import START, Timeline
from covey.lab.draws import one_of
from covey.lab.sites import swf
from covey.lab.sites.batch_queue import Background, BatchQueue, DrawnQueue, QueuedJob

DATA = Path(__file__).parents[5] / "shared/data"
TRACE = DATA / "swf/kth-sp2-easy-reference.swf.gz"
WAITS = DATA / "pilots/xsede-queue-waits-gordon-supermic.csv.gz"
KTH_CORES = 100


def test_easy_backfilling_agrees_with_an_independent_simulator() -> None:
    if not TRACE.exists():
        pytest.skip(f"the trace is not there: {TRACE.name}")
    jobs = [job for job in swf.read(TRACE) if job.cores <= KTH_CORES]
    clock = Timeline()
    people = Background(clock, BatchQueue(clock, KTH_CORES))
    people.replay(jobs, START - jobs[0].submitted)
    clock.run_to(START + 1e9)
    pairs = list(zip(people.waits, jobs, strict=True))
    assert len(pairs) > 28_000
    ours, theirs = fmean(people.waits), fmean(job.waited for job in jobs)
    assert ours == pytest.approx(theirs, rel=0.01)
    slow = fmean(max(1.0, (wait + job.seconds) / max(10.0, job.seconds)) for wait, job in pairs)
    assert slow == pytest.approx(92.58, rel=0.05)
    equal = fmean(abs(wait - job.waited) <= 1.0 for wait, job in pairs)
    assert equal > 0.85


@pytest.mark.parametrize(("site", "jobs"), [("xsede.gordon", 476), ("xsede.supermic", 435)])
def test_drawn_waits_agree_with_logged_ones(site: str, jobs: int) -> None:
    """Waits of every second pilot are drawn from; the others are what they must be like."""
    if not WAITS.exists():
        pytest.skip(f"the waits of pilots are not there: {WAITS.name}")
    with gzip.open(WAITS, "rt", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["resource"] == site]
    rows.sort(key=lambda row: float(row["submit_epoch"]))
    logged = [float(row["queue_wait_s"]) for row in rows if row["queue_wait_s"]]
    assert len(logged) == jobs
    clock, drawn = Timeline(), list[float]()
    queue = DrawnQueue(clock, one_of(logged[::2]), Random(1))
    for _ in range(2000):
        queue.enter(QueuedJob(1, 1e9, lambda: drawn.append(clock.time - START)))
    clock.run_to(START + 1e9)
    others = logged[1::2]
    assert median(drawn) == pytest.approx(median(others), rel=0.1)
    distance = max(abs(_share(drawn, wait) - _share(others, wait)) for wait in others)
    assert distance < 0.1


def _share(waits: list[float], most: float) -> float:
    return sum(wait <= most for wait in waits) / len(waits)
