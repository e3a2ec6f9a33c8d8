"""Questions about results that may take long, because they look at every row of a bag.

They have their own threads, so that short reads never wait for them. One owner gets a share of
these threads (`shares`), and each question has a time limit. So one person, or a faulty
program, cannot keep others from asking.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from covey.ports import Reader
from covey.server.limits.shares import QUESTIONS, QUESTIONS_WAITING, Shares, Workers, asks_now
from covey.server.web.requests import keep_stopping, reading

QUESTION_SECONDS = 8.0  # a client waits for 10

T = TypeVar("T")


class Questions:
    """`reader` makes a reader for each thread."""

    def __init__(self, reader: Callable[[], Reader]) -> None:
        self._reader = reader
        self._asked = Shares(QUESTIONS_WAITING)
        self._workers = Workers(QUESTIONS, "covey-question")

    async def ask(self, read: Callable[[Reader], T]) -> T:
        """Wait for the owner's turn, then for the answer. Raises HttpProblem."""
        who = asks_now.get()
        self._asked.demand(who)
        try:
            return await self._answer(read)
        finally:
            self._asked.give(who)

    async def _answer(self, read: Callable[[Reader], T]) -> T:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def work() -> T:
            reader = self._reader()
            loop.call_soon_threadsafe(
                loop.call_later, QUESTION_SECONDS, keep_stopping, reader, ended.is_set
            )
            try:
                return reading(lambda: read(reader))
            finally:
                loop.call_soon_threadsafe(ended.set)

        return await self._workers.run(asks_now.get(), work)
