"""HTTP requests to the server: a few threads, each with a connection that it keeps.

One request is parked at the server most of the time, another carries ends; more threads are started
only while those are busy. Requests go in through `post`; `replies` returns the replies after a byte
has arrived on the wake-up pipe. Only the main thread decides; these threads only transfer.

A response that does not look like an answer of a covey server (a proxy's page, a login portal, half
an answer) does not count: the server is considered away, and is asked again.
"""

import http.client
import json
import os
import queue
import socket
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from covey.pilot.protocol.connection import (
    ServerConnection,
    hang_up,
    kind_of,
    read_body,
    retry_after,
)
from covey.pilot.protocol.messages import Answer, Enrolled
from covey.pilot.protocol.thread_pool import ThreadPool

MOST_LINES = 4
MOST_BYTES = 64 << 20
TRANSFER_SECONDS = 120.0  # for the bytes of an answer, after the wait for its beginning
CREDENTIAL = "X-Covey-Credential"

# The fields that an answer must have, so that other programs' JSON is not taken for one.
_NEEDED = {
    "enrol": Enrolled._fields,
    "sync": [name for name in Answer._fields if name in ("epoch", "number")],
}


class ServerReply(NamedTuple):
    """`status` 0: there was no answer, and `error` says why."""

    ticket: Any
    status: int
    content: Any
    error: str
    retry_after: float


class Identity:
    """Who we are to the server. Any thread that receives a new credential sets it here."""

    def __init__(self) -> None:
        self.pilot = 0
        self.credential = ""

    def note(self, response: http.client.HTTPResponse) -> None:
        """Take over the new credential in an answer, if there is one."""
        credential = response.headers.get(CREDENTIAL)
        if credential:
            self.credential = credential


class Address:
    """The server's address, and the certificate authority that vouches for it (PEM text). If they
    come from a file, both are read again whenever the server is away: a restarted server may have
    another port. If a connection has fallen silent, all that were opened before are probably dead
    too (this host may have a new address): `doubts` counts how often that has happened."""

    def __init__(self, url: str = "", path: str = "", ca: str = "") -> None:
        self.doubts = 0
        self._path = path
        self._known = (url, ca)
        self.reload()

    def reload(self) -> None:
        if self._path:
            try:
                with open(self._path) as file:
                    content = json.load(file)
                self._known = (str(content["address"]), str(content.get("ca", "")))
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                pass  # it is being written, or the server is not up yet: keep the old values

    def url(self) -> str:
        return self._known[0]

    def ca(self) -> str:
        return self._known[1]

    def doubt(self, line: ServerConnection) -> None:
        """No answer came over this connection."""
        if line.sock is not None and line.doubts == self.doubts:
            self.doubts += 1

    def server_ended(self) -> bool:
        """Whether the address file names no living server process. Only pilots that a server has
        started on its own machine have such a file."""
        if not self._path:
            return False
        try:
            with open(self._path) as file:
                pid = json.load(file)["pid"]
            if not isinstance(pid, int) or pid <= 0:
                return True  # the server ended on purpose
            os.kill(pid, 0)
        except (FileNotFoundError, ProcessLookupError):
            return True
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            return False  # another user's process, or the file is being written
        return False

    def gone(self) -> bool:
        """The directory of the address file has been removed."""
        return bool(self._path) and not os.path.isdir(os.path.dirname(self._path))


class RequestThreads:
    def __init__(
        self, address: Address, timeout_seconds: float, identity: Optional[Identity] = None
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self.identity = identity or Identity()
        self._address = address
        # SimpleQueue, new in Python 3.7, takes a third of the time.
        self._requests: Any = getattr(queue, "SimpleQueue", queue.Queue)()
        self._replies: Deque[ServerReply] = deque()
        self._busy = 0
        self._threads = ThreadPool(self._carry, MOST_LINES, "request")
        # By thread: its open connection, and when to break it off.
        self._open: Dict[int, Tuple[ServerConnection, float]] = {}
        self._lock = threading.Lock()
        self.wake_fd, self._wake_write = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._wake_write, False)

    def post(
        self,
        ticket: Any,
        path: str,
        message: Dict[str, Any],
        secret: str,
        more: Optional[Dict[str, str]] = None,
    ) -> None:
        """`more` has other headers."""
        headers = {"Content-Type": "application/json", "Authorization": "Bearer " + secret}
        headers.update(more or {})
        with self._lock:
            self._busy += 1
            count = self._busy
        self._threads.want(count)
        self._requests.put((ticket, path, message, headers))

    def replies(self) -> List[ServerReply]:
        try:
            os.read(self.wake_fd, 4096)
        except BlockingIOError:
            pass
        self._hang_up_overdue()
        self._threads.fill()
        replies = []
        while self._replies:
            replies.append(self._replies.popleft())
        return replies

    def wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # the main thread is awake already

    def _hang_up_overdue(self) -> None:
        """The timeout ends a silent connection, but not one that sends a byte now and then."""
        now = time.monotonic()
        with self._lock:
            for connection, until in self._open.values():
                if now > until:
                    hang_up(connection)

    def _carry(self) -> None:
        connection: Optional[ServerConnection] = None
        while True:
            ticket, path, message, headers = self._requests.get()
            body = json.dumps(message, separators=(",", ":")).encode("utf-8")
            reply, connection = self._exchange(connection, ticket, path, body, headers)
            with self._lock:
                self._busy -= 1
            self._replies.append(reply)
            self.wake()

    def _exchange(
        self,
        connection: Optional[ServerConnection],
        ticket: Any,
        path: str,
        body: bytes,
        headers: Dict[str, str],
    ) -> Tuple[ServerReply, Optional[ServerConnection]]:
        """Make one request. If the server has closed a kept connection meanwhile, open a new one:
        every request may be sent twice, because requests have numbers."""
        connection = usable(connection, self._address)
        fresh = connection is None
        try:
            if connection is None:
                connection = connect(self._address, self.timeout_seconds)
            return self._ask(connection, ticket, path, body, headers), connection
        except Exception as error:  # any error: the main thread waits for a reply
            if connection is not None:
                if isinstance(error, socket.timeout):
                    self._address.doubt(connection)
                connection.close()
            self._address.reload()
            if not fresh and not isinstance(error, socket.timeout):
                return self._exchange(None, ticket, path, body, headers)
            return ServerReply(ticket, 0, None, str(error) or type(error).__name__, 0.0), None

    def _ask(
        self,
        connection: ServerConnection,
        ticket: Any,
        path: str,
        body: bytes,
        headers: Dict[str, str],
    ) -> ServerReply:
        me = threading.get_ident()
        until = time.monotonic() + self.timeout_seconds + TRANSFER_SECONDS
        with self._lock:
            self._open[me] = (connection, until)
        try:
            connection.wait_for(self.timeout_seconds)
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            content = _content(response, path)
            self.identity.note(response)
        finally:
            with self._lock:
                del self._open[me]
        return ServerReply(ticket, response.status, content, "", retry_after(response))


def connect(address: Address, timeout: float) -> ServerConnection:
    try:
        line = ServerConnection(address.url(), address.ca(), timeout)
    except ValueError as error:
        raise ValueError("server address %r: %s" % (address.url(), error)) from error
    line.doubts = address.doubts
    return line


def usable(line: Optional[ServerConnection], address: Address) -> Optional[ServerConnection]:
    """The kept connection, or None if it is probably dead."""
    if line is not None and line.doubts != address.doubts:
        line.close()
        return None
    return line


def _content(response: http.client.HTTPResponse, path: str) -> Dict[str, Any]:
    """Raises ValueError unless it is an answer or a refusal of a covey server."""
    is_json, _ = kind_of(response)
    raw, status = read_body(response, MOST_BYTES), response.status
    if status >= 500:
        return {}  # the server is away, whoever sent this
    content = json.loads(raw.decode("utf-8")) if is_json else None
    needed = _NEEDED.get(path.rpartition("/")[2], ()) if status == 200 else ("type", "detail")
    ours = isinstance(content, dict) and all(name in content for name in needed)
    if not ours or (status != 200 and status < 400):
        raise ValueError("not an answer of a covey server (status %d)" % status)
    return content  # type: ignore[return-value]
