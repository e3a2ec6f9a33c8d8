"""The cluster gives the waits that others compute for a year of a real machine."""

from pathlib import Path
from statistics import fmean

import pytest

from covey.lab.clock import START, Timeline
from covey.lab.sites import swf
from covey.lab.sites.batch_queue import Background, BatchQueue

TRACE = Path(__file__).parents[5] / "shared/data/swf/kth-sp2-easy-reference.swf.gz"
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
