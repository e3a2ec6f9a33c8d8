"""Who holds which file: an owner may name in bags, and read, only the files that they hold.

The rule: knowing a digest grants nothing. An owner holds a file if they sent the complete file
here, if a pilot sent it for one of their tasks, or if the server's own token or an admin put it
into one of their bags. Nobody learns what others hold: a file that only others hold is reported as
missing, and must be sent again. The disk has it only once.

An owner who does not use a file, in bags or otherwise, loses it after a while, even if others hold
it. The record has the files that bags name: they are restored from there when a server starts. In
directories of versions that did not have holders, so is what tasks returned.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from covey.core.errors import NotFound, StoreFailed
from covey.ports import NamedFiles
from covey.store.files.blobs import Blobs, Collected, check_digest
from covey.store.files.holder_table import Holders, key_of
from covey.wire import Stored

HOLDERS = "holders.db"


class Holdings:
    """May be used by several threads. The owner None is the server itself, which holds every file.
    All methods may raise StoreFailed, and BadFile for an invalid digest."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs
        self._holders = Holders(blobs.folder / HOLDERS)
        self._known = blobs.is_empty()  # whether all holders are known; without files, they are

    # -- reading ---------------------------------------------------------------------------

    def missing(self, owner: str | None, digests: Iterable[str]) -> list[str]:
        """The digests that the owner does not hold. The other files are renewed: the caller is
        about to use them, so `collect` must not remove them soon."""
        if owner is None:
            return self.blobs.missing(digests)
        unique = list(dict.fromkeys(digests))
        held = self._found(owner, unique, renew=True)
        return [digest for digest in unique if digest not in held or not self.blobs.renew(digest)]

    def state(self, owner: str | None, digest: str) -> Stored:
        """How much of the file the owner has sent."""
        if owner is None or self._holds(owner, digest):
            return self.blobs.state(digest)
        return self.blobs.partial(digest, key_of(owner))

    def path(self, owner: str | None, digest: str) -> Path:
        """Raises NotFound if the owner does not hold the file."""
        if owner is None or self._holds(owner, digest):
            return self.blobs.path(digest)
        raise NotFound(
            f"you have no file {digest}: you did not send it here, and no task of yours returned it"
        )

    # -- writing ---------------------------------------------------------------------------

    def put_piece(
        self, owner: str | None, digest: str, offset: int, size: int, data: bytes
    ) -> Stored:
        """Take a piece of a file of `size` bytes; see `Blobs.put_piece`. An owner who has sent the
        complete file holds it. Nobody holds what the server itself sends, until it is granted."""
        if owner is None:
            return self.blobs.put_piece(digest, offset, size, data)
        if not self.missing(owner, [digest]):
            return self.blobs.state(digest)

        def proved() -> Callable[[], object]:
            return self._holders.add(owner, digest).result

        return self.blobs.put_piece(digest, offset, size, data, key_of(owner), proved)

    def grant(self, owner: str, digests: list[str]) -> None:
        """From now on the owner holds these files, which are here. This need not be durable: a bag
        that names them is about to be recorded."""
        for digest in digests:
            check_digest(digest)
        self._holders.note(owner, digests)

    def restore(self, named: NamedFiles) -> None:
        """Restore the holders from the record, at the start of a server."""
        parts = [named.bags] if self._is_known() else [named.bags, named.returned]
        for part in parts:
            for owner, digests in part.items():
                new = digests - self._holders.found(owner, sorted(digests), renew=False)
                self._holders.note(owner, sorted(new))
        self._holders.set_complete()

    def collect(
        self,
        named: NamedFiles,
        older_than_seconds: float,
        unfinished_seconds: float | None = None,
    ) -> Collected:
        """Owners lose files that they have not used for `older_than_seconds`, unless one of their
        bags or results names them. Files that no owner holds and nothing names are removed. For
        broken uploads, see `Blobs.collect`."""
        kept = {owner: named.of(owner) for owner in (*named.bags, *named.returned)}
        held = self._holders.remove_unused(time.time() - older_than_seconds, kept)
        keep = held.union(*kept.values())
        return self.blobs.collect(keep, older_than_seconds, unfinished_seconds)

    def close(self) -> None:
        self._holders.close()

    # -- inside ----------------------------------------------------------------------------

    def _holds(self, owner: str, digest: str) -> bool:
        return digest in self._found(owner, [digest], renew=False) and self.blobs.has(digest)

    def _found(self, owner: str, digests: list[str], *, renew: bool) -> set[str]:
        for digest in digests:
            check_digest(digest)
        if not self._is_known():
            raise StoreFailed("the server is still finding out who owns its files; try again soon")
        return self._holders.found(owner, digests, renew=renew)

    def _is_known(self) -> bool:
        self._known = self._known or self._holders.complete()
        return self._known
