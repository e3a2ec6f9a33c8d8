"""What is old enough is purged, once, and only what is over."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from covey.core.record.events import PurgeRequested
from covey.core.record.model import RequestId
from covey.ports import NamedFiles
from covey.server.limits.retention import DAY_SECONDS, Retention
from covey.server.web.problems import HttpProblem
from covey.wire import BagView
from tests.unit.cli.builders import bag

NOW = 1000 * DAY_SECONDS


class Clock:
    def now(self) -> float:
        return NOW


class Reader:
    def __init__(self, found: list[BagView]) -> None:
        self._found = found

    def bags(self) -> list[BagView]:
        return self._found

    def named_files(self) -> NamedFiles:
        return NamedFiles({"ann": {"used"}})


class Blobs:
    def __init__(self) -> None:
        self.restored = self.kept = NamedFiles()

    def restore(self, named: NamedFiles) -> None:
        self.restored = named

    def collect(
        self, named: NamedFiles, older_than_seconds: float, unfinished_seconds: float
    ) -> None:
        assert older_than_seconds > 3600, "a pilot may hold an end back for an hour"
        assert unfinished_seconds <= 3600
        self.kept = named


class ServerAccess:
    """Answers from a list of bags; says no when told to."""

    def __init__(self, *bags: BagView) -> None:
        self.found = list(bags)
        self.clock = Clock()
        self.purged: list[tuple[int, str]] = []
        self.problem: HttpProblem | None = None

    async def read(self, read: Callable[[Any], Any]) -> Any:
        return read(Reader(self.found))

    async def ask(self, event_for: Callable[[RequestId], Any]) -> None:
        event = event_for(RequestId(1))
        assert isinstance(event, PurgeRequested)
        if self.problem is not None:
            raise self.problem
        self.purged.append((event.bag, event.what))


def over(id_: int, days: float, status: str = "finished") -> BagView:
    return bag(id=id_, status=status, ended=NOW - days * DAY_SECONDS)


def purge(access: ServerAccess, logs: float = 0, files: float = 0, times: int = 1) -> None:
    retention = Retention(access, Blobs(), keep_logs_days=logs, keep_files_days=files)  # type: ignore[arg-type]

    async def run() -> None:
        for _ in range(times):
            await retention.purge()

    asyncio.run(run())


def test_only_what_is_over_and_old() -> None:
    access = ServerAccess(
        over(1, 8), over(2, 6), over(3, 30, "cancelled"), bag(id=4), over(5, 9, "paused")
    )
    purge(access, logs=7, files=20)
    assert access.purged == [(1, "logs"), (3, "logs"), (3, "files")]


def test_nothing_is_asked_twice_unless_it_ran_again() -> None:
    access = ServerAccess(over(1, 8))
    retention = Retention(access, Blobs(), keep_logs_days=7, keep_files_days=0)  # type: ignore[arg-type]
    asyncio.run(retention.purge())
    asyncio.run(retention.purge())
    assert len(access.purged) == 1
    access.found = [over(1, 7.5)]
    asyncio.run(retention.purge())
    assert len(access.purged) == 2


def test_for_ever_is_the_default() -> None:
    access = ServerAccess(over(1, 10_000))
    purge(access)
    assert access.purged == []


def test_a_bag_that_refuses_is_not_in_the_way() -> None:
    access = ServerAccess(over(1, 8), over(2, 8))
    access.problem = HttpProblem(400, "invalid", "it runs again")
    purge(access, logs=7, times=2)
    access.problem = HttpProblem(503, "unavailable", "the disk is full")
    with pytest.raises(HttpProblem):
        purge(access, logs=7)


def test_files_that_the_record_names_are_kept() -> None:
    blobs = Blobs()
    retention = Retention(ServerAccess(), blobs, keep_logs_days=0, keep_files_days=0)  # type: ignore[arg-type]
    asyncio.run(retention.collect())
    assert blobs.kept.of("ann") == {"used"}
    asyncio.run(retention.restore())
    assert blobs.restored.of("ann") == {"used"}
