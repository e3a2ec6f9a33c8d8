"""What must be here before a submission is accepted: every file that it names, complete and held by
the bag's owner, its rows described, and what tasks need read from their parameters. So a bag that
was acknowledged never waits for its author, and nobody gets at a file by knowing its digest.
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
    """Those that the server holds, and whose they are. An owner of None holds all."""

    def missing(self, owner: str | None, digests: Iterable[str]) -> list[str]:
        """Which of these the owner does not hold. Raises BadFile for what is no digest."""
        ...

    def grant(self, owner: str, digests: list[str]) -> None:
        """From now on the owner holds these, which are here."""
        ...


class Describing(Protocol):
    def describe(self, digest: str, form: str) -> Rows:
        """The file's names and how many rows it has; may take as long as reading it. Raises
        InvalidBag, with words."""
        ...

    def every(self, rows: Rows) -> Iterable[list[Scalar]]:
        """The rows of the file, in order."""
        ...


class Admission:
    def __init__(self, files: Files, tables: Describing) -> None:
        self._files = files
        self._tables = tables
        self._threads = Workers(SUBMISSIONS, "admission")  # large files take a while

    async def bag(self, spec: BagSpec, caller: Caller) -> BagSpec:
        """The same with its rows and the needs of its tasks described. Raises HttpProblem if it
        cannot be accepted."""
        await self._check(list(_named(spec)), spec.owner, caller)
        first = Segment(space=spec.space, rows=spec.rows)
        first = await self._described(first, spec, is_first=True)
        return replace(spec, rows=first.rows, task_needs=first.task_needs)

    async def segment(
        self, segment: Segment, owner: str, caller: Caller, spec: BagSpec | None
    ) -> Segment:
        """For a bag with this spec that is this owner's; None: nobody knows it."""
        if spec is None or spec.calls:  # one that is not there is refused anyway
            large = [blob.digest for blob in call_files.files_in(segment)]
            await self._check(large, owner, caller)
        if segment.rows is not None:
            await self._check([segment.rows.digest], owner, caller)
        return await self._described(segment, spec)

    async def changes(self, changes: InputChanges, owner: str, caller: Caller) -> None:
        """Other input files for a bag that is this owner's. Raises HttpProblem if one is not
        here."""
        await self._check(list(digests_in(changes)), owner, caller)

    async def _check(self, digests: list[str], owner: str, caller: Caller) -> None:
        if not digests:
            return
        missing = await self._in_thread(lambda: self._lacking(digests, owner, caller))
        if missing:
            more = f" and {len(missing) - MOST_NAMED:,} more" if len(missing) > MOST_NAMED else ""
            words = (
                "you have not sent these files here, and no task of yours returned them; "
                f"upload these first: {', '.join(missing[:MOST_NAMED])}{more}"
            )
            raise HttpProblem(409, "missing-files", words)

    def _lacking(self, digests: list[str], owner: str, caller: Caller) -> list[str]:
        """What the bag's owner does not hold, after an admin who submits for them (or the
        server's own token) has given them what the bag names."""
        found = self._files.missing(owner, digests)
        if found and caller.may(Role.ADMIN) and caller.holder != owner:
            lacking = self._files.missing(caller.holder, found)
            if not lacking:
                self._files.grant(owner, found)
            return lacking
        return found

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
        found = find_needs(spec, segment, self._tables.every(rows) if rows is not None else ())
        return replace(segment, task_needs=found)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await self._threads.run(asks_now.get(), work)
        except (BadFile, InvalidBag) as error:
            raise HttpProblem(400, "invalid", str(error)) from error
        except NotFound as error:
            raise HttpProblem(409, "missing-files", str(error)) from error
        except (OSError, StoreError) as error:
            problem = f"the files cannot be read: {error}"
            raise HttpProblem(503, "unavailable", problem, 2) from error


def _named(spec: BagSpec) -> Iterator[str]:
    yield from digests_in(spec)
    if spec.rows is not None:
        yield spec.rows.digest
    if spec.calls:
        yield from (blob.digest for blob in call_files.files_in(Segment(space=spec.space)))
