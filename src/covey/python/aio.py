"""The library for asyncio: `bag.aio` and `connection.aio` have the same methods as coroutines.

Each call runs in a thread that has its own connection to the server. Long waits are cut into short
pieces, so that a cancelled `await` does not occupy a thread for long. The bag itself goes on.
"""

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Unpack

from covey.client.download import TEMPLATE, Pulled
from covey.frontend import bag_places
from covey.python.bag import Bag, Progress, warn_of_lost_output
from covey.python.keywords import Groups, SubmitKeywords, Table, Words
from covey.python.listing import Listing
from covey.python.results import Failures, Result, Results
from covey.wire import HostView, PilotView, ResultQuery

if TYPE_CHECKING:
    from covey.python.connection import Connection

PIECE_SECONDS = 1.0


class AsyncConnection:
    """`connection.aio`."""

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection

    async def submit(self, command: Words | None = None, **keywords: Unpack[SubmitKeywords]) -> Bag:
        """As Connection.submit, with the same keywords."""
        return await asyncio.to_thread(self.connection.submit, command, **keywords)

    async def bag(self, reference: int | str = "latest") -> Bag:
        return await asyncio.to_thread(self.connection.bag, reference)

    async def bags(self) -> Listing[Bag]:
        return await asyncio.to_thread(self.connection.bags)

    async def pilots(self, *, everyone: bool = False) -> Listing[PilotView]:
        return await asyncio.to_thread(self.connection.pilots, everyone=everyone)

    async def hosts(self) -> Listing[HostView]:
        return await asyncio.to_thread(self.connection.hosts)


class AsyncBag:
    """`bag.aio`. `async for result in bag.aio` yields results as they come."""

    def __init__(self, bag: Bag) -> None:
        self.bag = bag

    async def wait(self, timeout: float | None = None) -> Bag:  # noqa: ASYNC109
        """As Bag.wait, without progress."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        seen = -1
        while True:
            left = max(0.0, until - time.monotonic())
            view = await asyncio.to_thread(self.bag.poll, seen, min(PIECE_SECONDS, left))
            if view.over:
                warn_of_lost_output(view)
                return self.bag
            self.bag.check_waiting(view, timeout, time.monotonic() >= until)
            seen = view.done + view.failed

    async def __aiter__(self) -> AsyncIterator[Result]:
        """As Bag.follow."""
        query = ResultQuery(by_row=True, limit=bag_places.PAGE)
        while True:
            view, page = await asyncio.to_thread(self.bag.next_page, query, PIECE_SECONDS)
            for result in Results(view, page):
                yield result
            if page:
                query = query.behind(page)
            elif view.over:
                return
            else:
                self.bag.check_waiting(view, None, False)

    async def progress(self) -> Progress:
        return await asyncio.to_thread(self.bag.progress)

    async def results(
        self,
        *,
        where: str | Sequence[str] = (),
        sort: str = "",
        failed: bool = False,
        limit: int | None = None,
    ) -> Results:
        return await asyncio.to_thread(
            self.bag.results, where=where, sort=sort, failed=failed, limit=limit
        )

    async def failures(self, limit: int = 100) -> Failures:
        return await asyncio.to_thread(self.bag.failures, limit)

    async def pull(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        layout: str = TEMPLATE,
        failed: bool = False,
    ) -> Pulled:
        return await asyncio.to_thread(self.bag.pull, folder, layout=layout, failed=failed)

    async def retry(
        self,
        *,
        causes: str | Iterable[str] = (),
        tasks: Iterable[int] | None = None,
        memory: str | float = 1.0,
        time: str | float = 1.0,
        done: bool = False,
        refresh: bool = False,
    ) -> int:
        return await asyncio.to_thread(
            self.bag.retry,
            causes=causes,
            tasks=tasks,
            memory=memory,
            time=time,
            done=done,
            refresh=refresh,
        )

    async def cancel(self) -> int:
        return await asyncio.to_thread(self.bag.cancel)

    async def pause(self, reason: str = "") -> None:
        await asyncio.to_thread(self.bag.pause, reason)

    async def resume(self) -> None:
        await asyncio.to_thread(self.bag.resume)

    async def append(
        self,
        parameters: Table | None = None,
        *,
        zip: Groups | None = None,
        rows: object = None,
    ) -> int:
        return await asyncio.to_thread(self.bag.append, parameters, zip=zip, rows=rows)

    async def close(self) -> None:
        await asyncio.to_thread(self.bag.close)
