"""Whether the open files of the record are still those that have their names.

Somebody may remove or replace them under a running server (`rm -rf`, a restored copy). The server
could go on writing into files that nobody will find again, so it looks at device and inode after
each commit, and acknowledges nothing that went into such a file.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from covey.core.errors import StoreGone


class OwnFiles:
    """What is there when this is made is taken to be ours."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Raises OSError if one is not there."""
        self._known = {os.fspath(path): _identity(os.fspath(path)) for path in paths}

    def check(self) -> None:
        """Raises StoreGone; OSError if the file system does not answer."""
        for path, known in self._known.items():
            try:
                found = _identity(path)
            except (FileNotFoundError, NotADirectoryError):
                raise StoreGone(path, "removed") from None
            if found != known:
                raise StoreGone(path, "replaced")


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
