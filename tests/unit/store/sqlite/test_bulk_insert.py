"""Any number of rows arrives, each once."""

import sqlite3

import pytest

from covey.store.sqlite.bulk_insert import LARGEST, Inserter


@pytest.mark.parametrize("count", [0, 1, 2, 5, 7, 100, LARGEST, LARGEST + 1, 3 * LARGEST + 77])
@pytest.mark.parametrize("most", [32766, 999])
def test_rows_arrive(count: int, most: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, most)
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b, c, d, e, f, g)")
    values = [x for row in range(count) for x in (row, None, row * 0.5, "s", b"b", -row, None)]
    Inserter(connection, "INSERT INTO t", 7).insert(values)
    found = connection.execute("SELECT * FROM t ORDER BY a").fetchall()
    assert [x for row in found for x in row] == values


def test_the_tail_applies_to_every_row() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
    latest = Inserter(
        connection, "INSERT INTO t", 2, "ON CONFLICT (a) DO UPDATE SET b = max(b, excluded.b)"
    )
    latest.insert([1, 5, 2, 5, 3, 5])
    latest.insert([1, 4, 2, 6, 4, 1])
    assert connection.execute("SELECT b FROM t ORDER BY a").fetchall() == [(5,), (6,), (5,), (1,)]
