"""Long questions are answered in slices, one question at a time, and everything else goes on."""

import asyncio
import time
from typing import Any

import pytest

from covey.core.explain.steps import Steps
from covey.core.state import State
from covey.questions.bag_questions import LastBag
from covey.questions.question import LongQuestion
from covey.server import decider as module
from covey.server.decider import Decider
from covey.server.web.problems import HttpProblem
from tests.unit.core.table import Table
from tests.unit.server.deciders import decider_of

STEPS = 60


class Slow(LongQuestion[int], frozen=True):
    """Each step takes half a slice."""

    def steps(self, state: State, now: float) -> Steps[int]:
        for _ in range(STEPS):
            time.sleep(module.SLICE_SECONDS / 2)
            yield
        return STEPS


def test_others_go_on_while_several_ask() -> None:
    async def main() -> None:
        found = decider_of(Table().scheduler)
        asked = [asyncio.create_task(found.ask_long(Slow())) for _ in range(3)]
        turns = 0
        while not all(one.done() for one in asked):
            await asyncio.sleep(0)
            turns += 1
        assert [one.result() for one in asked] == [STEPS] * 3
        assert turns > STEPS, "hardly more than one slice in each turn of the loop"

    asyncio.run(main())


def test_a_short_one_does_not_wait_for_all_of_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_SECONDS", 0.0)

    class Short(LongQuestion[str], frozen=True):
        def steps(self, state: State, now: float) -> Steps[str]:
            yield
            return "here"

    async def main() -> None:
        found = decider_of(Table().scheduler)
        long = asyncio.create_task(found.ask_long(Slow()))
        await asyncio.sleep(0)
        assert await found.ask_long(Short()) == "here"
        assert not long.done()
        assert await long == STEPS

    asyncio.run(main())


def test_while_nobody_decides() -> None:
    async def main() -> None:
        found = decider_of(None)
        assert not found.ready
        assert found.ask_if_ready(LastBag()) is None
        with pytest.raises(HttpProblem, match="being opened"):
            found.ask(LastBag())
        with pytest.raises(HttpProblem) as caught:
            await found.ask_long(Slow())
        assert caught.value.status == 503

    asyncio.run(main())


def test_a_scheduler_that_is_replaced_ends_the_question() -> None:
    async def main() -> None:
        found: Any = decider_of(Table().scheduler)
        asked = asyncio.create_task(Decider.ask_long(found, Slow()))
        await asyncio.sleep(0)
        found._engine.scheduler = Table().scheduler
        with pytest.raises(HttpProblem) as caught:
            await asked
        assert caught.value.status == 503

    asyncio.run(main())
