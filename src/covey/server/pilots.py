"""The pilots' calls, as bare ASGI: this is the hot path.

A sync may stay parked for many seconds; if its connection closes meanwhile, the engine hears of
it. Everything is checked before the engine sees it, and a message that is off changes nothing.

Each call says what it wants to be shown (`SHOWN`). An answer to an enrolment says in its headers
which version the server has, and the digest of its pilot file: headers, because a pilot of an
older version stumbles over fields that it does not know.
"""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs

import msgspec

from covey import __version__
from covey.core.actions import Refuse
from covey.core.events import Event, PilotEnrolled, PilotLeft, SyncReceived
from covey.core.hearing import LARGEST
from covey.core.model import AttemptId, BagId, PilotId, RequestId
from covey.core.state import Pilot, State
from covey.pilot.messages import Answer, Enrol, Enrolled, Leave, Left, Piece, Printed, Sync
from covey.server.auth import CREDENTIAL_SECONDS, PilotSecrets
from covey.server.gateway import Answering, Gateway, Outcome, Unavailable
from covey.server.problems import HttpProblem, from_refusal
from covey.server.quick import JSON, Response, of_problem
from covey.server.tails import Tails
from covey.wire import decode, encode

Scope = MutableMapping[Any, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MOST_BYTES = 16 << 20
MOST_PRINTED = 2 << 20
MOST_ENROL = 1 << 20  # which is read before anybody knows who sends it
PREFIX = "/pilot/v1/"
RENEWED = b"x-covey-credential"

# What whoever calls must show: the secret of a site job, a pilot's credential, or nothing.
SHOWN = {
    "enrol": "secret",
    "sync": "credential",
    "leave": "credential",
    "printed": "credential",
    "files": "credential",
    "pilot.pyz": "nothing",  # it is the same for all, and holds no secret
}


class PilotFiles(Protocol):
    """Uploads and downloads of a pilot that has shown its credential."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, pilot: Pilot) -> None: ...


class PilotCalls:
    """`secret` is the one from which those of site jobs are made; `pilot_file`, the file that
    older pilots renew themselves with."""

    def __init__(
        self,
        gateway: Gateway,
        secret: str,
        tails: Tails,
        files: PilotFiles,
        pilot_file: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._gateway = gateway
        self._now = now
        self._secrets = PilotSecrets(secret, now)
        self._tails = tails
        self._files = files
        self._pilot_file = pilot_file
        self._content = b""
        self._calls = {"enrol": self._enrol, "sync": self._sync, "leave": self._leave}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        except HttpProblem as problem:
            await respond(send, problem.status, problem.body(), problem.headers())

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"][len(PREFIX) :]
        if name.startswith("files/"):
            pilot = self._pilot(scope, named(scope))
            await self._files(scope, receive, _renewing(scope, send), pilot)
            return
        if name not in SHOWN or name == "files":
            words = f"pilots call {', '.join(SHOWN)}"
            raise HttpProblem(404, "not-found", words)
        if name == "pilot.pyz":
            await self._send_pilot_file(scope, send)
            return
        if scope["method"] != "POST":
            raise HttpProblem(405, "invalid", "POST a JSON object")
        if name == "printed":
            await respond(send, 200, await self._printed(scope, receive), _headers(scope))
            return
        body = await read_body(scope, receive, MOST_ENROL if name == "enrol" else MOST_BYTES)
        outcome = await self._calls[name](scope, body, receive)
        if isinstance(outcome, Refuse | Unavailable):
            raise from_refusal(outcome)
        if isinstance(outcome, Answer | Enrolled | Left):
            headers = _headers(scope)
            if isinstance(outcome, Enrolled):
                headers += self._version_headers()
            await respond(send, 200, encode(outcome), headers)

    async def _enrol(self, scope: Scope, body: bytes, receive: Receive) -> Outcome | None:
        enrol = checked(Enrol, body)
        state = self._state()
        if state is None:
            return Unavailable("the server is starting")
        given = shown(scope["headers"])
        if not enrol.job:  # a pilot that was given both in one word
            job, _, given = given.rpartition(b":")
            enrol = enrol._replace(job=job.decode("latin-1"))
        owner = self._secrets.owner(enrol.job, given, state.jobs)
        enrolment = secrets.token_hex(32)
        event = lambda request: PilotEnrolled(request, enrol, "", enrolment, owner)  # noqa: E731
        outcome = await self._wait(*self._gateway.ask(event), receive, None)
        if isinstance(outcome, Enrolled):
            credential = self._secrets.credential(outcome.pilot, enrolment)
            return outcome._replace(credential=credential)
        return outcome

    async def _sync(self, scope: Scope, body: bytes, receive: Receive) -> Outcome | None:
        sync = checked(Sync, body)
        self._let_in(scope, sync.pilot)
        request, answering = self._gateway.ask(lambda request: SyncReceived(request, sync))
        if answering.done():
            return answering.result()
        return await self._wait(request, answering, receive, PilotId(sync.pilot))

    async def _leave(self, scope: Scope, body: bytes, receive: Receive) -> Outcome | None:
        leave = checked(Leave, body)
        self._let_in(scope, leave.pilot)
        event: Callable[[RequestId], Event] = lambda request: PilotLeft(request, leave)  # noqa: E731
        return await self._wait(*self._gateway.ask(event), receive, None)

    async def _printed(self, scope: Scope, receive: Receive) -> bytes:
        """Nobody may be following any more: then it is dropped."""
        printed = checked(Printed, await read_body(scope, receive, MOST_PRINTED))
        pilot = self._pilot(scope, printed.pilot)
        self._tails.feed(piece for piece in printed.pieces if _may_speak_of(pilot, piece))
        return b"{}"

    def _pilot(self, scope: Scope, pilot: int) -> Pilot:
        """The one that calls; for calls that the engine does not hear of."""
        found = self._let_in(scope, pilot)
        if found is None:
            engine = self._gateway.engine
            raise from_refusal(Unavailable(engine.trouble if engine else "the server is starting"))
        return found

    def take_sync(
        self, headers: Headers, body: bytes, respond: Callable[[Response], None]
    ) -> Callable[[], None]:
        """A sync without all that ASGI brings: `respond` is called once, now or later. Returns
        what to call if whoever asks hangs up before. Raises HttpProblem."""
        sync = checked(Sync, body)
        _, new = self._check(shown(headers), sync.pilot)
        headers_ = tuple(_headers_with(new)) if new else JSON

        def tell(outcome: Outcome) -> None:
            if isinstance(outcome, Answer):
                respond(Response(200, encode(outcome), headers_))
            elif isinstance(outcome, Refuse | Unavailable):
                respond(of_problem(from_refusal(outcome)))

        request = self._gateway.put(lambda one: SyncReceived(one, sync), tell, len(body))
        return lambda: self._gateway.hung_up(request, PilotId(sync.pilot))

    def _let_in(self, scope: Scope, pilot: int) -> Pilot | None:
        found, scope[RENEWED] = self._check(shown(scope["headers"]), pilot)
        return found

    def _check(self, given: bytes, pilot: int) -> tuple[Pilot | None, bytes]:
        """The pilot, with a new credential for it if that is due. A pilot that is not known is
        told so (it will enrol again); a known one must show what it was given."""
        state = self._state()
        if state is None:
            return None, b""  # it will be turned away, and told to come back
        found = state.pilots.get(PilotId(pilot))
        if found is None:
            raise HttpProblem(410, "unknown-pilot", f"no pilot {pilot} here: enrol again")
        left = self._secrets.left_seconds(found.record, given)
        if left <= 0:
            words = "that is not this pilot's credential, or no longer: enrol again"
            raise HttpProblem(401, "unauthorized", words)
        if left >= CREDENTIAL_SECONDS / 2:
            return found, b""
        return found, self._secrets.credential(pilot, found.record.credential).encode()

    def _state(self) -> State | None:
        engine = self._gateway.engine
        return engine.scheduler.state if engine and engine.scheduler else None

    # -- older pilots ----------------------------------------------------------------------

    async def _send_pilot_file(self, scope: Scope, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise HttpProblem(405, "invalid", "GET it")
        content = self._pilot_content()
        if not content:
            raise HttpProblem(404, "not-found", "this server has no pilot file")
        date = formatdate(self._now(), usegmt=True).encode()  # a host's own clock may be off
        kind = [(b"content-type", b"application/zip"), (b"date", date)]
        headers = [*kind, *self._version_headers()]
        await respond(send, 200, content if scope["method"] == "GET" else b"", headers)

    def _version_headers(self) -> Headers:
        content = self._pilot_content()
        found = [(b"x-covey-version", __version__.encode())]
        if content:
            found.append((b"x-covey-pilot", hashlib.sha256(content).hexdigest().encode()))
        return found

    def _pilot_content(self) -> bytes:
        """It is written once, before the server starts."""
        if not self._content and self._pilot_file is not None:
            with contextlib.suppress(OSError):
                self._content = self._pilot_file.read_bytes()
        return self._content

    async def _wait(
        self, request: RequestId, answering: Answering, receive: Receive, pilot: PilotId | None
    ) -> Outcome | None:
        """The answer, or nothing if the connection closes first."""
        hung_up = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((answering, hung_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            hung_up.cancel()
        if answering.done():
            return answering.result()
        self._gateway.hung_up(request, pilot)
        return None


def _may_speak_of(pilot: Pilot, piece: Piece) -> bool:
    """Of bags whose tasks it was given; the attempt itself may have just ended."""
    attempt = pilot.attempts.get(AttemptId(piece.epoch, piece.sequence))
    given = attempt is not None and attempt.bag == piece.bag
    return given or BagId(piece.bag) in pilot.bodies


def _headers(scope: Scope) -> Headers:
    """Of an answer; it brings a new credential if the one that was shown is getting old."""
    return _headers_with(scope.get(RENEWED, b""))


def _headers_with(new: bytes) -> Headers:
    found = [(b"content-type", b"application/json")]
    return [*found, (RENEWED, new)] if new else found


def _renewing(scope: Scope, send: Send) -> Send:
    """The same for answers that are made elsewhere."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        new = scope.get(RENEWED, b"")
        if new and message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (RENEWED, new)]}
        await send(message)

    return sending


def named(scope: Scope) -> int:
    """The pilot that the address names."""
    given = parse_qs(scope["query_string"].decode("latin-1")).get("pilot", [""])[-1]
    number = int(given) if given.isascii() and given.isdecimal() and len(given) < 20 else 0
    if not 0 < number <= LARGEST:
        raise HttpProblem(400, "invalid", "say which pilot calls: ?pilot=NUMBER")
    return number


def checked(message: type[Any], body: bytes) -> Any:
    try:
        return decode(message, body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise HttpProblem(400, "invalid", f"{message.__name__}: {error}") from error


def shown(headers: Headers) -> bytes:
    """The secret, or credential, that a request brings."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return bytes(value[7:])
    return b""


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > most:
            raise HttpProblem(413, "too-large", f"at most {most} bytes")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpProblem(400, "invalid", "the connection closed within the request")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise HttpProblem(413, "too-large", f"at most {most} bytes")
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def respond(send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    found = headers if headers is not None else [(b"content-type", b"application/json")]
    found.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": found})
    await send({"type": "http.response.body", "body": body})
