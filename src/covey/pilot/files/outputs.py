"""Find the files that a task returns, and take them out of its directory.

The rule: a file is returned if a pattern matches it or a directory above it (see
``output_patterns``), and if it really lies in the task's directory, whatever symbolic links say. A
link to a file in the directory is returned as that file. A link to a directory is followed only if
a pattern names it in full. An input that the task did not change is not an output, unless a pattern
names it in full.

The task may change its directory at any moment: ``safe_paths`` says how files there are opened.
What the search saw is checked again when a file is taken. Small files come back as bytes, so that a
million of them never become files again. Larger ones are moved to the outbox, which no task can
reach, and are checked there; the pilot uploads them from there.
"""

import contextlib
import errno
import os
import stat
from typing import Callable, Dict, Generator, List, NamedTuple, Optional, Sequence, Tuple

from covey.pilot.files.output_patterns import Pattern
from covey.pilot.files.safe_paths import (
    MOST_DEPTH,
    LeadsOut,
    Root,
    open_directory,
    open_file,
    remove_at,
    some_names,
    status,
)
from covey.pilot.protocol.message_limits import clean
from covey.pilot.protocol.messages import LARGEST, LONGEST_UNKEPT_NAME, MOST_UNKEPT_NAMES, Unkept
from covey.pilot.slots.orders import Returned

INLINE_BYTES = 16384
INLINE_TOTAL_BYTES = 65536
MOST_FILES = 10000
MOST_LOOKED_AT = 1000000  # names in a task's directory that a search for outputs looks at
MOST_PATH_BYTES = 4096
MOST_UNKEPT = 10000  # names in a task's directory that are looked at to count unkept files
_CACHES = ("__pycache__",)  # directories that programs fill by themselves
_SHOWN = 5
_PIECE_BYTES = 4 << 20
_OFTEN = 1000  # names between two calls of ``breathe``
_CANNOT_RENAME = (errno.EXDEV, errno.EACCES, errno.EPERM)
# The errors for a name that is no longer the file that was found.
CHANGED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.EINVAL, errno.ENXIO)

Breathe = Callable[[], None]
Found = Dict[str, os.stat_result]


class Unfit(Exception):
    """The task's output files are not as the bag requires."""


class _LookedAtEnough(Exception):
    """A walk without a pattern has seen the largest number of names."""


class Search:
    """One search through a task's directory. ``inputs`` has the path of each input and the file it
    came from. A long search calls ``breathe`` now and then, which may raise."""

    def __init__(
        self,
        root: Root,
        inputs: Dict[str, str],
        breathe: Breathe,
        most_looked_at: Optional[int] = None,
    ) -> None:
        self.root = root
        self._most_looked_at = most_looked_at or MOST_LOOKED_AT
        self.found: Found = {}
        self._inputs = inputs
        self._breathe = breathe
        self._looked_at = 0
        self._outside: List[str] = []  # links that lead out of the directory

    def weigh(self, most_bytes: int) -> None:
        """Raises Unfit if the files that were found are too large."""
        weigh(len(self.found), sum(seen.st_size for seen in self.found.values()), most_bytes)

    def add(self, required: Sequence[Pattern], optional: Sequence[Pattern] = ()) -> None:
        """Add the files that match to ``found``. Raises Unfit."""
        for pattern in required:
            before = len(self.found)
            self._add_one(pattern)
            if len(self.found) == before and not any(map(pattern.match, self.found)):
                raise Unfit(self._missing(pattern))
        for pattern in optional:
            self._add_one(pattern)

    def _missing(self, pattern: Pattern) -> str:
        words = "no output matches {!r} (there is {})".format(pattern.text, self._listing())
        for path in self._outside[:1]:
            words += "; {!r} is a link that leads out of the task's directory".format(path)
        return words

    def _add_one(self, pattern: Pattern) -> None:
        self._outside = []
        if pattern.literal:
            seen = self._look(pattern.prefix)
            if seen is not None and stat.S_ISREG(seen.st_mode):
                self._keep(pattern, pattern.prefix, seen)
                return
        with contextlib.closing(self._walk(pattern.prefix, pattern)) as paths:
            for path, seen in paths:
                target = self._look(path) if stat.S_ISLNK(seen.st_mode) else seen
                if target is None or not stat.S_ISREG(target.st_mode):
                    continue
                if not _is_input(target, self._inputs.get(path)):
                    self._keep(pattern, path, target)

    def _keep(self, pattern: Pattern, path: str, seen: os.stat_result) -> None:
        if len(path.encode("utf-8", "surrogateescape")) > MOST_PATH_BYTES:
            words = "a path that matches {!r} is longer than {} bytes: {:.100}…"
            raise Unfit(words.format(pattern.text, MOST_PATH_BYTES, path))
        self.found[path] = seen
        if len(self.found) > MOST_FILES:
            raise Unfit("more than {} files match {!r}".format(MOST_FILES, pattern.text))

    def _look(self, path: str) -> Optional[os.stat_result]:
        """The status of the file that a path leads to; None if it is not in this directory."""
        try:
            place = self.root.find(path)
        except LeadsOut:
            self._outside.append(path)
            return None
        except (OSError, ValueError):
            return None
        self.root.leave(place)
        return place.seen

    def _walk(
        self, prefix: str, pattern: Optional[Pattern]
    ) -> Generator[Tuple[str, os.stat_result], None, None]:
        """The paths below the prefix that match, except directories; all of them without a
        pattern. Raises Unfit."""
        fd, path = self._open(prefix), prefix
        if fd < 0:
            return
        places = pattern.after(prefix) if pattern else 0
        levels: List[_Level] = []  # from the prefix down to the present directory
        try:
            while fd >= 0:
                level = _Level(fd, path, [])
                levels.append(level)
                for name in sorted(some_names(fd, self._most_looked_at + 1)):
                    self._count(pattern)
                    after = pattern.step(places, name) if pattern else 0
                    if pattern and not after:
                        continue
                    try:
                        seen = status(name, fd)
                    except OSError:
                        continue
                    if stat.S_ISDIR(seen.st_mode):
                        level.folders.append((name, after))
                    elif pattern is None or after == pattern.matched:
                        yield level.below(name), seen
                level.folders.reverse()
                fd, path, places = self._next(levels, pattern)
        finally:
            for level in levels:
                os.close(level.fd)

    def _next(self, levels: List["_Level"], pattern: Optional[Pattern]) -> Tuple[int, str, int]:
        """Open the next directory of the walk; the descriptor is -1 if there is none left."""
        while levels:
            level = levels[-1]
            if not level.folders:
                os.close(levels.pop().fd)
                continue
            name, places = level.folders.pop()
            path = level.below(name)
            if len(levels) > MOST_DEPTH:
                if pattern is None:
                    continue
                words = "the directories that {!r} matches are more than {} deep: {:.100}…"
                raise Unfit(words.format(pattern.text, MOST_DEPTH, path))
            try:
                return open_directory(name, level.fd, self.root.own), path, places
            except OSError:
                continue  # removed, or not readable
        return -1, "", 0

    def _open(self, prefix: str) -> int:
        """Open the directory at this path; -1 if there is none."""
        if not prefix:
            return os.dup(self.root.fd)
        try:
            place = self.root.find(prefix)
        except (LeadsOut, OSError, ValueError):
            return -1
        try:
            return open_directory(place.name, place.folder, self.root.own)
        except OSError:
            return -1
        finally:
            self.root.leave(place)

    def _count(self, pattern: Optional[Pattern]) -> None:
        """Count one more name. Raises Unfit if there are too many."""
        self._looked_at += 1
        if self._looked_at % _OFTEN == 0:
            self._breathe()
        if self._looked_at > self._most_looked_at:
            if pattern is None:
                raise _LookedAtEnough
            words = "more than {} files were searched for {!r}: put outputs into folders"
            raise Unfit(words.format(self._most_looked_at, pattern.text))

    def _listing(self) -> str:
        """The names of a few files that are there."""
        names: List[str] = []
        with contextlib.closing(self._all_paths()) as paths:
            for looked_at, (path, _) in enumerate(paths):
                if path not in self._inputs:
                    names.append(path)
                if len(names) > _SHOWN or looked_at > MOST_FILES:
                    return ", ".join(names[:_SHOWN] + ["…"])
        return ", ".join(names) or "no file"

    def _all_paths(self) -> Generator[Tuple[str, os.stat_result], None, None]:
        """All files and links below the directory. Stops early after too many names."""
        try:
            for path, seen in self._walk("", None):
                yield path, seen
        except _LookedAtEnough:
            pass

    def unkept(self) -> Optional[Unkept]:
        """The files that the task leaves besides those in ``found``; None if there are none. Counts
        only names that the pattern ``*`` would match, up to the limit of the search."""
        kept = {(seen.st_dev, seen.st_ino) for seen in self.found.values()}
        files, size = 0, 0
        names: List[str] = []
        with contextlib.closing(self._all_paths()) as paths:
            for path, seen in paths:
                folders = path.split("/")[:-1]
                hidden = path.startswith(".") or any(name in _CACHES for name in folders)
                is_kept = (seen.st_dev, seen.st_ino) in kept
                if hidden or is_kept or not stat.S_ISREG(seen.st_mode):
                    continue
                if _is_input(seen, self._inputs.get(path)):
                    continue
                files += 1
                size += seen.st_size
                if len(names) < MOST_UNKEPT_NAMES:
                    names.append(clean(path, LONGEST_UNKEPT_NAME))
        return Unkept(files, min(size, LARGEST), names) if files else None


class _Level(NamedTuple):
    """A directory on the present path of a walk: its descriptor, its path, and the directories in
    it still to be walked, each with the places in the pattern that it reaches; the next is last."""

    fd: int
    path: str
    folders: List[Tuple[str, int]]

    def below(self, name: str) -> str:
        return self.path + "/" + name if self.path else name


def weigh(count: int, size: int, most_bytes: int) -> None:
    """Raises Unfit if the files have more bytes than a task may return."""
    if size > most_bytes:
        words = "its {} output files have {:.1f} MB, more than the {:g} MB that a task may return"
        raise Unfit(words.format(count, size / 1048576, most_bytes / 1048576))


def take(
    root: Root, found: Found, target: str, most_bytes: int, breathe: Breathe
) -> List[Returned]:
    """Take the files that were found. ``target`` is the beginning of the paths of moved files. In a
    directory that is not our own, files are copied instead. Raises Unfit and OSError; then nothing
    is taken."""
    inodes: Dict[Tuple[int, int], int] = {}
    for seen in found.values():
        inodes[seen.st_dev, seen.st_ino] = inodes.get((seen.st_dev, seen.st_ino), 0) + 1
    taker = Taker(root, target, most_bytes, breathe)
    try:
        for path in sorted(found):
            seen = found[path]
            taker.take(path, inodes[seen.st_dev, seen.st_ino] > 1)
        return taker.files
    except BaseException:
        taker.undo()
        raise
    finally:
        taker.close()


class Taker:
    """Takes files out of a task's directory, one by one, into ``files``."""

    def __init__(self, root: Root, target: str, most_bytes: int, breathe: Breathe) -> None:
        self.files: List[Returned] = []
        self._root = root
        self._outbox_path, self._target = os.path.split(target)
        self._outbox = -1
        self._most_bytes = most_bytes
        self._total = 0  # bytes
        self._room = INLINE_TOTAL_BYTES
        self._breathe = breathe

    def close(self) -> None:
        if self._outbox >= 0:
            os.close(self._outbox)
            self._outbox = -1

    def undo(self) -> None:
        """Remove all files that were moved to the outbox."""
        for file in self.files:
            if file.moved_to:
                remove_at(os.path.basename(file.moved_to), self._outbox)
        self.files = []

    def take(self, path: str, shared: bool) -> None:
        """Take a file that was found. ``shared``: another found path leads to the same file. Raises
        Unfit and OSError."""
        try:
            place = self._root.find(path)
            try:
                fd, seen = open_file(place.name, place.folder, self._root.own)
            except BaseException:
                self._root.leave(place)
                raise
        except (LeadsOut, OSError) as error:
            if isinstance(error, OSError) and error.errno not in CHANGED:
                raise
            raise _changed(path) from error
        try:
            self._weigh(seen.st_size)
            executable = bool(seen.st_mode & stat.S_IXUSR)
            if seen.st_size <= min(INLINE_BYTES, self._room):
                data = os.read(fd, seen.st_size)
                self._room -= len(data)
                self._add(path, len(data), executable, data)
            elif shared or seen.st_nlink > 1 or not self._root.own:
                self._add(path, self._copy(fd, seen.st_size), executable)
            else:
                self._add(path, self._move(path, place.name, place.folder, fd), executable)
        finally:
            os.close(fd)
            self._root.leave(place)

    def move(self, name: str, as_path: str) -> None:
        """Move a file at the top of the directory, to be returned as ``as_path``. Raises Unfit, and
        OSError: with an errno of CHANGED if it is a link or has other names."""
        fd, seen = open_file(name, self._root.fd)
        try:
            if seen.st_nlink != 1:
                raise OSError(errno.EINVAL, "the file has other names", name)
            self._weigh(seen.st_size)
            self._add(as_path, self._move(name, name, self._root.fd, fd), False)
        finally:
            os.close(fd)

    def _add(self, path: str, size: int, executable: bool, data: Optional[bytes] = None) -> None:
        moved_to = os.path.join(self._outbox_path, self._name()) if data is None else ""
        self.files.append(Returned(path, size, executable, data or b"", moved_to))
        self._total += size
        weigh(len(self.files), self._total, self._most_bytes)

    def _weigh(self, size: int) -> None:
        """Raises Unfit if one more file of this size would be too much."""
        weigh(len(self.files) + 1, self._total + size, self._most_bytes)

    def _name(self) -> str:
        """The name of the next file in the outbox."""
        return "{}-{}".format(self._target, len(self.files))

    def _open_outbox(self) -> None:
        if self._outbox < 0:
            os.makedirs(self._outbox_path, 0o700, exist_ok=True)
            self._outbox = open_directory(self._outbox_path)

    def _move(self, path: str, name: str, folder: int, fd: int) -> int:
        """Move the file that is open as ``fd``, and no other, to the outbox; returns its size."""
        self._open_outbox()
        target = self._name()
        try:
            os.rename(name, target, src_dir_fd=folder, dst_dir_fd=self._outbox)
        except OSError as error:
            if error.errno in _CANNOT_RENAME:
                return self._copy(fd, os.fstat(fd).st_size)
            if error.errno in CHANGED:
                raise _changed(path) from error
            raise
        if not os.path.samestat(status(target, self._outbox), os.fstat(fd)):
            remove_at(target, self._outbox)
            raise _changed(path)
        os.fchmod(fd, 0o600)
        return os.fstat(fd).st_size

    def _copy(self, fd: int, size: int) -> int:
        """Copy up to ``size`` bytes of an open file to the outbox; returns how many there were."""
        self._open_outbox()
        target = self._name()
        remove_at(target, self._outbox)  # a slot that died may have left one
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        copied = 0
        new = os.open(target, flags, 0o600, dir_fd=self._outbox)
        try:
            while copied < size:
                piece = os.read(fd, min(_PIECE_BYTES, size - copied))
                if not piece:
                    break
                left = memoryview(piece)
                while left:
                    left = left[os.write(new, left) :]
                copied += len(piece)
                self._breathe()
        except BaseException:
            os.unlink(target, dir_fd=self._outbox)
            raise
        finally:
            os.close(new)
        return copied


def _changed(path: str) -> Unfit:
    return Unfit("its output {!r} was changed while covey copied it".format(path))


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
