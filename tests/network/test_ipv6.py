"""IPv6, alone and next to IPv4, plain on the loopback and with TLS."""

from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from tests.faults.world import World, open_world
from tests.network.serving import authority_file, covey, pilot, port_of, record_of, serve


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


def test_plain_on_the_loopback(world: World) -> None:
    serve(world, "--listen", "::1", "--slots", "2")
    assert record_of(world).address == f"http://[::1]:{port_of(world)}"
    assert record_of(world).ca == ""
    done = world.covey("run", "-p", "i=1..5", "--", "echo", "{i}")
    assert done.returncode == 0, done.stderr


def test_with_tls_for_a_pilot_and_a_command(world: World) -> None:
    serve(world, "--listen", "::", "--pilots", "0")
    address, ca = record_of(world).address, authority_file(world)
    assert address == f"https://[::1]:{port_of(world)}"
    pilot(world, address, ca)
    done = covey(world, address, ca, "run", "-p", "i=1..5", "--", "echo", "{i}")
    assert done.returncode == 0, done.stderr


def test_both_at_once_on_one_port(world: World) -> None:
    serve(world, "--listen", "127.0.0.1, ::1", "--pilots", "0")
    for host in ("127.0.0.1", "[::1]"):
        with urlopen(f"http://{host}:{port_of(world)}/healthz", timeout=10) as answer:
            assert answer.status == 200


def test_all_of_both(world: World) -> None:
    """`::` leaves 0.0.0.0 to itself."""
    serve(world, "--listen", "0.0.0.0,::", "--pilots", "0")
    ca = authority_file(world)
    for host in ("127.0.0.1", "[::1]", "localhost"):
        done = covey(world, f"https://{host}:{port_of(world)}", ca, "bags")
        assert done.returncode == 0, done.stderr
