"""One connection to a server.

A server that is away for a moment (it restarts, its disk is full) is waited for, within
`patience_seconds`; the wait is told through `tell` once it is long enough to be noticed. Every
request may be repeated: a submission carries a key, the others change nothing the second time.
"""

import http.client
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from covey import __version__
from covey.core.errors import BadConfig, NotFound, Refused, ServerAway
from covey.wire import ProblemDocument

NOTICEABLE_SECONDS = 2.0
FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0


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
        target = path + ("?" + urlencode(query) if query else "")
        began = time.monotonic()
        delay = FIRST_DELAY_SECONDS
        told = False
        while True:
            reused = self._http is not None
            try:
                reply = self.exchange(method, target, body, wait_seconds)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if reused:
                    continue  # the server had closed an idle connection: a new one tells
                reason, pause = _reason(error), delay
            else:
                if reply.status < 400:
                    return reply.body
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
            "Accept": "application/json",
        }
        if body is not None:
            headers["Content-Type"] = "application/json"
        self._http.request(method, url.path.rstrip("/") + target, body, headers)
        response = self._http.getresponse()
        content = response.read()
        if response.will_close:
            self.close()
        return Reply(response.status, response.getheader("Retry-After") or "", content)


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
