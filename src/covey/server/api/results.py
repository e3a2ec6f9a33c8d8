"""The API's results: tables and files of what has ended, and what is being printed just now."""

import asyncio
from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from covey.core.record.events import FollowRequested, ProgramHeard
from covey.core.record.model import BagId
from covey.ports import Reader
from covey.server.limits.pacing import Pace
from covey.server.limits.slow_questions import Questions
from covey.server.limits.tails import Tails
from covey.server.limits.unread_results import Unread
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import Asking, choice, deadline, number
from covey.server.web.streaming import Streams
from covey.wire import FailureGroup, LiveOutput, Output, ResultQuery, ResultRow, ReturnedFile

MOST_ROWS = 10_000
MOST_PAGE_BYTES = (
    8 << 20
)  # of one answer, unless a single row has more: nobody else is served while
# it is written
MOST_GROUPS = 1000
MOST_FILES = 1000
MOST_UNFINISHED = 10_000
PRESENCE_SECONDS = 10.0
LONGEST_FOLLOW = 20.0  # then whoever follows must say so again, or pilots stop sending
CSV = "text/csv; charset=utf-8"
KINDS = {"csv": CSV, "csv-raw": CSV, "jsonl": "application/jsonl"}


class ResultCalls:
    def __init__(self, asking: Asking, tails: Tails) -> None:
        self._asking = asking
        self._tails = tails
        self._questions = Questions(asking.reader)
        self._streams = Streams(asking.reader)
        self._unread = Unread()
        self._pace = Pace()

    async def results(self, request: Request) -> list[ResultRow] | Response:
        bag = self._asking.bag_id(request)
        form = choice(request, "format", "json", *KINDS)
        query, until = _query(request), deadline(request)
        if form != "json":
            make = partial(_export, bag, query, form)
            return await self._streams.respond(make, KINDS[form])
        page = replace(query, limit=min(query.limit, MOST_ROWS), most_bytes=MOST_PAGE_BYTES)
        if query.by_row:
            self._note_presence(bag, until)
        return await self._page(bag, page, until)

    def _note_presence(self, bag: BagId, until: float) -> None:
        """Of a program that waits for its calls, now and then."""
        live = self._asking.live(bag)
        if live is None or until <= asyncio.get_running_loop().time():
            return
        if live.progress.heard + PRESENCE_SECONDS < self._asking.clock.now():
            self._asking.tell(ProgramHeard(bag))

    async def _page(self, bag: BagId, query: ResultQuery, until: float) -> list[ResultRow]:
        while True:
            await self._gather(bag, query, until)
            # As of before the reading.
            changed, state = self._asking.changed, self._asking.state()
            live = self._asking.live(bag)
            rows: list[ResultRow] = []
            if not self._unread.certainly_none(state, live, query):
                durable = state.journal.durable if state is not None else 0
                rows = await self._read(bag, query)
                if state is not None:
                    self._unread.learn(state.epoch, durable, bag, query, rows)
            if rows:
                self._pace.answered(bag, asyncio.get_running_loop().time())
            over = live is None and state is not None  # without a state nobody knows
            if rows or over or not await self._asking.news(until, changed):
                return rows

    async def _read(self, bag: BagId, query: ResultQuery) -> list[ResultRow]:
        """A page in the order of tasks or rows is found at once; the rest may take a while."""
        if query.where or query.sort or query.offset or query.failed_only:
            return await self._questions.ask(lambda reader: reader.results(bag, query))
        return await self._asking.read(lambda reader: reader.results(bag, query))

    async def _gather(self, bag: BagId, query: ResultQuery, until: float) -> None:
        """Let more results come, if there will be more in a moment."""
        while due := self._pace.next_at(self._asking.live(bag), query):
            if not await self._asking.news(min(due, until), self._asking.changed):
                return

    async def failures(self, request: Request) -> list[FailureGroup]:
        bag, limit = self._asking.bag_id(request), _limit(request, 100, MOST_GROUPS)
        return await self._questions.ask(lambda reader: reader.failures(bag, limit))

    async def files(self, request: Request) -> list[ReturnedFile]:
        bag, after = self._asking.bag_id(request), number(request, "after", -1)
        limit = _limit(request, 1000, MOST_FILES)
        return await self._asking.read(lambda reader: reader.files(bag, after, limit))

    async def unfinished(self, request: Request) -> list[int]:
        bag, after = self._asking.bag_id(request), number(request, "after", -1)
        limit = _limit(request, 1000, MOST_UNFINISHED)
        return await self._asking.read(lambda reader: reader.unfinished(bag, after, limit))

    async def attempts(self, request: Request) -> list[ResultRow]:
        bag, task = self._asking.bag_id(request), _from_zero(request, "task", -1)
        return await self._asking.read(lambda reader: reader.attempts(bag, task))

    async def output(self, request: Request) -> Output:
        bag, task = self._asking.bag_id(request), _from_zero(request, "task", -1)
        found = await self._asking.read(lambda reader: reader.output(bag, task))
        if found is None:
            raise HttpProblem(404, "not-found", f"task {task} of bag {bag} has no output yet")
        return found

    async def live(self, request: Request) -> LiveOutput:
        """Nobody waits for the output of what is over: that is in the record."""
        bag, task = self._asking.bag_id(request), number(request, "task", -1)
        after, until = number(request, "after", 0), deadline(request, LONGEST_FOLLOW)
        if self._prints(bag, task):
            self._asking.tell(FollowRequested(bag, task))
        while self._prints(bag, task):
            live = self._asking.live(bag)
            owner = live.spec.owner if live is not None else ""
            changed, news = self._asking.changed, self._tails.follow(bag, owner)
            found = self._tails.read(bag, task, after)
            if found.pieces or not await self._asking.news(until, changed, news):
                return found
        return self._tails.read(bag, task, after)

    def _prints(self, bag: BagId, task: int) -> bool:
        """Whether there may be more to see."""
        live = self._asking.live(bag)
        if live is None or task < 0:
            return live is not None
        return task < live.total and task not in live.places.done and task not in live.places.failed


def _export(bag: BagId, query: ResultQuery, form: str, reader: Reader) -> Iterator[bytes]:
    return reader.export(bag, query, form)


def _query(request: Request) -> ResultQuery:
    asked = request.query_params
    return ResultQuery(
        after=number(request, "after", -1),
        offset=_from_zero(request, "offset", 0),
        limit=max(0, number(request, "limit", 0)),
        by_row=choice(request, "order", "task", "row") == "row",
        failed_only=choice(request, "failed", "0", "1") == "1",
        where=tuple(asked.getlist("where")),
        sort=asked.get("sort", ""),
        brief=choice(request, "brief", "0", "1") == "1",
    )


def _from_zero(request: Request, name: str, default: int) -> int:
    value = number(request, name, default)
    if value < 0:
        raise HttpProblem(400, "invalid", f"{name} must be 0 or more, not {value}")
    return value


def _limit(request: Request, default: int, most: int) -> int:
    return max(0, min(number(request, "limit", default), most))
