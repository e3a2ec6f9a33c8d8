"""Finding the files that a task returns, and taking them.

The rule: a file is returned if a pattern matches it, or a directory above it, and if it lies in
the task's directory really, whatever symbolic links say. Patterns are a shell's: ``*`` and ``?``
stay within a name and do not match a dot at its beginning, ``**`` spans directories. An input that
the task did not change is no output, unless a pattern names it in full.

Small files come back as bytes, so that a million of them never become files again; larger ones
are moved to the outbox, from which the pilot uploads them.
"""

import errno
import os
import re
import shutil
import stat
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from covey.pilot.orders import Returned

INLINE_BYTES = 16384
INLINE_TOTAL_BYTES = 65536
MOST_FILES = 10000
_SHOWN = 5
_MAGIC = re.compile(r"[*?\[]")


class Unfit(Exception):
    """What the task left is not what was asked for."""


class Wanted:
    """A pattern made ready to match."""

    __slots__ = ("_expression", "literal", "prefix", "text")

    def __init__(self, text: str) -> None:
        parts = [part for part in text.split("/") if part not in ("", ".")]
        if text.startswith("/") or ".." in parts or not parts:
            raise Unfit("the output pattern {!r} leads out of the task's directory".format(text))
        plain = 0
        while plain < len(parts) and not _MAGIC.search(parts[plain]):
            plain += 1
        self.text = text
        self.literal = plain == len(parts)
        self.prefix = "/".join(parts[:plain])
        self._expression = None if self.literal else re.compile(_expression(parts))

    def match(self, path: str) -> bool:
        """Whether it means the file of this path."""
        if self._expression is None:
            return path == self.prefix or path.startswith(self.prefix + "/")
        return self._expression.match(path) is not None


def _expression(parts: Sequence[str]) -> str:
    text = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            text += ".*" if last else r"(?:(?!\.)[^/]+/)*"
        else:
            text += _name_expression(part) + ("" if last else "/")
    return "(?:" + text + r")(?:/.*)?\Z"


def _name_expression(part: str) -> str:
    text = r"(?!\.)" if part[0] in "*?[" else ""
    index = 0
    while index < len(part):
        letter = part[index]
        index += 1
        if letter == "*":
            text += "[^/]*"
        elif letter == "?":
            text += "[^/]"
        elif letter == "[" and "]" in part[index + 1 :]:
            end = part.index("]", index + 1)
            inner = part[index:end].replace("\\", "\\\\").replace("[", "\\[")
            text += "[" + ("^" + inner[1:] if inner[0] in "!^" else inner) + "]"
            index = end + 1
        else:
            text += re.escape(letter)
    return text


Found = Dict[str, os.stat_result]


def find(
    root: str, required: Sequence[Wanted], optional: Sequence[Wanted], inputs: Dict[str, str]
) -> Found:
    """All files to return, by their path below ``root`` ("" is where we stand). ``inputs`` says
    which paths were put there, and from where. Raises Unfit."""
    found: Found = {}
    for wanted in required:
        before = len(found)
        _find_one(root, wanted, inputs, found)
        if len(found) == before and not any(wanted.match(path) for path in found):
            raise Unfit(
                "no output matches {!r} (there is {})".format(wanted.text, _listing(root, inputs))
            )
    for wanted in optional:
        _find_one(root, wanted, inputs, found)
    return found


def _find_one(root: str, wanted: Wanted, inputs: Dict[str, str], found: Found) -> None:
    if wanted.literal:
        full = os.path.join(root, wanted.prefix)
        seen = _look(full)
        if seen is not None and _is_inside(root, wanted.prefix, full):
            found[wanted.prefix] = seen
            return
    for path in _walk(root, wanted.prefix):
        if not wanted.match(path):
            continue
        full = os.path.join(root, path)
        seen = _look(full)
        if seen is None or (os.path.islink(full) and not _is_below(root, full)):
            continue
        if _is_input(seen, inputs.get(path)):
            continue
        found[path] = seen
        if len(found) > MOST_FILES:
            raise Unfit("more than {} files match {!r}".format(MOST_FILES, wanted.text))


def _look(full: str) -> Optional[os.stat_result]:
    """A file's status; None where there is none."""
    try:
        seen = os.stat(full)
    except (OSError, ValueError):
        return None
    return seen if stat.S_ISREG(seen.st_mode) else None


def _is_inside(root: str, path: str, full: str) -> bool:
    plain = "/" not in path and not os.path.islink(full)
    return plain or _is_below(root, full)


def _is_below(root: str, full: str) -> bool:
    real_root = os.path.realpath(root or ".")
    return os.path.realpath(full).startswith(real_root.rstrip("/") + "/")


def _is_input(seen: os.stat_result, source: Optional[str]) -> bool:
    if source is None:
        return False
    try:
        before = os.stat(source)
    except OSError:
        return False
    if (seen.st_ino, seen.st_dev) == (before.st_ino, before.st_dev):
        return True
    return (seen.st_size, seen.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def _walk(root: str, prefix: str) -> Iterator[str]:
    """The paths of everything but directories below root/prefix, in order."""
    if prefix and not _is_below(root, os.path.join(root, prefix)):
        return
    folders = [prefix]
    while folders:
        folder = folders.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, folder) or "."))
        except OSError:
            continue
        below = []
        for name in names:
            path = folder + "/" + name if folder else name
            try:
                if stat.S_ISDIR(os.lstat(os.path.join(root, path)).st_mode):
                    below.append(path)
                    continue
            except OSError:
                continue
            yield path
        folders.extend(reversed(below))


def _listing(root: str, inputs: Dict[str, str]) -> str:
    names = []
    for path in _walk(root, ""):
        if path not in inputs:
            names.append(path)
        if len(names) > _SHOWN:
            return ", ".join(names[:_SHOWN]) + ", …"
    return ", ".join(names) or "no file"


def weigh(found: Found, most_bytes: int) -> None:
    """Raises Unfit when they are too much."""
    total = sum(seen.st_size for seen in found.values())
    if total > most_bytes:
        words = "its {} output files have {:.1f} MB, more than the {:g} MB that a task may return"
        raise Unfit(words.format(len(found), total / 1048576, most_bytes / 1048576))


def take(root: str, found: Found, target: str, keep: bool) -> List[Returned]:
    """The files themselves; ``target`` begins the paths of those that are moved. With ``keep``
    they stay where they are, too. Raises OSError."""
    files: List[Returned] = []
    room = INLINE_TOTAL_BYTES
    for path in sorted(found):
        seen = found[path]
        executable = bool(seen.st_mode & stat.S_IXUSR)
        full = os.path.join(root, path)
        if seen.st_size <= min(INLINE_BYTES, room):
            data = _read(full)
            room -= len(data)
            files.append(Returned(path, len(data), executable, data, ""))
        else:
            moved_to = "{}-{}".format(target, len(files))
            _move(full, moved_to, seen, keep)
            files.append(Returned(path, os.path.getsize(moved_to), executable, b"", moved_to))
    return files


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except PermissionError:
        os.chmod(path, 0o600)  # it is ours all the same
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(fd, INLINE_BYTES)
    finally:
        os.close(fd)


def _move(path: str, target: str, seen: os.stat_result, keep: bool) -> None:
    """By copying where it must stay, or where others have it too (a linked input)."""
    os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
    if not keep and seen.st_nlink == 1 and not os.path.islink(path):
        try:
            os.rename(path, target)
            os.chmod(target, 0o600)
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    shutil.copyfile(path, target)


Patterns = Tuple[Wanted, ...]


def patterns(texts: Sequence[str]) -> Patterns:
    """Raises Unfit for one that cannot be."""
    return tuple(Wanted(text) for text in texts)
