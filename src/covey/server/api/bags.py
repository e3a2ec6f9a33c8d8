"""Bags in the API: submit, list, show, change."""

import asyncio
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.requests import Request

from covey.core.record.actions import ReplyMessage, Submitted
from covey.core.record.events import (
    BagSubmitted,
    CancelRequested,
    CloseRequested,
    PauseRequested,
    PurgeRequested,
    ResumeRequested,
    RetryRequested,
    SegmentAppended,
)
from covey.core.record.input_files import InputSummary
from covey.core.record.model import BagId, BagSpec, InputChanges, More, Role, Segment
from covey.core.values.space import LARGEST_BAG
from covey.pilot.protocol.messages import LARGEST
from covey.questions.bag_questions import (
    ProgressOfBag,
    RunningTasks,
    SpecOfBag,
    ViewOfBag,
    ViewsOfBags,
)
from covey.server.limits.admission import Admission
from covey.server.web.auth import ACT, SEE, SEE_OWN, Caller
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import ServerAccess, caller_of, choice, deadline, number, order
from covey.server.web.route import BAG, act, bag_order, look
from covey.wire import BagView, InputsView, RunningRow

MOST_ROWS = 10_000
REMOVED_SECONDS = 0.02  # between checks whether a purged bag is removed
NAMES_SECONDS = 1.0  # between looks for new names of results

Times = Annotated[float, Meta(ge=0.001, le=1_000_000)]


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """Failed tasks to run again: all, or only these `tasks` and these `causes`. From now on they
    get `memory` and `time` times as much as before, or these amounts (0: no change). With `done`,
    tasks that are done run again too. With `changes`, all attempts from now on get other input
    files."""

    causes: tuple[str, ...] = ()
    tasks: tuple[Annotated[int, Meta(ge=0, le=LARGEST_BAG)], ...] | None = None
    memory: Times = 1.0
    time: Times = 1.0
    memory_mb: Annotated[int, Meta(ge=0, le=LARGEST)] = 0
    limit_seconds: Annotated[float, Meta(ge=0, le=LARGEST)] = 0.0
    done: bool = False
    changes: InputChanges | None = None


class Pause(Struct, frozen=True, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(max_length=1000)] = ""


class Append(Struct, frozen=True, forbid_unknown_fields=True):
    segment: Segment
    key: str = ""


class BagCalls:
    def __init__(
        self,
        access: ServerAccess,
        admission: Admission,
        removing: Callable[[BagId], bool] = lambda bag: False,
    ) -> None:
        """`removing`: whether a purged bag is still being removed from the record."""
        self._access = access
        self._removing = removing
        self._admission = admission
        # By bag: when it was looked up, the names of reported values, why some were ignored.
        self._names: dict[BagId, tuple[float, list[str], list[str]]] = {}

    # -- doing -----------------------------------------------------------------------------

    @act(
        "/bags",
        "submit a bag; send its files first",
        ACT,
        takes=BagSpec,
        gives=Submitted,
        status=201,
        refuses=(409, 413),
    )
    async def submit(self, request: Request) -> ReplyMessage:
        caller = caller_of(request)
        named = _owned(await order(request, BagSpec), caller)
        spec = await self._admission.bag(named, caller)
        return await self._access.ask(lambda number: BagSubmitted(number, spec))

    @bag_order("append", "add tasks to an open bag", takes=Append)
    async def append(self, request: Request) -> ReplyMessage:
        bag = self._access.bag_id(request)
        body = await order(request, Append)
        spec = self._access.decider.ask_if_ready(SpecOfBag(bag))
        owner = await self._access.owner(bag)
        segment = await self._admission.segment(body.segment, owner, caller_of(request), spec)
        return await self._access.ask(
            lambda number: SegmentAppended(number, bag, segment, body.key)
        )

    @bag_order("close", "close an open bag: no more tasks will be added")
    async def close(self, request: Request) -> ReplyMessage:
        bag = self._access.bag_id(request)
        return await self._access.ask(lambda number: CloseRequested(number, bag))

    @bag_order("cancel", "cancel a bag, and keep the results that it has")
    async def cancel(self, request: Request) -> ReplyMessage:
        bag = self._access.bag_id(request)
        return await self._access.ask(lambda number: CancelRequested(number, bag))

    @bag_order(
        "pause", "pause a bag: start no more of its tasks", takes=Pause, takes_nothing_too=True
    )
    async def pause(self, request: Request) -> ReplyMessage:
        bag = self._access.bag_id(request)
        body = await order(request, Pause, Pause())
        return await self._access.ask(lambda number: PauseRequested(number, bag, body.reason))

    @bag_order("resume", "resume a paused bag")
    async def resume(self, request: Request) -> ReplyMessage:
        bag = self._access.bag_id(request)
        return await self._access.ask(lambda number: ResumeRequested(number, bag))

    @bag_order(
        "retry",
        "run failed tasks again, on request with other input files; send these first",
        takes=Retry,
        takes_nothing_too=True,
    )
    async def retry(self, request: Request) -> ReplyMessage:
        bag = self._access.bag_id(request)
        wish = await order(request, Retry, Retry())
        tasks = wish.tasks
        if wish.causes and wish.done:
            words = "'causes' and 'done' exclude each other: only failed tasks have causes"
            raise HttpProblem(400, "invalid", words)
        if wish.causes:
            failed = await self._access.read(lambda reader: reader.failed_tasks(bag, wish.causes))
            wanted = None if tasks is None else frozenset(tasks)
            tasks = tuple(task for task in failed if wanted is None or task in wanted)
        if wish.changes is not None:
            owner = await self._access.owner(bag)
            await self._admission.changes(wish.changes, owner, caller_of(request))
        return await self._access.ask(
            lambda number: RetryRequested(
                number,
                bag,
                tasks,
                More(wish.memory, wish.time, wish.memory_mb, wish.limit_seconds),
                wish.done,
                wish.changes,
            )
        )

    @bag_order("purge", "remove the logs or files of a bag, or all of it", query=("what",))
    async def purge(self, request: Request) -> ReplyMessage:
        bag = self._access.bag_id(request)
        if "what" not in request.query_params:
            words = "say what should be removed: ?what=logs, ?what=files or ?what=all"
            raise HttpProblem(400, "invalid", words)
        what = choice(request, "what", "logs", "files", "all")
        reply = await self._access.ask(lambda number: PurgeRequested(number, bag, what))
        while self._removing(bag):  # noqa: ASYNC110 (a large bag is removed in steps)
            await asyncio.sleep(REMOVED_SECONDS)
        return reply

    # -- seeing ----------------------------------------------------------------------------

    @look("/bags", "all bags, newest first", SEE)
    async def all(self, request: Request) -> list[BagView]:
        return [_seen_by(caller_of(request), view) for view in await self._all()]

    async def _all(self) -> list[BagView]:
        views = await self._access.read(lambda reader: reader.bags())
        if not self._access.decider.ready:
            return views
        ids = tuple(BagId(view.id) for view in views)
        live = await self._access.decider.ask_long(ViewsOfBags(ids))
        self._names = {bag: kept for bag, kept in self._names.items() if bag in live}
        return [
            _completed(live[BagId(view.id)], view.result_names, view.ignored_results)
            if view.id in live
            else view
            for view in views
        ]

    @look(BAG, "a bag", SEE, "seen", "wait")
    async def one(self, request: Request) -> BagView:
        bag = self._access.bag_id(request)
        seen, until = number(request, "seen", -1), deadline(request)
        while True:
            changed = self._access.changed
            live = self._access.decider.ask_if_ready(ProgressOfBag(bag))
            if live is None and self._access.decider.ready:
                break
            if live is not None and live.done + live.failed != seen:
                break
            if not await self._access.news(until, changed):
                break
        return _seen_by(caller_of(request), await self._view(bag))

    @look(f"{BAG}/inputs", "the input files of a bag, and where they came from", SEE_OWN)
    async def inputs(self, request: Request) -> InputsView:
        bag = self._access.bag_id(request)
        return await self._access.read_of(bag, lambda reader: reader.inputs(bag))

    @look(f"{BAG}/running", "tasks that are running or were sent ahead", SEE_OWN, "limit")
    async def running(self, request: Request) -> list[RunningRow]:
        limit = min(number(request, "limit", 1000), MOST_ROWS)
        bag = self._access.bag_id(request)
        if not self._access.decider.ready:
            return []
        return await self._access.decider.ask_long(RunningTasks(bag, limit))

    async def _view(self, bag: BagId) -> BagView:
        live = self._access.decider.ask_if_ready(ProgressOfBag(bag))
        if live is not None:
            names, ignored = await self._from_results(bag, live.done > 0)
            view = self._access.decider.ask_if_ready(ViewOfBag(bag))
            if view is not None:  # None: it has just ended
                return _completed(view, names, ignored)
        return await self._access.read_of(bag, lambda reader: reader.bag(bag))

    async def _from_results(self, bag: BagId, some_done: bool) -> tuple[list[str], list[str]]:
        """The names of reported values, and why some were ignored. Only the record knows them: core
        does not look into results."""
        now = self._access.clock.now()
        looked, names, ignored = self._names.get(bag, (0.0, [], []))
        if now - looked >= NAMES_SECONDS and some_done:
            self._names[bag] = (now, names, ignored)  # other requests use these during the reading
            view = await self._access.read(lambda reader: reader.bag(bag))
            if view is not None:
                names, ignored = view.result_names, view.ignored_results
            self._names[bag] = (now, names, ignored)
        return names, ignored


def _completed(view: BagView, names: list[str], ignored: list[str]) -> BagView:
    """The view, with what only the record knows about results."""
    view.result_names, view.ignored_results = [] if view.calls else names, ignored
    return view


def _owned(spec: BagSpec, caller: Caller) -> BagSpec:
    """The bag with its owner: the caller, whatever the bag says; only an admin may name another
    owner. Keys belong to owners: two owners may use the same key."""
    if caller.trusted:
        return spec
    owner = caller.owner
    if caller.role is Role.ADMIN and spec.owner:
        owner = spec.owner
    key = f"{owner}\n{spec.key}" if spec.key else ""
    return replace(spec, owner=owner, key=key)


def _seen_by(caller: Caller, view: BagView) -> BagView:
    """The bag as this caller may see it: everybody sees its progress, but only its owner sees its
    content. Details of a problem are content: they may name an input's URL, for example."""
    if caller.owns(view.owner):
        return view
    return replace(
        view,
        reason=view.reason.partition(": ")[0].removesuffix("; the last"),
        argv=[],
        names=[],
        readings=[],
        ignored_results=[],
        labels={},
        notes="",
        outputs=[],
        result_names=[],
        unkept=replace(view.unkept, names=()),
        stragglers=[],
        inputs=InputSummary(),
    )
