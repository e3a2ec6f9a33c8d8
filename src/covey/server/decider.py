"""The decider, as the HTTP side sees it: questions go in, answers come out. Nobody else in the
server reads core's state; whoever wants to change it sends an event through the gateway.

A long question is answered in slices of a few milliseconds. Between two slices the event loop
handles everything else that is ready, and only one question has its slice at a time: however many
people ask, a pilot's sync waits for one slice. Core bounds its steps by counts; the clock is looked
at here.

One thing is not a question: which enrolment a pilot has, which every sync asks (`enrolment`).
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
        """Why nobody decides now; empty if somebody does."""
        return self._engine.trouble

    @property
    def ready(self) -> bool:
        return self._engine.scheduler is not None

    def ask(self, question: Question[A]) -> A:
        """Raises HttpProblem (503) if nobody decides now."""
        scheduler = self._engine.scheduler
        if scheduler is None:
            raise self._away()
        return question.answer(scheduler.state, self._now())

    def ask_if_ready(self, question: Question[A]) -> A | None:
        """None also if nobody decides now."""
        scheduler = self._engine.scheduler
        return question.answer(scheduler.state, self._now()) if scheduler is not None else None

    async def ask_long(self, question: LongQuestion[A]) -> A:
        """Raises HttpProblem (503) if nobody decides, or another scheduler takes over meanwhile."""
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
                    found: A = end.value
                    return found
                await asyncio.sleep(0)

    def enrolment(self, pilot: PilotId) -> PilotRecord | None:
        """The record of a pilot that core knows. It is never changed, only replaced: as long as it
        is the same object, it is the same enrolment."""
        scheduler = self._engine.scheduler
        found = scheduler.state.pilots.get(pilot) if scheduler is not None else None
        return found.record if found is not None else None

    def _away(self) -> HttpProblem:
        return HttpProblem(503, "unavailable", self.trouble or "the server has just restarted", 1)
