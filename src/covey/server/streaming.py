"""Long answers, made in a thread of their own and sent as they grow.

The thread is never more than a few parts ahead of whoever reads, and stops when that one hangs
up. An error before the first part is an ordinary answer; one after it cuts the connection, so
that nobody takes a torn file for a whole one.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from covey.server.asking import reading
from covey.server.problems import HttpProblem

AHEAD = 8
MOST_STREAMS = 16

_End = Exception | None


class Streams:
    """Opens streams, up to a bound."""

    def __init__(self) -> None:
        self._open = 0

    async def respond(self, make: Callable[[], Iterator[bytes]], kind: str) -> "PartsResponse":
        """`make` is called, and what it gives is read, in the new thread."""
        if self._open >= MOST_STREAMS:
            raise HttpProblem(503, "unavailable", "too many exports run at once", 2)
        self._open += 1
        parts = _Parts(make, self._closed)
        return PartsResponse(await parts.first(), parts, kind)

    def _closed(self) -> None:
        self._open -= 1


class _Parts:
    def __init__(self, make: Callable[[], Iterator[bytes]], closed: Callable[[], None]) -> None:
        self._make = make
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[bytes | _End] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._stopped = False
        threading.Thread(target=self._work, name="covey-export", daemon=True).start()

    async def first(self) -> bytes | None:
        """None if there is nothing at all."""
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
        part = await self._arrived.get()
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

    def _work(self) -> None:
        end: _End = None
        try:
            reading(self._give)
        except Exception as error:
            end = error
        try:
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, end)
            self._loop.call_soon_threadsafe(self._closed)
        except RuntimeError:
            pass  # the loop has ended; so has the server

    def _give(self) -> None:
        for part in self._make():
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
