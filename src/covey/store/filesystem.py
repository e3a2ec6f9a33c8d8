"""Which file system a path lies on, and whether write-ahead logging is safe there.

SQLite's WAL needs memory that all processes share which use the file. Machines that mount a network
file system have no shared memory. So there the record uses a rollback journal instead: it is
slower, but what it says is durable is durable.
"""

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")

_NETWORK = frozenset(
    {
        "9p",
        "acfs",
        "afs",
        "beegfs",
        "beegfs_nodev",
        "ceph",
        "cifs",
        "coda",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "mmfs",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "virtiofs",
        "vboxsf",
        "wekafs",
    }
)
_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.mergerfs"})


def kind(path: Path, mounts: str | None = None) -> str:
    """The type of the file system of `path` (which need not exist yet); "" if unknown."""
    if mounts is None:
        try:
            mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""
    target = os.path.realpath(path)
    longest, found = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescape(fields[1])
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # the last of equal mounts is on top
            longest, found = len(point), fields[2]
    return found


def is_network(kind: str) -> bool:
    """Whether other machines may use this file system too. Unknown FUSE types count as remote
    (sshfs, s3fs, rclone, …): a mistake only costs speed."""
    if kind.startswith("fuse."):
        return kind not in _LOCAL_FUSE
    return kind in _NETWORK


def warning(path: Path, kind: str) -> str:
    """A warning for people if the record at `path` is on a network file system, else ""."""
    if not is_network(kind):
        return ""
    return (
        f"{path} is on a network file system ({kind}): the record works there, but slowly, and "
        "only as safely as that file system's locks and fsync. A directory on a local disk is "
        "better."
    )


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
