"""Inserts many rows in one step of SQLite.

Python releases its global lock around every step, and getting it back from the server's thread can
take milliseconds. `executemany` makes a step for each row; a statement with many rows makes one
step. Statements have few sizes, so that each is prepared only once. If there are fewer rows than
the size, the rest is filled with rows of -1, which the statement leaves out. (Not with nulls:
binding a null takes the sqlite3 module as long as a dozen numbers, because it looks for an
adapter.)
"""

import sqlite3
from bisect import bisect_left
from typing import Any

LARGEST = 512


class Inserter:
    """The statement `head` … `tail`, for any number of rows. The first column of a row must not be
    negative."""

    def __init__(
        self, connection: sqlite3.Connection, head: str, columns: int, tail: str = ""
    ) -> None:
        self._connection = connection
        self._columns = columns
        most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // columns
        row = "(" + ", ".join("?" * columns) + ")"
        self._sizes = [size for size in _sizes() if size <= most]
        self._statements = [
            f"{head} SELECT * FROM (VALUES {', '.join([row] * size)}) WHERE column1 >= 0 {tail}"
            for size in self._sizes
        ]

    def insert(self, values: list[Any]) -> None:
        """Insert rows. `values` has all their values in one flat list."""
        largest = self._sizes[-1] * self._columns
        for start in range(0, len(values), largest):
            part = values[start : start + largest]
            index = bisect_left(self._sizes, len(part) // self._columns)
            part += [-1] * (self._sizes[index] * self._columns - len(part))
            self._connection.execute(self._statements[index], part)


def _sizes() -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, …: at most a third of the rows are fillers."""
    doubling = [2**power for power in range(LARGEST.bit_length())]
    between = [size * 3 // 2 for size in doubling[1:-1]]
    return sorted(doubling + between)
