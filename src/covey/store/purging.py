"""Forgetting what is kept of a bag that is over.

Its rows are found through the indexes by bag, so the cost grows with the bag and not with the
record. Pages that become free are used again; the file does not shrink, for what would let it
(`auto_vacuum`) costs a third of the rate at which ends are recorded.
"""

import sqlite3

LOGS = "logs"
FILES = "files"
ALL = "all"

_ROWS = """
    SELECT row FROM ends INDEXED BY counted WHERE bag = ?1 AND counted = 1
    UNION ALL SELECT row FROM ends INDEXED BY uncounted WHERE bag = ?1 AND counted = 0"""
_FILES = """
    DELETE FROM files WHERE id IN (
        SELECT files.id FROM ({rows}) AS r CROSS JOIN files
        ON files.id >= r.row << 24 AND files.id < (r.row + 1) << 24)"""
_OF_BAG = ("chunks", "segments", "reopenings", "causes", "result_names")


def purge(connection: sqlite3.Connection, bag: int, what: str) -> None:
    """Within a transaction, when all that was gathered is written."""
    assert what in (LOGS, FILES, ALL), what
    execute = connection.execute
    if what in (LOGS, ALL):
        execute(f"DELETE FROM outputs WHERE row IN ({_ROWS})", (bag,))
    if what in (FILES, ALL):
        execute(_FILES.format(rows=_ROWS), (bag,))
    if what == FILES:
        execute(f"UPDATE ends SET files = 0 WHERE row IN ({_ROWS}) AND files > 0", (bag,))
    if what == ALL:
        execute(f"DELETE FROM ends WHERE row IN ({_ROWS})", (bag,))
        for table in _OF_BAG:
            execute(f"DELETE FROM {table} WHERE bag = ?", (bag,))
        execute("DELETE FROM bags WHERE id = ?", (bag,))
        execute("UPDATE server SET last_bag = max(last_bag, ?)", (bag,))
