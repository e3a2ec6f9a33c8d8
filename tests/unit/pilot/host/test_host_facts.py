"""What a pilot finds out about its host, where that can be told from a test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from covey.pilot.host import host_facts


@pytest.mark.parametrize(
    ("given", "environment", "found"),
    [
        ("0,2", {"COVEY_GPUS": "7"}, ["0", "2"]),
        (["GPU-a", "GPU-b"], {}, ["GPU-a", "GPU-b"]),
        ("", {"COVEY_GPUS": "7, 8", "CUDA_VISIBLE_DEVICES": "1"}, ["7", "8"]),
        ("", {"CUDA_VISIBLE_DEVICES": "1"}, ["1"]),
        ("", {"CUDA_VISIBLE_DEVICES": ""}, []),
        ("none", {"COVEY_GPUS": "7"}, []),
    ],
)
def test_gpus_as_told(given: object, environment: dict[str, str], found: list[str]) -> None:
    assert host_facts.gpus(given, environment) == found  # type: ignore[arg-type]


def test_gpus_as_nvidia_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: GPU-1)'\necho 'GPU 1: A (UUID: GPU-2)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert host_facts.gpus("", {}) == ["0", "1"]


def test_memory_and_disk_are_plausible(tmp_path: Path) -> None:
    assert host_facts.memory_mb() > 100
    total, free = host_facts.disk_mb(str(tmp_path))
    assert total >= free > 0
    assert host_facts.disk_mb(str(tmp_path / "missing")) == (0, 0)


def test_what_processes_use() -> None:
    code = "x = bytearray(50 << 20); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        load = host_facts.load_of([process.pid])
        process.communicate(b"\n")
    assert load.memory_mb > 50
    assert host_facts.load_of([]) == host_facts.HostLoad()


def test_a_small_environment_is_inherited() -> None:
    found = host_facts.task_environment({"HOME": "/h", "SECRET": "s"})
    assert found == {"HOME": "/h", "PATH": "/usr/local/bin:/usr/bin:/bin"}


def test_the_cache_is_in_the_home_or_with_the_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never in a directory that is called `~`."""
    assert host_facts.cache_directory({"HOME": "/home/ann"}, "/d") == "/home/ann/.cache/covey"
    assert host_facts.cache_directory({"XDG_CACHE_HOME": "/scratch"}, "/d") == "/scratch/covey"
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # a user whom nobody knows
    assert host_facts.cache_directory({}, "/d") == "/d/covey"
