"""Remove the directories that killed pilots left in the temporary directory.

The rule: a pilot that works in a directory `covey-pilot-…` holds a kernel lock (`flock`) on a file
in that directory, and writes the machine's name into it. The next pilot of this user with the same
temporary directory removes such a directory if its pilot is certainly dead: it is a plain directory
of this user that nobody else can write to, its lock is free and of this machine, and no process has
it as working directory. All others stay. No link out of the directory is followed (`safe_paths`).
"""

import fcntl
import os
import re
import stat
from typing import Optional

from covey.pilot.files.safe_paths import open_directory, remove
from covey.pilot.host import host_facts, machine_id

LOCK_FILE = ".pilot-lock"
MOST_DIRECTORIES = 1000  # that one pilot checks
_NAME = re.compile(r"covey-pilot-[A-Za-z0-9_]{1,32}")
_MOST_BYTES = 256


def place_of(directory: str) -> str:
    """The directory `covey-pilot-…` that this directory is, or is in; "" if there is none."""
    directory = os.path.abspath(directory)
    for path in (directory, os.path.dirname(directory)):
        if _NAME.fullmatch(os.path.basename(path)):
            return path
    return ""


def hold(directory: str) -> Optional[int]:
    """Show that a pilot lives here. Returns a descriptor to keep open, or None if this directory
    needs no lock. The file counts only when the machine's name is in it, which comes after the
    lock."""
    place = place_of(directory)
    if not place:
        return None
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(os.path.join(place, LOCK_FILE), flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, _machine(), 0)
    except OSError:
        os.close(fd)  # this file system has no locks: so nobody ever removes this directory
        return None
    return fd


def sweep(directory: str) -> int:
    """Remove what dead pilots left beside this pilot's directory; returns how many directories."""
    place = place_of(directory)
    if not place:
        return 0
    parent, own = os.path.split(place)
    try:
        names = sorted(name for name in os.listdir(parent) if _NAME.fullmatch(name))
    except OSError:
        return 0
    removed = 0
    for name in names[:MOST_DIRECTORIES]:
        if name != own:
            removed += _swept(os.path.join(parent, name))
    return removed


def _swept(path: str) -> bool:
    try:
        folder = open_directory(path)
    except OSError:
        return False  # a link, a file, or a directory of another user
    try:
        if not _is_private(folder):
            return False
        fd = os.open(LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Somebody may have put another directory at this path since we opened it.
            same = os.path.samestat(os.fstat(folder), os.lstat(path))
            if not same or os.pread(fd, _MOST_BYTES, 0) != _machine() or _is_used(folder):
                return False
            remove(path)
            return True
        finally:
            os.close(fd)
    except OSError:
        return False  # its pilot lives, or it is not a pilot's directory
    finally:
        os.close(folder)


def _is_private(folder: int) -> bool:
    about = os.fstat(folder)
    return about.st_uid == os.getuid() and not stat.S_IMODE(about.st_mode) & 0o022


def _is_used(folder: int) -> bool:
    """Whether a process of this user has its working directory here: a task's leftover process."""
    prefix = os.readlink("/proc/self/fd/%d" % folder)
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            where = os.readlink("/proc/%s/cwd" % name)
        except OSError:
            continue  # ended, or of another user
        if where == prefix or where.startswith(prefix + "/"):
            return True
    return False


def _machine() -> bytes:
    """The name of this machine. If several machines see a directory, only the one whose pilot made
    it may remove it."""
    words = "%s %s\n" % (host_facts.name(), machine_id.machine_id())
    return words.encode("utf-8", "replace")[:_MOST_BYTES]
