"""The files that tasks returned, and all files that the record names."""

import sqlite3
from collections.abc import Iterator
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
_OWNED = "coalesce(json_extract(bags.spec, '$.owner'), '')"
_RETURNED_TO = f"""
    SELECT 1 FROM files INDEXED BY files_digest
    JOIN ends ON ends.row = files.id >> {FILES_SHIFT} JOIN bags ON bags.id = ends.bag
    WHERE files.digest = ? AND {_OWNED} = ? LIMIT 1"""
_MAY_NAME = f"""
    SELECT bags.spec FROM bags WHERE {_OWNED} = ?1 AND instr(bags.spec, ?2)
    UNION ALL SELECT segment FROM segments JOIN bags ON bags.id = segments.bag
    WHERE {_OWNED} = ?1 AND instr(segment, ?2)"""


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
        found.update(_digests_in(text))
    return found


def names_file(connection: sqlite3.Connection, owner: str, digest: str) -> bool:
    """Whether a bag of this owner names the file, or a task of one returned it."""
    if connection.execute(_RETURNED_TO, (digest, owner)).fetchone() is not None:
        return True
    texts = connection.execute(_MAY_NAME, (owner, digest))
    return any(digest in _digests_in(text) for (text,) in texts)


def _digests_in(text: str) -> Iterator[str]:
    """Of the files that a specification, or a segment, names."""
    named = _named.decode(text)
    yield from (blob.digest for blob in named.manifest.values())
    yield from (one.blob.digest for one in named.inputs if one.blob is not None)
    if named.rows is not None:
        yield named.rows.digest


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
