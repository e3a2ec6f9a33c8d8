"""The API's bags: submitted, seen, and told what to do."""

import asyncio
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.requests import Request

from covey.core.record.actions import ReplyMessage
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
from covey.core.record.model import BagId, BagSpec, InputChanges, Role, Segment
from covey.core.state import Bag
from covey.core.values.space import LARGEST_BAG
from covey.pilot.protocol.messages import LARGEST
from covey.server.api.views import bag_view, running_rows
from covey.server.limits.admission import Admission
from covey.server.web.auth import Caller
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import Asking, caller_of, choice, deadline, number, order
from covey.wire import BagView, InputsView, RunningRow, in_list

MOST_ROWS = 10_000
REMOVED_SECONDS = 0.02  # between looks whether a purged bag is gone
MOST_AT_ONCE = 200  # bags that are looked at before others are served
NAMES_SECONDS = 1.0  # between looks for new names of results

Times = Annotated[float, Meta(ge=0.001, le=1_000_000)]


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """Given-up tasks to try again: all, these, those of these causes (or both), from now on with
    so many times the memory and the time, or with these amounts (0: none). With `done`, tasks that
    were done run again too. With `changes`, all attempts from now on get other input files."""

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
        asking: Asking,
        admission: Admission,
        removing: Callable[[BagId], bool] = lambda bag: False,
    ) -> None:
        """`removing`: whether a bag was purged, and something of it is still in the record."""
        self._asking = asking
        self._removing = removing
        self._admission = admission
        # When looked up; names of reported values; why some were ignored.
        self._names: dict[BagId, tuple[float, list[str], list[str]]] = {}

    # -- doing -----------------------------------------------------------------------------

    async def submit(self, request: Request) -> ReplyMessage:
        caller = caller_of(request)
        asked = _owned(await order(request, BagSpec), caller)
        spec = await self._admission.bag(asked, caller)
        return await self._asking.ask(lambda number: BagSubmitted(number, spec))

    async def append(self, request: Request) -> ReplyMessage:
        bag = self._asking.bag_id(request)
        given = await order(request, Append)
        live = self._asking.live(bag)
        spec = live.spec if live is not None else None
        owner = await self._asking.owner(bag)
        segment = await self._admission.segment(given.segment, owner, caller_of(request), spec)
        return await self._asking.ask(
            lambda number: SegmentAppended(number, bag, segment, given.key)
        )

    async def close(self, request: Request) -> ReplyMessage:
        bag = self._asking.bag_id(request)
        return await self._asking.ask(lambda number: CloseRequested(number, bag))

    async def cancel(self, request: Request) -> ReplyMessage:
        bag = self._asking.bag_id(request)
        return await self._asking.ask(lambda number: CancelRequested(number, bag))

    async def pause(self, request: Request) -> ReplyMessage:
        bag = self._asking.bag_id(request)
        given = await order(request, Pause, Pause())
        return await self._asking.ask(lambda number: PauseRequested(number, bag, given.reason))

    async def resume(self, request: Request) -> ReplyMessage:
        bag = self._asking.bag_id(request)
        return await self._asking.ask(lambda number: ResumeRequested(number, bag))

    async def retry(self, request: Request) -> ReplyMessage:
        bag = self._asking.bag_id(request)
        given = await order(request, Retry, Retry())
        tasks = given.tasks
        if given.causes and given.done:
            raise HttpProblem(400, "invalid", "only failed tasks have causes: leave out 'done'")
        if given.causes:
            failed = await self._asking.read(lambda reader: reader.failed_tasks(bag, given.causes))
            wanted = None if tasks is None else frozenset(tasks)
            tasks = tuple(task for task in failed if wanted is None or task in wanted)
        if given.changes is not None:
            owner = await self._asking.owner(bag)
            await self._admission.changes(given.changes, owner, caller_of(request))
        return await self._asking.ask(
            lambda number: RetryRequested(
                number,
                bag,
                tasks,
                given.memory,
                given.time,
                given.memory_mb,
                given.limit_seconds,
                given.done,
                given.changes,
            )
        )

    async def purge(self, request: Request) -> ReplyMessage:
        bag = self._asking.bag_id(request)
        if "what" not in request.query_params:
            raise HttpProblem(
                400, "invalid", "name what should be removed: ?what=logs, files or all"
            )
        what = choice(request, "what", "logs", "files", "all")
        reply = await self._asking.ask(lambda number: PurgeRequested(number, bag, what))
        while self._removing(bag):  # noqa: ASYNC110 (a large bag goes in steps)
            await asyncio.sleep(REMOVED_SECONDS)
        return reply

    # -- seeing ----------------------------------------------------------------------------

    async def all(self, request: Request) -> list[BagView]:
        return [_seen_by(caller_of(request), view) for view in await self._all()]

    async def _all(self) -> list[BagView]:
        found = await self._asking.read(lambda reader: reader.bags())
        state = self._asking.state()
        if state is None:
            return found
        now = self._asking.clock.now()
        self._names = {bag: kept for bag, kept in self._names.items() if bag in state.bags}
        for place, view in enumerate(found):
            if place % MOST_AT_ONCE == MOST_AT_ONCE - 1:
                await asyncio.sleep(0)  # others are served between
            if live := state.bags.get(BagId(view.id)):
                shown = bag_view(state, live, now, view.result_names, view.ignored_results)
                found[place] = in_list(shown)
        return found

    async def one(self, request: Request) -> BagView:
        bag = self._asking.bag_id(request)
        seen, until = number(request, "seen", -1), deadline(request)
        while True:
            changed = self._asking.changed
            live = self._asking.live(bag)
            if live is None and self._asking.state() is not None:
                break
            if live is not None and len(live.places.done) + len(live.places.failed) != seen:
                break
            if not await self._asking.news(until, changed):
                break
        return _seen_by(caller_of(request), await self._view(bag))

    async def inputs(self, request: Request) -> InputsView:
        bag = self._asking.bag_id(request)
        found = await self._asking.read(lambda reader: reader.inputs(bag))
        if found is None:
            raise HttpProblem(404, "not-found", f"there is no bag {bag}")
        return found

    async def running(self, request: Request) -> list[RunningRow]:
        limit = min(number(request, "limit", 1000), MOST_ROWS)
        bag, state = self._asking.live(self._asking.bag_id(request)), self._asking.state()
        return [] if bag is None or state is None else running_rows(state, bag, limit)

    async def _view(self, bag: BagId) -> BagView:
        live = self._asking.live(bag)
        if live is not None:
            names, ignored = await self._from_results(live)
            live, state = self._asking.live(bag), self._asking.state()  # it may have ended
            if live is not None and state is not None:
                return bag_view(state, live, self._asking.clock.now(), names, ignored)
        found = await self._asking.read(lambda reader: reader.bag(bag))
        if found is None:
            raise HttpProblem(404, "not-found", f"there is no bag {bag}")
        return found

    async def _from_results(self, bag: Bag) -> tuple[list[str], list[str]]:
        """The names of reported values, and why some were ignored. Core does not look into results;
        the record has both."""
        now = self._asking.clock.now()
        looked, names, ignored = self._names.get(bag.id, (0.0, [], []))
        if now - looked >= NAMES_SECONDS and bag.places.done:
            self._names[bag.id] = (now, names, ignored)  # whoever asks meanwhile takes the old ones
            found = await self._asking.read(lambda reader: reader.bag(bag.id))
            if found is not None:
                names, ignored = found.result_names, found.ignored_results
            self._names[bag.id] = (now, names, ignored)
        return names, ignored


def _owned(spec: BagSpec, caller: Caller) -> BagSpec:
    """The bag is the caller's, whatever it says; an admin's may be anybody's. So are keys: two
    owners may use the same."""
    if caller.trusted:
        return spec
    owner = caller.owner
    if caller.role is Role.ADMIN and spec.owner:
        owner = spec.owner
    key = f"{owner}\n{spec.key}" if spec.key else ""
    return replace(spec, owner=owner, key=key)


def _seen_by(caller: Caller, view: BagView) -> BagView:
    """How somebody else's bag gets on is for all to see; what is in it is not. The details of a
    problem, or of the failure that paused it, may name it, such as the URL of an input."""
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
