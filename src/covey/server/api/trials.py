"""Trials: the steps of pilots that were started to test a site.

Core treats them like any other pilot; this module writes down what happens to them, in memory. A
server that is killed forgets the steps, but not the site job.
"""

import asyncio

from covey.core.record.events import (
    JobEnded,
    JobRefused,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    JobVanished,
    PilotEnrolled,
    PilotLeft,
    SyncReceived,
)
from covey.core.record.model import JobId, PilotId
from covey.core.sites.site_table import MOST_WORDS
from covey.ports import EngineEvent
from covey.questions.site_questions import JobOfPilot, TrialNow, TrialSince
from covey.server.decider import Decider
from covey.wire import TrialStep

MOST = 1000
OVER = ("refused", "vanished", "ended", "left")
_HEARD: frozenset[object] = frozenset(
    (
        JobSubmitted,
        JobStarted,
        JobRequeued,
        JobRefused,
        JobVanished,
        JobEnded,
        PilotEnrolled,
        PilotLeft,
    )
)


class Trials:
    """Gets every event before the engine, because core may forget the job with the event."""

    def __init__(self) -> None:
        self._steps: dict[JobId, list[TrialStep]] = {}
        self.changed = asyncio.Event()  # set, and replaced, with each step

    def heard(self, event: EngineEvent, decider: Decider, now: float) -> None:
        if event.__class__ is SyncReceived:
            self._heard_sync(event.sync.pilot, event.sync.number, decider, now)
            return
        if event.__class__ not in _HEARD:  # quick, since most events are not
            return
        match event:
            case JobSubmitted(job, text):
                kind = "submitted"
            case JobStarted(job):
                kind, text = "started", ""
            case JobRequeued(job, text):
                kind = "requeued"
            case JobRefused(job, text):
                kind = "refused"
            case JobVanished(job, text):
                kind = "vanished"
            case JobEnded(job, text):
                kind = "ended"
            case PilotEnrolled(_, enrol):
                job, kind, text = JobId(enrol.job), "enrolled", enrol.host
            case PilotLeft(_, leave):
                job = _job_of(decider, leave.pilot)
                kind, text = "left", leave.reason[:MOST_WORDS]
            case _:
                return
        since = decider.ask_if_ready(TrialSince(job))
        if since:
            self._add(self._of(job, since), kind, text, now)

    def _heard_sync(self, pilot: int, number: int, decider: Decider, now: float) -> None:
        """With its first sync a pilot asks for work, so the site works."""
        if number != 1 or not self._steps:
            return
        steps = self._steps.get(_job_of(decider, pilot))
        if steps is not None:
            self._add(steps, "ready", "", now)

    def _add(self, steps: list[TrialStep], kind: str, text: str, now: float) -> None:
        if (steps[-1].kind, steps[-1].text) != (kind, text):  # a site may report a change twice
            steps.append(TrialStep(kind=kind, at=now, text=text))
            self.changed.set()
            self.changed = asyncio.Event()

    def steps(self, job: JobId, trial: TrialNow) -> list[TrialStep] | None:
        """The steps of a trial; None: the job is unknown, or is not a trial."""
        return self._of(job, trial.submitted) if trial.submitted else self._steps.get(job)

    def _of(self, job: JobId, asked: float) -> list[TrialStep]:
        if job not in self._steps:
            while len(self._steps) >= MOST:
                del self._steps[next(iter(self._steps))]
            self._steps[job] = [TrialStep(kind="asked", at=asked)]
        return self._steps[job]


def _job_of(decider: Decider, pilot: int) -> JobId:
    """The site job of a pilot; empty if the pilot is not known."""
    return decider.ask_if_ready(JobOfPilot(PilotId(pilot))) or JobId("")
