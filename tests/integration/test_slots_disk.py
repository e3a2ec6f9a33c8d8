"""A full disk holds tasks back, and its failures are the host's."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.slots_harness import Harness, wait_until

SIZE = 4 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 4 MB (the tests run as root)."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},nr_inodes=200", "none", str(disk)], check=True
    )
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, count: int = SIZE) -> Path:
    path = disk / "filler"
    try:
        with path.open("wb", buffering=0) as file:
            while count > 0:
                count -= file.write(bytes(min(count, 65536)))
    except OSError:
        pass
    return path


def test_a_task_waits_for_space(small_disk: Path) -> None:
    harness = Harness(small_disk / "slots", count=1, minimum_free_bytes=1 << 20)
    filler = fill(small_disk)
    harness.sh("held", "echo ran")
    harness.sh("recalled", "echo ran")
    harness.slots.recall(["recalled"])
    assert harness.wait("recalled")[0].kind == "returned"
    time.sleep(1.2)
    assert harness.slots.running() == {"held": 0}
    filler.unlink()
    assert harness.wait("held")[0].stdout == b"ran\n"
    filler = fill(small_disk)
    time.sleep(0.2)  # space is looked at ten times a second
    harness.sh("cancelled", "echo ran")
    time.sleep(0.1)
    harness.slots.cancel("cancelled")
    assert harness.wait("cancelled")[0].kind == "returned"
    filler.unlink()
    harness.close()


def test_failing_on_a_full_disk_is_the_fault_of_the_host(small_disk: Path) -> None:
    harness = Harness(small_disk / "slots", count=1, minimum_free_bytes=1 << 20)
    full = harness.run("head -c 8000000 /dev/zero > file")
    assert (full.kind, full.exit_code) == ("host", 1)
    assert f"no space left in {small_disk}/slots" in full.message
    assert harness.run("ls -A; exit 1").kind == "failed"
    harness.close()


def test_inodes_count_too(small_disk: Path) -> None:
    harness = Harness(small_disk / "slots", count=1, minimum_free_bytes=1 << 10)
    spent = harness.run("i=0; while : > f$i; do i=$((i+1)); done 2> /dev/null; exit 1")
    assert spent.kind == "host"
    assert "no inodes left" in spent.message
    assert harness.run("true").kind == "ok"
    harness.close()


def test_slots_start_on_a_full_disk(small_disk: Path) -> None:
    (small_disk / "slots").mkdir()
    fillers: list[Path] = []
    while True:
        filler = small_disk / f"inode-{len(fillers)}"
        try:
            filler.touch()
        except OSError:
            break
        fillers.append(filler)
    harness = Harness(small_disk / "slots", count=1, minimum_free_bytes=1 << 10)
    harness.sh("task", "echo ran")
    harness.sh("unwanted", "echo ran")
    harness.slots.cancel("unwanted")
    assert harness.wait("unwanted")[0].kind == "returned"
    for filler in fillers:
        filler.unlink()
    assert harness.wait("task")[0].stdout == b"ran\n"
    wait_until(lambda: harness.slots.running() == {})
    harness.close()
