"""Finding files: a single one, all in a directory, or those that match a pattern."""

import glob
import os
import re
import stat
from typing import NamedTuple

from covey.core.errors import InvalidBag
from covey.pilot.protocol.placeholders import PLACEHOLDER

SKIPPED = frozenset({".git", ".covey", "__pycache__"})
_WILDCARD = re.compile(r"[*?\[]")


class Found(NamedTuple):
    """A file to upload: one on this machine, or text that covey made, in `data`."""

    path: str
    size: int
    executable: bool
    data: bytes = b""


class Finder:
    """Symbolic links are followed. More than `most` files in a directory raise InvalidBag."""

    def __init__(self, most: int) -> None:
        self.most = most

    def file(self, path: str) -> Found:
        """Raises FileNotFoundError, or InvalidBag if it is not a readable regular file."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(path) from None
        except (OSError, ValueError) as error:
            raise InvalidBag(f"{path}: {error}") from None
        if stat.S_ISDIR(found.st_mode):
            raise InvalidBag(f"{path} is a directory; name the files in it")
        if not stat.S_ISREG(found.st_mode):
            raise InvalidBag(f"{path} is not a regular file")
        if not os.access(path, os.R_OK):
            raise InvalidBag(f"{path} cannot be read: permission denied")
        return Found(os.path.abspath(path), found.st_size, bool(found.st_mode & 0o111))

    def walk(self, folder: str) -> list[tuple[str, Found]]:
        """All files below, sorted, with their relative paths."""
        found: list[tuple[str, Found]] = []
        self._walk(folder, "", found, ())
        return found

    def _walk(
        self, folder: str, relative: str, found: list[tuple[str, Found]], above: tuple[str, ...]
    ) -> None:
        real = os.path.realpath(folder)
        if real in above:
            raise InvalidBag(f"{folder} is a link back to {real}, which contains it")
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            raise InvalidBag(f"{folder}: {error.strerror}") from None
        for name in names:
            path, inner = os.path.join(folder, name), os.path.join(relative, name)
            if os.path.isdir(path):
                if name not in SKIPPED:
                    self._walk(path, inner, found, (*above, real))
                continue
            try:
                found.append((inner, self.file(path)))
            except FileNotFoundError:
                raise InvalidBag(f"{path} is a broken link") from None
            if len(found) > self.most:
                raise InvalidBag(
                    f"{folder}: the inputs have more than {self.most:,} files; "
                    "pack them into an archive"
                )

    def matches(self, pattern: str) -> list[str]:
        """Paths that match, sorted, as a shell would find them; ** is any number of folders."""
        folder = fixed_folder(pattern)
        return [
            path
            for path in sorted(glob.glob(pattern, recursive=True))
            if not SKIPPED & set(os.path.relpath(path, folder).split("/"))
        ]

    def alike(self, source: str, base: str) -> list[str]:
        """Existing paths that `source` could become if its {NAME}s had values (without slashes)."""
        parts = PLACEHOLDER.split(source)
        pattern = "".join("*" if i % 2 else glob.escape(part) for i, part in enumerate(parts))
        seen: set[str] = set()
        exact = ""
        for index, part in enumerate(parts):
            if index % 2 == 0:
                exact += re.escape(part)
            else:
                exact += f"(?P={part})" if part in seen else f"(?P<{part}>[^/]+)"
                seen.add(part)
        fits = re.compile(exact)
        found = glob.glob(pattern, root_dir=base, include_hidden=True)
        return sorted(path for path in found if fits.fullmatch(path))


def has_wildcards(path: str) -> bool:
    return _WILDCARD.search(path) is not None


def fixed_folder(pattern: str) -> str:
    """The part of a pattern before its first folder with a wildcard."""
    parts = pattern.split("/")
    for index, part in enumerate(parts):
        if has_wildcards(part):
            return "/".join(parts[:index]) or "/"
    return os.path.dirname(pattern)
