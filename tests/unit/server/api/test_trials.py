"""What is written down of trials, and of nothing else."""

import asyncio

import pytest

from covey.core.record.actions import Tried
from covey.core.record.events import (
    JobRefused,
    JobStarted,
    JobSubmitted,
    PilotLeft,
    SiteTried,
    SyncReceived,
    Ticked,
)
from covey.core.record.model import JobId, SiteSpec
from covey.pilot.protocol.messages import Leave, Sync
from covey.questions.site_questions import TrialAt
from covey.server.api import trials
from covey.server.api.trials import Trials
from covey.wire import TrialStep
from tests.unit.core.table import Table, only, spec
from tests.unit.server.deciders import decider_of

SITE = SiteSpec(name="s", driver="slurm")


def tried(table: Table) -> JobId:
    return only(table.handle(SiteTried(table.request(), "s")), Tried).job


def heard(found: Trials, table: Table, event: object) -> None:
    """First they, then the engine."""
    found.heard(event, decider_of(table.scheduler), table.now)  # type: ignore[arg-type]
    table.handle(event)  # type: ignore[arg-type]


def steps_of(found: Trials, table: Table, job: JobId) -> list[TrialStep] | None:
    trial = TrialAt("s", job).answer(table.scheduler.state, table.now)
    assert trial is not None
    return found.steps(job, trial)


def kinds(found: Trials, table: Table, job: JobId) -> list[str] | None:
    steps = steps_of(found, table, job)
    return None if steps is None else [step.kind for step in steps]


def test_steps_of_trials_are_kept_when_core_has_forgotten_the_job() -> None:
    table, found = Table(sites=(SITE,)), Trials()
    job = tried(table)
    news = found.changed
    heard(found, table, JobSubmitted(job, "7"))
    assert news.is_set()
    assert not found.changed.is_set()
    heard(found, table, JobSubmitted(job, "7"))
    heard(found, table, JobRefused(job, "no"))
    assert job not in table.scheduler.state.jobs
    assert kinds(found, table, job) == ["asked", "submitted", "refused"]
    heard(found, table, JobStarted(job))
    assert kinds(found, table, job) == ["asked", "submitted", "refused"], "it is no job any more"


def test_other_jobs_are_nobodys_business() -> None:
    table, found = Table(sites=(SITE,)), Trials()
    table.submit(spec(1))
    (job,) = table.scheduler.state.jobs
    heard(found, table, JobSubmitted(job, "7"))
    assert kinds(found, table, job) is None
    found.heard(Ticked(), decider_of(None), 0.0)
    found.heard(JobStarted(job), decider_of(None), 0.0)


def test_old_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MOST", 2)
    table, found = Table(sites=(SITE,)), Trials()
    jobs = [tried(table) for _ in range(3)]
    for job in jobs:
        heard(found, table, JobRefused(job, "no"))
    assert [kinds(found, table, job) is None for job in jobs] == [True, False, False]


def test_it_needs_no_loop() -> None:
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    Trials()


def test_a_pilot_that_asks_for_work_shows_that_the_site_works() -> None:
    table, found = Table(sites=(SITE,)), Trials()
    job = tried(table)
    heard(found, table, JobStarted(job))
    hand = table.enrol(1, site="s", job=job, key="key of it")
    first = SyncReceived(table.request(), Sync(hand.pilot, table.scheduler.state.epoch, 1, 0, 1))
    heard(found, table, first)
    found.heard(first, decider_of(None), 0.0)
    assert kinds(found, table, job) == ["asked", "started", "ready"]


def test_a_pilot_that_leaves_says_why() -> None:
    table, found = Table(sites=(SITE,)), Trials()
    job = tried(table)
    heard(found, table, JobStarted(job))
    hand = table.enrol(1, site="s", job=job, key="key of it")
    leave = Leave(hand.pilot, table.scheduler.state.epoch, "no scratch")
    heard(found, table, PilotLeft(table.request(), leave))
    steps = steps_of(found, table, job)
    assert steps is not None
    assert (steps[-1].kind, steps[-1].text) == ("left", "no scratch")
