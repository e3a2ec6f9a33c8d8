"""Removes old logs and files of bags when their time is over, and files from the disk that no bag
names any more.

It asks the engine just as `covey purge` does. What was removed is remembered until the server
ends; removing it again after a restart does no harm. A file that no bag names yet may soon be
named: an upload comes before its bag, or before the end of the attempt that returns it, and a pilot
may hold that end back through an outage. So only a file that is older than any pilot waits is
removed.
"""

import asyncio
from collections.abc import Iterator
from typing import Protocol

from covey.core.record.events import PurgeRequested
from covey.core.record.model import BagId
from covey.ports import NamedFiles
from covey.server.limits.uploads import UNFINISHED_SECONDS
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import ServerAccess
from covey.wire import BagView

DAY_SECONDS = 86_400.0
EVERY_SECONDS = 1800.0
AGAIN_SECONDS = 60.0
SOON_SECONDS = 1.0  # between tries to read from the record who holds which file
UNUSED_SECONDS = 6 * 3600.0


class FileCollector(Protocol):
    """The files, and who holds which."""

    def restore(self, named: NamedFiles) -> None: ...

    def collect(
        self, named: NamedFiles, older_than_seconds: float, unfinished_seconds: float
    ) -> object:
        """`unfinished_seconds`: the age at which an unfinished upload is removed."""
        ...


class Retention:
    def __init__(
        self,
        access: ServerAccess,
        files: FileCollector,
        *,
        keep_logs_days: float,
        keep_files_days: float,
    ) -> None:
        """0 days: kept for ever."""
        self._access = access
        self._files = files
        self._days = {"logs": keep_logs_days, "files": keep_files_days}
        self._purged: set[tuple[int, str, float]] = set()  # bag, what, when the bag ended

    async def run(self) -> None:
        """Clean up twice an hour, for ever. Before the first time, read who holds which file."""
        restored = False
        while True:
            try:
                if not restored:
                    await self.restore()
                    restored = True
                await self.purge()
                await self.collect()
            except HttpProblem:  # the store is in trouble
                await asyncio.sleep(AGAIN_SECONDS if restored else SOON_SECONDS)
            else:
                await asyncio.sleep(EVERY_SECONDS)

    async def restore(self) -> None:
        await self._access.read(lambda reader: self._files.restore(reader.named_files()))

    async def collect(self) -> None:
        """Remove files that are no longer used, in another thread."""
        await self._access.read(
            lambda reader: self._files.collect(
                reader.named_files(), UNUSED_SECONDS, UNFINISHED_SECONDS
            )
        )

    async def purge(self) -> None:
        """One bag at a time, so that requests are answered in between."""
        bags = await self._access.read(lambda reader: reader.bags())
        for view, what in self._due(bags):
            try:
                await self._purge(BagId(view.id), what)
            except HttpProblem as problem:
                if problem.status == 503:
                    raise
            self._purged.add((view.id, what, view.ended))

    async def _purge(self, bag: BagId, what: str) -> None:
        await self._access.ask(lambda number: PurgeRequested(number, bag, what))

    def _due(self, bags: list[BagView]) -> Iterator[tuple[BagView, str]]:
        now = self._access.clock.now()
        for view in bags:
            for what, days in self._days.items():
                old = view.over and 0 < view.ended < now - days * DAY_SECONDS
                if days and old and (view.id, what, view.ended) not in self._purged:
                    yield view, what
