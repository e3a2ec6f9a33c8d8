"""Removes data of a bag that is over, in steps.

The first step is part of the transaction that orders the purge; a small bag needs no other. After
it, a bag that is purged completely is gone for every reader. The rest of a large bag is removed by
further short transactions (`upkeep`), so that writers never wait for long, and the write-ahead log
stays small.

Rows are found through the indexes by bag, so the cost grows with the bag and not with the record.
The remaining rows of a purged bag are not noted anywhere: `orphans` finds them when a server
starts.
"""

import sqlite3

from covey.core.record.model import BagId
from covey.store.sqlite import rows

LOGS = "logs"
FILES = "files"
ALL = "all"

_COUNTED = """
    SELECT row, task, 0 FROM ends INDEXED BY counted
    WHERE bag = ?1 AND counted = 1 AND task > ?2 AND row <= ?5
    ORDER BY task LIMIT ?6"""
_UNCOUNTED = """
    SELECT row, task, outcome FROM ends INDEXED BY uncounted
    WHERE bag = ?1 AND counted = 0 AND (task, outcome, row) > (?2, ?3, ?4) AND row <= ?5
    ORDER BY task, outcome, row LIMIT ?6"""
_STAGES = (_COUNTED, _UNCOUNTED)
_BEFORE_ALL = (-1, -1, -1)
_THESE = "(SELECT value FROM json_each(?))"
_DELETE_FILES = """
    DELETE FROM files WHERE id IN (
        SELECT files.id FROM json_each(?) AS r CROSS JOIN files
        ON files.id >= r.value << 24 AND files.id < (r.value + 1) << 24)"""
# The other tables, and the key of a row within its bag. A bag that has ends has chunks. So chunks
# are removed last: until then `orphans` finds the bag.
_OF_BAG = {
    "causes": "id",
    "result_names": "place",
    "reopenings": "number",
    "input_versions": "number",
    "segments": "number",
    "chunks": "first",
}
_ORPHANS = """
    WITH RECURSIVE known(bag) AS (
        SELECT min(bag) FROM {table}
        UNION ALL SELECT (SELECT min(bag) FROM {table} WHERE bag > known.bag)
        FROM known WHERE known.bag IS NOT NULL)
    SELECT bag FROM known WHERE bag IS NOT NULL AND bag NOT IN (SELECT id FROM bags)"""


class Removal:
    """The removal of one bag's data, and how far it has come."""

    def __init__(self, bag: BagId, what: str, last_row: int) -> None:
        """Rows after `last_row` are kept: a retry recorded them after the purge was ordered."""
        assert what in (LOGS, FILES, ALL), what
        self.bag = bag
        self.what = what
        self._last_row = last_row
        self.restart()

    def restart(self) -> None:
        """Begin again, because a transaction was rolled back. Removed rows cost little time."""
        self._stage = 0
        self._place = _BEFORE_ALL
        self._tables = list(_OF_BAG) if self.what == ALL else []

    def step(self, connection: sqlite3.Connection, most: int) -> bool:
        """Remove about `most` rows, within a transaction. Returns whether more may be left."""
        while self._stage < len(_STAGES):
            query = _STAGES[self._stage]
            parameters = (self.bag, *self._place, self._last_row, most)
            page = connection.execute(query, parameters).fetchall()
            if page:
                self._remove(connection, [row for row, _, _ in page])
                row, task, outcome = page[-1]
                self._place = (task, outcome, row)
            if len(page) == most:
                return True
            self._stage += 1
            self._place = _BEFORE_ALL
        while self._tables:
            table, key = self._tables[0], _OF_BAG[self._tables[0]]
            some = f"SELECT {key} FROM {table} WHERE bag = ?1 LIMIT ?2"
            gone = connection.execute(
                f"DELETE FROM {table} WHERE bag = ?1 AND {key} IN ({some})", (self.bag, most)
            )
            if gone.rowcount == most:
                return True
            del self._tables[0]
        return False

    def _remove(self, connection: sqlite3.Connection, numbers: list[int]) -> None:
        these = (rows.json_text(numbers),)
        if self.what in (LOGS, ALL):
            connection.execute(f"DELETE FROM outputs WHERE row IN {_THESE}", these)
        if self.what in (FILES, ALL):
            connection.execute(_DELETE_FILES, these)
        if self.what == FILES:
            connection.execute(
                f"UPDATE ends SET files = 0 WHERE row IN {_THESE} AND files > 0", these
            )
        if self.what == ALL:
            connection.execute(f"DELETE FROM ends WHERE row IN {_THESE}", these)


def begin(connection: sqlite3.Connection, bag: BagId, what: str, last_row: int) -> Removal:
    """Begin a removal, in the transaction that orders the purge. All gathered ends must be
    written before."""
    if what == ALL:
        connection.execute("DELETE FROM bags WHERE id = ?", (bag,))
        connection.execute("UPDATE server SET last_bag = max(last_bag, ?)", (bag,))
    return Removal(bag, what, last_row)


def orphans(connection: sqlite3.Connection, last_row: int) -> list[Removal]:
    """The removals that an earlier server did not finish."""
    bags: dict[int, None] = {}
    for table in ("chunks", "segments"):
        bags.update((bag, None) for (bag,) in connection.execute(_ORPHANS.format(table=table)))
    return [Removal(BagId(bag), ALL, last_row) for bag in bags]
