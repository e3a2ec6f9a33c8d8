"""TLS between real processes: certificates of our own and given ones, right and wrong, and new
ones while everybody is connected."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.server.web.certificate_authority import Authority, Issued
from tests.faults.world import World, open_world, wait_until
from tests.network.serving import (
    TASK,
    authority_file,
    connections_to,
    covey,
    pilot,
    port_of,
    record_of,
    serve,
    shown_certificate,
    wait_enrolled,
)

OFTEN = "import covey.server.web.tls as tls; tls.CHECK_SECONDS = 0.2"
# Each look finds the certificate too old.
AUTHORITY = "\nimport covey.server.web.certificate_authority as a; "
RENEWS = OFTEN + AUTHORITY + "a.SERVER_RENEW_DAYS = a.SERVER_DAYS + 1"

# A new authority takes over as soon as the file is there.
SUCCEEDS = (
    OFTEN
    + """
import os, covey.server.web.certificate_authority as a
issue = a.Authority.issue
def patched(self, names):
    if os.path.exists(os.environ["SUCCEED_FILE"]):
        os.unlink(os.environ["SUCCEED_FILE"])
        self._succeed()
    return issue(self, names)
a.Authority.issue = patched
"""
)


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


def submit(world: World, address: str, ca: Path | None, count: int = 20) -> int:
    words = ["submit", "-p", f"i=1..{count}", "--json", "--", "sh", "-c", TASK]
    done = covey(world, address, ca, *words)
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["bag"])


# -- our own authority ---------------------------------------------------------------------


def test_server_command_and_pilot_over_tls_with_our_own_authority(world: World) -> None:
    serve(world, "--listen", "0.0.0.0", "--pilots", "0", names="covey.example.org")
    record = record_of(world)
    assert record.address.startswith("https://127.0.0.1:")
    assert record.public == f"https://covey.example.org:{port_of(world)}"
    ca = authority_file(world)
    bag = submit(world, record.address, ca)
    pilot(world, record.address, ca)
    view = world.wait_over(bag)
    assert (view.done, view.failed) == (20, 0)
    shown = covey(world, record.address, ca, "results", str(bag), "--json")
    assert len(json.loads(shown.stdout)) == 20


def test_pilots_and_commands_of_this_machine_need_not_be_told(world: World) -> None:
    serve(world, "--listen", "0.0.0.0", "--slots", "2")
    done = world.covey("run", "-p", "i=1..5", "--", "echo", "{i}")
    assert done.returncode == 0, done.stderr
    assert record_of(world).ca


def test_the_wrong_authority_is_refused(world: World, tmp_path: Path) -> None:
    serve(world, "--listen", "0.0.0.0", "--pilots", "0")
    address = record_of(world).address
    wrong = authority_file(world, Authority(tmp_path / "other").trusted)
    for ca in (wrong, None):
        began = time.monotonic()
        done = covey(world, address, ca, "bags")
        assert done.returncode == 1
        assert "is not confirmed by" in done.stderr
        assert "--ca" in done.stderr
        assert time.monotonic() - began < 10, "there is nothing to wait for"
    stray = pilot(world, address, wrong)
    assert stray.wait(30) != 0
    assert b"is not accepted" in world.log_file.read_bytes()
    client = world.client()
    assert client.pilots() == []
    client.close()


def test_plain_http_to_a_port_that_speaks_tls_is_said_so_at_once(world: World) -> None:
    serve(world, "--listen", "0.0.0.0", "--pilots", "0")
    port = record_of(world).address.rpartition(":")[2]
    began = time.monotonic()
    done = covey(world, f"http://127.0.0.1:{port}", None, "bags")
    assert done.returncode == 1
    assert "speaks TLS: use https://" in done.stderr
    assert time.monotonic() - began < 10, "there is nothing to wait for"


def test_what_would_be_unsafe_is_refused(world: World) -> None:
    done = world.covey("serve", "--listen", "0.0.0.0", COVEY_SERVE_TLS="off")
    assert done.returncode == 2
    assert "unencrypted" in done.stderr
    plain = world.root / "token"
    plain.write_text("x")
    plain.chmod(0o600)
    words = ["bags", "--server", "http://covey.example.org", "--token-file", str(plain)]
    done = world.covey(*words)
    assert done.returncode == 2
    assert "use https" in done.stderr


def test_an_authority_survives_a_restart(world: World) -> None:
    """A pilot that was there before goes on, with what it knows."""
    first = serve(world, "--listen", "0.0.0.0", "--pilots", "0")
    address, ca = record_of(world).address, authority_file(world)
    flying = pilot(world, address, ca)
    wait_enrolled(world)
    first.kill()
    first.wait()
    serve(world, "--listen", "0.0.0.0", "--pilots", "0")
    assert record_of(world).address == address
    assert world.wait_over(submit(world, address, ca)).done == 20
    assert flying.poll() is None


# -- renewal -------------------------------------------------------------------------------


def test_renewal_does_not_disturb_a_connected_pilot(world: World) -> None:
    serve(world, "--listen", "0.0.0.0", "--pilots", "0", patch=RENEWS)
    address, ca = record_of(world).address, authority_file(world)
    flying = pilot(world, address, ca)
    wait_enrolled(world)
    parked = connections_to(port_of(world), flying.pid)
    assert parked
    before = shown_certificate(world).serial_number
    wait_until(lambda: shown_certificate(world).serial_number != before, 20)
    assert connections_to(port_of(world), flying.pid) & parked, "it is still on the same line"
    assert world.wait_over(submit(world, address, ca)).done == 20
    pilot(world, address, ca)
    wait_enrolled(world, 2)


def test_a_new_authority_strands_no_pilot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is connected, one whose start file is old, and one that knows the new one."""
    trigger = world.root / "succeed"
    monkeypatch.setenv("SUCCEED_FILE", str(trigger))
    serve(world, "--listen", "0.0.0.0", "--pilots", "0", patch=SUCCEEDS)
    address, old = record_of(world).address, authority_file(world)
    pilot(world, address, old)
    wait_enrolled(world)
    trigger.touch()
    wait_until(lambda: record_of(world).ca != old.read_text(), 20, world.log_tail)
    assert old.read_text() in record_of(world).ca
    assert shown_certificate(world).issuer.rfc4514_string() not in old.read_text()
    new = authority_file(world, record_of(world).ca.replace(old.read_text(), ""))
    pilot(world, address, old)
    pilot(world, address, new)
    wait_enrolled(world, 3)
    for ca in (old, new, authority_file(world)):
        assert world.wait_over(submit(world, address, ca, 6)).done == 6


# -- given certificates --------------------------------------------------------------------


def give(folder: Path, issued: Issued) -> None:
    """As certbot does: one file after the other."""
    (folder / "given.key").write_bytes(issued.key)
    time.sleep(0.3)
    (folder / "given.pem").write_bytes(issued.chain)


def test_a_given_certificate_and_its_successor(world: World, tmp_path: Path) -> None:
    institution = Authority(tmp_path / "institution")
    give(tmp_path, institution.issue(["localhost"]))
    serve(
        world,
        "--listen",
        "0.0.0.0",
        "--pilots",
        "0",
        patch=OFTEN,
        certificate=str(tmp_path / "given.pem"),
        key=str(tmp_path / "given.key"),
        names="localhost",
    )
    record = record_of(world)
    assert record.address.startswith("http://127.0.0.1:"), "a door for this machine"
    assert record.ca == ""
    assert not (world.directory / "tls").exists()
    address, ca = f"https://localhost:{port_of(world)}", tmp_path / "institution" / "ca.pem"
    flying = pilot(world, address, ca)
    wait_enrolled(world)
    parked = connections_to(port_of(world), flying.pid)
    before = shown_certificate(world).serial_number
    give(tmp_path, institution.issue(["localhost", "other.example.org"]))
    wait_until(lambda: shown_certificate(world).serial_number != before, 20, world.log_tail)
    assert connections_to(port_of(world), flying.pid) & parked
    assert world.wait_over(submit(world, address, ca)).done == 20
    assert "is not confirmed by" in covey(world, address, None, "bags").stderr
    assert world.covey("bags").returncode == 0, "this machine's own door"


def test_certificates_that_do_not_fit_change_nothing(world: World, tmp_path: Path) -> None:
    institution = Authority(tmp_path / "institution")
    give(tmp_path, institution.issue(["localhost"]))
    settings = {
        "certificate": str(tmp_path / "given.pem"),
        "key": str(tmp_path / "given.key"),
        "ca": str(tmp_path / "institution" / "ca.pem"),
    }
    serve(world, "--listen", "0.0.0.0", "--pilots", "0", patch=OFTEN, **settings)
    assert record_of(world).ca == (tmp_path / "institution" / "ca.pem").read_text()
    before = shown_certificate(world).serial_number
    (tmp_path / "given.pem").write_text("rubbish")
    wait_until(lambda: b"the certificate cannot be renewed" in world.log_file.read_bytes(), 20)
    time.sleep(1)
    assert shown_certificate(world).serial_number == before
    assert world.log_file.read_bytes().count(b"the certificate cannot be renewed") == 1, "said once"


@pytest.mark.parametrize("missing", ["certificate", "key"])
def test_half_a_certificate_is_refused(world: World, missing: str) -> None:
    given = {"COVEY_SERVE_CERTIFICATE": "/x", "COVEY_SERVE_KEY": "/x"}
    del given[f"COVEY_SERVE_{missing.upper()}"]
    done = world.covey("serve", **given)
    assert done.returncode == 2
    assert "or neither" in done.stderr
