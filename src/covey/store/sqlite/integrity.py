"""Checks a record for damage, with or without a running server."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from covey.core.errors import StoreError
from covey.store.sqlite import connections, schema

HEADER = b"SQLite format 3\0"
THOROUGH_BYTES = 256 << 20  # the indexes of a larger file are not compared with its tables
LOOK_SECONDS = 60.0
_STEPS = 10_000  # of SQLite's machine, between two looks at the clock
_LISTED = 3


class Finding(Struct, frozen=True):
    version: int
    size: int
    problem: str = ""  # empty: no damage was found
    old: bool = False  # the record must be converted
    complete: bool = True  # everything was checked


def look(path: Path) -> Finding:
    """Raises OSError if the file cannot be read."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(len(HEADER))
    if size and head != HEADER:
        return Finding(0, size, f"{path} is not a database: its header is damaged")
    try:
        with connections.failing(path, "read"), closing(connections.reading(path)) as connection:
            version = schema.version(connection, path)
            problem, complete = _check(connection, size)
    except (StoreError, AssertionError) as error:
        return Finding(0, size, str(error))
    return Finding(
        version=version,
        size=size,
        problem=f"{path} is damaged: {problem}" if problem else "",
        old=version < schema.newest(),
        complete=complete,
    )


def _check(connection: sqlite3.Connection, size: int) -> tuple[str, bool]:
    """The damage that was found, and whether the whole file was checked."""
    deadline = time.monotonic() + LOOK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    how = "integrity_check" if size <= THOROUGH_BYTES else "quick_check"
    try:
        texts = [text for (text,) in connection.execute(f"PRAGMA {how}({_LISTED})")]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return "", False
    lines = "; ".join(" ".join(str(text).split()) for text in texts)
    return ("" if lines == "ok" else lines[:500]), True
