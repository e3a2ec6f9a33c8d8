"""What a slot is told to run and what came of it, and how both cross a socket.

The rule: every order gets exactly one outcome, whatever dies on the way. The
records are plain tuples of plain values, so that ``marshal`` can carry them: both
ends are forks of one interpreter, and nothing in the standard library is faster or
carries ``bytes`` as simply.
"""

import marshal
import socket
import struct
from typing import Any, Dict, List, NamedTuple

_LENGTH = struct.Struct("=I")
_CHUNK = 1 << 16


class Order(NamedTuple):
    """One task to run. ``env`` is its complete environment."""

    key: str
    argv: List[str]
    env: Dict[str, str]
    limit_seconds: float = 0.0  # 0: no limit
    chdir: str = ""  # "": the slot's own private directory


class Outcome(NamedTuple):
    """What came of one order.

    kind: ``ok``, ``failed``, ``timeout``, ``cancelled``, ``returned`` (it never
    started) or ``host`` (this host's fault: disk full, no more processes, the slot
    itself died). ``started`` is ``time.monotonic()`` of this host, 0.0 if it never
    did. ``exit_code`` is -1 where there is none.
    """

    key: str
    kind: str
    exit_code: int = -1
    signal: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_kb: int = 0
    started: float = 0.0
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    message: str = ""


class Line:
    """One end of a stream socket that carries whole values and never blocks.

    What the other end has no room for yet waits in ``unsent``; whoever owns the
    line calls ``flush`` again later. Bytes are lost only with the other process.
    """

    __slots__ = ("closed", "socket", "unread", "unsent")

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self.unread = bytearray()
        self.unsent = bytearray()
        self.closed = False

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, value: Any, later: bool = False) -> None:
        """Send it, or with ``later`` leave that to the next flush."""
        data = marshal.dumps(value)
        self.unsent += _LENGTH.pack(len(data))
        self.unsent += data
        if not later:
            self.flush()

    def flush(self) -> bool:
        """Send what can be sent; True when nothing is left."""
        while self.unsent:
            try:
                sent = self.socket.send(self.unsent)
            except BlockingIOError:
                return False
            except OSError:  # the other end is gone; receive() says so too
                self.closed = True
                self.unsent = bytearray()
                return True
            del self.unsent[:sent]
        return True

    def receive(self) -> List[Any]:
        """Every whole value that has arrived; sets ``closed`` at the end."""
        while True:
            try:
                data = self.socket.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                break
            self.unread += data
            if len(data) < _CHUNK:
                break
        return self._values() if self.unread else []

    def _values(self) -> List[Any]:
        values = []
        start, size = 0, len(self.unread)
        while size - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self.unread, start)
            end = start + _LENGTH.size + length
            if end > size:
                break
            values.append(marshal.loads(bytes(self.unread[start + _LENGTH.size : end])))
            start = end
        del self.unread[:start]
        return values

    def close(self) -> None:
        self.closed = True
        self.socket.close()
