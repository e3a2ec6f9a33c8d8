"""Frames on the line to the slot: their length, four bytes, then so many bytes.

What they mean is said in `covey.pilot.calling`. That file is not at hand here; a test holds that
the names and numbers are the same.
"""

import io
import os
import struct

CALLS = "COVEY_CALLS"
HELLO, REFUSE, VALUE, FILE, ERROR = b"h", b"x", b"v", b"f", b"e"
BY_FILE = b"@"
MOST_INLINE = 40000
LENGTH = struct.Struct(">I")


class Line:
    """One end of a socket pair. What the functions start must not have it: its number is taken
    out of the environment."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._reader = io.BufferedReader(io.FileIO(descriptor, "rb", closefd=False), 1 << 16)

    def receive(self) -> "bytes | None":
        """None: nobody is there any more."""
        head = self._reader.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        size = LENGTH.unpack(head)[0]
        data = self._reader.read(size)
        return data if len(data) == size else None

    def send(self, kind: bytes, data: bytes) -> None:
        left = memoryview(LENGTH.pack(1 + len(data)) + kind + data)
        while left:
            left = left[os.write(self._descriptor, left) :]
