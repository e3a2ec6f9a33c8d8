"""A pilot that the server does not take, for whatever time, stays no longer than it may."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import covey
from tests.integration.pilot_stand import Stand, standing


@pytest.fixture
def stand() -> Iterator[Stand]:
    with standing() as found:
        found.enrol_status = 503
        yield found


def run(stand: Stand, place: Path, **more: float) -> "subprocess.CompletedProcess[str]":
    start = {
        "address": stand.address,
        "secret": "s",
        "slots": 1,
        "directory": str(place / "work"),
        "cache": str(place / "cache"),
        "gpus": "none",
        **more,
    }
    (place / "start.json").write_text(json.dumps(start))
    command = [sys.executable, "-m", "covey.pilot", str(place / "start.json")]
    sources = str(Path(covey.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": sources}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=40)


def test_its_time_is_over(stand: Stand, tmp_path: Path) -> None:
    done = run(stand, tmp_path, until=time.time() + 3)
    assert done.returncode == 1
    assert done.stderr.endswith("and it could not enrol: giving up\n")
    assert not (tmp_path / "work").exists()


def test_its_patience_is_over(stand: Stand, tmp_path: Path) -> None:
    done = run(stand, tmp_path, patience_seconds=0.5)
    assert done.returncode == 1
    assert done.stderr.endswith(" s: giving up\n")
    assert stand.enrols
