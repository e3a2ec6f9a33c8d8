"""Reading a file of rows from its start to its end, in constant memory.

The file is cut between rows: a piece is made longer until it has a whole row in it.
"""

import os
from collections.abc import Iterator

from covey.core.errors import InvalidBag
from covey.core.values.space import Scalar
from covey.rowfiles.forms import BEGIN, Form

BLOCK_BYTES = 32 << 10
LONGEST_ROW_BYTES = 4 << 20
BOM = b"\xef\xbb\xbf"


class Pieces:
    """A file, one piece after the other. Each piece ends at the end of a line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = os.fstat(descriptor).st_size
        self._counted = 0  # bytes of the piece that was counted last
        self.offset = len(BOM) if os.pread(descriptor, len(BOM), 0) == BOM else 0

    def begin(self, form: str) -> Form:
        for piece, last in self._longer_and_longer():
            begun = BEGIN[form](piece, last)
            if begun is not None:
                self.offset += begun[1]
                return begun[0]
        raise InvalidBag(f"the first row is longer than {LONGEST_ROW_BYTES:,} bytes")

    def counts(self, form: Form) -> Iterator[tuple[int, int]]:
        """For each piece: its offset, and how many rows it has."""
        count = 0
        while self.offset < self._end:
            for piece, last in self._longer_and_longer():
                rows, used = form.count(piece, count, last)
                if used:
                    break
            else:
                raise InvalidBag(f"row {count + 1} is longer than {LONGEST_ROW_BYTES:,} bytes")
            self._counted = used
            yield self.offset, rows
            self.offset += used
            count += rows

    def rows(self, form: Form) -> Iterator[list[Scalar]]:
        """Every row, checked and split into values."""
        for offset, _ in self.counts(form):
            size = self._counted
            for item in form.split(os.pread(self._descriptor, size, offset)):
                yield form.parse(item)

    def first_and_last_rows(self, form: Form) -> list[list[Scalar]]:
        """The rows of the first and the last piece: these decide which columns are text."""
        places: list[tuple[int, int]] = []
        for offset, rows in self.counts(form):
            if rows:
                places = [*places[:1], (offset, self._counted)]
        pieces = (form.split(os.pread(self._descriptor, size, start)) for start, size in places)
        return [form.parse(row) for rows in pieces for row in rows]

    def _longer_and_longer(self) -> Iterator[tuple[bytes, bool]]:
        """Whole lines from the offset on, more each time; True if they reach the file's end."""
        size = BLOCK_BYTES
        while size <= LONGEST_ROW_BYTES:
            piece = os.pread(self._descriptor, size, self.offset)
            last = self.offset + len(piece) >= self._end
            if not last:
                piece = piece[: piece.rfind(b"\n") + 1]
            if piece or last:
                yield piece, last
            if last:
                return
            size *= 4
