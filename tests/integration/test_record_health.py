"""`covey doctor` looks at the record; commands that read convert one of an earlier version."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.old_records import record_of_version

COVEY = (sys.executable, "-m", "covey")


def covey(root: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: text for name, text in os.environ.items() if not name.startswith("COVEY")}
    return subprocess.run(
        [*COVEY, *words], cwd=root, env=environment, capture_output=True, text=True, check=False
    )


def doctor(root: Path) -> tuple[str, str]:
    found = json.loads(covey(root, "doctor", "--json").stdout)
    (record,) = (check for check in found if check["name"] == "record")
    return record["verdict"], record["told"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with a record of an earlier version."""
    (tmp_path / ".covey").mkdir()
    record_of_version(6, tmp_path / ".covey").rename(tmp_path / ".covey" / "covey.db")
    return tmp_path


def test_a_record_of_an_earlier_version(root: Path) -> None:
    verdict, told = doctor(root)
    assert verdict == "warn"
    assert "the next covey command converts it" in told
    found = covey(root, "bags", "--json")
    assert found.returncode == 0, found.stderr
    assert [bag["id"] for bag in json.loads(found.stdout)] == [2, 1]
    assert "converting" in found.stderr
    again = covey(root, "results", "1")
    assert (again.returncode, "converting" in again.stderr) == (0, False), again.stderr
    assert doctor(root)[0] == "ok"


@pytest.mark.parametrize("words", [["show", "1"], ["tasks", "1"], ["explain", "1"], ["hosts"]])
def test_every_command_goes_on_by_itself(root: Path, words: list[str]) -> None:
    found = covey(root, *words)
    assert found.returncode == 0, found.stderr


def test_damage_is_found(root: Path) -> None:
    assert covey(root, "bags").returncode == 0
    path = root / ".covey" / "covey.db"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    for page in range(2, len(whole) // 4096):
        damaged[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(bytes(damaged))
    verdict, told = doctor(root)
    assert verdict == "fail"
    assert "damaged" in told
    path.write_bytes(bytes(100) + whole[100:])
    verdict, told = doctor(root)
    assert (verdict, "header" in told) == ("fail", True)
    path.write_bytes(whole)
    assert doctor(root)[0] == "ok"
