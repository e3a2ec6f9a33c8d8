"""Whose the files are: what an owner may name in a bag, and read.

The rule: to know a digest grants nothing. An owner holds a file that they sent here, all of it, or
that a pilot sent for a task of theirs, or that the server's own token or an admin put into a bag of
theirs. Nobody is told what others hold: a file that only others hold is missing, and must be sent
as if it were not here. On the disk it is kept once.

An owner who does not use a file, in bags or otherwise, loses it after a while, whoever else holds
it. What bags name is in the record too: from there it is learnt again when a server starts. In
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
    """For several threads. An owner of None is the server itself, which holds all that is here.
    All calls may raise BadFile, for what is no digest, and StoreFailed."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs
        self._holders = Holders(blobs.folder / HOLDERS)
        self._known = blobs.is_empty()  # whether all holders are: then there is nothing to know

    # -- seeing ----------------------------------------------------------------------------

    def missing(self, owner: str | None, digests: Iterable[str]) -> list[str]:
        """Those that the owner does not hold. The others are as good as new: whoever asks is
        about to use them, so they are not collected soon."""
        if owner is None:
            return self.blobs.missing(digests)
        asked = list(dict.fromkeys(digests))
        held = self._found(owner, asked, renew=True)
        return [one for one in asked if one not in held or not self.blobs.renew(one)]

    def state(self, owner: str | None, digest: str) -> Stored:
        """How much of the file the owner has sent."""
        if owner is None or self._holds(owner, digest):
            return self.blobs.state(digest)
        return self.blobs.partial(digest, key_of(owner))

    def path(self, owner: str | None, digest: str) -> Path:
        """Raises NotFound unless the owner holds it."""
        if owner is None or self._holds(owner, digest):
            return self.blobs.path(digest)
        raise NotFound(
            f"you have no file {digest}: you did not send it here, and no task of yours returned it"
        )

    # -- changing --------------------------------------------------------------------------

    def put_piece(
        self, owner: str | None, digest: str, offset: int, size: int, data: bytes
    ) -> Stored:
        """Some of a file of `size` bytes; see `Blobs.put_piece`. Who has sent all of it holds
        it. What the server itself sends is nobody's until it is granted."""
        if owner is None:
            return self.blobs.put_piece(digest, offset, size, data)
        if not self.missing(owner, [digest]):
            return self.blobs.state(digest)

        def proved() -> Callable[[], object]:
            return self._holders.add(owner, digest).result

        return self.blobs.put_piece(digest, offset, size, data, key_of(owner), proved)

    def grant(self, owner: str, digests: list[str]) -> None:
        """From now on the owner holds these files, which are here. That need not be durable: the
        bag that names them is about to be, and says the same."""
        for digest in digests:
            check_digest(digest)
        self._holders.note(owner, digests)

    def restore(self, named: NamedFiles) -> None:
        """At the start of a server: what the record says."""
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
        """Owners lose what they have not used for so long, and no bag or result of theirs names.
        Files that nobody holds, and nothing names, are removed; for uploads that were broken off,
        see `Blobs.collect`."""
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
