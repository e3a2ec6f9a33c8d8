"""Checks that the open files of the record are still the files at their paths.

Somebody may remove or replace them under a running server (`rm -rf`, a restored copy). The server
would then write into files that nobody can find again. So it compares device and inode after each
commit, and does not acknowledge a commit to such a file.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from covey.core.errors import StoreGone


class OwnFiles:
    """The files that are at these paths when the object is made."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Raises OSError if a file does not exist."""
        self._identities = {os.fspath(path): _identity(os.fspath(path)) for path in paths}

    def check(self) -> None:
        """Raises StoreGone; OSError if the file system does not answer."""
        for path, ours in self._identities.items():
            try:
                present = _identity(path)
            except (FileNotFoundError, NotADirectoryError):
                raise StoreGone(path, "removed") from None
            if present != ours:
                raise StoreGone(path, "replaced")


def _identity(path: str) -> tuple[int, int]:
    state = os.stat(path)
    return state.st_dev, state.st_ino
