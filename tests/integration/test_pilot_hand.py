"""A pilot by hand: the line and the file that `covey pilot-command` gives, really run."""

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from covey.cli.machines import pilot_command
from covey.core.protocol import tokens
from covey.pilot.protocol.messages import Body
from covey.server.api.invitations import ServerAddress
from covey.server.web.auth import ACT
from covey.wire import Invitation
from covey.wiring import write_pilot_file
from tests.integration.hand_harness import Inviting, inviting
from tests.integration.pilot_stand import Stand, standing
from tests.integration.slots_harness import wait_until


@pytest.fixture
def stand() -> Iterator[Stand]:
    with standing() as found:
        yield found


@pytest.fixture(params=["https", "http"])
def host(request: pytest.FixtureRequest, stand: Stand, tmp_path: Path) -> Iterator[Inviting]:
    """Who joins is sent to the stand."""
    write_pilot_file(tmp_path / "pilot.pyz")
    told = ServerAddress(stand.address, "")
    with inviting(tmp_path, told, tmp_path / "pilot.pyz", request.param == "https") as found:
        yield found


def invite(host: Inviting, **asked: Any) -> Invitation:
    """As the command gets it, at the address of the one that invites."""
    url = host.address + "/api/v1/invitations"
    data = json.dumps({"owner": "ann", "slots": 1, **asked}).encode()
    with urllib.request.urlopen(url, data, context=_context(host)) as answer:
        found = msgspec.json.decode(answer.read(), type=Invitation)
    return msgspec.structs.replace(found, address=host.address, ca=host.ca)


def _context(host: Inviting) -> ssl.SSLContext | None:
    return ssl.create_default_context(cadata=host.ca) if host.ca else None


def environment(tmp_path: Path) -> dict[str, str]:
    place = tmp_path / "temporary"
    place.mkdir(exist_ok=True)
    own = {"TMPDIR": str(place), "XDG_CACHE_HOME": str(tmp_path / "c"), "COVEY_GPUS": "none"}
    return {**os.environ, **own}


def run(line: str, tmp_path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["sh", "-c", line], env=environment(tmp_path), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip


def worked(stand: Stand) -> str:
    (end,) = stand.wait(stand.give(Body(1, ["echo", "worked"], ["n"])))
    return end.stdout


@pytest.mark.parametrize("line", [pilot_command.curl_line, pilot_command.python_line])
def test_the_line_brings_a_pilot_once(
    host: Inviting, stand: Stand, tmp_path: Path, line: Any
) -> None:
    found = invite(host, site="desk")
    assert host.needs == [ACT]
    text = line(found)
    assert tokens.job_secret("master", found.job) not in text
    first = run(text, tmp_path)
    assert worked(stand) == "worked\n"
    (enrol,) = stand.enrols
    assert (enrol["job"], enrol["site"], enrol["slots"]) == (found.job, "desk", 1)
    hand = tokens.read_hand_job(found.job)
    assert hand is not None
    assert hand.owner == "ann"
    again = run(text, tmp_path)
    assert "this invitation is not valid" in again.communicate(timeout=30)[0]
    assert again.returncode == 1
    stand.send_home()
    said = first.communicate(timeout=30)[0]
    assert first.returncode == 0, said
    assert os.listdir(tmp_path / "temporary") == []


@pytest.mark.parametrize("host", ["https"], indirect=True)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (pilot_command.curl_line, "public key"),
        (pilot_command.python_line, "that is another server"),
    ],
)
def test_another_server_is_not_believed(
    host: Inviting, stand: Stand, tmp_path: Path, line: Any, words: str
) -> None:
    """It would take the very same invitation, but has another key."""
    found = invite(host)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    told = ServerAddress(stand.address, "")
    with inviting(elsewhere, told, tmp_path / "pilot.pyz", True) as other:
        other.invitations._kept = dict(host.invitations._kept)
        ours, theirs = (one.address.rpartition(":")[2] for one in (host, other))
        said = run(line(found).replace(ours, theirs), tmp_path).communicate(timeout=30)[0]
        assert words in said
        assert len(other.invitations._kept) == 1
    assert not stand.enrols


def test_an_invitation_ends(host: Inviting, tmp_path: Path) -> None:
    found = invite(host, seconds=60)
    host.at += 61
    said = run(pilot_command.python_line(found), tmp_path).communicate(timeout=30)[0]
    assert "this invitation is not valid" in said


@pytest.mark.parametrize("python", [sys.executable, "pypy3"])
def test_the_program_checks_and_runs_as_a_file(
    host: Inviting, stand: Stand, tmp_path: Path, python: str
) -> None:
    with urllib.request.urlopen(host.address + invite(host).path, context=_context(host)) as answer:
        content = answer.read()
    file = tmp_path / "covey-pilot"
    file.write_bytes(content)
    file.chmod(0o700)
    checked = run(f"{python} {file} --check", tmp_path)
    assert "this host is ready" in checked.communicate(timeout=60)[0]
    assert checked.returncode == 0
    assert not stand.enrols
    began = time.monotonic()
    behind = run(f"{python} {file} --background", tmp_path)
    assert "in the background" in behind.communicate(timeout=30)[0]
    assert time.monotonic() - began < 20
    assert worked(stand) == "worked\n"
    stand.send_home()
    stand.until(lambda: bool(stand.left))
    wait_until(lambda: not list((tmp_path / "temporary").glob("covey-pilot-*[!g]")))


@pytest.mark.parametrize("host", ["http"], indirect=True)
def test_a_pilot_in_the_background_outlives_its_terminal(
    host: Inviting, stand: Stand, tmp_path: Path
) -> None:
    """However slowly it gets away from there."""
    with urllib.request.urlopen(host.address + invite(host).path) as answer:
        content = answer.read().decode()
    slow = content.replace("    os.setsid()\n", "    import time; time.sleep(0.5); os.setsid()\n")
    assert slow != content
    (tmp_path / "covey-pilot").write_text(slow)
    line = f"{sys.executable} {tmp_path / 'covey-pilot'} --background"
    behind = run(f"script -qec '{line}' /dev/null", tmp_path)
    assert "to end it: kill" in behind.communicate(timeout=30)[0]
    assert worked(stand) == "worked\n"
    stand.send_home()
    stand.until(lambda: bool(stand.left))
