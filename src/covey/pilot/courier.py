"""Files to and from the server, for one thread: a connection that is kept, opened anew when broken.

Nothing is decided here: every failure is an OSError (try again) or a status for the caller.
"""

import http.client
import json
import socket
import threading
import time
from typing import Any, Dict, Optional, Tuple

from covey.pilot.lines import Address, connect

TIMEOUT_SECONDS = 60.0


class Identity:
    """Who we are to the server. The main thread changes it, others read it."""

    def __init__(self) -> None:
        self.pilot = 0
        self.credential = ""


class Meter:
    """How fast files travel, in bytes a second; recent ones count most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rate = 0.0

    def add(self, size: int, seconds: float) -> None:
        if size < 1 << 16 or seconds <= 0:
            return  # too small to say anything
        with self._lock:
            rate = size / seconds
            self.rate = rate if not self.rate else 0.7 * self.rate + 0.3 * rate


class Courier:
    def __init__(self, address: Address, identity: Identity, meter: Meter) -> None:
        self.meter = meter
        self._address = address
        self._identity = identity
        self._connection: Optional[http.client.HTTPConnection] = None

    def get(self, digest: str, offset: int) -> http.client.HTTPResponse:
        """The answer, still to be read to its end (or `close`d)."""
        headers = {"Range": "bytes=%d-" % offset} if offset else {}
        return self._ask("GET", self._path(digest), None, headers)

    def put(self, digest: str, offset: int, size: int, data: bytes) -> Tuple[int, Dict[str, Any]]:
        """One piece of a file of `size` bytes: the status, and what the server says."""
        began = time.monotonic()
        path = "%s&offset=%d&size=%d" % (self._path(digest), offset, size)
        headers = {"Content-Type": "application/octet-stream"}
        response = self._ask("PUT", path, data, headers)
        try:
            content = json.loads(response.read().decode("utf-8"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise OSError("no answer: %s" % (error or type(error).__name__)) from error
        self.meter.add(len(data), time.monotonic() - began)
        return response.status, content if isinstance(content, dict) else {}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _path(self, digest: str) -> str:
        return "/pilot/v1/files/%s?pilot=%d" % (digest, self._identity.pilot)

    def _ask(
        self, method: str, path: str, body: Optional[bytes], headers: Dict[str, str]
    ) -> http.client.HTTPResponse:
        headers = dict(headers, Authorization="Bearer " + self._identity.credential)
        fresh = self._connection is None
        try:
            if self._connection is None:
                self._connection = connect(self._address.url(), TIMEOUT_SECONDS)
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            self._address.reload()
            if not fresh and not isinstance(error, socket.timeout):
                return self._ask(method, path, body, headers)  # it was closed while idle
            raise OSError(str(error) or type(error).__name__) from error


def words_of(response: http.client.HTTPResponse) -> str:
    """What the server says about a refusal."""
    try:
        content = json.loads(response.read().decode("utf-8"))
        return str(content.get("detail", "")) or "status %d" % response.status
    except (OSError, http.client.HTTPException, ValueError, AttributeError):
        return "status %d" % response.status
