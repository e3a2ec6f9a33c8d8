"""Frames on the line to the slot: four bytes with the length, then the data. And the queue, in
which calls wait.

`covey.pilot.calls.call_records` defines what they mean. That file is not available here; a test
checks that the names and numbers are the same.
"""

import io
import os
import select
import struct
import time
from typing import Any, Dict

CALLS, QUEUE = "COVEY_CALLS", "COVEY_CALLS_AHEAD"
HELLO, REFUSE, VALUE, FILE, ERROR = b"h", b"x", b"v", b"f", b"e"
PACKED, ON_LINE, GO = b"c", b"l", b"g"
BY_FILE = b"@"
MOST_INLINE = 40000
MOST_PACKET = 60000
LENGTH = struct.Struct(">I")
HEAD = struct.Struct(">Qdd?")
LABEL = struct.Struct(">cQ")


class FrameSocket:
    """One end of a socket pair. Processes that functions start must not inherit it: its number is
    removed from the environment."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._reader = io.BufferedReader(io.FileIO(descriptor, "rb", closefd=False), 1 << 16)

    def about(self) -> Dict[str, Any]:
        """What HELLO says about this end."""
        return {}

    def receive(self) -> Any:
        """The bytes of a call; None if the slot is gone."""
        head = self._reader.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        size = LENGTH.unpack(head)[0]
        data = self._reader.read(size)
        return data if len(data) == size else None

    def answer(self, kind: bytes, data: bytes) -> None:
        self.send(kind, data)

    def send(self, kind: bytes, data: bytes) -> None:
        whole = LENGTH.pack(1 + len(data)) + kind + data
        sent = os.write(self._descriptor, whole)
        if sent < len(whole):
            left = memoryview(whole)[sent:]
            while left:
                left = left[os.write(self._descriptor, left) :]


class Queue:
    """Calls come as packets, which the slot may take back until they are read here. So a call is
    read only after the one before it is answered. The descriptor does not block: a worker that is
    killed while it waits has taken nothing. We measure the output through descriptors of our own: a
    function may close or replace the standard ones."""

    def __init__(self, line: FrameSocket, descriptor: int) -> None:
        """Raises OSError if it cannot be measured how much was printed."""
        os.set_inheritable(descriptor, False)
        self._line = line
        self._descriptor = descriptor
        self._buffer = bytearray(LABEL.size + MOST_PACKET)
        self._view = memoryview(self._buffer)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._outputs = [os.dup(1), os.dup(2)]
        for output in self._outputs:
            os.lseek(output, 0, os.SEEK_END)
        self._number = 0
        self._began = 0.0

    def about(self) -> Dict[str, Any]:
        return {"ahead": 1, "cpu": time.process_time()}

    def receive(self) -> Any:
        while True:
            try:
                size = os.readv(self._descriptor, [self._buffer])
                break
            except BlockingIOError:
                self._poll.poll()
        if not size:
            return None
        self._began = time.monotonic()
        kind, self._number = LABEL.unpack_from(self._buffer)
        if kind == ON_LINE:
            return self._line.receive()
        return self._view[LABEL.size : size]

    def answer(self, kind: bytes, data: bytes) -> None:
        """Returns when the next call may begin. Raises BrokenPipeError if the slot is gone."""
        wall_seconds = time.monotonic() - self._began
        waits = kind == FILE or self._printed()
        head = HEAD.pack(self._number, wall_seconds, time.process_time(), waits)
        self._line.send(kind, head + data)
        if waits and self._line.receive() != GO:
            raise BrokenPipeError

    def _printed(self) -> bool:
        """Whether anything was printed. The slot empties both files after each output."""
        try:
            for output in self._outputs:
                if os.lseek(output, 0, os.SEEK_END):
                    return True
        except OSError:
            return True  # a function has closed even these: let the slot check
        return False
