"""Files to and from the server, for one thread: over one connection, opened again if it breaks.

Nothing is decided here: every failure is an OSError (try again) or a status for the caller.
"""

import http.client
import json
import socket
import threading
import time
from typing import Any, Dict, Optional, Tuple

from covey.pilot.protocol.connection import ServerConnection, kind_of, read_body
from covey.pilot.protocol.request_threads import Address, Identity, connect, usable

NOT_OURS = "not an answer of a covey server (status %d)"
TIMEOUT_SECONDS = 60.0
MOST_WORDS = 1 << 20  # bytes of the server's answer about a file


class Meter:
    """How fast files travel, in bytes a second; recent transfers count most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rate = 0.0

    def add(self, size: int, seconds: float) -> None:
        if size < 1 << 16 or seconds <= 0:
            return  # too small to measure
        with self._lock:
            rate = size / seconds
            self.rate = rate if not self.rate else 0.7 * self.rate + 0.3 * rate


class Transfers:
    def __init__(self, address: Address, identity: Identity, meter: Meter) -> None:
        self.meter = meter
        self._address = address
        self._identity = identity
        self._connection: Optional[ServerConnection] = None

    def get(self, digest: str, offset: int) -> http.client.HTTPResponse:
        """The response, which must be read to its end or closed."""
        headers = {"Range": "bytes=%d-" % offset} if offset else {}
        return self.ask("GET", self._path(digest), None, headers)

    def put(
        self, attempt: str, digest: str, offset: int, size: int, data: bytes
    ) -> Tuple[int, Dict[str, Any]]:
        """Send one piece of a file of `size` bytes that an attempt returns. Returns the status and
        the JSON object of the server's answer."""
        began = time.monotonic()
        where = (self._path(digest), attempt, offset, size)
        path = "%s&attempt=%s&offset=%d&size=%d" % where
        headers = {"Content-Type": "application/octet-stream"}
        response = self.ask("PUT", path, data, headers)
        try:
            content = json.loads(read_body(response, MOST_WORDS).decode("utf-8"))
            if not isinstance(content, dict) or not is_ours(response.status, content):
                raise ValueError(NOT_OURS % response.status)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise OSError("no answer: %s" % (error or type(error).__name__)) from error
        self.meter.add(len(data), time.monotonic() - began)
        return response.status, content

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _path(self, digest: str) -> str:
        return "/pilot/v1/files/%s?pilot=%d" % (digest, self._identity.pilot)

    def ask(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> http.client.HTTPResponse:
        """Raises OSError if the server does not answer."""
        headers = dict(headers or {}, Authorization="Bearer " + self._identity.credential)
        self._connection = usable(self._connection, self._address)
        fresh = self._connection is None
        try:
            if self._connection is None:
                self._connection = connect(self._address, TIMEOUT_SECONDS)
            self._connection.request(method, path, body, headers)
            return self._answer(self._connection.getresponse())
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self._connection is not None and isinstance(error, socket.timeout):
                self._address.doubt(self._connection)
            self.close()
            self._address.reload()
            if not fresh and not isinstance(error, socket.timeout):
                return self.ask(method, path, body, headers)  # it was closed while idle
            raise OSError(str(error) or type(error).__name__) from error

    def _answer(self, response: http.client.HTTPResponse) -> http.client.HTTPResponse:
        """Raises ValueError if the answer is from a proxy or a portal and not from the server."""
        is_json, is_page = kind_of(response)
        if is_page and response.status >= 500:  # from a proxy, while the server restarts behind it
            raise ValueError("cannot reach the server (status %d)" % response.status)
        if is_page or (400 <= response.status < 500 and not is_json):
            raise ValueError(NOT_OURS % response.status)
        self._identity.note(response)
        return response


def words_of(response: http.client.HTTPResponse) -> str:
    """The server's message about a refusal; "" if the refusal is not from the server."""
    try:
        content = json.loads(read_body(response, MOST_WORDS).decode("utf-8"))
    except (OSError, http.client.HTTPException, ValueError):
        return ""
    ours = isinstance(content, dict) and is_ours(response.status, content)
    return str(content.get("detail", "")) if ours else ""


def is_ours(status: int, content: Dict[str, Any]) -> bool:
    """Whether this answer is from a covey server: its refusals have a type and a detail. A proxy's
    refusal says nothing about the file."""
    return not 400 <= status < 500 or ("type" in content and "detail" in content)
