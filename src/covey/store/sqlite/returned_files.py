"""The files that tasks returned, and all files that the record names.

A large call names its file until its task is done or its bag is cancelled.
"""

import sqlite3
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from covey.core.record import call_files
from covey.core.record.model import BagStatus, Blob, Placed, Rows, Segment
from covey.core.values.space import Point, Space
from covey.ports import NamedFiles
from covey.store.sqlite.end_extras import FILES_SHIFT
from covey.wire import ReturnedFile

PAGE_BYTES = 8 << 20  # of values, paths and small files

_RESULTS = """
    SELECT row, task, files FROM ends INDEXED BY returned
    WHERE bag = ? AND counted = 1 AND files > 0 AND row > ? ORDER BY row LIMIT ?"""
_FILES = """
    SELECT path, size, digest, data, packed, executable FROM files
    WHERE id >= ? AND id < ? ORDER BY id"""
_OWNERS = "SELECT id, coalesce(json_extract(spec, '$.owner'), '') FROM bags"
_RETURNED = f"""
    SELECT ends.bag, files.digest FROM files INDEXED BY files_digest
    JOIN ends ON ends.row = files.id >> {FILES_SHIFT} WHERE files.digest IS NOT NULL"""
_NAMING = """
    SELECT id, spec FROM bags UNION ALL SELECT bag, segment FROM segments
    UNION ALL SELECT bag, changes FROM input_versions"""
_OF_CALLS = "coalesce(json_extract(bags.spec, '$.calls'), 0)"
# For each part of a bag: its number of calls, and its text if it names a file.
_PARTS = """
    SELECT json_array_length(part, '$.space.values.items'),
        CASE WHEN instr(part, '"@') THEN part END
    FROM (SELECT 0 AS number, spec AS part FROM bags WHERE id = ?1
          UNION ALL SELECT number, segment FROM segments WHERE bag = ?1) ORDER BY number"""
_DONE = """
    SELECT task FROM ends INDEXED BY counted
    WHERE bag = ? AND counted = 1 AND outcome = 0 AND task >= ? AND task < ?"""


class _Named(Struct):
    """The files in a spec, a segment, or a version of the inputs."""

    rows: Rows | None = None
    inputs: tuple[Placed, ...] = ()
    manifest: dict[str, Blob] = {}


class _Spaced(Struct):
    space: Space


_named = msgspec.json.Decoder(_Named)
_spaced = msgspec.json.Decoder(_Spaced)


def page(
    connection: sqlite3.Connection, bag: int, values: Point, after: int, limit: int
) -> list[ReturnedFile]:
    """At most `limit` files, and not many more bytes than PAGE_BYTES; but always all files of the
    first result."""
    page_files: list[ReturnedFile] = []
    left = PAGE_BYTES
    for row, task, count in connection.execute(_RESULTS, (bag, after, limit)).fetchall():
        if page_files and (len(page_files) + count > limit or left <= 0):
            break
        of_task = values(task)
        bounds = (row << FILES_SHIFT, (row + 1) << FILES_SHIFT)
        files = [_file(row, task, of_task, kept) for kept in connection.execute(_FILES, bounds)]
        left -= sum(len(file.data) + len(file.path) for file in files)
        left -= sum(len(value) for value in of_task if isinstance(value, str)) * len(files)
        page_files += files
    return page_files


def named_files(connection: sqlite3.Connection) -> NamedFiles:
    owners: dict[int, str] = dict(connection.execute(_OWNERS).fetchall())
    named_by_owner = NamedFiles({}, {})
    for bag, digest in connection.execute(_RETURNED):
        named_by_owner.returned.setdefault(owners.get(bag, ""), set()).add(digest)
    for bag, text in connection.execute(_NAMING):
        if bag in owners and (digests := set(_digests_in(text))):
            named_by_owner.bags.setdefault(owners[bag], set()).update(digests)
    for bag, digest in _calls_to_make(connection):
        named_by_owner.bags.setdefault(owners[bag], set()).add(digest)
    return named_by_owner


def _calls_to_make(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """The files of large calls that may still be sent, each with its bag."""
    bags = connection.execute(
        f"""SELECT id FROM bags WHERE {_OF_CALLS} AND status <> ? AND (instr(spec, '"@') OR EXISTS (
            SELECT 1 FROM segments WHERE bag = id AND instr(segment, '"@')))""",
        (BagStatus.CANCELLED.value,),
    )
    for (bag,) in bags.fetchall():
        first = 0
        for count, text in connection.execute(_PARTS, (bag,)):
            if text is not None:
                done = {task for (task,) in connection.execute(_DONE, (bag, first, first + count))}
                for task, blob in enumerate(_call_files(text), first):
                    if blob is not None and task not in done:
                        yield bag, blob.digest
            first += count


def _call_files(text: str) -> Iterator[Blob | None]:
    """The file of each call in a spec or a segment; None for small calls."""
    return call_files.file_of_each(Segment(space=_spaced.decode(text).space))


def _digests_in(text: str) -> Iterator[str]:
    """The digests of the files in a spec, a segment, or a version of the inputs."""
    named = _named.decode(text)
    yield from (blob.digest for blob in named.manifest.values())
    yield from (placed.blob.digest for placed in named.inputs if placed.blob is not None)
    if named.rows is not None:
        yield named.rows.digest


def _file(row: int, task: int, values: list[Any], kept: tuple[Any, ...]) -> ReturnedFile:
    path, size, digest, data, packed, executable = kept
    return ReturnedFile(
        row=row,
        task=task,
        values=values,
        path=path,
        size=size,
        digest=digest or "",
        data=zlib.decompress(data) if packed else data or b"",
        executable=bool(executable),
    )
