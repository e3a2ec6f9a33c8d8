"""Everything that the server has only so much of, and how much of it one owner may have.

The rule: one owner gets at most a part of what the others have left (`Supply.part`, usually a
half). So whoever comes second always finds some, however much the first one asks for, and the
first one gets more again when others give back. A reserve is kept for administrators, who must
get in to put things right. An owner that has its share is told so (429), with what to do.

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
    """On whose account something is taken. An `admin` may use the reserve, and has no share."""

    owner: str
    admin: bool = False


THE_SERVER = Who("", admin=True)  # its own housekeeping, and whoever shows its own token
# Whose request this task answers; for code that is not given the request.
asks_now: ContextVar[Who] = ContextVar("asks_now", default=THE_SERVER)


class Supply(NamedTuple):
    """`total` of something, of which `reserve` is for administrators only. One owner may hold at
    most `part` of what the others have left. `remedy`: what somebody who gets none should do."""

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
    "bytes of requests that are being read", 256 << 20, reserve=16 << 20, remedy="send less at once"
)
UNREAD_BYTES = Supply(
    "bytes of answers that were sent and not read", 512 << 20, reserve=32 << 20, remedy="read them"
)
STRANGER_BYTES = Supply(
    "bytes of requests without a valid credential",
    4 << 20,
    part=1.0,  # nobody knows who they are
    remedy="show a credential",
)


class Shares:
    """Who has how much of one supply."""

    def __init__(self, supply: Supply) -> None:
        self.supply = supply
        self.used = 0
        self.refused = 0
        self._held: dict[str, int] = {}

    def held(self, owner: str) -> int:
        return self._held.get(owner, 0)

    def most(self, who: Who) -> int:
        """How much this one may have now, with what it has."""
        supply, held = self.supply, self._held.get(who.owner, 0)
        if who.admin:
            return supply.total - self.used + held
        return owner_share(supply.total - supply.reserve, self.used - held, supply.part)

    def take(self, who: Who, count: int = 1) -> bool:
        """Whether there is so much for this one; then it is taken. Give it back."""
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
        """Take it. Raises HttpProblem if there is not so much."""
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
    """A supply for which one waits in line: each owner has a line of its own, and the owners take
    turns. Whoever waits for longer than `patience_seconds` is refused."""

    def __init__(self, supply: Supply, patience_seconds: float = 20.0) -> None:
        self.shares = Shares(supply)
        self.patience_seconds = patience_seconds
        self._lines: dict[str, deque[tuple[Who, asyncio.Future[None]]]] = {}

    def waited_for(self) -> bool:
        """Whether anybody waits."""
        return bool(self._lines)

    @asynccontextmanager
    async def turn(self, who: Who) -> AsyncIterator[None]:
        """Raises HttpProblem if it does not come."""
        await self.take(who)
        try:
            yield
        finally:
            self.give(who)

    async def take(self, who: Who) -> None:
        if who.owner not in self._lines and self.shares.take(who):
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(who.owner, deque()).append((who, mine))
        try:
            async with asyncio.timeout(self.patience_seconds):
                await mine
        except BaseException as error:
            if mine.done() and not mine.cancelled():
                self.give(who)  # it came at the very moment in which the wait ended
            else:
                self._leave(who, mine)
            if isinstance(error, TimeoutError):
                raise self.shares.refusal(who) from None
            raise

    def give(self, who: Who) -> None:
        self.shares.give(who)
        self._go_on()

    def _leave(self, who: Who, mine: asyncio.Future[None]) -> None:
        line = self._lines.get(who.owner, deque())
        if (who, mine) in line:
            line.remove((who, mine))
            if not line:
                del self._lines[who.owner]

    def _go_on(self) -> None:
        """Let in whoever may come in now, one of each owner's at a time."""
        for owner in list(self._lines):
            line = self._lines[owner]
            while line and line[0][1].done():  # whoever waited has gone
                line.popleft()
            if line and not self.shares.take(line[0][0]):
                continue
            del self._lines[owner]
            if line:
                line.popleft()[1].set_result(None)
            if line:
                self._lines[owner] = line  # now the last


class Workers:
    """Threads for what takes long, one for each turn."""

    def __init__(self, supply: Supply, name: str) -> None:
        self.turns = Turns(supply)
        self._threads = ThreadPoolExecutor(supply.total, name)

    async def run(self, who: Who, work: Callable[[], T]) -> T:
        """Raises what `work` raises, or HttpProblem if no thread is free in time."""
        await self.turns.take(who)
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        # Whoever asked may go away; the thread is busy until the work is done.
        running.add_done_callback(lambda _: self.turns.give(who))
        return await asyncio.shield(running)
