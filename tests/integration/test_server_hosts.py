"""Pilots that claim to run on another owner's host, at a real server."""

from collections.abc import Iterator
from typing import Any

import pytest

from covey.core.protocol.tokens import hand_job
from tests.faults.world import open_world
from tests.integration.test_server_protocol import Server

HOSTS = "/api/v1/hosts"


@pytest.fixture
def server() -> Iterator[Server]:
    with open_world() as world:
        world.serve("--pilots", "0", env={"COVEY_SERVE_POLL_SECONDS": "1"})
        yield Server(world)


@pytest.mark.parametrize("claim", [{"machine": "id-of-node", "boot": "b1"}, {}])
def test_a_claim_changes_nothing_of_the_host_that_is_claimed(server: Server, claim: Any) -> None:
    """Neither its slots, nor its tags, nor what it has done; nor does its name get lost."""
    about = {"host": "node", "machine": "id-of-node", "boot": "b1"}
    if not claim:
        about = {"host": "node"}

    def hosts() -> dict[str, Any]:
        found = server.call("GET", HOSTS).content
        return {one["host"]: {**one, "heard": 0, "machine": ""} for one in found}

    server.enrol(job=hand_job("ann", 4e9, "a"), slots=3, tags={"arch": "x86"}, **about)
    before = hosts()
    assert list(before) == ["node"]
    bag = server.submit(8)
    spec = {"slots": 4096, "tags": {"arch": "evil", "cores": "9"}}
    thief = server.enrol(job=hand_job("*", 4e9, "b"), host="node", **claim, **spec)
    answer = thief.sync(1, 0, want=4).content
    ends = [thief.end(task, "failed", 1) for task in answer["tasks"]]
    assert ends
    thief.sync(2, 1, ends=ends, tags={"arch": "worse"})
    after = hosts()
    assert set(after) == {"node", "node~2"}
    assert after["node"] == before["node"]
    assert after["node~2"]["tags"] == {"arch": "worse"}
    assert server.call("GET", f"/api/v1/bags/{bag}").status == 200
