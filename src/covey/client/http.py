"""One connection to a server.

A server that is away for a moment (it restarts, its disk is full) is waited for, within
`patience_seconds`; the wait is told through `tell` once it is long enough to be noticed. Every
request may be repeated: a submission carries a key, the others change nothing the second time.
Once the first byte of a long answer is here, its end is not waited for: who reads it begins again.
"""

import http.client
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from covey import __version__
from covey.core.errors import BadConfig, NotFound, Refused, ServerAway
from covey.wire import ProblemDocument

NOTICEABLE_SECONDS = 2.0
FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0
PART_BYTES = 256 << 10
STREAM_SECONDS = 60.0  # for a part of a long answer, while the server sorts, say


class Endpoint(NamedTuple):
    """Where a server is, and what it wants to be shown."""

    address: str
    token: str


class Reply(NamedTuple):
    status: int
    retry_after: str
    body: bytes


# Says where the server is now; raises ServerAway when there is no use in waiting.
Find = Callable[[], Endpoint | None]
Tell = Callable[[str], None]


def quiet(text: str) -> None:
    """Tell nobody."""


class Connection:
    """Requests over one kept-alive connection; not for several threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        patience_seconds: float = 30.0,
        timeout_seconds: float = 10.0,
        find: Find | None = None,
        tell: Tell = quiet,
    ) -> None:
        self.endpoint = endpoint
        self.patience_seconds = patience_seconds
        self.timeout_seconds = timeout_seconds
        self.find = find
        self.tell = tell
        self._http: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: bytes | None = None,
        wait_seconds: float = 0.0,
    ) -> bytes:
        """The body of a good answer. Raises NotFound, Refused, or ServerAway after patience."""
        target = _target(path, query)
        return self._patiently(lambda: self.exchange(method, target, body, wait_seconds)).body

    def stream(
        self, path: str, query: dict[str, Any] | None = None, start: int = 0
    ) -> Iterator[bytes]:
        """The body of a good answer from byte `start` on, in parts, over a connection of its
        own. Raises as `request` at once; ServerAway later, if the answer breaks off."""
        own = Connection(
            self.endpoint,
            patience_seconds=self.patience_seconds,
            timeout_seconds=self.timeout_seconds,
            find=self.find,
            tell=self.tell,
        )
        target = _target(path, query)
        headers = {"Range": f"bytes={start}-"} if start else {}
        answers: list[http.client.HTTPResponse] = []

        def ask() -> Reply:
            response = own._send("GET", target, None, STREAM_SECONDS, headers)
            if response.status >= 400:
                return own._read(response)
            answers.append(response)
            return Reply(response.status, "", b"")

        if own._patiently(ask).status != 206 and start:
            own.close()
            raise ServerAway(f"the server at {own.endpoint.address} cannot go on in the middle")
        return own._parts(answers[-1])

    def _parts(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        try:
            while part := response.read(PART_BYTES):
                yield part
            if response.length:  # http.client takes a lost connection for the end
                raise http.client.IncompleteRead(b"", response.length)
        except (OSError, http.client.HTTPException) as error:
            away = f"the server at {self.endpoint.address} broke off its answer: {_reason(error)}"
            raise ServerAway(away) from error
        finally:
            self.close()

    def _patiently(self, ask: Callable[[], Reply]) -> Reply:
        """Ask until there is a good answer."""
        began = time.monotonic()
        delay = FIRST_DELAY_SECONDS
        told = False
        while True:
            reused = self._http is not None
            try:
                reply = ask()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if reused:
                    continue  # the server had closed an idle connection: a new one tells
                reason, pause = _reason(error), delay
            else:
                if reply.status < 400:
                    return reply
                reason, pause = _problem(reply), _retry_after(reply, delay)
            waited = time.monotonic() - began
            if waited + pause > self.patience_seconds:
                raise ServerAway(f"the server at {self.endpoint.address} is away: {reason}")
            if waited > NOTICEABLE_SECONDS and not told:
                self.tell(f"waiting for the server: {reason}")
                told = True
            time.sleep(pause)
            delay = min(2 * delay, LONGEST_DELAY_SECONDS)
            self._look_again()

    def _look_again(self) -> None:
        endpoint = self.find() if self.find is not None else None
        if endpoint is not None and endpoint != self.endpoint:
            self.close()
            self.endpoint = endpoint

    def exchange(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        wait_seconds: float = 0.0,
    ) -> Reply:
        """Ask once. Raises OSError or HTTPException if no answer comes."""
        return self._read(self._send(method, target, body, wait_seconds, {}))

    def _send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        wait_seconds: float,
        more: dict[str, str],
    ) -> http.client.HTTPResponse:
        url = split_address(self.endpoint.address)
        timeout = self.timeout_seconds + wait_seconds
        if self._http is None:
            kind = (
                http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
            )
            self._http = kind(url.hostname or "", url.port, timeout=timeout)
            self._http.connect()
        self._http.sock.settimeout(timeout)
        headers = {
            "Authorization": f"Bearer {self.endpoint.token}",
            "User-Agent": f"covey/{__version__}",
            "Accept": "*/*",
            **more,
        }
        if body is not None:
            kind_of_body = "application/octet-stream" if method == "PUT" else "application/json"
            headers["Content-Type"] = kind_of_body
        self._http.request(method, url.path.rstrip("/") + target, body, headers)
        return self._http.getresponse()

    def _read(self, response: http.client.HTTPResponse) -> Reply:
        content = response.read()
        if response.will_close:
            self.close()
        return Reply(response.status, response.getheader("Retry-After") or "", content)


def _target(path: str, query: dict[str, Any] | None) -> str:
    """A list is a name given several times."""
    return path + ("?" + urlencode(query, doseq=True) if query else "")


def split_address(address: str) -> Any:
    try:
        url = urlsplit(address)
        usable = url.scheme in ("http", "https") and url.hostname and (url.port or 1)
    except ValueError:
        usable = False
    if not usable:
        raise BadConfig(
            f"server address {address!r}: write it like http://localhost:8080 or https://host"
        )
    return url


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def _problem(reply: Reply) -> str:
    """Why the server cannot answer now. Raises if asking again would change nothing."""
    try:
        told = msgspec.json.decode(reply.body, type=ProblemDocument)
    except msgspec.DecodeError:
        told = _unexplained(reply)
        if reply.status >= 500:  # a proxy, or a server that ends while it is asked
            return told.detail
    if reply.status == 503:
        return told.detail or told.title
    if reply.status == 404:
        raise NotFound(told.detail or told.title)
    if reply.status == 401:
        raise Refused(401, told.title, "the server does not accept this token")
    raise Refused(reply.status, told.title, told.detail)


def _unexplained(reply: Reply) -> ProblemDocument:
    title = http.client.responses.get(reply.status, "unknown answer")
    text = reply.body[:200].decode("utf-8", "replace").strip()
    return ProblemDocument(
        type="about:blank",
        title=title,
        status=reply.status,
        detail=f"{reply.status} {title}{': ' if text else ''}{text}",
    )


def _retry_after(reply: Reply, delay: float) -> float:
    try:
        asked = float(reply.retry_after)
    except ValueError:
        return delay
    return min(max(asked, delay), 30.0)
