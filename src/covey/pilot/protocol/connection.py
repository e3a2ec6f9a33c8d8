"""A connection to the server: direct or through a proxy, with TLS and timeouts.

The rule: nothing is sent before it is certain who listens. With a certificate authority (`ca`,
PEM text) only that one is trusted, else those of the system. Plain HTTP is used only on this
machine. A proxy sees only encrypted bytes, and is never used for this machine itself.
"""

import base64
import http.client
import ipaddress
import math
import os
import socket
import ssl
import threading
from typing import Any, Callable, Dict, Mapping, Optional, Tuple
from urllib.parse import SplitResult, unquote, urlsplit

CONNECT_SECONDS = 10.0  # per address: one of several may never answer
MOST_HEADERS = 1 << 16
LONGEST_DELAY_SECONDS = 120.0  # the longest wait that a server or a proxy may ask for
PART_BYTES = 1 << 16
_KEEP_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_UNANSWERED_MS = 60000  # a connection breaks if sent bytes are not acknowledged for so long

_contexts: Dict[str, ssl.SSLContext] = {}
_lock = threading.Lock()


class ServerConnection(http.client.HTTPConnection):
    """Opened by the first request, and again by the next one if the server has closed it."""

    def __init__(self, url: str, ca: str, timeout: float) -> None:
        self._url = split(url)
        self._ca = ca
        port = port_of(self._url)
        http.client.HTTPConnection.__init__(self, self._url.hostname or "", port, timeout=timeout)
        self.default_port = 443 if self._url.scheme == "https" else 80
        self.doubts = 0  # the address's `doubts` when this connection was made
        self.reached = False  # whether anybody has ever accepted a connection at this address

    def connect(self) -> None:
        timeout = self.timeout or CONNECT_SECONDS
        self.sock: Any = open_socket(self._url, self._ca, timeout, self._note_reached)

    def _note_reached(self) -> None:
        self.reached = True

    def wait_for(self, seconds: float) -> None:
        """Change how long the next answer may take."""
        self.timeout: Any = seconds
        if self.sock is not None:
            self.sock.settimeout(seconds)

    def request(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, Any] = {},
        **more: Any,
    ) -> None:
        """`url` is a path below the server's own address."""
        path = self._url.path.rstrip("/") + url
        http.client.HTTPConnection.request(self, method, path, body, headers, **more)


def split(url: str) -> SplitResult:
    """Raises ValueError with a message that says what to write instead."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = ""
    if not usable:
        raise ValueError("write it like http://localhost:8080 or https://host")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError(
            "http is allowed on this machine only, because secrets are sent: use https"
        )
    return parts


def port_of(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def context_for(ca: str) -> ssl.SSLContext:
    """One context for all connections: reading the system's authorities takes a while."""
    with _lock:
        if ca not in _contexts:
            try:
                context = ssl.create_default_context(cadata=ca or None)
            except ssl.SSLError as error:
                raise ValueError("not a certificate in PEM: %s" % error) from error
            versions = getattr(ssl, "TLSVersion", None)  # Python 3.7
            if versions is not None:
                context.minimum_version = versions.TLSv1_2
            else:
                context.options |= ssl.OP_NO_TLSv1 | ssl.OP_NO_TLSv1_1
            _contexts.clear()
            _contexts[ca] = context
        return _contexts[ca]


def open_socket(
    url: SplitResult, ca: str, timeout: float, reached: Callable[[], None] = lambda: None
) -> socket.socket:
    """Calls `reached` when the connection is accepted, before TLS. Raises OSError, or ValueError
    for settings that can never work."""
    host, port = url.hostname or "", port_of(url)
    secure = url.scheme == "https"
    context = context_for(ca) if secure else None
    proxy = proxy_for(host, port) if secure else None
    where = (proxy.hostname or "", proxy.port or 80) if proxy else (host, port)
    sock = socket.create_connection(where, min(timeout, CONNECT_SECONDS))
    reached()
    try:
        sock.settimeout(timeout)
        keep_alive(sock)
        if proxy:
            _ask_for_tunnel(sock, proxy, host, port)
        return context.wrap_socket(sock, server_hostname=host) if context else sock
    except BaseException:
        sock.close()
        raise


def keep_alive(sock: socket.socket) -> None:
    """A peer that disappears silently is noticed within a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE + (("TCP_USER_TIMEOUT", _UNANSWERED_MS),):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def hang_up(connection: Optional[http.client.HTTPConnection]) -> None:
    """Call it from another thread: whoever waits for this connection gets an error at once. A copy
    of the socket is shut down, because the original is in use."""
    try:
        sock = connection.sock if connection is not None else None
        if sock is not None:
            copy = socket.fromfd(sock.fileno(), sock.family, sock.type)
            try:
                copy.shutdown(socket.SHUT_RDWR)
            finally:
                copy.close()
    except (OSError, ValueError):
        pass  # it has ended by itself


def proxy_for(host: str, port: int) -> Optional[SplitResult]:
    """The proxy in HTTPS_PROXY (or ALL_PROXY), unless NO_PROXY names the host."""
    if is_loopback(host):
        return None
    proxy = _variable("https_proxy") or _variable("all_proxy")
    if not proxy or _is_spared(host, port):
        return None
    parts = urlsplit(proxy if "://" in proxy else "http://" + proxy)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("HTTPS_PROXY: write it like http://host:3128")
    return parts


def _variable(name: str) -> str:
    return os.environ.get(name) or os.environ.get(name.upper()) or ""


def _is_spared(host: str, port: int) -> bool:
    """Whether NO_PROXY names the host or a domain above it, perhaps with the port."""
    for name in _variable("no_proxy").lower().split(","):
        name = name.strip().lstrip(".")
        for target in (host.lower(), "%s:%d" % (host.lower(), port)):
            if name == "*" or (name and (target == name or target.endswith("." + name))):
                return True
    return False


def _ask_for_tunnel(sock: socket.socket, proxy: SplitResult, host: str, port: int) -> None:
    target = "%s:%d" % ("[%s]" % host if ":" in host else host, port)
    lines = ["CONNECT %s HTTP/1.1" % target, "Host: %s" % target]
    if proxy.username is not None:
        user = "%s:%s" % (unquote(proxy.username), unquote(proxy.password or ""))
        encoded = base64.b64encode(user.encode("utf-8")).decode("ascii")
        lines.append("Proxy-Authorization: Basic " + encoded)
    sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    answer = b""
    while b"\r\n\r\n" not in answer:  # nothing follows it: the client speaks first in TLS
        data = sock.recv(4096)
        answer += data
        if not data or len(answer) > MOST_HEADERS:
            raise OSError("the proxy %s does not answer" % proxy.hostname)
    first = answer.split(b"\r\n", 1)[0].decode("latin-1")
    words = first.split(None, 2) + ["", ""]
    if not words[0].startswith("HTTP/1.") or words[1] != "200":
        raise OSError("the proxy %s says: %.200s" % (proxy.hostname, first))


def read_body(response: http.client.HTTPResponse, most: int) -> bytes:
    """The whole body. Raises OSError, HTTPException, or ValueError for more than `most` bytes."""
    parts, size = [], 0
    while size <= most:
        data = response.read(PART_BYTES)
        if not data:
            break
        parts.append(data)
        size += len(data)
    if size > most or (response.length or 0) > most:
        response.close()
        raise ValueError("the answer has more than %d bytes" % most)
    if response.length:  # http.client takes a lost connection for the end of the body
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


def retry_after(response: http.client.HTTPResponse) -> float:
    """Seconds; 0 if the header is missing or makes no sense."""
    try:
        delay = float(response.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0
    return min(max(delay, 0.0), LONGEST_DELAY_SECONDS) if math.isfinite(delay) else 0.0


def kind_of(response: http.client.HTTPResponse) -> Tuple[bool, bool]:
    """Whether its type is JSON, and whether it is a page for people."""
    kind = (response.headers.get("Content-Type") or "").lower()
    return "json" in kind, "html" in kind
