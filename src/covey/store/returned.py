"""The files that tasks returned, and all files that the record names."""

import sqlite3
from typing import Any

import msgspec
from msgspec import Struct

from covey.core.model import Blob, Placed, Rows
from covey.core.space import Point
from covey.store import rows
from covey.store.extras import FILES_SHIFT
from covey.wire import ReturnedFile

_RESULTS = """
    SELECT row, task, files FROM ends INDEXED BY returned
    WHERE bag = ? AND counted = 1 AND files > 0 AND row > ? ORDER BY row LIMIT ?"""
_FILES = """
    SELECT path, size, digest, data, packed, executable FROM files
    WHERE id >= ? AND id < ? ORDER BY id"""


class _Named(Struct):
    """What a spec, or a segment, says of files."""

    rows: Rows | None = None
    inputs: tuple[Placed, ...] = ()
    manifest: dict[str, Blob] = {}


_named = msgspec.json.Decoder(_Named)


def page(
    connection: sqlite3.Connection, bag: int, values: Point, after: int, limit: int
) -> list[ReturnedFile]:
    """At most `limit` files, but all of the first result that has any."""
    found: list[ReturnedFile] = []
    for row, task, count in connection.execute(_RESULTS, (bag, after, limit)).fetchall():
        if found and len(found) + count > limit:
            break
        given = values(task)
        bounds = (row << FILES_SHIFT, (row + 1) << FILES_SHIFT)
        found += [_file(row, task, given, one) for one in connection.execute(_FILES, bounds)]
    return found


def digests(connection: sqlite3.Connection) -> set[str]:
    query = "SELECT DISTINCT digest FROM files INDEXED BY files_digest WHERE digest IS NOT NULL"
    found = {digest for (digest,) in connection.execute(query)}
    for (text,) in connection.execute(
        "SELECT spec FROM bags UNION ALL SELECT segment FROM segments"
    ):
        named = _named.decode(text)
        found.update(blob.digest for blob in named.manifest.values())
        found.update(one.blob.digest for one in named.inputs if one.blob is not None)
        if named.rows is not None:
            found.add(named.rows.digest)
    return found


def _file(row: int, task: int, values: list[Any], one: tuple[Any, ...]) -> ReturnedFile:
    file = rows.file_from(one)
    return ReturnedFile(
        row=row,
        task=task,
        values=values,
        path=file.path,
        size=file.size,
        digest=file.digest,
        data=file.data,
        executable=file.executable,
    )
