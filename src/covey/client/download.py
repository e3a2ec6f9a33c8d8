"""Downloads the files that tasks returned into folders.

Paths come from tasks and are not trusted: nothing is ever written outside the folder. A file gets
its name only when it is complete and its digest is right. A file that exists already with the same
content is left alone. So `covey pull` may be interrupted and repeated.
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
LONGEST_NAME_BYTES = 200  # of a folder that is named after a value
LONGEST_PART_BYTES = 255
LONGEST_PATH_BYTES = 4000

_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]")


class Source(Protocol):
    """Where the files come from: a client, or a part of it."""

    def bag(self, bag: int) -> BagView | None: ...

    def files(self, bag: int, after: int = -1, limit: int = 1000) -> list[ReturnedFile]: ...

    def read_file(self, digest: str) -> Iterator[bytes]: ...


class Pulled(Struct, kw_only=True):
    """Counts of files. A file is refused if its path is not allowed, or its content is gone."""

    files: int = 0
    bytes: int = 0
    kept: int = 0  # existed already
    refused: int = 0
    reasons: list[str] = []  # of the first refused files


Progress = Callable[[Pulled], None]


def _ignore(pulled: Pulled) -> None:
    """Show nothing."""


def pull(
    source: Source,
    bag: int,
    folder: Path,
    template: str = TEMPLATE,
    progress: Progress = _ignore,
) -> Pulled:
    """Write every file that the bag has returned so far to `folder/<template>/<its path>`. In the
    template, {task}, {bag} and the names of parameters stand for a task's values. Raises
    InvalidQuery if the template is wrong, or if files of two tasks would have the same path."""
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
    """The path of each file."""

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
        """The path for a file. Raises BadFile if the task's path is not allowed, InvalidQuery if
        another task has the same path."""
        values: dict[str, Scalar] = dict(zip(self._names, file.values, strict=True))
        values |= {"task": file.task, "bag": self._bag}
        folders = [fill(part, values) for part in self._parts]
        relative = "/".join([*map(safe, folders), *_own_parts(file.path)])
        if len(os.fsencode(relative)) > LONGEST_PATH_BYTES:
            raise BadFile(f"the path {file.path[:80]!r}… is too long")
        if self._taken is not None:
            other = self._taken.setdefault(relative, file.task)
            if other != file.task:
                raise InvalidQuery(
                    f"tasks {other} and {file.task} would both write {relative}. Put {{task}}, or "
                    "parameters that differ between them, into the template"
                )
        return self._folder / relative

    def check_inside(self, folder: Path) -> None:
        """Raises BadFile if a symbolic link leads out of the folder."""
        real = os.path.realpath(folder)
        root = os.path.realpath(self._folder)
        if real != root and not real.startswith(root.rstrip("/") + "/"):
            raise BadFile(f"{folder} leads outside {self._folder}")


def safe(text: str) -> str:
    """The text as the name of a folder."""
    text = _UNSAFE.sub("_", text[:LONGEST_NAME_BYTES])  # a character has at least one byte
    while len(text.encode(errors="replace")) > LONGEST_NAME_BYTES:
        text = text[:-1]
    return text if text.strip(". ") else f"_{text}"


def _own_parts(path: str) -> list[str]:
    """The parts of a path that a task reported. Raises BadFile."""
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise BadFile(f"{path!r} is not a path inside the task's directory")
    if any(len(os.fsencode(part)) > LONGEST_PART_BYTES for part in parts):
        raise BadFile(f"the path {path[:80]!r}… has a name that is too long")
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
    """Write to a temporary file first. Its name depends only on the digest, so that an interrupted
    download leaves at most one such file."""
    digest = _digest(file)
    scratch = place.with_name(f".covey-{digest[:16]}.part")
    arrived = hashlib.sha256()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = 0o777 if file.executable else 0o666
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()
        with open(os.open(scratch, flags, mode), "wb") as out:
            for data in source.read_file(digest) if file.digest else (file.data,):
                arrived.update(data)
                out.write(data)
        if arrived.hexdigest() != digest:
            raise BadFile(
                f"{file.path}: the file that arrived is not the one that the task returned"
            )
        os.replace(scratch, place)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise
