"""Pilots that lie to a real server about attempts, before and after it is killed."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from covey.core.protocol.tokens import hand_job
from tests.faults.world import World, open_world
from tests.integration.test_server_protocol import BAGS, FILES, Pilot, Server

FAST = {"COVEY_SERVE_POLL_SECONDS": "1", "COVEY_SERVE_ADOPT_SECONDS": "20"}


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


def upload(server: Server, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    path = f"/api/v1/files/{digest}?offset=0&size={len(data)}"
    assert server.call("PUT", path, data).status == 200
    return digest


def submit(server: Server, total: int, inputs: list[Any] | None = None) -> int:
    values = {"type": "range", "start": "0", "step": "1", "count": total}
    space = {"type": "axis", "name": "i", "values": values}
    spec = {"argv": ["true"], "space": space, "owner": "ann", "inputs": inputs or []}
    found = server.call("POST", BAGS, spec)
    assert found.status == 201, found.body
    return int(found.content["bag"])


class Told:
    """What a pilot was given, as it could say it after a restart."""

    def __init__(self, answer: Any) -> None:
        (sequence, bag, task, *_), *_ = answer["tasks"]
        self.name = [answer["epoch"], sequence, bag, task]
        self.receipt = answer.get("receipt", "")

    def end(self, outcome: str = "ok") -> list[Any]:
        return [*self.name, outcome, 0]


def full_sync(server: Server, pilot: Pilot, number: int, **fields: Any) -> Any:
    """Everything that the pilot says it has, to the server that is there now."""
    pilot.server = server
    pilot.epoch = server.call("GET", "/api/v1/server").content["epoch"]
    found = pilot.sync(number, number - 1, **{"held": [], **fields})
    assert found.status == 200, found.body
    return found.content


def counts(server: Server, bag: int) -> tuple[int, int]:
    view = server.call("GET", f"{BAGS}/{bag}").content
    return view["done"], view["failed"]


@pytest.mark.parametrize("owner", ["*", "ann"])
def test_a_killed_server_believes_no_stranger(world: World, owner: str) -> None:
    """Neither the end of another pilot's attempt, nor that it is held, by a true or older id."""
    process = world.serve("--pilots", "0", env=FAST)
    server = Server(world)
    bag = submit(server, 2)
    honest = server.enrol(job=hand_job(owner, 4e9, "a"), host="h1")
    thief = server.enrol(job=hand_job(owner, 4e9, "b"), host="h2")
    theirs = Told(honest.sync(1, 0, want=1).content)
    own = Told(thief.sync(1, 0, want=1).content)
    process.kill()
    process.wait()
    world.serve("--pilots", "0", env=FAST)
    server = Server(world)
    older = [0, 7, bag, theirs.name[3], "ok", 0]
    receipts = [theirs.receipt, own.receipt]
    full_sync(server, thief, 5, ends=[theirs.end(), older], held=[own.name], receipts=receipts)
    full_sync(server, thief, 6, held=[theirs.name, own.name], receipts=receipts)
    assert counts(server, bag) == (0, 0)
    (row,) = [one for one in server.call("GET", "/api/v1/pilots").content if one["id"] == thief.id]
    assert row["running"] == 1  # its own
    full_sync(server, honest, 5, ends=[theirs.end()], receipts=[theirs.receipt])
    assert counts(server, bag) == (1, 0)
    assert theirs.receipt not in world.log_tail()


def test_who_says_that_it_holds_a_task_does_not_get_its_files(world: World) -> None:
    process = world.serve("--pilots", "0", env=FAST)
    server = Server(world)
    data = b"nobody else's business"
    digest = upload(server, data)
    blob = {"digest": digest, "size": len(data)}
    bag = submit(server, 1, [{"path": "secret", "blob": blob}])
    honest = server.enrol(job=hand_job("ann", 4e9, "a"), host="h1")
    thief = server.enrol(job=hand_job("ann", 4e9, "b"), host="h2")
    theirs = Told(honest.sync(1, 0, want=1).content)
    process.kill()
    process.wait()
    world.serve("--pilots", "0", env=FAST)
    server = Server(world)
    address = f"{FILES}/{digest}?pilot="
    full_sync(server, thief, 5, held=[theirs.name], receipts=[theirs.receipt])
    found = server.call("GET", f"{address}{thief.id}", secret=thief.credential)
    assert (found.status, found.content["type"]) == (403, "not-yours")
    full_sync(server, honest, 5, held=[theirs.name], receipts=[theirs.receipt])
    found = server.call("GET", f"{address}{honest.id}", secret=honest.credential)
    assert (found.status, found.body) == (200, data)
    assert counts(server, bag) == (0, 0)
