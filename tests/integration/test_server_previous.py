"""Pilots and clients of the version before this one are served as they were.

`pilot_previous.pyz` is the pilot of that version, as its server wrote it; the messages and fields
below are frozen copies. All are replaced when a version is published, and never edited."""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.core.protocol.tokens import hand_job, job_secret
from covey.whoami import user
from tests.faults.world import World, open_world, wait_until
from tests.integration.test_server_protocol import BAGS, ENROL, LEAVE, PRINTED, SYNC, Server

PILOT = Path(__file__).parent / "pilot_previous.pyz"

# As that version's pilot sent them, byte for byte but for the numbers.
OLD_ENROL = (
    '{"key":"%s","host":"n1","slots":2,"site":"hand","job":"%s","tags":{"arch":"x86_64"},'
    '"version":"0.1.0","protocol":2,"memory_mb":7000,"disk_mb":9000,"gpus":0}'
)
OLD_SYNC = (
    '{"pilot":%d,"epoch":%d,"number":%d,"received":%d,"want":%d,"ends":%s,"held":null,"tags":null}'
)
OLD_PRINTED = '{"pilot":%d,"pieces":[[1,0,1,1,1,0,"text"]]}'
OLD_LEAVE = '{"pilot":%d,"epoch":%d,"reason":"idle"}'

# All that it knew of answers. It stumbles over a field of Enrolled that is not here.
OLD_ENROLLED = {"pilot", "credential", "epoch", "poll_seconds", "lease_seconds", "idle_seconds"}
OLD_ANSWER = {
    "epoch", "number", "bodies", "tasks", "cancels", "recalls", "resync", "recorded", "leave",
    "follow",
}  # fmt: skip
SPACE = {
    "type": "axis", "name": "i",
    "values": {"type": "range", "start": "0", "step": "1", "count": 2},
}  # fmt: skip
OLD_BODY = 18  # places in a row: they may grow, and do not move
OLD_TASK = 8

# What that version's client wanted to find in answers.
OLD_VIEWS = {
    "/api/v1/server": {
        "version", "epoch", "pid", "started", "state", "store", "bags", "pilots", "slots",
    },
    f"{BAGS}/latest": {
        "id", "name", "owner", "argv", "names", "status", "total", "done", "failed", "created",
    },
    "/api/v1/pilots": {
        "id", "host", "site", "job", "slots", "status", "running", "enrolled", "heard", "tags",
        "version",
    },
    "/api/v1/hosts": {
        "host", "site", "slots", "pilots", "running", "first", "heard", "done", "failed", "tags",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as found:
        found.serve("--pilots", "0", env={"COVEY_SERVE_POLL_SECONDS": "1"})
        yield found


def new_job(world: World, name: str) -> tuple[str, str]:
    master = json.loads((world.directory / "secrets.json").read_text())["secret"]
    job = hand_job(user(), time.time() + 600, name)
    return job, job_secret(master, job)


def test_a_conversation_in_its_words(world: World) -> None:
    server = Server(world)
    job, secret = new_job(world, "r1")
    found = server.call("POST", ENROL, (OLD_ENROL % ("a-long-enough-key", job)).encode(), secret)
    assert found.status == 200, found.body
    assert set(found.content) == OLD_ENROLLED
    pilot, epoch, credential = (found.content[name] for name in ("pilot", "epoch", "credential"))

    def say(path: str, words: str) -> Any:
        answer = server.call("POST", path, words.encode(), credential)
        assert answer.status == 200, answer.body
        return answer.content

    order = {"argv": ["true"], "space": SPACE, "owner": user()}
    bag = server.call("POST", BAGS, order).content["bag"]
    answer = say(SYNC, OLD_SYNC % (pilot, epoch, 1, 0, 2, "[]"))
    assert set(answer) >= OLD_ANSWER
    (body,) = answer["bodies"]
    assert len(body) >= OLD_BODY
    assert (body[0], body[1], body[2]) == (bag, ["true"], ["i"])
    assert [task[1:4] for task in answer["tasks"]] == [[bag, 0, [0]], [bag, 1, [1]]]
    assert all(len(task) >= OLD_TASK for task in answer["tasks"])
    say(PRINTED, OLD_PRINTED % pilot)
    ends = [[epoch, task[0], bag, task[2], "ok", 0] for task in answer["tasks"]]
    say(SYNC, OLD_SYNC % (pilot, epoch, 2, 1, 0, json.dumps(ends)))
    assert server.call("GET", f"{BAGS}/{bag}").content["status"] == "finished"
    say(LEAVE, OLD_LEAVE % (pilot, epoch))


def test_its_pilot_runs_a_bag(world: World, tmp_path: Path) -> None:
    job, secret = new_job(world, "r2")
    start = {
        "address_file": str(world.directory / "server.json"), "secret": secret,
        "directory": str(tmp_path / "work"), "slots": 2, "site": "local", "job": job,
        "cache": str(tmp_path / "cache"), "cache_mb": 100,
    }  # fmt: skip
    (tmp_path / "start.json").write_text(json.dumps(start))
    shutil.copy(PILOT, tmp_path / "old.pyz")
    bag = world.submit("echo $COVEY_TASK > out.txt; echo hello", 5, outputs=("out.txt",))
    process = world.start([sys.executable, str(tmp_path / "old.pyz"), str(tmp_path / "start.json")])
    client = world.client()
    try:
        wait_until(lambda: bool((view := client.bag(bag)) and view.over), 60, world.log_tail)
        view = client.bag(bag)
        assert view is not None
        assert (view.done, view.failed) == (5, 0)
        assert {one.data for one in client.files(bag)} == {b"%d\n" % n for n in range(5)}
    finally:
        process.terminate()
        process.wait(30)


def test_its_client_finds_what_it_wants(world: World) -> None:
    server = Server(world)
    server.enrol(host="seen")
    server.submit(1)
    for path, wanted in OLD_VIEWS.items():
        found = server.call("GET", path).content
        one = found[0] if isinstance(found, list) else found
        assert wanted <= set(one), path
    order = {"argv": ["true"], "owner": "ann", "key": "k", "retries": 1}
    found = server.call("POST", BAGS, order)
    assert (found.status, set(found.content)) == (201, {"bag", "total", "known"})
    for bag in server.call("GET", BAGS).content:
        assert set(server.call("POST", f"{BAGS}/{bag['id']}/cancel").content) == {"count"}
