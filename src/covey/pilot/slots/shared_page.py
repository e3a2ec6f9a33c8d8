"""A page of memory that all processes of a pilot share: who runs what.

The rule: a slot writes which order it starts *before* it starts it. When a slot is
killed, messages it had not sent are lost, but this is not: so the pilot knows which
of its orders never started and may safely run elsewhere. Only a slot writes its own
row; rows are never freed.

Calls that were given to a worker ahead (see ``call_records``) are an exception: the slot writes
which one begins when it hears the answer before it. One may then have run, and be run again
elsewhere; so nothing is given ahead of a bag whose tasks must not be repeated.
"""

import mmap
import struct
from typing import Tuple

_ROW = struct.Struct("=QQ")  # the last order begun, and its process id (0: not yet)


class Board:
    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, _ROW.size * (slots + 1))  # row 0: are we ending

    def begin(self, index: int, number: int, pid: int) -> None:
        _ROW.pack_into(self._memory, _ROW.size * (index + 1), number, pid)

    def begun(self, index: int) -> Tuple[int, int]:
        """(number of the last order begun, its process id or 0)."""
        number, pid = _ROW.unpack_from(self._memory, _ROW.size * (index + 1))
        return int(number), int(pid)

    def end(self) -> None:
        """Every slot is to stop; it looks here when it is signalled."""
        _ROW.pack_into(self._memory, 0, 1, 0)

    def ending(self) -> bool:
        return bool(_ROW.unpack_from(self._memory, 0)[0])
