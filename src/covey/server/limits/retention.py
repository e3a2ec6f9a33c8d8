"""Old bags give up what they printed, and what they returned, when their time is over. Files that
no bag names any more are removed from the disk.

The engine is asked just as by `covey purge`. What was removed is remembered while the server
lives; to remove it once more after a restart does no harm. A file that nobody names may be on its
way to be named: an upload comes before its bag, and before the end of the attempt that returns it,
which a pilot may hold back through an outage. So only what has been lying there for longer than
any pilot waits is taken for garbage.
"""

import asyncio
from collections.abc import Iterator
from typing import Protocol

from covey.core.record.events import PurgeRequested
from covey.core.record.model import BagId
from covey.ports import NamedFiles
from covey.server.limits.uploads import UNFINISHED_SECONDS
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import Asking
from covey.wire import BagView

DAY_SECONDS = 86_400.0
EVERY_SECONDS = 1800.0
AGAIN_SECONDS = 60.0
SOON_SECONDS = 1.0  # until it is known whose the files are
UNUSED_SECONDS = 6 * 3600.0


class Collecting(Protocol):
    """The files themselves, and whose they are."""

    def restore(self, named: NamedFiles) -> None: ...

    def collect(
        self, named: NamedFiles, older_than_seconds: float, unfinished_seconds: float
    ) -> object:
        """`unfinished_seconds`: the same for files of which only a part is here."""
        ...


class Retention:
    def __init__(
        self,
        asking: Asking,
        files: Collecting,
        *,
        keep_logs_days: float,
        keep_files_days: float,
    ) -> None:
        """0: for ever."""
        self._asking = asking
        self._files = files
        self._days = {"logs": keep_logs_days, "files": keep_files_days}
        self._purged: set[tuple[int, str, float]] = set()  # bag, what, when the bag ended

    async def run(self) -> None:
        """Twice an hour, for ever; at first, whose the files are is read from the record."""
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
        await self._asking.read(lambda reader: self._files.restore(reader.named_files()))

    async def collect(self) -> None:
        """Remove files that are no longer used, in a thread of its own."""
        await self._asking.read(
            lambda reader: self._files.collect(
                reader.named_files(), UNUSED_SECONDS, UNFINISHED_SECONDS
            )
        )

    async def purge(self) -> None:
        """One bag after the other, so that nobody has to wait behind them."""
        found = await self._asking.read(lambda reader: reader.bags())
        for view, what in self._due(found):
            try:
                await self._purge(BagId(view.id), what)
            except HttpProblem as problem:
                if problem.status == 503:
                    raise
            self._purged.add((view.id, what, view.ended))

    async def _purge(self, bag: BagId, what: str) -> None:
        await self._asking.ask(lambda number: PurgeRequested(number, bag, what))

    def _due(self, bags: list[BagView]) -> Iterator[tuple[BagView, str]]:
        now = self._asking.clock.now()
        for view in bags:
            for what, days in self._days.items():
                old = view.over and 0 < view.ended < now - days * DAY_SECONDS
                if days and old and (view.id, what, view.ended) not in self._purged:
                    yield view, what
