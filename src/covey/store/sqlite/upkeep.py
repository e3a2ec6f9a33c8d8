"""Upkeep of the SQLite file, in short pieces, so that writers never wait for long.

First the rows of purged bags are removed (`purge`). Then free pages are given back to the disk
(`PRAGMA incremental_vacuum`). Last, the write-ahead log is emptied. The size of a piece is adjusted
so that it takes about `PIECE_SECONDS`.

A file can give pages back because it is made with `auto_vacuum = INCREMENTAL`.
"""

import sqlite3
import time
from collections.abc import Callable

from covey.core.record.model import BagId
from covey.store.sqlite.purge import Removal

PIECE_SECONDS = 0.02
FEWEST, MOST = 16, 4096  # rows or pages in a piece
FIRST = 256
KEPT_PAGES = 256  # free pages that are kept for the next rows
MANY_FREE = 0.25  # share of free pages above which they are given back, even without a purge
_INCREMENTAL = 2


class Upkeep:
    """The upkeep of the file, over the writer's connection."""

    def __init__(
        self, connection: sqlite3.Connection, removals: list[Removal], empty_log: Callable[[], None]
    ) -> None:
        self._connection = connection
        self.removals = removals
        self._empty_log = empty_log
        self._most = FIRST
        self._shrinking = bool(removals) or _has_many_free(connection)
        self._gives_back = _pragma(connection, "auto_vacuum") == _INCREMENTAL

    @property
    def removing(self) -> frozenset[BagId]:
        return frozenset(removal.bag for removal in self.removals)

    def add(self, removal: Removal) -> None:
        """Add a removal whose first step was made."""
        self.removals.append(removal)
        self._shrinking = True

    def rolled_back(self, removals: list[Removal]) -> None:
        """The last piece was rolled back: these removals must be done again."""
        for removal in removals:
            removal.restart()
        self.removals = removals

    def piece(self) -> bool:
        """Do one piece, within a transaction. Returns False if nothing was left to do."""
        began = time.monotonic()
        if self.removals:
            if not self.removals[0].step(self._connection, self._most):
                del self.removals[0]
        elif spare := self._spare_pages():
            # Python's sqlite3 makes only the first step of this statement, which is one page.
            for _ in range(min(spare, self._most)):
                self._connection.execute("PRAGMA incremental_vacuum(1)")
        else:
            return False
        took = time.monotonic() - began
        if took > PIECE_SECONDS:
            self._most = max(FEWEST, self._most // 2)
        elif took < PIECE_SECONDS / 2:
            self._most = min(MOST, self._most * 2)
        return True

    def finish(self) -> None:
        """Called outside a transaction when nothing is left to do: empties the log."""
        if self._shrinking:
            self._shrinking = False
            self._empty_log()

    def _spare_pages(self) -> int:
        if not self._shrinking or not self._gives_back:
            return 0
        return max(0, _pragma(self._connection, "freelist_count") - KEPT_PAGES)


def choose_incremental(connection: sqlite3.Connection) -> None:
    """Works only for a file that has no tables yet."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")


def _has_many_free(connection: sqlite3.Connection) -> bool:
    free = _pragma(connection, "freelist_count")
    return free > KEPT_PAGES and free > MANY_FREE * _pragma(connection, "page_count")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
