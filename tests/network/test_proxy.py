"""Pilots and commands behind a forward proxy: the only way out, which asks for a password, says
rubbish, and breaks connections. Only the proxy knows where `covey.test` is."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.client.client import Client
from covey.core.errors import ServerAway
from tests.faults.world import World, open_world, wait_until
from tests.network.forward import Proxy, proxying
from tests.network.serving import (
    authority_file,
    covey,
    pilot,
    port_of,
    record_of,
    serve,
    wait_enrolled,
)

HOST = "covey.test"


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with proxying() as found:
        yield found


def start(world: World) -> tuple[str, Path]:
    """A server that is found under a name; its address there, and its authority."""
    serve(world, "--listen", "0.0.0.0", "--pilots", "0", names=HOST)
    assert record_of(world).public == f"https://{HOST}:{port_of(world)}"
    return record_of(world).public, authority_file(world)


def why_away(world: World, address: str, ca: Path) -> str:
    """To somebody without patience."""
    client = Client(address, record_of(world).token, ca.read_text(), patience_seconds=0)
    try:
        with pytest.raises(ServerAway) as caught:
            client.bags()
    finally:
        client.close()
    return str(caught.value)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_bag_through_a_proxy_with_a_password(
    world: World, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxying("someone:pass word") as proxy:
        address, ca = start(world)
        env = {variable: proxy.url.replace(" ", "%20")}
        pilot(world, address, ca, **env)
        done = covey(world, address, ca, "run", "-p", "i=1..5", "--", "echo", "{i}", **env)
        assert done.returncode == 0, done.stderr
        assert set(proxy.asked) == {f"{HOST}:{port_of(world)}"}
        assert proxy.denied == 0
        monkeypatch.setenv(variable, proxy.url.replace("someone", "other").replace(" ", "%20"))
        assert "407" in why_away(world, address, ca)
        assert proxy.denied > 0


def test_no_proxy_is_honoured(world: World, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is then looked up here, where nobody knows it."""
    address, ca = start(world)
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", f"other.example.org,{HOST}")
    assert "name" in why_away(world, address, ca)
    assert proxy.asked == []


def test_this_machine_is_never_asked_for_through_a_proxy(world: World, proxy: Proxy) -> None:
    env = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "http_proxy"), proxy.url)
    _, ca = start(world)
    address = record_of(world).address
    pilot(world, address, ca, **env)
    done = covey(world, address, ca, "run", "-p", "i=1..3", "--", "echo", "{i}", **env)
    assert done.returncode == 0, done.stderr
    assert proxy.asked == []


@pytest.mark.parametrize("mood", ["portal", "html", "mute"])
def test_a_proxy_out_of_its_mind(world: World, proxy: Proxy, mood: str) -> None:
    """All that a pilot hears for a while is rubbish; what it has done is delivered afterwards."""
    address, ca = start(world)
    flying = pilot(world, address, ca, HTTPS_PROXY=proxy.url)
    wait_enrolled(world)
    bag = world.submit('sleep 1; echo "$COVEY_TASK"', 4)
    wait_until(lambda: world.bag(bag).running == 2, 30, world.log_tail)
    proxy.mood = mood
    proxy.drop()
    before = len(proxy.asked)
    wait_until(lambda: len(proxy.asked) > before + 1, 60)
    time.sleep(2)
    assert flying.poll() is None, world.log_tail()
    assert world.bag(bag).done == 0
    proxy.mood = "well"
    proxy.drop()
    assert world.wait_over(bag).done == 4
    client = world.client()
    assert len(client.pilots()) == 1, "nobody had to enrol again"
    client.close()


def test_connections_that_break_within_an_answer(
    world: World, proxy: Proxy, tmp_path: Path
) -> None:
    """Every tunnel dies in the middle of an answer. Files come in pieces, syncs are repeated, and
    each task is done once."""
    address, ca = start(world)
    (tmp_path / "input.bin").write_bytes(bytes(range(256)) * 8192)  # 2 MB
    proxy.mood, proxy.most = "reset", 700_000
    pilot(world, address, ca, HTTPS_PROXY=proxy.url)
    wait_enrolled(world)
    words = ["submit", "--json", "-p", "i=1..40", "--input", str(tmp_path / "input.bin")]
    words += ["--", "sh", "-c", "sha256sum input.bin"]
    done = covey(world, record_of(world).address, ca, *words)
    assert done.returncode == 0, done.stderr
    bag = int(json.loads(done.stdout)["bag"])
    assert world.wait_over(bag).done == 40
    assert proxy.broken >= 2
    world.check_results(bag, 40)


def test_syncs_that_break_within_an_answer(world: World, proxy: Proxy) -> None:
    address, ca = start(world)
    pilot(world, address, ca, HTTPS_PROXY=proxy.url)
    wait_enrolled(world)
    proxy.mood, proxy.most = "reset", 3000  # the handshake and an answer or two
    bag = world.submit('echo "$COVEY_TASK"', 60)
    wait_until(lambda: proxy.broken >= 3 or world.bag(bag).over, 60, world.log_tail)
    proxy.mood = "well"
    assert world.wait_over(bag).done == 60
    assert proxy.broken >= 1
    world.check_results(bag, 60)
