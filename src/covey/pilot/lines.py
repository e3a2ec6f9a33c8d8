"""HTTP to the server: a few threads, each with a connection of its own that it keeps.

One line is parked at the server most of the time, another carries ends; more are started only
when those hang (a half-open connection is noticed by its time-out alone). Requests go in through
`post`; replies are picked up from `replies` after a byte has arrived on the wake-up pipe. Only
the main thread decides; these threads carry.
"""

import http.client
import json
import os
import queue
import socket
import threading
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

MOST_LINES = 4


class Reply(NamedTuple):
    """`status` 0: nothing came back, and `error` says why."""

    ticket: Any
    status: int
    content: Any
    error: str
    retry_after: float


class Address:
    """Where the server is. Given by a file, it is read again whenever the server is away: a
    restarted server may have another port."""

    def __init__(self, url: str = "", path: str = "") -> None:
        self._path = path
        self._url = url
        self.reload()

    def reload(self) -> None:
        if self._path:
            try:
                with open(self._path) as file:
                    self._url = json.load(file)["address"]
            except (OSError, ValueError, KeyError):
                pass  # it is being written, or the server is not up yet: keep what we know

    def url(self) -> str:
        return self._url

    def gone(self) -> bool:
        """The file that named the server has been removed, with all around it."""
        return bool(self._path) and not os.path.isdir(os.path.dirname(self._path))


class Lines:
    def __init__(self, address: Address, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        self._address = address
        self._requests: "queue.Queue[Any]" = queue.Queue()
        self._replies: Deque[Reply] = deque()
        self._busy = 0
        self._threads: List[threading.Thread] = []
        self._lock = threading.Lock()
        self.wake_fd, self._wake_write = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._wake_write, False)

    def post(self, ticket: Any, path: str, message: Dict[str, Any], secret: str) -> None:
        with self._lock:
            self._busy += 1
            short = self._busy > len(self._threads)
        if short and len(self._threads) < MOST_LINES:
            thread = threading.Thread(target=self._carry, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._requests.put((ticket, path, message, secret))

    def replies(self) -> List[Reply]:
        try:
            os.read(self.wake_fd, 4096)
        except BlockingIOError:
            pass
        found = []
        while self._replies:
            found.append(self._replies.popleft())
        return found

    def wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # it is awake already

    def _carry(self) -> None:
        connection: Optional[http.client.HTTPConnection] = None
        while True:
            ticket, path, message, secret = self._requests.get()
            body = json.dumps(message, separators=(",", ":")).encode("utf-8")
            reply, connection = self._exchange(connection, ticket, path, body, secret)
            with self._lock:
                self._busy -= 1
            self._replies.append(reply)
            self.wake()

    def _exchange(
        self,
        connection: Optional[http.client.HTTPConnection],
        ticket: Any,
        path: str,
        body: bytes,
        secret: str,
    ) -> Tuple[Reply, Optional[http.client.HTTPConnection]]:
        """One request. A kept connection that the server has closed meanwhile is opened anew:
        every request may be sent twice, that is what their numbers are for."""
        fresh = connection is None
        try:
            if connection is None:
                connection = connect(self._address.url(), self.timeout_seconds)
            return _exchange(connection, ticket, path, body, secret), connection
        except (OSError, http.client.HTTPException, ValueError) as error:
            if connection is not None:
                connection.close()
            self._address.reload()
            if not fresh and not isinstance(error, socket.timeout):
                return self._exchange(None, ticket, path, body, secret)
            return Reply(ticket, 0, None, str(error) or type(error).__name__, 0.0), None


def connect(url: str, timeout: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("no server address: %r" % url)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)


def _exchange(
    connection: http.client.HTTPConnection, ticket: Any, path: str, body: bytes, secret: str
) -> Reply:
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + secret}
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    content = response.read()
    try:
        delay = float(response.headers.get("Retry-After", 0))
    except ValueError:
        delay = 0.0
    if "json" not in response.headers.get("Content-Type", ""):
        raise ValueError("not an answer of a covey server (status %d)" % response.status)
    return Reply(ticket, response.status, json.loads(content.decode("utf-8")), "", delay)
