"""The orders that a slot runs, their outcomes, and how both cross a socket.

The rule: every order gets exactly one outcome, whatever dies on the way. The records are plain
tuples of plain values, so that ``marshal`` can carry them: both ends are forks of one interpreter,
and nothing in the standard library is faster or carries ``bytes`` as simply.
"""

import marshal
import socket
import struct
from typing import Any, Dict, List, NamedTuple, Tuple

_LENGTH = struct.Struct("=I")
_CHUNK = 1 << 16


class Link(NamedTuple):
    """A file of this host that a task finds at `path` in its directory."""

    source: str
    path: str
    copy: bool = False


class Plan(NamedTuple):
    """What many orders share; a slot gets it once. ``env`` is their environment, to which each
    order adds its own."""

    number: int
    env: Dict[str, str]
    chdir: str = ""  # "": the slot's own private directory
    links: List[Link] = []
    outputs: List[str] = []  # patterns of files to return; each must match something
    optional_outputs: List[str] = []
    output_bytes: int = 1 << 30  # the most for all files of one task
    ok_codes: List[int] = [0]
    check: str = ""  # a shell command, run in the task's directory after it
    log_bytes: int = 65536  # kept of each output stream
    sees: str = ""  # a directory that a task in a sandbox may read (made by its bag's setup)
    makes: str = ""  # a directory that it may write to (a setup's own)
    calls: List[str] = []  # the command of the worker, if orders are calls: see `call_records`
    ahead: bool = False  # calls may wait in front of the worker


class Order(NamedTuple):
    """One task to run."""

    key: str
    plan: int
    argv: List[str]
    env: Dict[str, str] = {}
    limit_seconds: float = 0.0  # 0: no limit
    memory_mb: int = 0  # 0: no limit
    cores: List[int] = []  # the processors it is bound to; empty: any
    links: List[Link] = []
    outputs: List[str] = []
    call: str = ""  # base64, instead of a command; the call of a large one is in the linked file
    disk_mb: int = 0  # 0: no limit


class Returned(NamedTuple):
    """A file that a task returns: a small one as ``data``, else the path where it was moved to.
    ``path`` is its name in the task's directory."""

    path: str
    size: int
    executable: bool
    data: bytes
    moved_to: str


class Outcome(NamedTuple):
    """The result of one order.

    kind: ``ok``, ``failed``, ``timeout``, ``memory`` (over its limit), ``output`` (a file is
    missing, or the check failed), ``cancelled``, ``returned`` (it never started) or ``host``
    (this host's fault: disk full, no more processes, the slot itself died). ``started`` is
    ``time.monotonic()`` of this host, 0.0 if it never started. ``exit_code`` is -1 if there is
    none. ``result`` is a JSON object or ""; ``tags`` is what was written to $COVEY_TAGS.
    ``unkept`` is empty, or has the fields of ``messages.Unkept``.
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
    result: str = ""
    tags: str = ""
    files: List[Returned] = []
    unkept: Tuple[Any, ...] = ()


class ValueSocket:
    """One end of a stream socket that carries whole values and never blocks.

    Values that are sent later wait in ``gathered``, and cross as one list: then marshal writes only
    once what many orders have in common. Bytes that the other end has no room for wait in
    ``unsent``; the owner calls ``flush`` again later. Bytes are lost only if the other process
    dies.
    """

    __slots__ = ("closed", "gathered", "socket", "unread", "unsent")

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self.gathered: List[Any] = []
        self.unread = bytearray()
        self.unsent = bytearray()
        self.closed = False

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, value: Any, later: bool = False) -> None:
        """Send a value, or with ``later`` leave it to the next flush."""
        self.gathered.append(value)
        if not later:
            self.flush()

    def flush(self) -> bool:
        """Send what can be sent; True if nothing is left."""
        if self.gathered:
            data = marshal.dumps(self.gathered)
            self.gathered = []
            self.unsent += _LENGTH.pack(len(data))
            self.unsent += data
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
        """Every whole value that has arrived; sets ``closed`` at the end of the stream."""
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
        values: List[Any] = []
        start, size = 0, len(self.unread)
        while size - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self.unread, start)
            end = start + _LENGTH.size + length
            if end > size:
                break
            values += marshal.loads(bytes(self.unread[start + _LENGTH.size : end]))
            start = end
        del self.unread[:start]
        return values

    def close(self) -> None:
        self.closed = True
        self.socket.close()
