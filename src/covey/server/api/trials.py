"""Trials: what has become of pilots that somebody started to see whether a site works.

Core treats them like any other; here is written down what is heard of them, as long as anybody may
ask. A server that is killed forgets the steps, not the job.
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
from covey.core.state import State
from covey.ports import EngineEvent
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
    """Hears every event before the engine does: afterwards core may know the job no longer."""

    def __init__(self) -> None:
        self._steps: dict[JobId, list[TrialStep]] = {}
        self.changed = asyncio.Event()  # set, and replaced, with each step

    def heard(self, event: EngineEvent, state: State | None, now: float) -> None:
        if event.__class__ is SyncReceived:
            self._heard_sync(event.sync.pilot, event.sync.number, state, now)
            return
        if event.__class__ not in _HEARD:  # most are not, and there are many
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
                job, kind, text = _job_of(state, leave.pilot), "left", leave.reason[:MOST_WORDS]
            case _:
                return
        known = state.jobs.get(job) if state is not None else None
        if known is not None and known.record.trial:
            self._add(self._of(job, known.record.submitted), kind, text, now)

    def _heard_sync(self, pilot: int, number: int, state: State | None, now: float) -> None:
        """With its first sync a pilot asks for work: the site works."""
        if number != 1 or not self._steps:
            return
        steps = self._steps.get(_job_of(state, pilot))
        if steps is not None:
            self._add(steps, "ready", "", now)

    def _add(self, steps: list[TrialStep], kind: str, text: str, now: float) -> None:
        if (steps[-1].kind, steps[-1].text) != (kind, text):  # news may be told twice
            steps.append(TrialStep(kind=kind, at=now, text=text))
            self.changed.set()
            self.changed = asyncio.Event()

    def steps(self, job: JobId, state: State) -> list[TrialStep] | None:
        """None of a job that there is not, or that nobody tries."""
        known = state.jobs.get(job)
        if known is not None and known.record.trial:
            return self._of(job, known.record.submitted)
        return self._steps.get(job)

    def _of(self, job: JobId, asked: float) -> list[TrialStep]:
        if job not in self._steps:
            while len(self._steps) >= MOST:
                del self._steps[next(iter(self._steps))]
            self._steps[job] = [TrialStep(kind="asked", at=asked)]
        return self._steps[job]


def _job_of(state: State | None, pilot: int) -> JobId:
    """The site job of a pilot; empty if the pilot is not known."""
    known = state.pilots.get(PilotId(pilot)) if state is not None else None
    return known.record.job if known is not None else JobId("")
