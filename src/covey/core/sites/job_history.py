"""What became of each site job: kept in its record, and as samples of its site.

A job waits from its submission, or from when it was requeued, until its site says that it runs or
its pilot enrols, whichever comes first. Lists come late, so a pilot often speaks first. Then nobody
knows how long it took to start, unless the site tells for how long the job has run.

All times are those at which the server heard of something. News that come again, as after a
restart, do not change a time that is known. The record of a job is complete when the job ends; of
each site the store keeps only the newest records.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from covey.core.record.actions import EndJob, SaveJob
from covey.core.record.model import JobOutcome, JobRecord, PilotRecord
from covey.core.state import Job, State
from covey.core.state.sites import JobSamples, Wait
from covey.core.turn import Turn

PROVEN_SECONDS = 60.0  # a pilot that has stayed for so long worked


def started(turn: Turn, job: Job, seconds: float) -> None:
    """The site says that it runs, and for how long it has, if the site tells."""
    before = job.record
    if before.started:
        return
    began = turn.now - max(0.0, seconds)
    at = max(before.waits_since, min(began, before.enrolled or began))
    _save(turn, job, replace(before, started=at))
    samples = _samples(turn.state, before)
    if not before.enrolled and not before.cancelled:
        _note_wait(turn.state, job.record, at, started=True)
    elif samples is not None and at < before.enrolled:
        samples.add_overhead(before.wanted_by, before.enrolled - at, turn.now)


def enrolled(turn: Turn, pilot: PilotRecord) -> None:
    """A new pilot has come of its job. Perhaps another one had before: then the job was started
    again, and its site has not said so yet."""
    job = turn.state.jobs.get(pilot.job)
    if job is None:
        return
    before = job.record
    _save(
        turn,
        job,
        replace(
            before,
            pilot=int(pilot.id),
            enrolled=turn.now,
            goodbye=0.0,
            outcome=JobOutcome.UNKNOWN,
        ),
    )
    samples = _samples(turn.state, before)
    if samples is None or before.enrolled:
        return
    if not before.started and not before.cancelled:
        _note_wait(turn.state, before, turn.now, started=True)
    elif before.started:
        samples.add_overhead(before.wanted_by, max(0.0, turn.now - before.started), turn.now)


def said_goodbye(turn: Turn, job: Job, *, worked: bool) -> None:
    """Its pilot ends by itself; the job will end soon."""
    before = job.record
    outcome = JobOutcome.OK if worked else JobOutcome.FAILED
    if before.cancelled and before.cancelled >= before.enrolled:
        outcome = JobOutcome.UNKNOWN  # it goes because covey takes it back
    _save(turn, job, replace(before, goodbye=turn.now, outcome=outcome))
    _note_life(turn.state, before, turn.now)


def cancelled(turn: Turn, jobs: Iterable[Job]) -> None:
    """They are being taken back. Those that wait would have waited for longer."""
    for job in jobs:
        before = job.record
        if not before.cancelled:
            _save(turn, job, replace(before, cancelled=turn.now))
            if not before.started and not before.enrolled:
                _note_wait(turn.state, before, turn.now, started=False)


def requeued(turn: Turn, job: Job, *, replaced: bool) -> None:
    """It was taken from its pilot. `replaced`: the next pilot is there already."""
    before = job.record
    samples = _samples(turn.state, before)
    if samples is not None:
        samples.add_outcome(before.wanted_by, JobOutcome.PREEMPTED, turn.now)
    record = replace(before, requeues=before.requeues + 1)
    if not replaced:
        if before.enrolled and not before.goodbye:
            _note_life(turn.state, before, turn.now)
        record = replace(
            record,
            requeued=turn.now,
            started=0.0,
            enrolled=0.0,
            goodbye=0.0,
            pilot=0,
            outcome=JobOutcome.UNKNOWN,
        )
    _save(turn, job, record)


def ended(turn: Turn, job: Job, reason: str, *, refused: bool) -> None:
    before = job.record
    outcome = JobOutcome.REFUSED if refused else _outcome(job, turn.now)
    turn.write(EndJob(before.id, turn.now, reason, outcome))
    samples = _samples(turn.state, before)
    if samples is None or refused:
        return
    if not before.started and not before.enrolled and not before.cancelled:
        _note_wait(turn.state, before, turn.now, started=False)
    if before.enrolled and not before.goodbye:
        _note_life(turn.state, before, turn.now)
    samples.add_outcome(before.wanted_by, outcome, turn.now)


def _outcome(job: Job, now: float) -> JobOutcome:
    record = job.record
    if record.outcome:  # as its pilot said goodbye
        return record.outcome
    if record.cancelled and record.cancelled >= record.enrolled:
        return JobOutcome.CANCELLED
    if not record.enrolled:
        return JobOutcome.FAILED
    worked = job.useful or now - record.enrolled >= PROVEN_SECONDS
    return JobOutcome.PREEMPTED if worked else JobOutcome.FAILED


def restore(state: State, records: Iterable[JobRecord]) -> None:
    """Take the samples that the record holds: of jobs that have ended, then of those that have
    not, each in the order of submission."""
    for record in records:
        samples = _samples(state, record)
        if samples is None or record.outcome is JobOutcome.REFUSED:
            continue
        owner, ended_at = record.wanted_by, record.ended
        first = min((at for at in (record.started, record.enrolled) if at), default=0.0)
        over = min((at for at in (record.cancelled, ended_at) if at), default=0.0)
        if first and (not over or first <= over):
            _note_wait(state, record, first, started=True)
        elif over:
            _note_wait(state, record, over, started=False)
        if 0.0 < record.started < record.enrolled:
            samples.add_overhead(owner, record.enrolled - record.started, record.enrolled)
        if record.enrolled and (record.goodbye or ended_at):
            _note_life(state, record, record.goodbye or ended_at)
        for _ in range(min(record.requeues, MOST_REQUEUES)):
            samples.add_outcome(owner, JobOutcome.PREEMPTED, record.requeued or record.submitted)
        if ended_at:
            samples.add_outcome(owner, record.outcome, ended_at)


MOST_REQUEUES = 20  # of one job, that are remembered after a restart


def _note_wait(state: State, record: JobRecord, at: float, *, started: bool) -> None:
    samples = _samples(state, record)
    if samples is not None:
        since = record.waits_since
        samples.add_wait(Wait(record.wanted_by, since, max(0.0, at - since), started), at)


def _note_life(state: State, record: JobRecord, at: float) -> None:
    samples = _samples(state, record)
    if samples is not None and record.enrolled:
        samples.add_lifetime(record.wanted_by, max(0.0, at - record.enrolled), at)


def _samples(state: State, record: JobRecord) -> JobSamples | None:
    site = state.sites.get(record.site)
    return site.samples if site is not None else None


def _save(turn: Turn, job: Job, record: JobRecord) -> None:
    job.record = record
    turn.write(SaveJob(record))
