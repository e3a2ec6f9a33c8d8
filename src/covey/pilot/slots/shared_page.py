"""A page of memory that all processes of a pilot share: which slot runs which order.

The rule: a slot writes which order it starts *before* it starts it. If a slot is killed, messages
that it had not sent are lost, but this page is not: so the pilot knows which orders never started
and may safely run elsewhere. Only a slot writes its own row; rows are never freed.

Calls in a worker's queue (see ``call_records``) are an exception: the slot writes which call begins
when it gets the answer before it. So one of them may have run and be run again elsewhere. Therefore
the queue is not used for a bag whose tasks must not be repeated.
"""

import mmap
import struct
from typing import Tuple

_ROW = struct.Struct("=QQ")  # the last order begun, and its process id (0: not started yet)


class SharedPage:
    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, _ROW.size * (slots + 1))  # row 0: whether all must end

    def begin(self, index: int, number: int, pid: int) -> None:
        _ROW.pack_into(self._memory, _ROW.size * (index + 1), number, pid)

    def begun(self, index: int) -> Tuple[int, int]:
        """The number of the last order begun, and its process id or 0."""
        number, pid = _ROW.unpack_from(self._memory, _ROW.size * (index + 1))
        return int(number), int(pid)

    def end(self) -> None:
        """Every slot must stop; it looks here when it gets a signal."""
        _ROW.pack_into(self._memory, 0, 1, 0)

    def ending(self) -> bool:
        return bool(_ROW.unpack_from(self._memory, 0)[0])
