"""A slot's files on disk: one private directory and two output files.

The rule: every task finds its directory new, and that costs almost nothing. A fresh directory per
task would cost a third of the throughput of short tasks, so one is reused: it is checked after each
task (one system call) and emptied or replaced only if the task left something in it, changed its
mode, or removed it. The output files are opened once, for appending, and truncated only if
something was written.

In sandboxes, where the next task may be of another owner, nothing is reused: a task can pass
descriptors of all this to a task in another slot that goes on (see ``workspace.tidy``).
"""

import fcntl
import os
import stat
import time
from typing import List, Tuple

from covey.pilot.files.safe_paths import FEW_PASSES, empty, open_directory, remove, some_names

_MODE = 0o700
_RETRIES = 2  # directories that could not be removed and are tried again after a task
# The only threshold: with less free space, a pilot does not enrol, asks for no work, gives back
# what has not started, and starts no task.
MINIMUM_FREE_BYTES = 16 << 20
_MINIMUM_FREE_INODES = 16
_LOOK_SECONDS = 0.1
CLOCK_SECONDS = 3.0  # coarser than the time stamps of any file system
_SPARE_BYTES = 64 << 20  # of output on disk, beyond what is kept at the end
_MOVING_BYTES = 1 << 20
_BLOCK = 1 << 16
END_BYTES = 65537


class Space:
    """Whether a file system has space for a task to start."""

    def __init__(self, directory: str, minimum_bytes: int) -> None:
        self.directory = directory
        self.minimum_bytes = minimum_bytes
        self._good_until = 0.0

    def short(self) -> bool:
        """Whether a task should wait. Checked at most ten times a second: a task that fails because
        the disk filled up in between is not blamed for it."""
        now = time.monotonic()
        if now >= self._good_until and not self.shortage():
            self._good_until = now + _LOOK_SECONDS
        return now >= self._good_until

    def shortage(self) -> str:
        """A message that says what is short; "" if nothing is. Quotas are not seen here."""
        try:
            about = os.statvfs(self.directory)
        except OSError as error:
            return "cannot find out the free space of {}: {}".format(self.directory, error.strerror)
        free_bytes = about.f_bavail * about.f_frsize
        if free_bytes < self.minimum_bytes:
            return "no space left in {} ({} bytes free)".format(self.directory, free_bytes)
        # Some file systems (btrfs) have no fixed number of inodes and report 0 of 0.
        if about.f_files and self.minimum_bytes and about.f_favail < _MINIMUM_FREE_INODES:
            return "no inodes left in {}".format(self.directory)
        return ""


class OutputFiles:
    """A file that takes one of a task's output streams, as descriptor ``fd``."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self._open()

    def _open(self) -> None:
        try:
            os.unlink(self.path)  # left by a slot that died, or a symbolic link of a task
        except OSError:
            pass
        flags = os.O_CREAT | os.O_EXCL | os.O_APPEND
        opened = os.open(self.path, flags | os.O_WRONLY, 0o600)
        os.dup2(opened, self.fd)  # inheritable: tasks get this descriptor
        os.close(opened)
        self._reader = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        self._flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)

    def replace(self) -> None:
        """Switch to a new file that nobody has open. Raises OSError."""
        before = self._reader
        self._open()
        os.close(before)

    def take(self, limit: int) -> Tuple[bytes, int, bytes]:
        """What was written since the last call, without the middle if it has more than ``limit``
        bytes; its true size; and its last END_BYTES."""
        size = os.lseek(self._reader, 0, os.SEEK_END)
        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
        if not size and flags == self._flags:
            return b"", 0, b""
        data = end = b""
        if size:
            if size <= limit:
                data = end = os.pread(self._reader, size, 0)
            else:
                data = self._cut(size, limit)
                end = os.pread(self._reader, END_BYTES, max(0, size - END_BYTES))
            os.ftruncate(self.fd, 0)
        # The task shared our open file and its position, and may have changed its flags.
        if flags != self._flags:
            fcntl.fcntl(self.fd, fcntl.F_SETFL, self._flags)
        os.lseek(self.fd, 0, os.SEEK_SET)
        return data, size, end

    def _cut(self, size: int, limit: int) -> bytes:
        head = limit // 2
        tail = limit - head
        left_out = size - head - tail
        return b"".join(
            (
                os.pread(self._reader, head, 0),
                b"\n[... %d bytes left out ...]\n" % left_out,
                os.pread(self._reader, tail, size - tail) if tail else b"",
            )
        )

    def relieve(self, limit: int) -> None:
        """While a task runs: free the disk space of the middle that ``take(limit)`` will leave out,
        so that a task that prints for ever does not fill the disk. The freed part reads as zeros.
        Best effort: not every file system can do it."""
        about = os.fstat(self._reader)
        if about.st_blocks * 512 <= limit + _SPARE_BYTES:
            return
        start = (limit + END_BYTES) // _BLOCK * _BLOCK + _BLOCK
        end = (about.st_size - limit - _MOVING_BYTES) // _BLOCK * _BLOCK
        if end > start:
            punch(self.fd, start, end - start)


class Home:
    """The private directory of a slot, which is the process's working directory and is open."""

    def __init__(self, path: str) -> None:
        self.first_path = self.path = path
        self.fd = -1  # of the directory itself, even if something else is at its path
        self._abandoned: List[str] = []  # directories that could not be removed so far
        self._others = 0  # how many other paths were used
        self._settle()

    def _settle(self) -> None:
        """Move into a new directory at ``path``, or at a new path if that is impossible."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)  # a task may have removed even that
        self._retry()
        try:
            self._make_way()
            os.mkdir(self.path, _MODE)
        except OSError:
            # A mount point or an immutable file: leave it, and try again at the end.
            self._abandoned.append(self.path)
            self.path = self._other_path()
            remove(self.path)
            os.mkdir(self.path, _MODE)
        self.close()
        self.fd = open_directory(self.path, unlock=True)
        os.fchmod(self.fd, _MODE)  # whatever the umask
        self.enter()
        self._identity = _identity(os.fstat(self.fd))
        self._empty_since = 0

    def _make_way(self) -> None:
        """Remove what is at ``path``, or rename it. Raises OSError."""
        try:
            remove(self.path, FEW_PASSES)
        except OSError:
            # Somebody makes files in it at this moment, or it is very deep.
            aside = self._other_path()
            os.rename(self.path, aside)
            self._abandoned.append(aside)

    def _other_path(self) -> str:
        self._others += 1
        return "{}-{}".format(self.first_path, self._others)

    def _retry(self) -> None:
        """Try again to remove some of the abandoned directories."""
        for path in self._abandoned[:_RETRIES]:
            try:
                self._abandoned.remove(path)
                remove(path, FEW_PASSES)
            except OSError:
                self._abandoned.append(path)

    def enter(self) -> None:
        os.fchdir(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def renew(self) -> None:
        """Switch to another directory after a task, because the next one may be of another owner: a
        process in another slot may have a descriptor of the old one."""
        self._settle()

    def has_files(self) -> bool:
        """Whether a task left anything here. One call if the directory was not touched."""
        try:
            if os.fstat(self.fd).st_ctime_ns == self._empty_since:
                return False
            return bool(some_names(self.fd, 1))
        except OSError:
            return False

    def tidy(self) -> None:
        """Clean up after a task."""
        try:
            # Anything made or removed in a directory, or done to it, changes its ctime, which
            # nobody can set. A ctime younger than the clock's resolution proves nothing.
            here = os.stat(".")
            if here.st_ctime_ns == self._empty_since:
                return
            about = os.lstat(self.path)
            if _identity(here) == _identity(about) == self._identity:
                if os.listdir("."):
                    empty(self.fd)
                elif time.time() - about.st_ctime > CLOCK_SECONDS:
                    self._empty_since = about.st_ctime_ns
                return
        except OSError:
            pass
        self._settle()

    def remove(self) -> None:
        os.chdir("/")
        self.close()
        for path in [self.path] + self._abandoned:
            try:
                remove(path)
            except OSError:
                pass


def _identity(about: os.stat_result) -> Tuple[int, int, int]:
    return about.st_ino, about.st_dev, stat.S_IMODE(about.st_mode)


_PUNCH_HOLE_KEEP_SIZE = 2 | 1


def punch(fd: int, start: int, size: int) -> bool:
    """Free these bytes of an open file; False if that is impossible."""
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        function = getattr(libc, "fallocate64", None) or libc.fallocate
        arguments = (ctypes.c_longlong(start), ctypes.c_longlong(size))
        return int(function(fd, _PUNCH_HOLE_KEEP_SIZE, *arguments)) == 0
    except (ImportError, AttributeError, OSError):
        return False  # not Linux, or a Python without ctypes
