"""The server's scarce supplies, and how much of each one owner may have.

The rule: one owner gets at most a part of what the others have left (`Supply.part`, usually a
half). So a second owner always gets some, however much the first one asks for; the first one gets
more again when others give back. A reserve is kept for administrators, who must get in to repair
things. An owner that has its whole share is refused (429), and told what to do.

Every bounded supply of the server is declared here, once.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from covey.core.record.owner_share import HALF, owner_share
from covey.server.web.problems import HttpProblem

T = TypeVar("T")


class Who(NamedTuple):
    """The account that something is counted on. An `admin` may use the reserve, and may have
    more than a share."""

    owner: str
    admin: bool = False


THE_SERVER = Who("", admin=True)  # its own housekeeping, and requests with its own token
# Whose request the running asyncio task answers, for code that does not get the request.
asks_now: ContextVar[Who] = ContextVar("asks_now", default=THE_SERVER)


class Supply(NamedTuple):
    """A `total` of something; `reserve` of it is for administrators only. One owner may hold at
    most `part` of what the others have left. `remedy`: what a refused owner should do."""

    what: str
    total: int
    part: float = HALF
    reserve: int = 0
    remedy: str = "wait until some of them have ended"
    retry_seconds: float = 2.0


UPLOADS = Supply("uploads at a time", 64, reserve=2)
UPLOAD_REQUESTS = Supply("uploads that are running or waiting", 512, reserve=16)
UNFINISHED_UPLOADS = Supply(
    "unfinished uploads",
    10_000,
    reserve=500,
    remedy="finish the uploads that you have begun, or wait: an hour after its last piece an "
    "unfinished upload is removed",
    retry_seconds=60.0,
)
FILE_THREADS = Supply("file operations at a time", 12, reserve=1)
READS = Supply("queries at a time", 8, reserve=1)
SUBMISSIONS = Supply("submissions at a time", 4, reserve=1)
QUESTIONS = Supply("queries of results at a time", 4)
QUESTIONS_WAITING = Supply("queries of results that are running or waiting", 40)
EXPORTS = Supply("exports at a time", 16, reserve=1)
REQUESTS = Supply("open requests", 4000, reserve=100)
INVITATIONS = Supply(
    "open invitations",
    10_000,
    reserve=500,
    remedy="use your invitations, or wait until they expire; a long setup or check counts as "
    "several",
    retry_seconds=60.0,
)
BODY_BYTES = Supply(
    "bytes of requests being read", 256 << 20, reserve=16 << 20, remedy="send less at once"
)
UNREAD_BYTES = Supply(
    "bytes of unread answers",
    512 << 20,
    reserve=32 << 20,
    remedy="read the answers that you asked for",
)
STRANGER_BYTES = Supply(
    "bytes of requests without a valid credential",
    4 << 20,
    part=1.0,  # strangers have no names, so they all share one account
    remedy="show a valid credential",
)


class Shares:
    """How much of one supply each owner has."""

    def __init__(self, supply: Supply) -> None:
        self.supply = supply
        self.used = 0
        self.refused = 0
        self._held: dict[str, int] = {}

    def held(self, owner: str) -> int:
        return self._held.get(owner, 0)

    def most(self, who: Who) -> int:
        """How much this owner may have now, including what it has already."""
        supply, held = self.supply, self._held.get(who.owner, 0)
        if who.admin:
            return supply.total - self.used + held
        return owner_share(supply.total - supply.reserve, self.used - held, supply.part)

    def take(self, who: Who, count: int = 1) -> bool:
        """Take this much, if the owner may have it; the caller must give it back."""
        held = self._held.get(who.owner, 0)
        if held + count > self.most(who):
            return False
        self._held[who.owner] = held + count
        self.used += count
        return True

    def give(self, who: Who, count: int = 1) -> None:
        left = self._held[who.owner] - count
        assert left >= 0, (self.supply.what, who, left)
        self.used -= count
        if left:
            self._held[who.owner] = left
        else:
            del self._held[who.owner]

    def demand(self, who: Who, count: int = 1) -> None:
        """Take this much. Raises HttpProblem if the owner may not have it."""
        if not self.take(who, count):
            raise self.refusal(who)

    def refusal(self, who: Who) -> HttpProblem:
        supply, held, most = self.supply, self.held(who.owner), self.most(who)
        self.refused += 1
        if held:
            words = (
                f"{supply.what}: you have {held:,}, your share is now {max(most, held):,} of the "
                f"{supply.total:,} that all owners share; {supply.remedy}"
            )
            return HttpProblem(429, "too-many", words, supply.retry_seconds)
        words = f"{supply.what}: other owners use all {supply.total:,} now; try again soon"
        return HttpProblem(503, "unavailable", words, supply.retry_seconds)


class Turns:
    """A supply with waiting lines: each owner has a line, and the owners take turns. A request
    that has waited for `patience_seconds` is refused."""

    def __init__(self, supply: Supply, patience_seconds: float = 20.0) -> None:
        self.shares = Shares(supply)
        self.patience_seconds = patience_seconds
        self._lines: dict[str, deque[tuple[Who, asyncio.Future[None]]]] = {}

    def waited_for(self) -> bool:
        """Whether anybody waits."""
        return bool(self._lines)

    @asynccontextmanager
    async def turn(self, who: Who) -> AsyncIterator[None]:
        """Wait for a turn and hold it. Raises HttpProblem if the wait is too long."""
        await self.take(who)
        try:
            yield
        finally:
            self.give(who)

    async def take(self, who: Who) -> None:
        if who.owner not in self._lines and self.shares.take(who):
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(who.owner, deque()).append((who, waiting))
        try:
            async with asyncio.timeout(self.patience_seconds):
                await waiting
        except BaseException as error:
            if waiting.done() and not waiting.cancelled():
                self.give(who)  # the turn came just when the wait ended
            else:
                self._leave(who, waiting)
            if isinstance(error, TimeoutError):
                raise self.shares.refusal(who) from None
            raise

    def give(self, who: Who) -> None:
        self.shares.give(who)
        self._go_on()

    def _leave(self, who: Who, waiting: asyncio.Future[None]) -> None:
        line = self._lines.get(who.owner, deque())
        if (who, waiting) in line:
            line.remove((who, waiting))
            if not line:
                del self._lines[who.owner]

    def _go_on(self) -> None:
        """Let in the requests that may come in now, one of each owner at a time."""
        for owner in list(self._lines):
            line = self._lines[owner]
            while line and line[0][1].done():  # this request has been cancelled
                line.popleft()
            if line and not self.shares.take(line[0][0]):
                continue
            del self._lines[owner]
            if line:
                line.popleft()[1].set_result(None)
            if line:
                self._lines[owner] = line  # this owner is now the last


class Workers:
    """Threads for long work, one for each turn."""

    def __init__(self, supply: Supply, name: str) -> None:
        self.turns = Turns(supply)
        self._threads = ThreadPoolExecutor(supply.total, name)

    async def run(self, who: Who, work: Callable[[], T]) -> T:
        """Raises what `work` raises, or HttpProblem if no thread is free in time."""
        await self.turns.take(who)
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        # The request may be cancelled; the thread is busy until the work is done.
        running.add_done_callback(lambda _: self.turns.give(who))
        return await asyncio.shield(running)
