"""Many rows in one step of SQLite.

Python gives up its global lock around every step and must then win it back from the server's
thread, which can take milliseconds. `executemany` steps once per row; a statement with many rows
in it steps once. Statements come in few sizes, so that each is prepared once; what a size is too
large for is filled up with rows of -1, which the statement leaves out. (Not of nulls: to bind
one costs the sqlite3 module as much as a dozen numbers. It looks for somebody to adapt it.)
"""

import sqlite3
from bisect import bisect_left
from typing import Any

LARGEST = 512


class Inserter:
    """`head` … `tail`, for any number of rows. The first column is never negative."""

    def __init__(
        self, connection: sqlite3.Connection, head: str, columns: int, tail: str = ""
    ) -> None:
        self._connection = connection
        self._columns = columns
        most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // columns
        one = "(" + ", ".join("?" * columns) + ")"
        self._sizes = [size for size in _sizes() if size <= most]
        self._statements = [
            f"{head} SELECT * FROM (VALUES {', '.join([one] * size)}) WHERE column1 >= 0 {tail}"
            for size in self._sizes
        ]

    def insert(self, values: list[Any]) -> None:
        """All rows of `values`, one after another in one flat list."""
        largest = self._sizes[-1] * self._columns
        for start in range(0, len(values), largest):
            part = values[start : start + largest]
            index = bisect_left(self._sizes, len(part) // self._columns)
            part += [-1] * (self._sizes[index] * self._columns - len(part))
            self._connection.execute(self._statements[index], part)


def _sizes() -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, …: at most a third is filled up."""
    doubling = [2**power for power in range(LARGEST.bit_length())]
    between = [size * 3 // 2 for size in doubling[1:-1]]
    return sorted(doubling + between)
