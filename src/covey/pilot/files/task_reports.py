"""What a task reports: its result, and tags about its host.

The rule: a task that reports nothing costs at most three more system calls, and nothing that a task
writes, or does to these files, can harm its slot. The result is a file that exists, empty, before
each task. The tags go to a named pipe that the slot holds open, so that a task can open, write and
close it at any time and hardly ever waits for a reader.
"""

import errno
import json
import os
import select
import stat
import time
from typing import Any, List, Optional, Tuple

from covey.pilot.files.safe_paths import FEW_PASSES, remove
from covey.pilot.protocol.messages import MOST_RESULT
from covey.pilot.slots import slot_signals
from covey.pilot.slots.slot_files import CLOCK_SECONDS

RESULT_BYTES = MOST_RESULT
TOO_LONG = "it is longer than {} bytes".format(RESULT_BYTES)
TAG_BYTES = 16384
DROPPED = "!dropped"  # a line that says that the task wrote more than covey reads
_CHUNK = 1 << 16
_MOST_CHUNKS = 16  # read at a time
_INFINITIES = {"Infinity": "Infinity", "-Infinity": "-Infinity"}


class TaskResult:
    """The file that $COVEY_RESULT names."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stale = True  # it must be opened again
        self._fd = -1

    def open(self) -> None:
        """Make a new and empty file. Raises OSError."""
        self.stale = True
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        remove(self.path)  # left by a slot that died, or put there by a task
        self._fd = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        self.stale = False

    def take(self) -> Optional[bytes]:
        """What the task wrote, up to one byte more than allowed; None for nothing. Afterwards
        ``stale`` says whether the task replaced the file."""
        about = os.fstat(self._fd)
        if about.st_nlink == 1:
            if not about.st_size:
                return None
            if self._in_place(about):
                data = os.pread(self._fd, RESULT_BYTES + 1, 0)
                os.ftruncate(self._fd, 0)
                return data
        # The task removed or moved it, or moved another file there, as careful programs do.
        self.stale = True
        return self._read_other()

    def _in_place(self, about: os.stat_result) -> bool:
        """Whether our file is still at its path; after a move it belongs to the task."""
        try:
            return os.path.samestat(os.lstat(self.path), about)
        except OSError:
            return False

    def _read_other(self) -> Optional[bytes]:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return os.read(fd, RESULT_BYTES + 1) or None
            return None
        finally:
            os.close(fd)


class TagPipe:
    """The pipe that $COVEY_TAGS names. On a file system without pipes there is none."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = self._writer = -1
        self._kept = bytearray()
        self._poll = select.poll()

    def open(self) -> None:
        """Make the pipe, and be woken when a task writes to it."""
        try:
            remove(self.path)
            os.mkfifo(self.path, 0o600)
            reader, writer = self._ends()
        except OSError:
            return
        if self.fd < 0:
            self.fd, self._writer = reader, writer
            self._poll.register(reader, select.POLLIN)
        else:
            for new, kept in ((reader, self.fd), (writer, self._writer)):
                os.dup2(new, kept, False)  # the slot watches this number
                os.close(new)
        slot_signals.signal_input(self.fd)

    def _ends(self) -> Tuple[int, int]:
        """Open both ends of the pipe: so it has no end of file, and no task waits in ``open``. They
        are two descriptors, because one for both would wake us whenever we read. Raises OSError,
        also if a task put something else there."""
        opened: List[int] = []
        try:
            for flags in (os.O_RDONLY, os.O_WRONLY):
                opened.append(os.open(self.path, flags | os.O_NONBLOCK | os.O_NOFOLLOW))
            seen = [os.fstat(fd) for fd in opened]
            if not stat.S_ISFIFO(seen[0].st_mode) or not os.path.samestat(*seen):
                raise OSError(errno.EINVAL, "not the pipe that was made", self.path)
        except OSError:
            for fd in opened:
                os.close(fd)
            raise
        return opened[0], opened[1]

    def watched(self) -> List[int]:
        """The descriptors that a sleeping slot must watch."""
        return [self.fd] if self.fd >= 0 else []

    def drain(self) -> None:
        """Read what was written; what is too much is dropped and marked (`DROPPED`). A task that
        writes faster than we read cannot hold us here: the rest wakes us again."""
        for _ in range(_MOST_CHUNKS if self.fd >= 0 else 0):
            try:
                data = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                return
            self._kept += data[: TAG_BYTES - len(self._kept)]

    def take(self, look: bool = True) -> str:
        """All whole lines since the last time; without ``look``, only what was drained already."""
        if look and self._poll.poll(0):
            self.drain()
        if not self._kept:
            return ""
        kept = bytes(self._kept)
        self._kept.clear()
        if len(kept) == TAG_BYTES:  # the last line may have been cut
            kept = kept[: kept.rfind(b"\n") + 1] + DROPPED.encode("ascii")
        return kept.decode("utf-8", "replace")


class Folder:
    """The directory of both. If a task did more there than write, the directory is made again."""

    def __init__(self, path: str, result: TaskResult, tags: TagPipe) -> None:
        self.path = path
        self._result = result
        self._tags = tags
        self._aside = 0  # how many directories were put aside
        self._made: Any = None  # how the new directory looked
        self._same_since = 0

    def open(self) -> None:
        """Make the directory, with both files and nothing else. Raises OSError."""
        self._discard()
        os.makedirs(self.path, 0o700, exist_ok=True)
        self._tags.open()
        self._result.open()
        self._made = self._look(os.stat(self.path))
        self._same_since = 0

    def _discard(self) -> None:
        """Remove the old directory. If others make files in it, it is put aside and removed with
        the pilot's directory; if nobody can remove it, it stays."""
        try:
            remove(self.path, FEW_PASSES)
        except OSError:
            self._aside += 1
            try:
                os.rename(self.path, "{}-{}".format(self.path, self._aside))
            except OSError:
                pass

    def tidy(self) -> None:
        """Clean up after a task. Raises OSError."""
        if self._result.stale or self._changed():
            self.open()

    def _changed(self) -> bool:
        try:
            about = os.stat(self.path)
            if about.st_ctime_ns == self._same_since:  # see ``Home.tidy``
                return False
            if self._look(about) != self._made:
                return True
        except OSError:
            return True
        if time.time() - about.st_ctime > CLOCK_SECONDS:
            self._same_since = about.st_ctime_ns
        return False

    def _look(self, about: os.stat_result) -> Any:
        entries = [(entry.name, entry.inode()) for entry in os.scandir(self.path)]
        return about.st_ino, about.st_mode, sorted(entries)


def object_text(data: bytes) -> str:
    """The JSON object in data, as compact text. Raises ValueError with a message.

    NaN and the infinities, which JSON does not have but many programs write, become null and
    the strings "Infinity" and "-Infinity": readers of result tables turn both back.
    """
    if len(data) > RESULT_BYTES:
        raise ValueError(TOO_LONG)
    try:
        value = json.loads(
            data.decode("utf-8-sig"), parse_constant=_INFINITIES.get, parse_float=_number
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if not isinstance(value, dict):
        raise ValueError("it is JSON, but not an object")
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:  # half of a surrogate pair
        text = json.dumps(value, separators=(",", ":"))
        size = len(text)
    if size > RESULT_BYTES:
        raise ValueError(TOO_LONG)
    return text


def _number(text: str) -> Any:
    number = float(text)
    if number - number == 0.0:
        return number
    return "Infinity" if number > 0 else "-Infinity"  # 1e999


def last_object(printed: bytes) -> str:
    """The JSON object on the last line that was printed, as compact text; "" if there is none,
    which is not an error: a task may print anything."""
    printed = printed.rstrip()
    if not printed.endswith(b"}"):
        return ""
    line = printed[printed.rfind(b"\n") + 1 :]
    if not line.startswith(b"{"):
        return ""
    try:
        return object_text(line)
    except ValueError:
        return ""


def ignored_line(printed: bytes) -> str:
    """A remark if the last line that was printed looks like a JSON object that is too long.
    ``printed`` is the end of the output; its beginning may be cut off."""
    if len(printed) <= RESULT_BYTES:
        return ""
    printed = printed.rstrip()
    if not printed.endswith(b"}") or b"\n" in printed:
        return ""
    return "the JSON on its last line was ignored: " + TOO_LONG
