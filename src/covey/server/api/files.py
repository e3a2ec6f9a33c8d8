"""Files in and out: for people, and for pilots as far as their tasks go.

The rule: whatever the size of a file, and however many travel at once, memory stays bounded. An
upload is written bit by bit while it arrives, in threads (who may send when: `uploads`); a download
is read as fast as it is taken. An answer to an upload says how much of the file is here for
certain, so that any sender can go on from there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from covey.core.errors import BadFile, NotFound, StoreError
from covey.core.record.input_files import digests_in
from covey.core.record.model import BagId, BagSpec, Role
from covey.core.state import Pilot, State
from covey.ports import NamedFiles
from covey.server.api.pilots import PREFIX, Receive, Scope, Send, respond
from covey.server.limits.shares import Who, asks_now
from covey.server.limits.upload_allowance import Allowance, size_of
from covey.server.limits.uploads import TURN_SECONDS, Uploads
from covey.server.web.auth import ACT, SEE, Needs
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import caller_of, number, order
from covey.wire import Stored

MOST_PIECE_BYTES = 8 << 20
STEP_BYTES = 1 << 20  # written at once
PATIENCE_SECONDS = 20.0  # with senders that have fallen silent
MOST_DIGESTS = 100_000
BAD_FILE = 422  # the status that says so
PILOT_FILES = PREFIX + "files/"

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Any]]
Endpoint = Callable[[Request], Awaitable[Response]]


class Holdings(Protocol):
    """The files themselves, and whose they are: an owner sees, names and reads what they hold, as
    if there were nothing else. An owner of None is the server itself, which holds everything.
    Every call may raise BadFile or StoreError, and may take long."""

    def missing(self, owner: str | None, digests: Iterable[str]) -> list[str]: ...

    def state(self, owner: str | None, digest: str) -> Stored: ...

    def put_piece(
        self, owner: str | None, digest: str, offset: int, size: int, data: bytes
    ) -> Stored: ...

    def path(self, owner: str | None, digest: str) -> Path:
        """Raises NotFound unless it is complete, and the owner holds it."""
        ...

    def grant(self, owner: str, digests: list[str]) -> None: ...

    def restore(self, named: NamedFiles) -> None: ...

    def collect(
        self, named: NamedFiles, older_than_seconds: float, unfinished_seconds: float
    ) -> object: ...


class FileRoutes:
    """For people: whoever may submit may upload. An owner's files are those that they sent, all
    of them, and those that their tasks returned: of others' nobody is told, except admins, who
    read all files."""

    def __init__(self, holdings: Holdings, uploads: Uploads | None = None) -> None:
        self._files = _Files(holdings, uploads or Uploads())

    def routes(self, guarded: Callable[[Handler, Needs], Endpoint]) -> list[Route]:
        def route(path: str, handler: Handler, method: str, needs: Needs) -> Route:
            return Route("/api/v1/files" + path, guarded(handler, needs), methods=[method])

        return [
            route("/missing", self._missing, "POST", ACT),
            route("/{digest}/state", self._state, "GET", ACT),
            route("/{digest}", self._put, "PUT", ACT),
            route("/{digest}", self._get, "GET", SEE),
        ]

    async def _missing(self, request: Request) -> list[str]:
        digests, owner = await order(request, list[str]), caller_of(request).holder
        if len(digests) > MOST_DIGESTS:
            raise HttpProblem(413, "too-large", f"ask for at most {MOST_DIGESTS:,} files at once")
        return await self._files.call(lambda holdings: holdings.missing(owner, digests))

    async def _state(self, request: Request) -> Stored:
        digest, owner = request.path_params["digest"], caller_of(request).holder
        return await self._files.call(lambda holdings: holdings.state(owner, digest))

    async def _put(self, request: Request) -> Stored:
        owner = caller_of(request).holder
        return await self._files.receive(request, owner, request.path_params["digest"])

    async def _get(self, request: Request) -> Response:
        """Those who may not have it are not told whether it is there."""
        digest, caller = request.path_params["digest"], caller_of(request)
        owner = None if caller.may(Role.ADMIN) else caller.owner
        return await self._files.response(owner, digest)


class PilotFiles:
    """For a pilot that has shown its credential: it reads what the bags of its attempts name, and
    those of its attempts that are large calls. It writes for an attempt that it has, up to what a
    task of that bag may return; what it wrote is the bag's owner's."""

    def __init__(
        self,
        holdings: Holdings,
        state: Callable[[], State | None],
        uploads: Uploads | None = None,
    ) -> None:
        self._files = _Files(holdings, uploads or Uploads())
        self._state = state
        # With how many versions of its inputs a bag was looked at, and the files of all of them.
        self._named: dict[BagId, tuple[int, frozenset[str]]] = {}
        self._allowance = Allowance()

    async def __call__(self, scope: Scope, receive: Receive, send: Send, pilot: Pilot) -> None:
        digest = scope["path"][len(PILOT_FILES) :]
        specs = self._specs(pilot)
        asks_now.set(_who(pilot, specs))
        if scope["method"] == "GET":
            named = any(digest in self._digests(bag) for bag in specs)
            if not named and not self._is_call(pilot, digest):
                raise HttpProblem(403, "not-yours", "no task of this pilot needs this file")
            response = await self._files.response(None, digest)
            await response(scope, receive, send)
        elif scope["method"] == "PUT":
            if not specs:
                raise HttpProblem(
                    403, "not-yours", "this pilot has no task that could return a file"
                )
            request = Request(scope, receive)
            bag = self._allowance.claim(pilot, specs, request, digest)
            stored = await self._files.receive(request, specs[bag].owner, digest)
            await respond(send, 200, msgspec.json.encode(stored))
        else:
            raise HttpProblem(405, "invalid", "use GET for a file, or PUT for a piece of one")

    def _specs(self, pilot: Pilot) -> dict[BagId, BagSpec]:
        """Of the bags whose attempts it has."""
        state = self._state()
        if state is None or pilot.resync:  # what it has is not known yet
            raise HttpProblem(
                503, "unavailable", "this pilot must first report the tasks that it has", 1
            )
        self._allowance.forget(state)
        bags = dict.fromkeys(attempt.bag for attempt in pilot.attempts.values())
        return {bag: state.bags[bag].spec for bag in bags if bag in state.bags}

    def _is_call(self, pilot: Pilot, digest: str) -> bool:
        state = self._state()
        for attempt in pilot.attempts.values():
            bag = state.bags.get(attempt.bag) if state is not None else None
            if bag is not None and bag.inputs.large:
                call = bag.call_file(attempt.task)
                if call is not None and call.digest == digest:
                    return True
        return False

    def _digests(self, id_: BagId) -> frozenset[str]:
        """Of the bag's input files: some attempts may have been sent with earlier ones."""
        state = self._state()
        bag = state.bags.get(id_) if state is not None else None
        if state is None or bag is None:
            return frozenset()
        versions, named = self._named.get(id_, (-1, frozenset[str]()))
        if versions != len(bag.inputs.versions):
            for old in [known for known in self._named if known not in state.bags]:
                del self._named[old]
            named = bag.inputs.earlier.union(digests_in(bag.spec))
            self._named[id_] = len(bag.inputs.versions), named
        return named


def _who(pilot: Pilot, specs: dict[BagId, BagSpec]) -> Who:
    """On whose account a pilot moves files: that of the one owner for whom it works now."""
    owners = {spec.owner for spec in specs.values()}
    return Who(owners.pop() if len(owners) == 1 else f"pilot {pilot.record.id}")


class _Files:
    """Calls to the holdings, in threads, with whatever goes wrong as an answer. They are on the
    account of whoever's request this is."""

    def __init__(self, holdings: Holdings, uploads: Uploads) -> None:
        self._holdings = holdings
        self._uploads = uploads

    async def call(self, call: Callable[[Holdings], T]) -> T:
        try:
            return await self._uploads.threads.run(asks_now.get(), lambda: call(self._holdings))
        except BadFile as error:
            raise HttpProblem(BAD_FILE, "bad-file", str(error)) from error
        except NotFound as error:
            raise HttpProblem(404, "not-found", str(error)) from error
        except (StoreError, OSError) as error:
            raise HttpProblem(503, "unavailable", str(error), 2) from error

    async def response(self, owner: str | None, digest: str) -> Response:
        path = await self.call(lambda holdings: holdings.path(owner, digest))
        return _Download(path, digest)

    async def receive(self, request: Request, owner: str | None, digest: str) -> Stored:
        """A piece of a file, for this owner."""
        offset, size = number(request, "offset", 0), size_of(request)
        who = asks_now.get()
        self._uploads.requests.demand(who)
        try:
            self._uploads.begin(who, digest)
            stored, body = None, _Body(request)
            while body.more:
                first = await body.next(PATIENCE_SECONDS)  # without a turn: it may take long
                if first is None:
                    raise HttpProblem(
                        503, "unavailable", "no more data arrived; continue the upload later", 1
                    )
                async with self._uploads.turns.turn(who):
                    data = await body.rest_of_step(first)
                    if data:
                        stored = await self._put(owner, digest, offset, size, data)
                        offset += len(data)
            return stored or await self._put(owner, digest, offset, size, b"")
        finally:
            self._uploads.requests.give(who)

    async def _put(
        self, owner: str | None, digest: str, offset: int, size: int, data: bytes
    ) -> Stored:
        try:
            stored = await self.call(
                lambda holdings: holdings.put_piece(owner, digest, offset, size, data)
            )
        except HttpProblem as problem:
            if problem.status == BAD_FILE:  # and nothing of it was kept
                self._uploads.end(asks_now.get(), digest)
            raise
        if stored.complete:
            self._uploads.end(asks_now.get(), digest)
        return stored


class _Download(FileResponse):
    """The whole file or, if so asked (Range), a part of it."""

    chunk_size = 1 << 18

    def __init__(self, path: Path, digest: str) -> None:
        headers = {"etag": f'"{digest}"'}
        super().__init__(path, headers=headers, media_type="application/octet-stream")


class _Body:
    """What arrives; `more`: something is still to come."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._arrived = 0
        self.more = True

    async def next(self, seconds: float) -> bytes | None:
        """None: nothing came in this time."""
        try:
            message = await asyncio.wait_for(self._request.receive(), seconds)
        except TimeoutError:
            return None
        if message["type"] == "http.disconnect":
            raise HttpProblem(
                400, "invalid", "the connection was closed before the request was complete"
            )
        data: bytes = message.get("body", b"")
        self.more = message.get("more_body", False)
        self._arrived += len(data)
        if self._arrived > MOST_PIECE_BYTES:
            raise HttpProblem(413, "too-large", f"send at most {MOST_PIECE_BYTES:,} bytes at once")
        return data

    async def rest_of_step(self, first: bytes) -> bytes:
        """As much as is worth a write, or as comes within one turn."""
        clock = asyncio.get_running_loop().time
        parts, size, until = [first], len(first), clock() + TURN_SECONDS
        while self.more and size < STEP_BYTES:
            data = await self.next(max(0.0, until - clock()))
            if data is None:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)
