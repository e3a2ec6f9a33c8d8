"""What killed pilots left in the temporary directory is removed, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from covey.pilot.files import leftovers

HOLDER = "import sys, time; from covey.pilot.files import leftovers; \
print(leftovers.hold(sys.argv[1]) is not None, flush=True); time.sleep(600)"


def made(folder: Path, name: str) -> Path:
    path = folder / f"covey-pilot-{name}"
    path.mkdir(mode=0o700)
    (path / "slot-0").mkdir()
    (path / "slot-0" / "big").write_bytes(bytes(1000))
    return path


def left_by_a_dead_pilot(folder: Path, name: str) -> Path:
    path = made(folder, name)
    fd = leftovers.hold(str(path))
    assert fd is not None
    os.close(fd)  # as the kernel does when its process ends
    return path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return made(tmp_path, "own")


def test_a_dead_pilots_directory_is_removed_and_a_living_ones_stays(
    tmp_path: Path, own: Path
) -> None:
    dead, living = left_by_a_dead_pilot(tmp_path, "dead"), made(tmp_path, "living")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(living)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "True\n"
        assert leftovers.sweep(str(own)) == 1
        assert not dead.exists()
        assert living.exists()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert leftovers.sweep(str(own)) == 1
    assert not living.exists()
    assert own.exists()


def test_a_pilot_in_a_folder_of_its_place_sweeps_beside_that(tmp_path: Path, own: Path) -> None:
    dead = left_by_a_dead_pilot(tmp_path, "dead")
    assert leftovers.sweep(str(own / "work")) == 1
    assert not dead.exists()


def test_what_is_not_surely_a_dead_pilots_stays(tmp_path: Path, own: Path) -> None:
    made(tmp_path, "unlocked")  # of an older pilot, or one that is just starting
    empty = made(tmp_path, "starting")
    (empty / leftovers.LOCK_FILE).touch()
    other = left_by_a_dead_pilot(tmp_path, "othermachine")
    (other / leftovers.LOCK_FILE).write_text("elsewhere 1\n")
    writable = left_by_a_dead_pilot(tmp_path, "writable")
    writable.chmod(0o777)
    elsewhere = left_by_a_dead_pilot(tmp_path.parent, f"target{os.getpid()}")
    (tmp_path / "covey-pilot-link").symlink_to(elsewhere)
    named = tmp_path / "covey-pilot-x.log"
    named.touch()
    before = sorted(os.listdir(tmp_path))
    assert leftovers.sweep(str(own)) == 0
    assert sorted(os.listdir(tmp_path)) == before
    assert (elsewhere / "slot-0" / "big").exists()


def test_a_directory_in_which_a_process_stands_stays(tmp_path: Path, own: Path) -> None:
    used = left_by_a_dead_pilot(tmp_path, "used")
    task = subprocess.Popen(["sleep", "600"], cwd=used / "slot-0")
    try:
        assert leftovers.sweep(str(own)) == 0
        assert used.exists()
    finally:
        task.kill()
        task.wait()
    assert leftovers.sweep(str(own)) == 1


def test_links_inside_lead_nowhere(tmp_path: Path, own: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    dead = left_by_a_dead_pilot(tmp_path, "dead")
    (dead / "slot-0" / "link").symlink_to(precious)
    assert leftovers.sweep(str(own)) == 1
    assert (precious / "file").read_text() == "kept"


def test_a_directory_of_another_name_is_neither_held_nor_swept(tmp_path: Path) -> None:
    path = tmp_path / "work"
    path.mkdir()
    assert leftovers.hold(str(path / "deep")) is None
    assert leftovers.sweep(str(path / "deep")) == 0
    assert os.listdir(path) == []
