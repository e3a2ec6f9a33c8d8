"""A pilot that waited in a queue while its server moved on."""

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey import __version__
from covey.pilot.protocol.messages import Body
from covey.wiring import write_pilot_file
from tests.integration.pilot_stand import Stand, standing

SECRET = "a-secret-that-nobody-may-see"


@pytest.fixture
def stand() -> Iterator[Stand]:
    with standing() as found:
        yield found


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("pilot") / "pilot.pyz"
    write_pilot_file(path)
    return path.read_bytes()


def aged(content: bytes, version: str) -> bytes:
    """The same pilot, as an older (or newer) server would have made it."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "covey/__init__.py":
                data = f'__version__ = "{version}"\n'.encode()
            new.writestr(name, data)
    return made.getvalue()


def start(
    stand: Stand, place: Path, pilot: bytes, python: str = sys.executable, **more: Any
) -> "subprocess.Popen[bytes]":
    place.mkdir(exist_ok=True)
    (place / "pilot.pyz").write_bytes(pilot)
    told = {
        "address": stand.address, "secret": SECRET, "directory": str(place / "work"), "slots": 1,
        "site": "queue", "job": "job-7", "cache": str(place / "cache"), "gpus": "none", **more,
    }  # fmt: skip
    (place / "start.json").write_text(json.dumps(told))
    command = [python, str(place / "pilot.pyz"), str(place / "start.json")]
    with open(place / "log", "wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=place)


def end(process: "subprocess.Popen[bytes]") -> int:
    process.terminate()
    return process.wait(20)


def work(stand: Stand) -> str:
    (end,) = stand.wait(stand.give(Body(1, ["echo", "worked"], ["n"])))
    return end.stdout


@pytest.mark.parametrize("python", [sys.executable, "pypy3"])
def test_an_old_pilot_becomes_the_servers(
    stand: Stand, tmp_path: Path, current: bytes, python: str
) -> None:
    stand.pilot_file = current
    process = start(stand, tmp_path, aged(current, "0.0.9"), python, drain_seconds=3.0)
    assert work(stand) == "worked\n"
    (enrol,) = stand.enrols
    # The same process, with the same start information, and nothing of it left behind.
    assert (enrol["version"], enrol["site"], enrol["job"]) == (__version__, "queue", "job-7")
    assert stand.greeted == ["HEAD", "GET", "HEAD"]
    words = (tmp_path / "log").read_text()
    assert f"version 0.0.9 becomes {__version__}" in words
    assert not (tmp_path / "start.json").exists()
    assert not (tmp_path / "work" / "renewed.pyz").exists()
    assert b"renewed.pyz" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert end(process) == 0
    assert not (tmp_path / "work").exists()


def test_a_server_of_the_same_version_renews_nobody(
    stand: Stand, tmp_path: Path, current: bytes
) -> None:
    stand.pilot_file = aged(current, "9.9.9")
    process = start(stand, tmp_path, current)
    assert work(stand) == "worked\n"
    assert stand.greeted == ["HEAD"]
    assert end(process) == 0


def test_it_is_renewed_once(stand: Stand, tmp_path: Path, current: bytes) -> None:
    """A server whose file is not of its own version, by whatever accident."""
    stand.version, stand.pilot_file = "9.9.9", current
    process = start(stand, tmp_path, aged(current, "0.0.9"))
    assert work(stand) == "worked\n"
    assert stand.greeted == ["HEAD", "GET", "HEAD"]
    assert end(process) == 0


def test_what_is_not_as_announced_is_not_run(stand: Stand, tmp_path: Path, current: bytes) -> None:
    """And the old one goes on, since it speaks the server's protocol."""
    stand.pilot_file, stand.pilot_digest = current, hashlib.sha256(b"another").hexdigest()
    process = start(stand, tmp_path, aged(current, "0.0.9"))
    assert work(stand) == "worked\n"
    assert stand.enrols[0]["version"] == "0.0.9"
    assert "does not have the digest that the server named" in (tmp_path / "log").read_text()
    assert end(process) == 0


def test_one_that_is_refused_as_too_old_tries_to_renew_itself(
    stand: Stand, tmp_path: Path, current: bytes
) -> None:
    stand.pilot_file = current
    stand.version, stand.enrol_status = "", 426  # the server did not say before
    process = start(stand, tmp_path, aged(current, "0.0.9"), address_file="", reach_seconds=1)
    assert process.wait(30) == 1  # nor does it say now
    assert "is not a covey server" in (tmp_path / "log").read_text()


def test_the_secret_is_nowhere(stand: Stand, tmp_path: Path, current: bytes) -> None:
    """Neither in arguments, environments, files nor in what a task can read."""
    stand.pilot_file = current
    process = start(stand, tmp_path, aged(current, "0.0.9"))
    script = "cat /proc/[0-9]*/cmdline; env; cat /proc/$PPID/environ"
    (found,) = stand.wait(stand.give(Body(1, ["sh", "-c", script], ["n"])))
    assert SECRET not in found.stdout + found.stderr
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            for file in ("cmdline", "environ"):
                try:
                    data = Path(f"/proc/{name}/{file}").read_bytes()
                except OSError:
                    continue
                assert SECRET.encode() not in data
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert end(process) == 0


def test_the_local_sites_start_file_keeps_its_place(
    stand: Stand, tmp_path: Path, current: bytes
) -> None:
    """By which the site finds its pilots; the secret is gone from it."""
    server = tmp_path / "server.json"
    server.write_text(json.dumps({"address": stand.address}))
    stand.pilot_file = current
    pilot = aged(current, "0.0.9")
    process = start(stand, tmp_path, pilot, address="", address_file=str(server))
    assert work(stand) == "worked\n"
    told = json.loads((tmp_path / "start.json").read_text())
    assert (told["secret"], told["address_file"]) == ("", str(server))
    assert (tmp_path / "start.json").stat().st_mode & 0o777 == 0o600
    assert os.fsencode(tmp_path / "start.json") in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert end(process) == 0
