"""What must be here before a submission is accepted: every file that it names, complete, and its
rows described. So a bag that was acknowledged never waits for its author.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from msgspec.structs import replace

from covey.core import calls
from covey.core.errors import BadFile, InvalidBag, NotFound, StoreError
from covey.core.model import BagSpec, Rows, Segment
from covey.server.problems import HttpProblem

MOST_NAMED = 20
THREADS = 2

T = TypeVar("T")


class Files(Protocol):
    """Those that the server holds."""

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Which of these are not here, or not complete. Raises BadFile for what is no digest."""
        ...


class Describing(Protocol):
    def describe(self, digest: str, form: str) -> Rows:
        """The file's names and how many rows it has; may take as long as reading it. Raises
        InvalidBag, with words."""
        ...


class Admission:
    def __init__(self, files: Files, tables: Describing) -> None:
        self._files = files
        self._tables = tables
        self._threads = ThreadPoolExecutor(THREADS, "admission")  # large files take a while

    async def bag(self, spec: BagSpec) -> BagSpec:
        """The same with its rows described. Raises HttpProblem if it cannot be accepted."""
        await self._check(list(_named(spec)))
        return spec if spec.rows is None else replace(spec, rows=await self._described(spec.rows))

    async def segment(self, segment: Segment, *, of_calls: bool = False) -> Segment:
        if of_calls:
            await self._check([blob.digest for blob in calls.files_in(segment)])
        if segment.rows is None:
            return segment
        await self._check([segment.rows.digest])
        return replace(segment, rows=await self._described(segment.rows))

    async def _check(self, digests: list[str]) -> None:
        if not digests:
            return
        missing = await self._in_thread(lambda: self._files.missing(digests))
        if missing:
            more = f" and {len(missing) - MOST_NAMED:,} more" if len(missing) > MOST_NAMED else ""
            words = f"upload these first: {', '.join(missing[:MOST_NAMED])}{more}"
            raise HttpProblem(409, "missing-files", words)

    async def _described(self, rows: Rows) -> Rows:
        return await self._in_thread(lambda: self._tables.describe(rows.digest, rows.form))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except (BadFile, InvalidBag) as error:
            raise HttpProblem(400, "invalid", str(error)) from error
        except NotFound as error:
            raise HttpProblem(409, "missing-files", str(error)) from error
        except (OSError, StoreError) as error:
            problem = f"the files cannot be read: {error}"
            raise HttpProblem(503, "unavailable", problem, 2) from error


def _named(spec: BagSpec) -> Iterator[str]:
    for placed in spec.inputs:
        if placed.blob is not None:
            yield placed.blob.digest
    for blob in spec.manifest.values():
        yield blob.digest
    if spec.rows is not None:
        yield spec.rows.digest
    if spec.calls:
        yield from (blob.digest for blob in calls.files_in(Segment(space=spec.space)))
