"""A forward proxy that people find between themselves and the world: CONNECT, perhaps with a
password, and now and then out of its mind."""

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.network.between import Between

PORTAL = b"<html>Please log in to the guest network</html>"
PORTAL_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (
    len(PORTAL),
    PORTAL,
)


class Proxy(Between):
    """Names are its own affair: all of them are this machine. `mood`: `well`, `portal` (answers
    everything itself), `html` (refuses with a page), `mute` (accepts and says nothing), `reset`
    (breaks a tunnel after `most` bytes from the server)."""

    def __init__(self, user: str = "") -> None:
        super().__init__()
        self.user = user
        self.mood = "well"
        self.most = 0
        self.asked: list[str] = []  # targets
        self.denied = 0
        self.broken = 0

    @property
    def url(self) -> str:
        who = f"{self.user}@" if self.user else ""
        return f"http://{who}127.0.0.1:{self.port}"

    def answer(self, near: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            data = near.recv(4096)
            if not data:
                return
            head += data
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split()
        self.asked.append(target)
        if self.mood == "mute":
            near.recv(1)
        elif self.mood == "portal":
            near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            near.recv(4096)
            near.sendall(PORTAL_ANSWER)
        elif self.mood == "html" or method != "CONNECT":
            near.sendall(PORTAL_ANSWER.replace(b"200 OK", b"403 Forbidden", 1))
        elif not self._admits(lines):
            self.denied += 1
            near.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        else:
            self._connect(near, int(target.rpartition(":")[2]))

    def _admits(self, lines: list[str]) -> bool:
        wanted = "Proxy-Authorization: Basic " + base64.b64encode(self.user.encode()).decode()
        return not self.user or wanted in lines

    def _connect(self, near: socket.socket, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), 10) as far:
            far.settimeout(None)
            near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=self._pour, args=(far, near, True), daemon=True)
            back.start()
            self._pour(near, far, False)
            back.join(10)

    def _pour(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        passed = 0
        try:
            while data := source.recv(65536):
                passed += len(data)
                if counted and self.mood == "reset" and passed > self.most:
                    self.broken += 1
                    target.sendall(data[: len(data) // 2])
                    break
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxying(user: str = "") -> Iterator[Proxy]:
    proxy = Proxy(user)
    thread = threading.Thread(target=proxy.run, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(10)
