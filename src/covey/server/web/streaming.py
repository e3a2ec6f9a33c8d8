"""Long answers, made in their own threads and sent as they grow.

A thread is never more than a few parts ahead of its reader. It stops when the reader hangs up, or
when one part takes longer than a minute to find; one owner has only a share of these threads. An
error before the first part is an ordinary answer. An error after it breaks the connection, so that
nobody takes an incomplete file for a complete one.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeAlias

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from covey.ports import Reader
from covey.server.limits.shares import EXPORTS, Shares, asks_now
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import TOO_LONG, keep_stopping, reading

AHEAD = 8
SEARCH_SECONDS = 55.0  # for one part; clients wait for 60

_End = Exception | None
Make: TypeAlias = Callable[[Reader], Iterator[bytes]]


class Streams:
    """Opens streams, up to each owner's share. `reader` makes a reader for each thread."""

    def __init__(self, reader: Callable[[], Reader]) -> None:
        self._reader = reader
        self.open = Shares(EXPORTS)

    async def respond(self, make: Make, kind: str) -> "PartsResponse":
        """`make` is called, and its iterator read, in the new thread."""
        who = asks_now.get()
        self.open.demand(who)
        parts = _Parts(self._reader, make, lambda: self.open.give(who))
        return PartsResponse(await parts.first(), parts, kind)


class _Parts:
    def __init__(
        self, reader: Callable[[], Reader], make: Make, closed: Callable[[], None]
    ) -> None:
        self._reader = reader
        self._make = make
        self._closed = closed
        self._reading: Reader | None = None  # None: the thread has ended
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[bytes | _End] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._stopped = False
        threading.Thread(target=self._work, name="covey-export", daemon=True).start()

    async def first(self) -> bytes | None:
        """The first part; None if there are no parts."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            return None
        except BaseException:
            self.stop()
            raise

    def __aiter__(self) -> "_Parts":
        return self

    async def __anext__(self) -> bytes:
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                part = await self._arrived.get()
        except TimeoutError:
            raise HttpProblem(400, "too-long", TOO_LONG) from None
        if isinstance(part, bytes):
            self._room.release()
            return part
        if part is not None:
            raise part
        raise StopAsyncIteration

    def stop(self) -> None:
        """No more parts are wanted."""
        self._stopped = True
        self._room.release()
        if self._reading is not None:
            keep_stopping(self._reading, lambda: self._reading is None)

    def _work(self) -> None:
        end: _End = None
        reader = self._reading = self._reader()
        try:
            reading(lambda: self._give(reader))
        except Exception as error:
            end = error
        self._reading = None
        reader.close()
        try:
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, end)
            self._loop.call_soon_threadsafe(self._closed)
        except RuntimeError:
            pass  # the loop has ended; so has the server

    def _give(self, reader: Reader) -> None:
        for part in self._make(reader):
            self._room.acquire()
            if self._stopped:
                return
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, part)


class PartsResponse(StreamingResponse):
    def __init__(self, first: bytes | None, parts: _Parts, kind: str) -> None:
        super().__init__(_all(first, parts), media_type=kind)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._parts.stop()


async def _all(first: bytes | None, parts: _Parts) -> AsyncIterator[bytes]:
    if first is None:
        return
    yield first
    async for part in parts:
        yield part
