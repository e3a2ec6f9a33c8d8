"""The pilots' calls, as bare ASGI: this is the hot path.

A sync may stay parked for many seconds; if its connection closes meanwhile, the engine hears of
it. Everything is checked before the engine sees it, and a message that is off changes nothing.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol
from urllib.parse import parse_qs

import msgspec

from covey.core.actions import Refuse
from covey.core.events import Event, PilotEnrolled, PilotLeft, SyncReceived
from covey.core.model import AttemptId, BagId, PilotId, RequestId
from covey.core.state import Pilot
from covey.pilot.messages import Answer, Enrol, Enrolled, Leave, Left, Piece, Printed, Sync
from covey.server.gateway import Answering, Gateway, Outcome, Unavailable
from covey.server.problems import HttpProblem, from_refusal
from covey.server.tails import Tails
from covey.wire import decode, encode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MOST_BYTES = 16 << 20
MOST_PRINTED = 2 << 20
PREFIX = "/pilot/v1/"


class PilotFiles(Protocol):
    """Uploads and downloads of a pilot that has shown its credential."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, pilot: Pilot) -> None: ...


class PilotCalls:
    def __init__(self, gateway: Gateway, secret: str, tails: Tails, files: PilotFiles) -> None:
        self._gateway = gateway
        self._secret = secret.encode()
        self._tails = tails
        self._files = files
        self._calls = {"enrol": self._enrol, "sync": self._sync, "leave": self._leave}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            name = scope["path"][len(PREFIX) :]
            if name.startswith("files/"):
                await self._files(scope, receive, send, self._pilot(scope, named(scope)))
                return
            if name not in self._calls and name != "printed":
                words = "pilots call enrol, sync, printed, leave or files"
                raise HttpProblem(404, "not-found", words)
            if scope["method"] != "POST":
                raise HttpProblem(405, "invalid", "POST a JSON object")
            if name == "printed":
                await respond(send, 200, await self._printed(scope, receive))
                return
            body = await read_body(scope, receive, MOST_BYTES)
            outcome = await self._calls[name](scope, body, receive)
            if isinstance(outcome, Refuse | Unavailable):
                raise from_refusal(outcome)
            if isinstance(outcome, Answer | Enrolled | Left):
                await respond(send, 200, encode(outcome))
        except HttpProblem as problem:
            await respond(send, problem.status, problem.body(), problem.headers())

    async def _enrol(self, scope: Scope, body: bytes, receive: Receive) -> Outcome | None:
        if not hmac.compare_digest(bearer(scope), self._secret):
            raise HttpProblem(401, "unauthorized", "the secret is not this server's")
        enrol = checked(Enrol, body)
        credential = secrets.token_urlsafe(24)
        event = lambda request: PilotEnrolled(request, enrol, credential, digest(credential))  # noqa: E731
        return await self._wait(*self._gateway.ask(event), receive, None)

    async def _sync(self, scope: Scope, body: bytes, receive: Receive) -> Outcome | None:
        sync = checked(Sync, body)
        self._check_credential(scope, sync.pilot)
        request, answering = self._gateway.ask(lambda request: SyncReceived(request, sync))
        if answering.done():
            return answering.result()
        return await self._wait(request, answering, receive, PilotId(sync.pilot))

    async def _leave(self, scope: Scope, body: bytes, receive: Receive) -> Outcome | None:
        leave = checked(Leave, body)
        self._check_credential(scope, leave.pilot)
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
        found = self._check_credential(scope, pilot)
        if found is None:
            engine = self._gateway.engine
            raise from_refusal(Unavailable(engine.trouble if engine else "the server is starting"))
        return found

    def _check_credential(self, scope: Scope, pilot: int) -> Pilot | None:
        """A pilot that is not known is told so (it will enrol again); a known one must show
        what it was given."""
        engine = self._gateway.engine
        if engine is None or engine.scheduler is None:
            return None  # it will be turned away, and told to come back
        found = engine.scheduler.state.pilots.get(PilotId(pilot))
        if found is None:
            raise HttpProblem(410, "unknown-pilot", f"no pilot {pilot} here: enrol again")
        if not hmac.compare_digest(
            digest(bearer(scope).decode("latin-1")), found.record.credential
        ):
            raise HttpProblem(401, "unauthorized", "that is not this pilot's credential")
        return found

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
    attempt = AttemptId(piece.epoch, piece.sequence)
    return BagId(piece.bag) in pilot.bodies or attempt in pilot.attempts


def named(scope: Scope) -> int:
    """The pilot that the address names."""
    given = parse_qs(scope["query_string"].decode("latin-1")).get("pilot", [""])[-1]
    if not (given.isdecimal() and len(given) < 20):
        raise HttpProblem(400, "invalid", "say which pilot calls: ?pilot=NUMBER")
    return int(given)


def checked(message: type[Any], body: bytes) -> Any:
    try:
        return decode(message, body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise HttpProblem(400, "invalid", f"{message.__name__}: {error}") from error


def bearer(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return bytes(value[7:])
    return b""


def digest(credential: str) -> str:
    """Credentials are long and random, so a plain hash is as good as a slow one."""
    return hashlib.sha256(credential.encode()).hexdigest()


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


async def respond(
    send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    found = headers if headers is not None else [(b"content-type", b"application/json")]
    found.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": found})
    await send({"type": "http.response.body", "body": body})
