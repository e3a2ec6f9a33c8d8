"""Records as earlier versions of covey left them."""

import sqlite3
from contextlib import closing
from pathlib import Path


def record_of_version(version: int, directory: Path) -> Path:
    path = directory / "record.db"
    dump = Path(__file__).with_name(f"record_version_{version}.sql")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(dump.read_text())
    return path
