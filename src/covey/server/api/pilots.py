"""Pilots' calls, as bare ASGI for speed.

A sync may stay parked for many seconds; if its connection closes before the answer, the engine is
told. Every message is checked before the engine sees it, and an invalid one changes nothing.

Each call needs a secret or credential (`SHOWN`) in its headers, which is checked before the body is
read. The answer to an enrolment has the server's version and the digest of its pilot file in
headers, because a pilot of an older version fails on unknown fields.
"""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, unquote

import msgspec

from covey import __version__
from covey.core.record.actions import Refuse
from covey.core.record.events import Event, PilotEnrolled, PilotLeft, SyncReceived
from covey.core.record.model import AttemptId, BagId, PilotId, PilotRecord, RequestId
from covey.pilot.protocol.messages import (
    JOB_HEADER,
    LARGEST,
    MOST_ENROL_BYTES,
    MOST_SYNC_BYTES,
    MOST_SYNC_COMMAS,
    TOO_LARGE,
    Answer,
    Enrol,
    Enrolled,
    Leave,
    Left,
    Printed,
    Sync,
)
from covey.questions.pilot_questions import MayReportOutput
from covey.server.decider import Decider
from covey.server.limits.shares import Who
from covey.server.limits.tails import Tails
from covey.server.web import connections
from covey.server.web.auth import CREDENTIAL_SECONDS, MOST_SEEN, PilotSecrets
from covey.server.web.gateway import Answering, Gateway, Outcome, Unavailable
from covey.server.web.problems import HttpProblem, cut_off, from_refusal, wrong_method
from covey.server.web.quick_syncs import JSON, Response, of_problem
from covey.wire import decode, encode

Scope = MutableMapping[Any, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MOST_PRINTED = 2 << 20
PREFIX = "/pilot/v1/"
RENEWED = b"x-covey-credential"

# What a call must show: the secret of a site job, a pilot's credential, or nothing.
SHOWN = {
    "enrol": "secret",
    "sync": "credential",
    "leave": "credential",
    "printed": "credential",
    "files": "credential",
    "pilot.pyz": "nothing",  # the same file for all, without secrets
}


class PilotCaller(NamedTuple):
    """A pilot that has shown its credential; `renewed`: its new credential, or empty if the old
    one is still good for long."""

    pilot: PilotRecord
    who: Who
    renewed: bytes


class PilotFileHandler(Protocol):
    """Uploads and downloads of a pilot that has shown its credential."""

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, pilot: PilotRecord
    ) -> None: ...


class PilotCalls:
    """`secret`: secrets of site jobs are made from it. `pilot_file`: pilots of another version
    replace themselves with it."""

    def __init__(
        self,
        gateway: Gateway,
        decider: Decider,
        secret: str,
        tails: Tails,
        files: PilotFileHandler,
        pilot_file: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._gateway = gateway
        self._decider = decider
        self._now = now
        self._secrets = PilotSecrets(secret, now)
        self._tails = tails
        self._files = files
        self._pilot_file = pilot_file
        self._content = b""
        self._calls = {"enrol": self._enrol, "sync": self._sync, "leave": self._leave}
        # By credential, with the time at which it expires.
        self._callers: dict[bytes, tuple[PilotCaller, float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        except HttpProblem as problem:
            if problem.status in (401, 410):
                connections.unknown(scope)
            await respond(send, problem.status, problem.body(), problem.headers())

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"][len(PREFIX) :]
        if name.startswith("files/"):
            pilot = self._caller(scope, named(scope)).pilot
            await self._files(scope, receive, _renewing(scope, send), pilot)
            return
        if name not in SHOWN or name == "files":
            words = f"there is nothing at {scope['path'][:200]}; pilots call {', '.join(SHOWN)}"
            raise HttpProblem(404, "not-found", words)
        if name == "pilot.pyz":
            await self._send_pilot_file(scope, send)
            return
        if scope["method"] != "POST":
            raise wrong_method(scope["method"], "POST with a JSON object")
        if name == "printed":
            await respond(send, 200, await self._printed(scope, receive), _headers(scope))
            return
        if name == "enrol":
            self._check_secret(scope)
        else:
            self._caller(scope)
        most = MOST_ENROL_BYTES if name == "enrol" else MOST_SYNC_BYTES
        body = await read_body(scope, receive, most)
        outcome = await self._calls[name](scope, body, receive)
        if isinstance(outcome, Refuse | Unavailable):
            raise from_refusal(outcome)
        if isinstance(outcome, Answer | Enrolled | Left):
            headers = _headers(scope)
            if isinstance(outcome, Enrolled):
                headers += self._version_headers()
            await respond(send, 200, encode(outcome), headers)

    def _check_secret(self, scope: Scope) -> None:
        """Raises HttpProblem unless the headers of an enrolment have a site job and its secret."""
        job, secret = _job_shown(scope["headers"])
        if not self._decider.ready:
            raise from_refusal(self._away())
        owner = self._secrets.owner(job, secret, self._decider)
        connections.known(scope, _who_enrols(owner, job))

    async def _enrol(self, scope: Scope, body: bytes, receive: Receive) -> Outcome | None:
        enrol = checked(Enrol, body)
        if not self._decider.ready:
            return self._away()
        job, secret = _job_shown(scope["headers"])
        if not enrol.job:  # the pilot has job and secret in one word
            enrol = enrol._replace(job=job)
        elif job != enrol.job:
            words = f"the header {JOB_HEADER} and the enrolment name different site jobs"
            raise HttpProblem(400, "invalid", words)
        owner = self._secrets.owner(job, secret, self._decider)
        enrolment = secrets.token_hex(32)
        event = lambda request: PilotEnrolled(request, enrol, "", enrolment, owner)  # noqa: E731
        outcome = await self._wait(*self._gateway.ask(event), receive, None)
        if isinstance(outcome, Enrolled):
            credential = self._secrets.credential(outcome.pilot, enrolment)
            return outcome._replace(credential=credential)
        return outcome

    async def _sync(self, scope: Scope, body: bytes, receive: Receive) -> Outcome | None:
        sync = checked(Sync, body)
        self._caller(scope, sync.pilot)
        request, answering = self._gateway.ask(lambda request: SyncReceived(request, sync))
        if answering.done():
            return answering.result()
        return await self._wait(request, answering, receive, PilotId(sync.pilot))

    async def _leave(self, scope: Scope, body: bytes, receive: Receive) -> Outcome | None:
        leave = checked(Leave, body)
        self._caller(scope, leave.pilot)
        event: Callable[[RequestId], Event] = lambda request: PilotLeft(request, leave)  # noqa: E731
        return await self._wait(*self._gateway.ask(event), receive, None)

    async def _printed(self, scope: Scope, receive: Receive) -> bytes:
        """Output of followed tasks; if nobody follows them any more, it is dropped."""
        self._caller(scope)
        printed = checked(Printed, await read_body(scope, receive, MOST_PRINTED))
        pilot = self._caller(scope, printed.pilot).pilot
        attempts = tuple(
            (AttemptId(piece.epoch, piece.sequence), BagId(piece.bag)) for piece in printed.pieces
        )
        allowed = self._decider.ask(MayReportOutput(pilot.id, attempts))
        self._tails.feed(compress(printed.pieces, allowed))
        return b"{}"

    def take_sync(
        self, caller: PilotCaller, body: bytes, respond: Callable[[Response], None]
    ) -> Callable[[], None]:
        """A sync without ASGI (`Syncs`): `respond` is called once, now or later. Returns what to
        call if the pilot closes the connection first. Raises HttpProblem."""
        sync = checked(Sync, body)
        _check_same(caller.pilot, sync.pilot)
        new = caller.renewed
        headers_ = tuple(_headers_with(new)) if new else JSON

        def tell(outcome: Outcome) -> None:
            if isinstance(outcome, Answer):
                respond(Response(200, encode(outcome), headers_))
            elif isinstance(outcome, Refuse | Unavailable):
                respond(of_problem(from_refusal(outcome)))

        event = lambda number: SyncReceived(number, sync)  # noqa: E731
        request = self._gateway.put(event, tell, len(body))
        return lambda: self._gateway.hung_up(request, PilotId(sync.pilot))

    def _caller(self, scope: Scope, pilot: int | None = None) -> PilotCaller:
        """The pilot that calls; `pilot`: the number in its message."""
        caller = self.let_in(scope["headers"])
        connections.known(scope, caller.who)
        scope[RENEWED] = caller.renewed
        if pilot is not None:
            _check_same(caller.pilot, pilot)
        return caller

    def let_in(self, headers: Headers) -> PilotCaller:
        """The pilot of the credential in these headers. Raises HttpProblem; a pilot that the server
        does not know gets 410, and enrols again."""
        credential = shown(headers)
        seen = self._callers.get(credential)
        if seen is not None:  # the usual case; the rest would be a tenth of a sync's cost
            caller, until = seen
            pilot = caller.pilot
            same = self._decider.enrolment(pilot.id) is pilot
            if same and until - self._now() >= CREDENTIAL_SECONDS / 2:
                return caller
        return self._look_up(credential)

    def _look_up(self, credential: bytes) -> PilotCaller:
        if not self._decider.ready:
            raise from_refusal(self._away())
        number = _number_in(credential)
        record = self._decider.enrolment(PilotId(number))
        if record is None and number:
            words = f"this server does not know pilot {number}: enrol again"
            raise HttpProblem(410, "unknown-pilot", words)
        left = self._secrets.left_seconds(record, credential) if record is not None else 0.0
        if record is None or left <= 0:
            words = "this credential is invalid or has expired: enrol again"
            raise HttpProblem(401, "unauthorized", words)
        who = Who(f"pilots of {record.owner}" if record.owner else f"pilot {record.id}")
        if left >= CREDENTIAL_SECONDS / 2:
            caller = PilotCaller(record, who, b"")
            if len(self._callers) >= MOST_SEEN:
                self._callers.clear()
            self._callers[credential] = caller, self._now() + left
            return caller
        renewed = self._secrets.credential(number, record.credential).encode()
        return PilotCaller(record, who, renewed)

    def _away(self) -> Unavailable:
        return self._gateway.away(self._decider.trouble)

    # -- the pilot file -------------------------------------------------------------------

    async def _send_pilot_file(self, scope: Scope, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise wrong_method(scope["method"], "GET")
        content = self._pilot_content()
        if not content:
            raise HttpProblem(404, "not-found", "this server has no pilot file")
        date = formatdate(self._now(), usegmt=True).encode()  # a host's own clock may be off
        kind = [(b"content-type", b"application/zip"), (b"date", date)]
        headers = [*kind, *self._version_headers()]
        await respond(send, 200, content if scope["method"] == "GET" else b"", headers)

    def _version_headers(self) -> Headers:
        content = self._pilot_content()
        headers = [(b"x-covey-version", __version__.encode())]
        if content:
            headers.append((b"x-covey-pilot", hashlib.sha256(content).hexdigest().encode()))
        return headers

    def _pilot_content(self) -> bytes:
        """The pilot file, read once: it is written before the server starts."""
        if not self._content and self._pilot_file is not None:
            with contextlib.suppress(OSError):
                self._content = self._pilot_file.read_bytes()
        return self._content

    async def _wait(
        self, request: RequestId, answering: Answering, receive: Receive, pilot: PilotId | None
    ) -> Outcome | None:
        """The answer; None if the connection closes first."""
        hung_up = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((answering, hung_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            hung_up.cancel()
        if answering.done():
            return answering.result()
        self._gateway.hung_up(request, pilot)
        return None


def _number_in(credential: bytes) -> int:
    """The pilot's number in a credential that is not checked yet; 0: it has none."""
    number, dot, _ = credential.partition(b".")
    return int(number) if dot and number.isdigit() and len(number) < 17 else 0


def _check_same(caller: PilotRecord, pilot: int) -> None:
    """Raises HttpProblem if a message is not from the pilot whose credential came with it."""
    if caller.id != pilot:
        words = f"the message is from pilot {pilot}, but the credential is pilot {caller.id}'s"
        raise HttpProblem(401, "unauthorized", words)


def _who_enrols(owner: str, job: str) -> Who:
    """The account of an enrolling pilot: that of its owner's pilots, or its own if it works for
    everybody."""
    return Who(f"pilots of {owner}" if owner else f"pilot of {job}")


def _job_shown(headers: Headers) -> tuple[str, bytes]:
    """The site job of an enrolment and its secret. The secret may contain both, with a colon."""
    secret = shown(headers)
    for name, value in headers:
        if name == JOB_HEADER.lower().encode():
            return unquote(value.decode("latin-1")), secret
    job, _, secret = secret.rpartition(b":")
    return job.decode("latin-1"), secret


def _headers(scope: Scope) -> Headers:
    """The headers of an answer; with a new credential if the old one expires soon."""
    return _headers_with(scope.get(RENEWED, b""))


def _headers_with(new: bytes) -> Headers:
    headers = [(b"content-type", b"application/json")]
    return [*headers, (RENEWED, new)] if new else headers


def _renewing(scope: Scope, send: Send) -> Send:
    """Wraps `send`: adds the pilot's new credential to the answer, whichever handler gives it."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        new = scope.get(RENEWED, b"")
        if new and message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (RENEWED, new)]}
        await send(message)

    return sending


def named(scope: Scope) -> int:
    """The pilot's number in the address."""
    text = parse_qs(scope["query_string"].decode("latin-1")).get("pilot", [""])[-1]
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
    if not 0 < number <= LARGEST:
        words = f"give the pilot's number: ?pilot=NUMBER, from 1 to {LARGEST}"
        raise HttpProblem(400, "invalid", words)
    return number


def checked(message: type[Any], body: bytes) -> Any:
    # No other request is served while values are read, so there must not be too many.
    if len(body) > MOST_SYNC_COMMAS and body.count(b",") > MOST_SYNC_COMMAS:
        words = f"{message.__name__}: the message has more than {MOST_SYNC_COMMAS:,} values"
        raise HttpProblem(413, TOO_LARGE, words)
    try:
        return decode(message, body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise HttpProblem(400, "invalid", f"{message.__name__}: {error}") from error


def shown(headers: Headers) -> bytes:
    """The secret or credential in a request's headers; empty: there is none."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return bytes(value[7:])
    return b""


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > most:
            raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise cut_off()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise _too_large(most)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(most: int) -> HttpProblem:
    return HttpProblem(413, TOO_LARGE, f"the body of the request has more than {most:,} bytes")


async def respond(send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    sent = headers if headers is not None else [(b"content-type", b"application/json")]
    sent.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})
