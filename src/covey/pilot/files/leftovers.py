"""Directories that killed pilots left in the temporary directory, and who removes them.

The rule: a pilot that works in a directory `covey-pilot-…` holds a kernel lock (`flock`) on a file
in it, and has written there which machine it is on. The next pilot of this user that uses the same
temporary directory removes such a directory if its pilot is surely dead: it is a plain directory of
this user that nobody else can write to, its lock is free and of this machine, and no process stands
in it.
What is not surely dead stays. Nothing is followed out of the directory (`safe_paths`).
"""

import fcntl
import os
import re
import stat
from typing import Optional

from covey.pilot.files.safe_paths import open_directory, remove
from covey.pilot.host import host_facts, machine_id

LOCK_FILE = ".pilot-lock"
MOST_DIRECTORIES = 1000  # that one pilot looks at
_NAME = re.compile(r"covey-pilot-[A-Za-z0-9_]{1,32}")
_MOST_BYTES = 256


def place_of(directory: str) -> str:
    """The directory `covey-pilot-…` that a pilot's own directory is, or is in; "" if none."""
    directory = os.path.abspath(directory)
    for path in (directory, os.path.dirname(directory)):
        if _NAME.fullmatch(os.path.basename(path)):
            return path
    return ""


def hold(directory: str) -> Optional[int]:
    """Show that a pilot lives here: a descriptor to be kept open, None where nothing is to be
    shown. The words are written after the lock is taken: until then nobody believes the file."""
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
        os.close(fd)  # no locks on this file system: then nobody ever sweeps here
        return None
    return fd


def sweep(directory: str) -> int:
    """Remove what dead pilots left beside this pilot's directory; how many directories."""
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
        return False  # a link, a file, or somebody else's
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
        return False  # its pilot lives, or it is none of a pilot's
    finally:
        os.close(folder)


def _is_private(folder: int) -> bool:
    found = os.fstat(folder)
    return found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o022


def _is_used(folder: int) -> bool:
    """Whether a process of ours stands in it: what tasks have left runs there."""
    prefix = os.readlink("/proc/self/fd/%d" % folder)
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            where = os.readlink("/proc/%s/cwd" % name)
        except OSError:
            continue  # gone, or not ours
        if where == prefix or where.startswith(prefix + "/"):
            return True
    return False


def _machine() -> bytes:
    """Names this machine. A directory that several machines see is swept only by the machine
    whose pilot made it."""
    words = "%s %s\n" % (host_facts.name(), machine_id.machine_id())
    return words.encode("utf-8", "replace")[:_MOST_BYTES]
