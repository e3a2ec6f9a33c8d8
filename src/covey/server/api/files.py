"""Uploads and downloads: for people, and for pilots as far as their tasks need them.

The rule: memory stays bounded, whatever the size of a file, and however many are sent at once. An
upload is written in steps while it arrives, in threads (`uploads` decides who may send when); a
download is read only as fast as the client takes it. The answer to an upload says how much of the
file the server has for certain, so that a client can continue from there.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from covey.core.errors import BadFile, NotFound, StoreError
from covey.core.record.model import BagId, PilotRecord
from covey.ports import NamedFiles
from covey.questions.bag_questions import BagFiles, FilesOfBag
from covey.questions.pilot_questions import HasCallFile, PilotWork, WorkOfPilot
from covey.server.api.pilots import PREFIX, Receive, Scope, Send, respond
from covey.server.decider import Decider
from covey.server.limits.shares import Who, asks_now
from covey.server.limits.upload_allowance import Allowance, size_of
from covey.server.limits.uploads import TURN_SECONDS, Uploads
from covey.server.web.auth import ACT, SEE
from covey.server.web.problems import HttpProblem, cut_off, wrong_method
from covey.server.web.requests import caller_of, number, order
from covey.server.web.route import API, BYTES, act, look, route
from covey.wire import Stored

MOST_PIECE_BYTES = 8 << 20
STEP_BYTES = 1 << 20  # written at once
PATIENCE_SECONDS = 20.0  # how long to wait for a silent sender
MOST_DIGESTS = 100_000
MOST_BAGS = 100  # whose digests are kept in memory
BAD_FILE = 422  # the status for a wrong or malformed digest
PILOT_FILES = PREFIX + "files/"
FILE = "/files/{digest}"

T = TypeVar("T")


class Holdings(Protocol):
    """The files of the server, and who holds which. To an owner, only the files that they hold
    exist. The owner None is the server itself, which holds all. Every call may raise BadFile or
    StoreError, and may take long."""

    def missing(self, owner: str | None, digests: Iterable[str]) -> list[str]: ...

    def state(self, owner: str | None, digest: str) -> Stored: ...

    def put_piece(
        self, owner: str | None, digest: str, offset: int, size: int, data: bytes
    ) -> Stored: ...

    def path(self, owner: str | None, digest: str) -> Path:
        """Raises NotFound unless the file is complete and the owner holds it."""
        ...

    def grant(self, owner: str, digests: list[str]) -> None: ...

    def restore(self, named: NamedFiles) -> None: ...

    def collect(
        self, named: NamedFiles, older_than_seconds: float, unfinished_seconds: float
    ) -> object: ...


class FileRoutes:
    """For people: who may submit may upload. Owners hold the files that they have uploaded
    completely, and the files that their tasks returned. Only admins can read all files; to others,
    files of other owners do not exist."""

    def __init__(self, holdings: Holdings, uploads: Uploads | None = None) -> None:
        self._files = _Files(holdings, uploads or Uploads())

    @act(
        "/files/missing",
        "which of these files the caller still has to send",
        ACT,
        takes=list[str],
        refuses=(413, 422),
    )
    async def missing(self, request: Request) -> list[str]:
        digests, owner = await order(request, list[str]), caller_of(request).holder
        if len(digests) > MOST_DIGESTS:
            words = f"the list has {len(digests):,} digests; send at most {MOST_DIGESTS:,} at once"
            raise HttpProblem(413, "too-large", words)
        return await self._files.call(lambda holdings: holdings.missing(owner, digests))

    @look(f"{FILE}/state", "how much of a file the caller has sent", ACT, refuses=(422,))
    async def state(self, request: Request) -> Stored:
        digest, owner = request.path_params["digest"], caller_of(request).holder
        return await self._files.call(lambda holdings: holdings.state(owner, digest))

    @route(
        "PUT",
        API + FILE,
        "send a piece of a file",
        ACT,
        query=("offset", "size"),
        takes=BYTES,
        takes_nothing_too=True,
        refuses=(413, 422),
    )
    async def put(self, request: Request) -> Stored:
        owner = caller_of(request).holder
        return await self._files.receive(request, owner, request.path_params["digest"])

    @look(
        FILE,
        "a file; with the header Range, a part of it",
        SEE,
        gives=BYTES,
        partly=True,
        refuses=(404, 416, 422),
    )
    async def get(self, request: Request) -> Response:
        """A caller who does not hold the file gets the same answer as if it did not exist."""
        digest, caller = request.path_params["digest"], caller_of(request)
        return await self._files.response(caller.viewer, digest)


class PilotFiles:
    """For a pilot that has shown its credential. It may read the input files of its attempts' bags,
    and the large calls among its attempts. It may write for an attempt that it has, as much as a
    task of that bag may return; the bag's owner then holds the file."""

    def __init__(
        self,
        holdings: Holdings,
        decider: Decider,
        uploads: Uploads | None = None,
    ) -> None:
        self._files = _Files(holdings, uploads or Uploads())
        self._decider = decider
        self._named: dict[BagId, BagFiles] = {}  # as last read from core
        self._allowance = Allowance()

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, pilot: PilotRecord
    ) -> None:
        digest = scope["path"][len(PILOT_FILES) :]
        work = self._work(pilot)
        asks_now.set(_who(work))
        if scope["method"] == "GET":
            named = any(digest in self._digests(bag) for bag in work.bags)
            if not named and not self._decider.ask(HasCallFile(pilot.id, digest)):
                raise HttpProblem(403, "not-yours", "no task of this pilot needs this file")
            response = await self._files.response(None, digest)
            await response(scope, receive, send)
        elif scope["method"] == "PUT":
            if not work.bags:
                words = "this pilot has no task now, so it may upload no file"
                raise HttpProblem(403, "not-yours", words)
            request = Request(scope, receive)
            bag = self._allowance.claim(work, request, digest)
            stored = await self._files.receive(request, work.bags[bag].owner, digest)
            await respond(send, 200, msgspec.json.encode(stored))
        else:
            raise wrong_method(scope["method"], "GET for a file, or PUT for a piece of one")

    def _work(self, pilot: PilotRecord) -> PilotWork:
        work = self._decider.ask_if_ready(WorkOfPilot(pilot.id))
        if work is None:
            words = "the server has restarted: this pilot must first report its tasks in a sync"
            raise HttpProblem(503, "unavailable", words, 1)
        self._allowance.forget(self._decider)
        return work

    def _digests(self, bag: BagId) -> frozenset[str]:
        """The digests of the bag's input files."""
        files = self._named.get(bag)
        changed = self._decider.ask(FilesOfBag(bag, files.versions if files is not None else -1))
        if changed is not None:
            if len(self._named) >= MOST_BAGS:
                self._named.clear()
            self._named[bag] = files = changed
        return files.digests if files is not None else frozenset()


def _who(work: PilotWork) -> Who:
    """The account on which a pilot's files are counted: its owner's, if it works for one owner
    only; else its own."""
    owners = {bag.owner for bag in work.bags.values()}
    return Who(owners.pop() if len(owners) == 1 else f"pilot {work.pilot}")


class _Files:
    """Calls the holdings in threads, on the account of this request's owner. Errors become
    HttpProblem."""

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
            words = f"the server cannot use its files: {error}; try again soon"
            raise HttpProblem(503, "unavailable", words, 2) from error

    async def response(self, owner: str | None, digest: str) -> Response:
        path = await self.call(lambda holdings: holdings.path(owner, digest))
        return _Download(path, digest)

    async def receive(self, request: Request, owner: str | None, digest: str) -> Stored:
        """Store a piece of a file, for this owner."""
        offset, size = number(request, "offset", 0), size_of(request)
        who = asks_now.get()
        self._uploads.requests.demand(who)
        try:
            self._uploads.begin(who, digest)
            stored, body = None, _Body(request)
            while body.more:
                first = await body.next(PATIENCE_SECONDS)  # without a turn, since it may take long
                if first is None:
                    words = (
                        f"no data arrived for {PATIENCE_SECONDS:.0f} seconds; continue the upload "
                        "later"
                    )
                    raise HttpProblem(503, "unavailable", words, 1)
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
            if problem.status == BAD_FILE:  # then no piece of it was kept
                self._uploads.end(asks_now.get(), digest)
            raise
        if stored.complete:
            self._uploads.end(asks_now.get(), digest)
        return stored


class _Download(FileResponse):
    """The whole file, or the part that the header Range asks for."""

    chunk_size = 1 << 18

    def __init__(self, path: Path, digest: str) -> None:
        headers = {"etag": f'"{digest}"'}
        super().__init__(path, headers=headers, media_type="application/octet-stream")


class _Body:
    """The body of a request, read in steps; `more`: it is not complete yet."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._arrived = 0
        self.more = True

    async def next(self, seconds: float) -> bytes | None:
        """The next bytes; None: none came within these seconds."""
        try:
            message = await asyncio.wait_for(self._request.receive(), seconds)
        except TimeoutError:
            return None
        if message["type"] == "http.disconnect":
            raise cut_off()
        data: bytes = message.get("body", b"")
        self.more = message.get("more_body", False)
        self._arrived += len(data)
        if self._arrived > MOST_PIECE_BYTES:
            words = f"this piece has more than {MOST_PIECE_BYTES:,} bytes; send smaller pieces"
            raise HttpProblem(413, "too-large", words)
        return data

    async def rest_of_step(self, first: bytes) -> bytes:
        """Enough bytes for one write, or what comes within one turn."""
        clock = asyncio.get_running_loop().time
        parts, size, until = [first], len(first), clock() + TURN_SECONDS
        while self.more and size < STEP_BYTES:
            data = await self.next(max(0.0, until - clock()))
            if data is None:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)
