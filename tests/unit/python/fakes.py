"""A connection to a server of known answers."""

from collections.abc import Callable, Sequence
from typing import Any

from covey.client.client import Client
from covey.config import Config
from covey.frontend import bag_places
from covey.python.bag import Bag
from covey.python.connection import Connection
from covey.wire import BagView, ResultQuery, ResultRow
from tests.unit.cli.source import FakeSource


class Server(FakeSource):
    """Each look at the bag, and each question for its results, takes the next of `then`: it may
    change the view or the rows, or raise."""

    def __init__(self) -> None:
        super().__init__()
        self.then: list[Callable[[], object]] = []
        self.waits: list[float] = []

    def bag(self, bag: Any, *, wait_seconds: float = 0.0, seen: int = -1) -> BagView | None:
        self.waits.append(wait_seconds)
        self._next()
        return super().bag(bag)

    def results(self, bag: Any, query: ResultQuery, wait_seconds: float = 0.0) -> list[ResultRow]:
        if wait_seconds:
            self._next()
        return super().results(bag, query)

    def close_bag(self, bag: Any) -> int:
        self.told.append(("close", bag))
        return 0

    def close(self) -> None:
        self.told.append(("hang up",))

    def _next(self) -> None:
        if self.then:
            self.then.pop(0)()


class Known(Connection):
    def __init__(self, server: Server) -> None:
        super().__init__(Config(), None, 1.0)
        self.known = server

    def client(self) -> Client:
        return self.known

    def reader(self) -> bag_places.BagSource:
        return self.known

    def close(self) -> None:
        self.known.close()


def bag_of(server: Server, *then: Callable[[], object]) -> Bag:
    bag = Bag(Known(server), server.view)
    server.then = list(then)
    return bag


def shown(rows: Sequence[Any]) -> list[int]:
    return [row.task for row in rows]
