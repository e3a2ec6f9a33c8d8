"""Who waits for something while no core can tell: the disk is full, or the record is being read."""

import asyncio
from types import SimpleNamespace
from typing import Any

from starlette.datastructures import QueryParams

from covey.server.api.bags import BagCalls
from covey.server.api.results import ResultCalls
from tests.unit.server.deciders import decider_of


class Halted:
    """A ServerAccess without a server; it notes how long callers are willing to wait."""

    changed = None
    reader = None
    decider = decider_of(None)

    def __init__(self) -> None:
        self.waits: list[float] = []

    def bag_id(self, request: Any) -> int:
        return 1

    async def read(self, read: Any) -> Any:
        view = SimpleNamespace(owner="", status="running")
        return read(SimpleNamespace(results=lambda bag, query: [], bag=lambda bag: view))

    async def read_of(self, bag: int, read: Any) -> Any:
        return await self.read(read)

    async def news(self, until: float, *events: Any) -> bool:
        self.waits.append(until - asyncio.get_running_loop().time())
        return False


def asked(halted: Halted, call: Any, words: str) -> float:
    caller = SimpleNamespace(owns=lambda owner: True, owner="")
    state = SimpleNamespace(caller=caller)
    query = QueryParams(words)
    asyncio.run(call(SimpleNamespace(path_params={}, query_params=query, state=state)))
    (wait,) = halted.waits
    return wait


def test_results_are_waited_for() -> None:
    halted = Halted()
    calls: Any = ResultCalls(halted, None)  # type: ignore[arg-type]
    assert asked(halted, calls.results, "order=row&after=-1&wait=10") > 5.0


def test_news_of_a_bag_are_waited_for() -> None:
    halted = Halted()
    calls: Any = BagCalls(halted, None)  # type: ignore[arg-type]
    assert asked(halted, calls.one, "seen=0&wait=10") > 5.0
