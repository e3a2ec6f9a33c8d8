"""Results in the API: tables and files of ended tasks, and live output of running ones."""

import asyncio
from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from covey.core.record.events import FollowRequested, ProgramHeard
from covey.core.record.model import BagId
from covey.ports import Reader
from covey.questions.bag_questions import MayPrint, OwnerOfBag, Progress, ProgressOfBag
from covey.server.limits.pacing import Pace
from covey.server.limits.slow_questions import Questions
from covey.server.limits.tails import Tails
from covey.server.limits.unread_results import UnreadResults
from covey.server.web.auth import SEE_OWN
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import ServerAccess, choice, deadline, number
from covey.server.web.route import BAG, Media, look
from covey.server.web.streaming import Streams
from covey.wire import FailureGroup, LiveOutput, Output, ResultQuery, ResultRow, ReturnedFile

MOST_ROWS = 10_000
# Of one answer, unless a single row has more: no other request is served while it is encoded.
MOST_PAGE_BYTES = 8 << 20
MOST_GROUPS = 1000
MOST_FILES = 1000
MOST_UNFINISHED = 10_000
PRESENCE_SECONDS = 10.0
LONGEST_FOLLOW = 20.0  # a client that follows must ask again, or pilots stop sending output
CSV = "text/csv; charset=utf-8"
KINDS = {"csv": CSV, "csv-raw": CSV, "jsonl": "application/jsonl"}


class ResultCalls:
    def __init__(self, access: ServerAccess, tails: Tails) -> None:
        self._access = access
        self._tails = tails
        self._questions = Questions(access.reader)
        self._streams = Streams(access.reader)
        self._unread = UnreadResults()
        self._pace = Pace()

    @look(
        f"{BAG}/results",
        "a table of results",
        SEE_OWN,
        *("after", "offset", "limit", "order", "failed", "where", "sort"),
        *("brief", "format", "wait"),
        gives=list[ResultRow],
        also_gives=(Media("text/csv"), Media("application/jsonl")),
        refuses=(404, 413),
    )
    async def results(self, request: Request) -> list[ResultRow] | Response:
        bag = self._access.bag_id(request)
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
        """Tell core, not too often, that a program still waits for the calls of this bag."""
        live = self._progress(bag)
        if live is None or until <= asyncio.get_running_loop().time():
            return
        if live.heard + PRESENCE_SECONDS < self._access.clock.now():
            self._access.tell(ProgramHeard(bag))

    async def _page(self, bag: BagId, query: ResultQuery, until: float) -> list[ResultRow]:
        while True:
            await self._gather(bag, query, until)
            # Read before the record, so that no change is missed.
            changed, live = self._access.changed, self._progress(bag)
            over = live is None and self._access.decider.ready  # unknown without a decider
            rows: list[ResultRow] = []
            if not self._unread.certainly_none(live, query):
                rows = await self._read(bag, query)
                if live is not None:
                    self._unread.learn(live, query, rows)
            if rows:
                self._pace.answered(bag, asyncio.get_running_loop().time())
            if rows or over or not await self._access.news(until, changed):
                return rows

    async def _read(self, bag: BagId, query: ResultQuery) -> list[ResultRow]:
        """A page in the order of tasks or rows is read quickly; others may take long."""
        if query.where or query.sort or query.offset or query.failed_only:
            return await self._questions.ask(lambda reader: reader.results(bag, query))
        return await self._access.read(lambda reader: reader.results(bag, query))

    async def _gather(self, bag: BagId, query: ResultQuery, until: float) -> None:
        """Wait until the next page is due, so that it has more results (`pacing`)."""
        while due := self._pace.next_at(self._progress(bag), query):
            if not await self._access.news(min(due, until), self._access.changed):
                return

    @look(f"{BAG}/failures", "causes of failure", SEE_OWN, "limit")
    async def failures(self, request: Request) -> list[FailureGroup]:
        bag, limit = self._access.bag_id(request), _limit(request, 100, MOST_GROUPS)
        return await self._questions.ask(lambda reader: reader.failures(bag, limit))

    @look(f"{BAG}/files", "files that tasks returned", SEE_OWN, "after", "limit")
    async def files(self, request: Request) -> list[ReturnedFile]:
        bag, after = self._access.bag_id(request), number(request, "after", -1)
        limit = _limit(request, 1000, MOST_FILES)
        return await self._access.read(lambda reader: reader.files(bag, after, limit))

    @look(f"{BAG}/unfinished", "the next tasks without a result", SEE_OWN, "after", "limit")
    async def unfinished(self, request: Request) -> list[int]:
        bag, after = self._access.bag_id(request), number(request, "after", -1)
        limit = _limit(request, 1000, MOST_UNFINISHED)
        return await self._access.read(lambda reader: reader.unfinished(bag, after, limit))

    @look(f"{BAG}/tasks/{{task}}", "every attempt of a task", SEE_OWN)
    async def attempts(self, request: Request) -> list[ResultRow]:
        bag, task = self._access.bag_id(request), _from_zero(request, "task", -1)
        return await self._access.read(lambda reader: reader.attempts(bag, task))

    @look(f"{BAG}/tasks/{{task}}/output", "what a task printed", SEE_OWN)
    async def output(self, request: Request) -> Output:
        bag, task = self._access.bag_id(request), _from_zero(request, "task", -1)
        output = await self._access.read(lambda reader: reader.output(bag, task))
        if output is None:
            raise HttpProblem(404, "not-found", f"task {task} of bag {bag} has no output yet")
        return output

    @look(f"{BAG}/live", "what running tasks print", SEE_OWN, "of", "after", "wait")
    async def live(self, request: Request) -> LiveOutput:
        """Only for tasks that may still print; the output of others is in the record."""
        bag, task = self._access.bag_id(request), number(request, "task", -1)
        after, until = number(request, "after", 0), deadline(request, LONGEST_FOLLOW)
        if self._prints(bag, task):
            self._access.tell(FollowRequested(bag, task))
        while self._prints(bag, task):
            owner = self._access.decider.ask_if_ready(OwnerOfBag(bag)) or ""
            changed, news = self._access.changed, self._tails.follow(bag, owner)
            output = self._tails.read(bag, task, after)
            if output.pieces or not await self._access.news(until, changed, news):
                return output
        return self._tails.read(bag, task, after)

    def _prints(self, bag: BagId, task: int) -> bool:
        """Whether the task (-1: any task of the bag) may still print."""
        return self._access.decider.ask_if_ready(MayPrint(bag, task)) is True

    def _progress(self, bag: BagId) -> Progress | None:
        return self._access.decider.ask_if_ready(ProgressOfBag(bag))


def _export(bag: BagId, query: ResultQuery, form: str, reader: Reader) -> Iterator[bytes]:
    return reader.export(bag, query, form)


def _query(request: Request) -> ResultQuery:
    parameters = request.query_params
    return ResultQuery(
        after=number(request, "after", -1),
        offset=_from_zero(request, "offset", 0),
        limit=max(0, number(request, "limit", 0)),
        by_row=choice(request, "order", "task", "row") == "row",
        failed_only=choice(request, "failed", "0", "1") == "1",
        where=tuple(parameters.getlist("where")),
        sort=parameters.get("sort", ""),
        brief=choice(request, "brief", "0", "1") == "1",
    )


def _from_zero(request: Request, name: str, default: int) -> int:
    value = number(request, name, default)
    if value < 0:
        raise HttpProblem(400, "invalid", f"{name} must be 0 or more, not {value}")
    return value


def _limit(request: Request, default: int, most: int) -> int:
    return max(0, min(number(request, "limit", default), most))
