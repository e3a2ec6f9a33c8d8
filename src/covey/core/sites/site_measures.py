"""What is known about a site: measured by our own jobs there, told by its batch system.

`core.sites.job_history` takes the samples as things happen; here they become figures when somebody
asks. An answer is kept for as long as nothing has changed. Jobs that wait wait for ever longer, so
where there are some an answer is computed again when it is older than `FRESH_SECONDS`, or than
`FRESH_PART` of the median, whichever is longer.

An owner's figures come from jobs that were asked for in the owner's name. The speed and the filling
of a site are everybody's: they do not depend on who asked for the pilot.
"""

from collections.abc import Iterable

from covey.core.record.model import JobOutcome
from covey.core.sites.measures import UNKNOWN, SiteMeasures
from covey.core.sites.wait_estimate import WEIGHTS, estimate
from covey.core.state import Site, State
from covey.core.state.sites import Measured, Wait

FRESH_SECONDS = 1.0
FRESH_PART = 0.02
# Ends that count for the rates. Nobody knows how a job that covey took back would have ended. A job
# that was refused never was at the site; the site rests then.
_TOLD = (JobOutcome.OK, JobOutcome.FAILED, JobOutcome.PREEMPTED)


def measures_of(state: State, now: float, site_name: str, owner: str = "") -> SiteMeasures:
    """`owner`: of that owner's jobs only; empty: of all. A site that is not there is unknown."""
    site = state.sites.get(site_name)
    if site is None:
        return UNKNOWN
    samples = site.samples
    kept = samples.answers.get(owner)
    if kept is not None and kept.changed == samples.changed and _is_fresh(kept, now):
        return kept.measures
    measures = _measure(state, now, site, owner)
    if kept is None and len(samples.answers) >= MOST_OWNERS:
        samples.answers.clear()
    samples.answers[owner] = Measured(samples.changed, now, measures)
    return measures


MOST_OWNERS = 100  # for whom answers are kept


def _is_fresh(kept: Measured, now: float) -> bool:
    measures = kept.measures
    if not measures.waiting:
        return True
    longest = max(FRESH_SECONDS, FRESH_PART * (measures.wait_median or 0.0))
    return 0.0 <= now - kept.at < longest


def _measure(state: State, now: float, site: Site, owner: str) -> SiteMeasures:
    samples, capacity = site.samples, site.samples.capacity
    done = [wait for wait in samples.waits if not owner or wait.owner == owner]
    waiting = _waiting(state, now, site, owner)
    wait = estimate(done, waiting)
    failed, preempted = _shares([one for whose, one in samples.outcomes if owner in ("", whose)])
    still = sum(one.jobs for one in waiting)
    return SiteMeasures(
        jobs=len(done) + still,
        waiting=still,
        wait_median=wait and wait.median,
        wait_p90=wait and wait.p90,
        wait_at_least=wait is not None and wait.at_least,
        wait_trend=wait and wait.trend,
        start_overhead=_middle(s for whose, s in samples.overheads if owner in ("", whose)),
        lifetime=_middle(s for whose, s in samples.lifetimes if owner in ("", whose)),
        failure_rate=failed,
        preemption_rate=preempted,
        speed=samples.told_speed,
        filling_rate=samples.told_filling,
        measured_at=samples.newest or None,
        free_cores=capacity.free_cores,
        total_cores=capacity.total_cores,
        free_nodes=capacity.free_nodes,
        total_nodes=capacity.total_nodes,
        queue_length=capacity.queue_length,
        capacity_at=samples.capacity_at or None,
    )


def _waiting(state: State, now: float, site: Site, owner: str) -> list[Wait]:
    """Jobs that wait now. Those that were submitted together are one sample."""
    counts: dict[tuple[float, str], int] = {}
    for id_ in site.jobs:
        job = state.jobs[id_]
        record = job.record
        if job.running or record.enrolled or record.started or record.cancelled:
            continue
        if not owner or record.wanted_by == owner:
            key = (record.requeued or record.submitted, record.wanted_by)
            counts[key] = counts.get(key, 0) + 1
    return [
        Wait(whose, since, max(0.0, now - since), False, count)
        for (since, whose), count in counts.items()
    ]


def _shares(outcomes: list[JobOutcome]) -> tuple[float | None, float | None]:
    """The parts that failed and that the site took away, newer ones counting more."""
    whole = failed = preempted = 0.0
    told = [outcome for outcome in reversed(outcomes) if outcome in _TOLD]
    for outcome, weight in zip(told, WEIGHTS, strict=False):
        whole += weight
        if outcome is JobOutcome.FAILED:
            failed += weight
        elif outcome is JobOutcome.PREEMPTED:
            preempted += weight
    return (failed / whole, preempted / whole) if told else (None, None)


def _middle(seconds: Iterable[float]) -> float | None:
    found = sorted(seconds)
    half = len(found) // 2
    if not found:
        return None
    return found[half] if len(found) % 2 else (found[half - 1] + found[half]) / 2
