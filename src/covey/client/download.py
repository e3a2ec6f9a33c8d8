"""What tasks returned, laid out in folders.

Paths come from tasks and are not trusted: nothing is ever written outside the folder, whatever
they say. A file appears under its name only when it is whole and verified, and one that is there
already is left alone, so a `covey pull` may be interrupted and repeated as one likes.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from covey.client.digests import hash_file
from covey.core.errors import BadFile, CoveyError, InvalidQuery, NotFound
from covey.core.values.placeholders import fill, names_of
from covey.core.values.space import Scalar
from covey.wire import BagView, ReturnedFile

TEMPLATE = "{task}"
PAGE_FILES = 1000
MOST_REASONS = 20
LONGEST_NAME_BYTES = 200  # of a folder that a value makes
LONGEST_PART_BYTES = 255
LONGEST_PATH_BYTES = 4000

_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]")


class Source(Protocol):
    """A server, or the record and its files."""

    def bag(self, bag: int) -> BagView | None: ...

    def files(self, bag: int, after: int = -1, limit: int = 1000) -> list[ReturnedFile]: ...

    def read_file(self, digest: str) -> Iterator[bytes]: ...


class Pulled(Struct, kw_only=True):
    """What came of it. Files are refused that cannot be written as they are called, or whose
    content is gone."""

    files: int = 0
    bytes: int = 0
    kept: int = 0  # were there already
    refused: int = 0
    reasons: list[str] = []  # for the first few of those


Progress = Callable[[Pulled], None]


def _ignore(pulled: Pulled) -> None:
    """Nobody looks."""


def pull(
    source: Source,
    bag: int,
    folder: Path,
    template: str = TEMPLATE,
    progress: Progress = _ignore,
) -> Pulled:
    """Every file that the bag has returned so far, at `folder/<template>/<its path>`. In the
    template, {task}, {bag} and the names of parameters stand for a task's values. Raises
    InvalidQuery if the template makes no sense, or puts files of two tasks in one place."""
    view = source.bag(bag)
    if view is None:
        raise NotFound(f"there is no bag {bag}")
    layout = Layout(folder, template, bag, view.names)
    pulled = Pulled()
    after = -1
    while page := source.files(bag, after, PAGE_FILES):
        for file in page:
            try:
                _place(source, file, layout, pulled)
            except (BadFile, NotFound) as error:
                pulled.refused += 1
                pulled.reasons += [f"task {file.task}: {error}"][
                    : MOST_REASONS - len(pulled.reasons)
                ]
            progress(pulled)
        after = page[-1].row
    return pulled


class Layout:
    """Where each file goes."""

    def __init__(self, folder: Path, template: str, bag: int, names: list[str]) -> None:
        self._folder = folder
        self._bag = bag
        self._names = names
        self._parts = [part for part in template.split("/") if part not in ("", ".")]
        self._taken: dict[str, int] | None = None if "{task}" in self._parts else {}
        known = ["task", "bag", *names]
        for name in names_of(template):
            if name not in known:
                raise InvalidQuery(f"{{{name}}} is not in this bag; there are {', '.join(known)}")
        if ".." in self._parts or template.startswith("/"):
            raise InvalidQuery(f"template {template!r}: it must stay inside the folder")

    def place(self, file: ReturnedFile) -> Path:
        """Raises BadFile for a path that leads elsewhere, InvalidQuery if it is taken."""
        values: dict[str, Scalar] = dict(zip(self._names, file.values, strict=True))
        values |= {"task": file.task, "bag": self._bag}
        folders = [fill(part, values) for part in self._parts]
        relative = "/".join([*map(safe, folders), *_own_parts(file.path)])
        if len(os.fsencode(relative)) > LONGEST_PATH_BYTES:
            raise BadFile(f"{file.path[:80]!r}… is too long a path")
        if self._taken is not None:
            other = self._taken.setdefault(relative, file.task)
            if other != file.task:
                raise InvalidQuery(
                    f"tasks {other} and {file.task} would both be {relative}. Put {{task}}, or "
                    "parameters that tell them apart, into the template"
                )
        return self._folder / relative

    def check_inside(self, folder: Path) -> None:
        """A link that somebody made must not lead out of it."""
        real = os.path.realpath(folder)
        root = os.path.realpath(self._folder)
        if real != root and not real.startswith(root.rstrip("/") + "/"):
            raise BadFile(f"{folder} leads outside {self._folder}")


def safe(text: str) -> str:
    """As a folder's name."""
    text = _UNSAFE.sub("_", text[:LONGEST_NAME_BYTES])  # a character has a byte or more
    while len(text.encode(errors="replace")) > LONGEST_NAME_BYTES:
        text = text[:-1]
    return text if text.strip(". ") else f"_{text}"


def _own_parts(path: str) -> list[str]:
    """Of the path that a task has given its file."""
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise BadFile(f"{path!r} is not a path inside the task's directory")
    if any(len(os.fsencode(part)) > LONGEST_PART_BYTES for part in parts):
        raise BadFile(f"{path[:80]!r}… is too long a name")
    return parts


def _place(source: Source, file: ReturnedFile, layout: Layout, pulled: Pulled) -> None:
    place = layout.place(file)
    try:
        layout.check_inside(place.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        if _is_there(place, file):
            pulled.kept += 1
            return
        _write(source, file, place)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BadFile(f"{place}: a file and a folder have the same name") from error
    except OSError as error:
        raise CoveyError(f"cannot write {place}: {error.strerror or error}") from error
    pulled.files += 1
    pulled.bytes += file.size


def _is_there(place: Path, file: ReturnedFile) -> bool:
    if place.is_symlink() or not place.is_file() or place.stat().st_size != file.size:
        return False
    return hash_file(place) == _digest(file)


def _digest(file: ReturnedFile) -> str:
    return file.digest or hashlib.sha256(file.data).hexdigest()


def _write(source: Source, file: ReturnedFile, place: Path) -> None:
    """Under another name first, always the same one, so that nothing is left behind twice."""
    digest = _digest(file)
    scratch = place.with_name(f".covey-{digest[:16]}.part")
    found = hashlib.sha256()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = 0o777 if file.executable else 0o666
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()
        with open(os.open(scratch, flags, mode), "wb") as out:
            for data in source.read_file(digest) if file.digest else (file.data,):
                found.update(data)
                out.write(data)
        if found.hexdigest() != digest:
            raise BadFile(f"{file.path}: what arrived is not what the task returned")
        os.replace(scratch, place)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise
