"""Files in and out: for people, and for pilots as far as their tasks go.

The rule: whatever the size of a file, and however many travel at once, memory stays bounded. An
upload is written bit by bit while it arrives, in threads; a download is read as fast as it is
taken. An answer to an upload says how much of the file is here for certain, so that any sender can
go on from there.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from covey.core.errors import BadFile, NotFound, StoreError
from covey.core.model import BagId, BagSpec, Role
from covey.core.state import Pilot, State
from covey.server.asking import Asking, caller_of, number, order
from covey.server.auth import ACT, SEE, Needs
from covey.server.pilots import PREFIX, Receive, Scope, Send, respond
from covey.server.problems import HttpProblem
from covey.wire import Stored

MOST_PIECE_BYTES = 8 << 20
STEP_BYTES = 1 << 20  # written at once
MOST_UPLOADS = 64  # at a time; the others' bytes wait in their sockets …
PATIENCE_SECONDS = 20.0  # … but not for senders that have fallen silent
MOST_DIGESTS = 100_000
THREADS = 4
PILOT_FILES = PREFIX + "files/"

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Any]]
Endpoint = Callable[[Request], Awaitable[Response]]


class Blobs(Protocol):
    """The files themselves. Every call may raise BadFile or StoreError, and may take long."""

    def missing(self, digests: Iterable[str]) -> list[str]: ...

    def state(self, digest: str) -> Stored: ...

    def put_piece(self, digest: str, offset: int, size: int, data: bytes) -> Stored: ...

    def path(self, digest: str) -> Path:
        """Raises NotFound unless it is complete."""
        ...

    def collect(self, keep: set[str], older_than_seconds: float) -> object: ...


class FileRoutes:
    """For people: whoever may submit may upload. A file is read by those whose bags name it, or
    whose tasks returned it (without `asking`: by nobody but admins)."""

    def __init__(self, blobs: Blobs, asking: Asking | None = None) -> None:
        self._files = _Files(blobs)
        self._asking = asking

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
        digests = await order(request, list[str])
        if len(digests) > MOST_DIGESTS:
            raise HttpProblem(413, "too-large", f"ask for at most {MOST_DIGESTS:,} files at once")
        return await self._files.call(lambda blobs: blobs.missing(digests))

    async def _state(self, request: Request) -> Stored:
        digest = request.path_params["digest"]
        return await self._files.call(lambda blobs: blobs.state(digest))

    async def _put(self, request: Request) -> Stored:
        return await self._files.receive(request, request.path_params["digest"])

    async def _get(self, request: Request) -> Response:
        """Those who may not have it are not told whether it is there."""
        digest, caller = request.path_params["digest"], caller_of(request)
        if not caller.may(Role.ADMIN) and not await self._is_named(caller.owner, digest):
            raise HttpProblem(404, "not-found", f"none of your bags has a file {digest[:100]}")
        return await self._files.response(digest)

    async def _is_named(self, owner: str, digest: str) -> bool:
        if self._asking is None:
            return False
        return await self._asking.read(lambda reader: reader.names_file(owner, digest))


class PilotFiles:
    """For a pilot that has shown its credential: it reads what the bags of its attempts name, and
    those of its attempts that are large calls; it writes while it has attempts, files as large as
    those bags allow."""

    def __init__(self, blobs: Blobs, state: Callable[[], State | None]) -> None:
        self._files = _Files(blobs)
        self._state = state
        self._named: dict[BagId, frozenset[str]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send, pilot: Pilot) -> None:
        digest = scope["path"][len(PILOT_FILES) :]
        specs = self._specs(pilot)
        if scope["method"] == "GET":
            named = any(digest in self._digests(bag, spec) for bag, spec in specs.items())
            if not named and not self._is_call(pilot, digest):
                raise HttpProblem(403, "not-yours", "no task that you have needs this file")
            response = await self._files.response(digest)
            await response(scope, receive, send)
        elif scope["method"] == "PUT":
            if not specs:
                raise HttpProblem(403, "not-yours", "you have no task that could return a file")
            most = max(spec.output_mb for spec in specs.values()) << 20
            stored = await self._files.receive(Request(scope, receive), digest, most)
            await respond(send, 200, msgspec.json.encode(stored))
        else:
            raise HttpProblem(405, "invalid", "GET a file, or PUT a piece of one")

    def _specs(self, pilot: Pilot) -> dict[BagId, BagSpec]:
        """Of the bags whose attempts it has."""
        state = self._state()
        if state is None or pilot.resync:  # what it has is not known yet
            raise HttpProblem(503, "unavailable", "first say what you hold", 1)
        bags = dict.fromkeys(attempt.bag for attempt in pilot.attempts.values())
        return {bag: state.bags[bag].spec for bag in bags if bag in state.bags}

    def _is_call(self, pilot: Pilot, digest: str) -> bool:
        state = self._state()
        for attempt in pilot.attempts.values():
            bag = state.bags.get(attempt.bag) if state is not None else None
            if bag is not None and bag.large:
                call = bag.call_file(attempt.task)
                if call is not None and call.digest == digest:
                    return True
        return False

    def _digests(self, bag: BagId, spec: BagSpec) -> frozenset[str]:
        if bag not in self._named:
            state = self._state()
            for old in [known for known in self._named if state is None or known not in state.bags]:
                del self._named[old]
            placed = {one.blob.digest for one in spec.inputs if one.blob is not None}
            own = {blob.digest for blob in spec.manifest.values()}
            self._named[bag] = frozenset(placed | own)
        return self._named[bag]


class _Files:
    """Calls to the blobs, in threads, with whatever goes wrong as an answer."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._threads = ThreadPoolExecutor(THREADS, "files")
        self._turn = asyncio.Semaphore(MOST_UPLOADS)

    async def call(self, call: Callable[[Blobs], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, call, self._blobs)
        except BadFile as error:
            raise HttpProblem(422, "bad-file", str(error)) from error
        except NotFound as error:
            raise HttpProblem(404, "not-found", str(error)) from error
        except (StoreError, OSError) as error:
            raise HttpProblem(503, "unavailable", str(error), 2) from error

    async def response(self, digest: str) -> Response:
        path = await self.call(lambda blobs: blobs.path(digest))
        return _Download(path, digest)

    async def receive(self, request: Request, digest: str, most: int | None = None) -> Stored:
        """A piece of a file, which may have `most` bytes."""
        offset, size = number(request, "offset", 0), number(request, "size", -1)
        if size < 0:
            raise HttpProblem(400, "invalid", "say how many bytes the whole file has: ?size=NUMBER")
        if most is not None and size > most:
            raise HttpProblem(413, "too-large", f"{size:,} bytes; {most:,} are allowed")
        async with self._turn:
            stored: Stored | None = None
            async for data in _body(request):
                stored = await self._put(digest, offset, size, data)
                offset += len(data)
        return stored or await self._put(digest, offset, size, b"")

    async def _put(self, digest: str, offset: int, size: int, data: bytes) -> Stored:
        return await self.call(lambda blobs: blobs.put_piece(digest, offset, size, data))


class _Download(FileResponse):
    """The whole file or, if so asked (Range), a part of it."""

    chunk_size = 1 << 18

    def __init__(self, path: Path, digest: str) -> None:
        headers = {"etag": f'"{digest}"'}
        super().__init__(path, headers=headers, media_type="application/octet-stream")


async def _body(request: Request) -> AsyncIterator[bytes]:
    """What arrives, in steps of a size that is worth a write."""
    parts: list[bytes] = []
    waiting = arrived = 0
    more = True
    while more:
        message = await _next_message(request)
        if message["type"] == "http.disconnect":
            raise HttpProblem(400, "invalid", "the connection closed within the request")
        data = message.get("body", b"")
        more = message.get("more_body", False)
        arrived += len(data)
        if arrived > MOST_PIECE_BYTES:
            raise HttpProblem(413, "too-large", f"send at most {MOST_PIECE_BYTES:,} bytes at once")
        parts.append(data)
        waiting += len(data)
        if waiting >= STEP_BYTES or (waiting and not more):
            yield b"".join(parts)
            parts, waiting = [], 0


async def _next_message(request: Request) -> Any:
    try:
        return await asyncio.wait_for(request.receive(), PATIENCE_SECONDS)
    except TimeoutError:
        raise HttpProblem(503, "unavailable", "nothing more came; go on later", 1) from None
