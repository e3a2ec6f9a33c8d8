"""The decider answers the questions of the HTTP side. In the server, only this module reads core's
state; changes are events, sent through the gateway.

A long question is answered in slices of a few milliseconds. Between two slices the event loop
handles everything else that is ready. One question at a time has a slice: however many are asked,
a pilot's sync waits for one slice at most. Core bounds each step by counts; this module reads the
clock.

One lookup is not a question, because every sync needs it: a pilot's `enrolment`.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from covey.core.record.model import PilotId, PilotRecord
from covey.engine import Engine
from covey.questions.question import LongQuestion, Question
from covey.server.web.problems import HttpProblem

SLICE_SECONDS = 0.002

A = TypeVar("A")


class Decider:
    def __init__(self, engine: Engine, now: Callable[[], float]) -> None:
        self._engine = engine
        self._now = now
        self._slice = asyncio.Lock()

    @property
    def trouble(self) -> str:
        """Why the server cannot decide now; empty if it can."""
        return self._engine.trouble

    @property
    def ready(self) -> bool:
        return self._engine.scheduler is not None

    def ask(self, question: Question[A]) -> A:
        """Raises HttpProblem (503) if the server cannot decide now."""
        scheduler = self._engine.scheduler
        if scheduler is None:
            raise self._away()
        return question.answer(scheduler.state, self._now())

    def ask_if_ready(self, question: Question[A]) -> A | None:
        """None also if the server cannot decide now."""
        scheduler = self._engine.scheduler
        return question.answer(scheduler.state, self._now()) if scheduler is not None else None

    async def ask_long(self, question: LongQuestion[A]) -> A:
        """Raises HttpProblem (503) if the server cannot decide, or the scheduler is replaced before
        the answer is complete."""
        scheduler, clock = self._engine.scheduler, asyncio.get_running_loop().time
        if scheduler is None:
            raise self._away()
        steps = question.steps(scheduler.state, self._now())
        while True:
            async with self._slice:
                if self._engine.scheduler is not scheduler:
                    raise self._away()
                until = clock() + SLICE_SECONDS
                try:
                    next(steps)
                    while clock() < until:
                        next(steps)
                except StopIteration as end:
                    answer: A = end.value
                    return answer
                await asyncio.sleep(0)

    def enrolment(self, pilot: PilotId) -> PilotRecord | None:
        """The record of a pilot; None: core does not know it. A record is replaced, never changed:
        the same object means the same enrolment."""
        scheduler = self._engine.scheduler
        state = scheduler.state.pilots.get(pilot) if scheduler is not None else None
        return state.record if state is not None else None

    def _away(self) -> HttpProblem:
        words = self.trouble or "the server has just restarted; try again"
        return HttpProblem(503, "unavailable", words, 1)
