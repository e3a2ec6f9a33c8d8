"""Whoever dies holds nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from covey.pilot.files import cache_leases as module
from covey.pilot.files.cache_leases import Leases, claim, lock

HOLD = """
import sys
from covey.pilot.files.cache_leases import Leases, lock
kept = lock(sys.argv[1])
leases = Leases(sys.argv[2], "theirs")
leases.hold("needed")
print(kept is not None, flush=True)
sys.stdin.read()
"""


def test_a_lock_is_anothers_until_he_ends(tmp_path: Path) -> None:
    path, folder = str(tmp_path / "lock"), str(tmp_path / "leases")
    mine = Leases(folder, "mine")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"True\n"
        assert lock(path) is None
        assert mine.everyone() == {"needed"}
        other.kill()
        other.wait()
    assert mine.everyone() == set()
    assert sorted(os.listdir(folder)) == ["mine.lease"]
    assert lock(path) is not None


def test_a_lock_may_be_shared_and_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first, second = lock(path, shared=True), lock(path, shared=True)
    assert first is not None
    assert second is not None
    assert lock(path) is None
    first.close()
    second.remove()
    assert not os.path.exists(path)
    assert lock(path) is not None


def test_names_are_counted(tmp_path: Path) -> None:
    mine, other = Leases(str(tmp_path), "a"), Leases(str(tmp_path), "b")
    for name in ("x", "x", "y"):
        mine.hold(name)
    mine.drop("x")
    mine.drop("y")
    mine.drop("never held")
    assert other.everyone() == {"x"}
    mine.close()
    assert other.everyone() == set()


def test_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 200)
    mine, other = Leases(str(tmp_path), "a"), Leases(str(tmp_path), "b")
    mine.hold("kept")
    for number in range(1000):
        mine.hold(f"n{number}")
        mine.drop(f"n{number}")
    assert os.path.getsize(tmp_path / "a.lease") < 300
    assert other.everyone() == {"kept"}


def test_a_key_is_one_pilots(tmp_path: Path) -> None:
    first = Leases(str(tmp_path), "a")
    with pytest.raises(OSError):
        Leases(str(tmp_path), "a")
    first.close()
    Leases(str(tmp_path), "a").close()


def test_claims(tmp_path: Path) -> None:
    first = claim(str(tmp_path), "gpu", ["0", "GPU-a/b", "2"], 2)
    assert list(first) == ["0", "GPU-a/b"]
    assert list(claim(str(tmp_path), "gpu", ["0", "GPU-a/b", "2"], 3)) == ["2"]
    assert list(claim(str(tmp_path), "processor", ["0"], 1)) == ["0"]
