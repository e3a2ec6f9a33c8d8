"""One connection to a server.

If the server is away for a moment (it restarts, or its disk is full), the client repeats the
request for up to `patience_seconds`. After NOTICEABLE_SECONDS it says so through `tell`. Every
request may be repeated: a submission has a key, and the others change nothing the second time. A
long answer that breaks off is not repeated here: the caller begins again. An answer of a proxy or a
portal does not count.

A new server (`known=False`) that has not answered yet gets only FIRST_SECONDS, because the address
is probably wrong, or the server does not run. If something else than covey answers there, the
request fails at once. If the connection is accepted and no answer comes, the server may be very
busy, and gets the usual time.
"""

import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from covey import __version__
from covey.core.errors import BadConfig, NotFound, Refused, ServerAway
from covey.pilot.protocol.connection import ServerConnection, kind_of, port_of, read_body, split
from covey.wire import ProblemDocument

NOTICEABLE_SECONDS = 2.0
FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0
PART_BYTES = 256 << 10
MOST_BYTES = 256 << 20
OTHER_NAME = (62, 64)  # OpenSSL's codes: the host name, or the address, does not match
OTHER_TIME = (9, 10)  # OpenSSL's codes: not yet valid, expired
NOT_OURS = "the answer is not from a covey server"
PROBE_SECONDS = 2.0
FIRST_SECONDS = 2.0  # for the first answer of a new server
GATEWAY = (502, 503, 504)  # what proxies answer while the server behind them restarts
_NO_ANSWER = (ConnectionResetError, http.client.BadStatusLine)
STREAM_SECONDS = 60.0  # for a part of a long answer, for example while the server sorts

T = TypeVar("T")


class NotCovey(http.client.HTTPException):
    """The answer is not from a covey server."""


class Endpoint(NamedTuple):
    """The address of a server, and what is needed to use it."""

    address: str
    token: str
    ca: str = ""  # the authority to trust, as PEM; empty: those that the system trusts


class Reply(NamedTuple):
    status: int
    retry_after: str
    body: bytes


# Returns where the server is now. Raises ServerAway if waiting is useless.
Find = Callable[[], Endpoint | None]
Tell = Callable[[str], None]


def quiet(text: str) -> None:
    """A `Tell` that prints nothing."""


class Connection:
    """Requests over one kept-alive connection. Must not be used by several threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        patience_seconds: float = 30.0,
        timeout_seconds: float = 10.0,
        find: Find | None = None,
        tell: Tell = quiet,
        known: bool = True,
    ) -> None:
        self.endpoint = endpoint
        self.patience_seconds = patience_seconds
        self.timeout_seconds = timeout_seconds
        self.find = find
        self.tell = tell
        self._http: ServerConnection | None = None
        self._has_answered = known
        self._is_there = known  # the server has accepted a connection, at least
        self._was_asked = False  # whether the current request may have reached the server

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
        """The body of a good answer. Raises NotFound, Refused, or ServerAway when the time is
        up."""
        return self.ask(bytes, method, path, query, body, wait_seconds)

    def ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: bytes | None = None,
        wait_seconds: float = 0.0,
    ) -> T:
        """The decoded body of a good answer; undecoded for `bytes`. A body that cannot be decoded
        is not an answer of the server. Raises as `request` does."""
        target = _target(path, query)
        decoded: list[T] = []

        def once() -> Reply:
            reply = self.exchange(method, target, body, wait_seconds)
            if reply.status < 400:
                decoded.append(_decoded(reply.body, kind))
            return reply

        self._patiently(once)
        return decoded[-1]

    def stream(
        self, path: str, query: dict[str, Any] | None = None, start: int = 0
    ) -> Iterator[bytes]:
        """The body of a good answer from byte `start` on, in parts, over a separate connection.
        Raises as `request` does; ServerAway while reading, if the answer breaks off."""
        own = Connection(
            self.endpoint,
            patience_seconds=self.patience_seconds,
            timeout_seconds=self.timeout_seconds,
            find=self.find,
            tell=self.tell,
            known=self._has_answered,
        )
        target = _target(path, query)
        headers = {"Range": f"bytes={start}-"} if start else {}
        answers: list[http.client.HTTPResponse] = []

        def ask() -> Reply:
            response = own._send("GET", target, None, STREAM_SECONDS, headers)
            if response.status >= 400:
                return own._read(response)
            if kind_of(response)[1] or response.status >= 300:
                raise NotCovey(f"{NOT_OURS} (status {response.status})")
            answers.append(response)
            return Reply(response.status, "", b"")

        if own._patiently(ask).status != 206 and start:
            own.close()
            raise ServerAway(
                f"the server at {own.endpoint.address} cannot continue an interrupted download"
            )
        return own._parts(answers[-1])

    def _parts(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        try:
            while part := response.read(PART_BYTES):
                yield part
            if response.length:  # http.client mistakes a lost connection for the end
                raise http.client.IncompleteRead(b"", response.length)
        except (OSError, http.client.HTTPException) as error:
            broke = f"the answer of the server at {self.endpoint.address} broke off"
            raise ServerAway(f"{broke}: {_reason(error)}") from error
        finally:
            self.close()

    def _patiently(self, ask: Callable[[], Reply]) -> Reply:
        """Repeat the request until there is a good answer."""
        began = time.monotonic()
        delay = FIRST_DELAY_SECONDS
        has_told = self._was_asked = False
        while True:
            reused = self._http is not None
            try:
                reply = ask()
            except (OSError, http.client.HTTPException) as error:
                self._is_there |= self._http is not None and self._http.reached
                self.close()
                if reused:
                    continue  # the server may have closed an idle connection: try a new one
                self._give_up_at_once(error)
                reason, pause = _reason(error), delay
            else:
                self._is_there = True
                if reply.status < 400:
                    self._has_answered = True
                    return reply
                reason, pause = self._problem(reply), _retry_after(reply, delay)
            waited = time.monotonic() - began
            if waited + pause > self._patience():
                raise self._away(reason)
            if waited > NOTICEABLE_SECONDS and not has_told:
                self.tell(f"waiting for the server: {reason}")
                has_told = True
            time.sleep(pause)
            delay = min(2 * delay, LONGEST_DELAY_SECONDS)
            self._look_again()

    def _patience(self) -> float:
        least = self.patience_seconds if self._is_there else FIRST_SECONDS
        return min(self.patience_seconds, least)

    def _away(self, reason: str) -> ServerAway:
        words = f"cannot reach the server at {self.endpoint.address}: {reason}"
        if not self._has_answered:
            words += ". Check the address (--server, COVEY_SERVER), and that the server runs there"
        return ServerAway(words, self._was_asked)

    def _give_up_at_once(self, error: Exception) -> None:
        """Raises ServerAway if repeating the request is useless."""
        if self.find is not None:
            return
        if isinstance(error, ssl.SSLCertVerificationError):
            raise ServerAway(_distrust(self.endpoint, error)) from error
        if _speaks_tls(self.endpoint, error):
            address = self.endpoint.address
            raise ServerAway(f"the server at {address} speaks TLS: use https://") from error
        if isinstance(error, ConnectionError) or self._has_answered:
            return
        if isinstance(error, NotCovey | http.client.BadStatusLine):
            raise self._not_covey() from error

    def _problem(self, reply: Reply) -> str:
        """Why the server cannot answer now. Raises if repeating the request is useless."""
        document = _document(reply)
        if document is not None:
            self._has_answered = True
            return _problem(reply.status, document)
        if not self._has_answered and reply.status not in GATEWAY:
            raise self._not_covey(reply.status)
        return _unexplained(reply)

    def _not_covey(self, status: int = 0) -> ServerAway:
        answer = f" (it answered with status {status})" if status else ""
        return ServerAway(
            f"there is no covey server at {self.endpoint.address}: something else answers "
            f"there{answer}. Check the address (--server, COVEY_SERVER)"
        )

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
        """Send the request once. Raises OSError or HTTPException if no answer comes."""
        return self._read(self._send(method, target, body, wait_seconds, {}))

    def _send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        wait_seconds: float,
        more: dict[str, str],
    ) -> http.client.HTTPResponse:
        timeout = self.timeout_seconds + wait_seconds
        if self._http is None:
            first = timeout if self._has_answered else min(timeout, self._patience())
            self._http = _server_connection(self.endpoint, first)
            try:
                self._http.connect()
                self._http.wait_for(timeout)
            except ssl.SSLError:  # some of these are ValueErrors, too
                raise
            except ValueError as error:  # for example in HTTPS_PROXY
                raise BadConfig(str(error)) from error
        elif self._http.sock is not None:
            self._http.sock.settimeout(timeout)
        headers = {
            "Authorization": f"Bearer {self.endpoint.token}",
            "User-Agent": f"covey/{__version__}",
            "Accept": "*/*",
            **more,
        }
        if body is not None:
            content_type = "application/octet-stream" if method == "PUT" else "application/json"
            headers["Content-Type"] = content_type
        self._was_asked = True
        self._http.request(method, target, body, headers)
        return self._http.getresponse()

    def _read(self, response: http.client.HTTPResponse) -> Reply:
        """Read the whole answer. Raises HTTPException if it is not from a covey server."""
        try:
            content = read_body(response, MOST_BYTES)
        except ValueError as error:
            raise http.client.HTTPException(str(error)) from error
        if response.will_close:
            self.close()
        if 300 <= response.status < 400 or (response.status < 300 and not kind_of(response)[0]):
            raise NotCovey(f"{NOT_OURS} (status {response.status})")
        return Reply(response.status, response.getheader("Retry-After") or "", content)


def _decoded(body: bytes, kind: type[T]) -> T:
    if issubclass(kind, bytes):
        return kind(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotCovey(f"{NOT_OURS} ({error})") from error


def _target(path: str, query: dict[str, Any] | None) -> str:
    """Path and query. A list becomes a parameter that is repeated."""
    return path + ("?" + urlencode(query, doseq=True) if query else "")


def _server_connection(endpoint: Endpoint, timeout: float) -> ServerConnection:
    try:
        return ServerConnection(endpoint.address, endpoint.ca, timeout)
    except ValueError as error:
        raise BadConfig(f"server address {endpoint.address!r}: {error}") from error


def _distrust(endpoint: Endpoint, error: ssl.SSLCertVerificationError) -> str:
    reason = error.verify_message.rstrip(".")
    if error.verify_code in OTHER_NAME:
        return (
            f"the certificate of the server at {endpoint.address} is for other names: {reason}. "
            "Use one of those, or have this one added with serve.names."
        )
    if error.verify_code in OTHER_TIME:
        return (
            f"the certificate of the server at {endpoint.address} is not valid now: {reason}. Is "
            "the clock of this machine right?"
        )
    trusted = "the given authority" if endpoint.ca else "any authority that this system trusts"
    return (
        f"the certificate of the server at {endpoint.address} is not confirmed by {trusted}: "
        f"{reason}. Name the right authority with --ca or COVEY_CA (the server keeps its own in "
        "tls/ca.pem)."
    )


def _speaks_tls(endpoint: Endpoint, error: Exception) -> bool:
    """Whether a plain connection failed because the server speaks TLS. The certificate is not
    checked: nothing secret is sent."""
    if not endpoint.address.startswith("http://") or not isinstance(error, _NO_ANSWER):
        return False
    url = split(endpoint.address)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        where = (url.hostname or "", port_of(url))
        with socket.create_connection(where, PROBE_SECONDS) as plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def _document(reply: Reply) -> ProblemDocument | None:
    """A covey server's description of a problem; None if something else answered."""
    try:
        return msgspec.json.decode(reply.body, type=ProblemDocument)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _problem(status: int, document: ProblemDocument) -> str:
    """Why the server cannot answer now. Raises if repeating the request is useless."""
    if status == 503:
        return document.detail or document.title
    if status == 404:
        raise NotFound(document.detail or document.title)
    if status == 401:
        raise Refused(401, document.title, "the server does not accept this token")
    raise Refused(status, document.title, document.detail)


def _unexplained(reply: Reply) -> str:
    """The answer of a proxy, a portal, or a server that is just ending. A page of HTML is not
    shown."""
    title = http.client.responses.get(reply.status, "unknown answer")
    text = reply.body[:200].decode("utf-8", "replace").strip()
    shown = "" if not text or text.startswith("<") else f": {text}"
    words = f"{reply.status} {title}{shown}"
    if reply.status == 413:
        raise Refused(413, title, f"{words}. A proxy in front of the server has a lower limit")
    return words


def _retry_after(reply: Reply, delay: float) -> float:
    try:
        seconds = float(reply.retry_after)
    except ValueError:
        return delay
    return min(max(seconds, delay), 30.0)
