"""What must be here before a submission is accepted: every file that it names, complete and held by
the bag's owner, and its rows described. So a bag that was acknowledged never waits for its author,
and nobody gets at a file by knowing its digest.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from msgspec.structs import replace

from covey.core import calls
from covey.core.errors import BadFile, InvalidBag, NotFound, StoreError
from covey.core.input_files import digests_in
from covey.core.model import BagSpec, InputChanges, Role, Rows, Segment
from covey.server.auth import Caller
from covey.server.problems import HttpProblem
from covey.server.shares import SUBMISSIONS, Workers, asks_now

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


class Admission:
    def __init__(self, files: Files, tables: Describing) -> None:
        self._files = files
        self._tables = tables
        self._threads = Workers(SUBMISSIONS, "admission")  # large files take a while

    async def bag(self, spec: BagSpec, caller: Caller) -> BagSpec:
        """The same with its rows described. Raises HttpProblem if it cannot be accepted."""
        await self._check(list(_named(spec)), spec.owner, caller)
        return spec if spec.rows is None else replace(spec, rows=await self._described(spec.rows))

    async def segment(
        self, segment: Segment, owner: str, caller: Caller, *, of_calls: bool = False
    ) -> Segment:
        """Of a bag that is this owner's."""
        if of_calls:
            large = [blob.digest for blob in calls.files_in(segment)]
            await self._check(large, owner, caller)
        if segment.rows is None:
            return segment
        await self._check([segment.rows.digest], owner, caller)
        return replace(segment, rows=await self._described(segment.rows))

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

    async def _described(self, rows: Rows) -> Rows:
        return await self._in_thread(lambda: self._tables.describe(rows.digest, rows.form))

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
        yield from (blob.digest for blob in calls.files_in(Segment(space=spec.space)))
