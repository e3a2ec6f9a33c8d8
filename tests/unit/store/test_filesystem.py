"""Network file systems are told from local ones by the table of mounts."""

from pathlib import Path

import pytest

from covey.store import filesystem

MOUNTS = r"""rootfs / rootfs rw 0 0
/dev/sda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb /home/fast xfs rw 0 0
mds@tcp:/scratch /scratch lustre rw 0 0
user@host: /mnt/my\040files fuse.sshfs rw 0 0
overlay /var/lib fuse.fuse-overlayfs rw 0 0
short line
//nas/share /nas cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/data/x", "ext4", False),
        ("/home", "nfs4", True),
        ("/home/me/.covey/record.db", "nfs4", True),
        ("/home/fast/x", "xfs", False),
        ("/home/faster/x", "nfs4", True),
        ("/scratch/x", "lustre", True),
        ("/scratchy/x", "ext4", False),
        ("/mnt/my files/x", "fuse.sshfs", True),
        ("/var/lib/x", "fuse.fuse-overlayfs", False),
        ("/nas/x", "cifs", True),
    ],
)
def test_kind(path: str, kind: str, network: bool) -> None:
    assert filesystem.kind(Path(path), MOUNTS) == kind
    assert filesystem.is_network(kind) is network
    assert bool(filesystem.warning(Path(path), kind)) is network


def test_nothing_is_known_without_mounts() -> None:
    assert filesystem.kind(Path("/x"), "") == ""
    assert not filesystem.is_network("")


@pytest.mark.parametrize("kind", ["nfs", "gpfs", "beegfs", "ceph", "fuse.glusterfs", "9p", "smb3"])
def test_known_network_file_systems(kind: str) -> None:
    assert filesystem.is_network(kind)
    assert kind in filesystem.warning(Path("/x"), kind)
