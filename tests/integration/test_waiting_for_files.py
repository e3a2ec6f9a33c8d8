"""A bag whose input cannot be had keeps no other bag from running, and says what it waits for."""

import json
import socket
from collections.abc import Iterator

import pytest

from tests.faults.world import World, open_world

SLOTS = {"COVEY_LOCAL_SLOTS": "2"}


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Somebody who listens and never answers: a connection to him does not even end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_an_input_that_never_comes_blocks_no_other_bag(world: World, silent_port: int) -> None:
    (world.root / "dead.toml").write_text(f"""
        command = ["cat", "data"]
        inputs = [{{ url = "http://127.0.0.1:{silent_port}/data", to = "data" }}]
        [parameters]
        n = "1..100"
    """)
    sent = world.covey("submit", "dead.toml", **SLOTS)
    assert sent.returncode == 0, sent.stderr
    done = world.covey("run", "-p", "n=1..10", "--json", "--", "echo", "{n}", **SLOTS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == 10
    told = world.covey("explain", "1", **SLOTS)
    assert "waits for input files or the setup of this bag" in told.stdout
