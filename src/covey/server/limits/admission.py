"""Checks of a submission before it is accepted: the server has every file that it names, complete,
and the bag's owner holds them. Rows of files are counted here, and the needs of tasks read from
their parameters. So an accepted bag never waits for its author, and knowing a file's digest gives
nobody access to the file.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from msgspec.structs import replace

from covey.core.errors import BadFile, InvalidBag, NotFound, StoreError
from covey.core.record import call_files
from covey.core.record.input_files import digests_in
from covey.core.record.model import BagSpec, InputChanges, Role, Rows, Segment
from covey.core.record.task_classes import find_needs
from covey.core.record.task_needs import varies
from covey.core.values.space import Scalar
from covey.server.limits.shares import SUBMISSIONS, Workers, asks_now
from covey.server.web.auth import Caller
from covey.server.web.problems import HttpProblem

MOST_NAMED = 20
T = TypeVar("T")


class Files(Protocol):
    """The files that the server has, and who holds which. The owner None holds all."""

    def missing(self, owner: str | None, digests: Iterable[str]) -> list[str]:
        """Which of these the owner does not hold. Raises BadFile for a bad digest."""
        ...

    def grant(self, owner: str, digests: list[str]) -> None:
        """From now on the owner holds these files, which the server has."""
        ...


class RowFiles(Protocol):
    def describe(self, digest: str, form: str) -> Rows:
        """The file's column names and its number of rows. It may read the whole file. Raises
        InvalidBag, with the reason."""
        ...

    def every(self, rows: Rows) -> Iterable[list[Scalar]]:
        """The rows of the file, in order."""
        ...


class Admission:
    def __init__(self, files: Files, tables: RowFiles) -> None:
        self._files = files
        self._tables = tables
        self._threads = Workers(SUBMISSIONS, "admission")  # large files take a while

    async def bag(self, spec: BagSpec, caller: Caller) -> BagSpec:
        """The bag, with its rows and the needs of its tasks filled in. Raises HttpProblem if the
        bag cannot be accepted."""
        await self._check(list(_named(spec)), spec.owner, caller)
        first = Segment(space=spec.space, rows=spec.rows)
        first = await self._described(first, spec, is_first=True)
        return replace(spec, rows=first.rows, task_needs=first.task_needs)

    async def segment(
        self, segment: Segment, owner: str, caller: Caller, spec: BagSpec | None
    ) -> Segment:
        """The segment, with its rows and needs filled in, for this owner's bag. `spec` is the
        bag's; None: the server does not know the bag."""
        if spec is None or spec.calls:  # an unknown bag is refused later
            large = [blob.digest for blob in call_files.files_in(segment)]
            await self._check(large, owner, caller)
        if segment.rows is not None:
            await self._check([segment.rows.digest], owner, caller)
        return await self._described(segment, spec)

    async def changes(self, changes: InputChanges, owner: str, caller: Caller) -> None:
        """Checks other input files for a bag of this owner. Raises HttpProblem if the server
        lacks one."""
        await self._check(list(digests_in(changes)), owner, caller)

    async def _check(self, digests: list[str], owner: str, caller: Caller) -> None:
        if not digests:
            return
        missing = await self._in_thread(lambda: self._lacking(digests, owner, caller))
        if missing:
            more = f" and {len(missing) - MOST_NAMED:,} more" if len(missing) > MOST_NAMED else ""
            words = (
                "you have not uploaded all files that the bag names, and no task of yours returned "
                f"them; upload these first: {', '.join(missing[:MOST_NAMED])}{more}"
            )
            raise HttpProblem(409, "missing-files", words)

    def _lacking(self, digests: list[str], owner: str, caller: Caller) -> list[str]:
        """The files that the bag's owner does not hold. An admin (or the server's own token) who
        submits for the owner gives them the files first."""
        missing = self._files.missing(owner, digests)
        if missing and caller.may(Role.ADMIN) and caller.holder != owner:
            missing_to_caller = self._files.missing(caller.holder, missing)
            if not missing_to_caller:
                self._files.grant(owner, missing)
            return missing_to_caller
        return missing

    async def _described(
        self, segment: Segment, spec: BagSpec | None, *, is_first: bool = False
    ) -> Segment:
        segment = replace(segment, task_needs=())
        if segment.rows is None and (spec is None or not varies(spec)):
            return segment
        return await self._in_thread(lambda: self._describe(segment, spec, is_first))

    def _describe(self, segment: Segment, spec: BagSpec | None, is_first: bool) -> Segment:
        rows = segment.rows
        if rows is not None:
            rows = self._tables.describe(rows.digest, rows.form)
            segment = replace(segment, rows=rows)
        if spec is None or not varies(spec):
            return segment
        if is_first:
            spec = replace(spec, rows=rows)
        needs = find_needs(spec, segment, self._tables.every(rows) if rows is not None else ())
        return replace(segment, task_needs=needs)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await self._threads.run(asks_now.get(), work)
        except (BadFile, InvalidBag) as error:
            raise HttpProblem(400, "invalid", str(error)) from error
        except NotFound as error:
            raise HttpProblem(409, "missing-files", str(error)) from error
        except (OSError, StoreError) as error:
            problem = f"the server cannot read the files: {error}; try again soon"
            raise HttpProblem(503, "unavailable", problem, 2) from error


def _named(spec: BagSpec) -> Iterator[str]:
    yield from digests_in(spec)
    if spec.rows is not None:
        yield spec.rows.digest
    if spec.calls:
        yield from (blob.digest for blob in call_files.files_in(Segment(space=spec.space)))
