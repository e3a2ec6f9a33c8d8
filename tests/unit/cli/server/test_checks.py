"""What the doctor finds."""

import os
from pathlib import Path
from typing import Any

import pytest

from covey import config
from covey.cli.server import checks
from covey.cli.server.checks import FAIL, OK, WARN
from covey.core.errors import BadConfig
from covey.core.record.model import SiteSpec


def settings(directory: Path, **local: Any) -> config.Config:
    return config.Config(dir=str(directory), local=config.Local(**local))


def test_all_is_well_in_a_new_directory(tmp_path: Path) -> None:
    tree = settings(tmp_path / "new" / "one")
    found = checks.run_all(config.Settled(tree, dict.fromkeys(config.SETTINGS, "default")))
    assert FAIL not in {check.verdict for check in found}
    told = {check.name: check.told for check in found}
    assert "does not exist yet" in told["directory"]
    assert told["settings"] == "all are defaults"
    assert "no server is running" in told["server"]
    assert not (tmp_path / "new").exists()


def test_the_pilot_is_really_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_pilot(settings(tmp_path)).verdict == OK
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho no module named ssl >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="no module named ssl"):
        checks.check_pilot(settings(tmp_path))
    broken.unlink()
    assert checks.check_pilot(settings(tmp_path)).verdict == WARN


def test_sites_of_the_file(tmp_path: Path) -> None:
    def with_sites(*sites: SiteSpec, **serve: Any) -> config.Config:
        return config.Config(dir=str(tmp_path), sites=sites, serve=config.Serve(**serve))

    near, far = (SiteSpec(name=n, driver="slurm", host=h) for n, h in (("n", ""), ("f", "login")))
    assert checks.check_sites(with_sites()).verdict == OK
    assert checks.check_sites(with_sites(near)).told == "n (slurm)"
    found = checks.check_sites(with_sites(near, far))
    assert (found.verdict, "pilots at f cannot call" in found.told) == (WARN, True)
    assert checks.check_sites(with_sites(far, listen="0.0.0.0")).verdict == OK
    assert checks.check_sites(with_sites(far, public="https://a")).verdict == OK
    with pytest.raises(BadConfig, match="did you mean 'slurm'"):
        checks.check_sites(with_sites(SiteSpec(name="x", driver="slrum")))


def test_more_slots_than_cores(tmp_path: Path) -> None:
    assert checks.check_cores(settings(tmp_path, slots=10_000)).verdict == WARN
    assert checks.check_cores(settings(tmp_path)).verdict == OK


def test_a_clock_that_was_never_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 12345.0)
    assert checks.check_clock(settings(tmp_path)).verdict == FAIL


def test_a_server_that_is_named_but_away(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t\n")
    token.chmod(0o600)
    tree = config.Config(dir=str(tmp_path), server="http://127.0.0.1:9", token_file=str(token))
    found = checks.run_all(config.Settled(tree, dict.fromkeys(config.SETTINGS, "default")))
    (server,) = [check for check in found if check.name == "server"]
    assert server.verdict == FAIL
    assert "connection refused" in server.told


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = checks.check_directory(settings(tmp_path / "file"))
    assert found.verdict == FAIL
    assert os.fspath(tmp_path) in found.told


def test_how_memory_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []

    class Group:
        def __init__(self, name: str) -> None:
            self.name = name

        def remove(self) -> None:
            removed.append(self.name)

    monkeypatch.setattr("covey.pilot.walls.resource_limits.make_group", Group)
    assert "by the kernel" in checks.check_memory_limits(settings(tmp_path)).told
    assert removed == [f"covey-doctor-{os.getpid()}"]
    monkeypatch.setattr("covey.pilot.walls.resource_limits.make_group", lambda name: None)
    assert "control groups cannot be made" in checks.check_memory_limits(settings(tmp_path)).told


def test_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.pilot.host.host_facts.gpus", lambda given, environment: ["0", "1"])
    assert checks.check_gpus(settings(tmp_path)).told == "2 seen: 0, 1"
    monkeypatch.setattr("covey.pilot.host.host_facts.gpus", lambda given, environment: [])
    assert checks.check_gpus(settings(tmp_path)).told == "none found"


def test_the_size_of_the_cache(tmp_path: Path) -> None:
    assert checks.check_cache(settings(tmp_path, cache_mb=2048)).told == (
        f"empty; at most 2.0 GB will be kept in {tmp_path}/cache"
    )
    (tmp_path / "cache" / "ab").mkdir(parents=True)
    (tmp_path / "cache" / "ab" / "one").write_bytes(b"x" * (1 << 20))
    (tmp_path / "cache" / "two").symlink_to("nowhere")
    told = checks.check_cache(settings(tmp_path, cache_mb=2048)).told
    assert told == "1.0 MB in 2 files, of at most 2.0 GB"
