"""Tokens, secrets and credentials of a real server: what each is good for, and where they are not
to be found."""

import json
import stat
import time
from collections.abc import Iterator

import pytest

from covey.client.client import Client
from covey.core.errors import Refused
from covey.core.protocol.tokens import hand_job, job_secret, one_word
from tests.faults.world import World, open_world, wait_until
from tests.integration.test_server_protocol import BAGS, ENROL, LEAVE, SYNC, Server, new_job

# What a task can look at without being root.
LOOK = r"""
exec > SEEN
for process in /proc/[0-9]*; do
    tr '\0' '\n' < $process/environ; tr '\0' '\n' < $process/cmdline; echo
done 2>/dev/null
cat FOLDER/*/start.json
"""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as found:
        found.serve("--pilots", "0")
        yield found


@pytest.fixture(scope="module")
def working() -> Iterator[World]:
    """With a pilot of this machine."""
    with open_world() as found:
        found.serve("--slots", "2")
        yield found


@pytest.fixture(scope="module")
def server(world: World) -> Server:
    return Server(world)


def enrolment(job: str) -> dict[str, object]:
    return {
        "key": f"a-long-key-{time.monotonic_ns()}",
        "host": "n",
        "slots": 1,
        "job": job,
        "shared": True,
    }


def test_a_secret_is_good_for_its_job_only(server: Server) -> None:
    mine, other = new_job(), new_job()
    secret = job_secret(server.secret, mine)
    for job, shown in (
        (other, one_word(other, secret)),
        (mine, secret),
        ("", secret),
        ("", server.secret),
        (mine, one_word(mine, server.secret)),
        ("99-99", server.secret_of("99-99")),
    ):
        server.refuses(401, "POST", ENROL, enrolment(job), shown)
    server.refuses(400, "POST", ENROL, enrolment(other), one_word(mine, secret))
    past = hand_job("*", time.time() - 1, "r")
    words = server.refuses(401, "POST", ENROL, enrolment(past), server.secret_of(past))
    assert "expired" in words
    assert server.call("POST", ENROL, enrolment(mine), one_word(mine, secret)).status == 200
    assert server.call("POST", ENROL, enrolment(""), server.secret_of(other)).status == 200


def test_pilots_have_no_place_in_the_api(server: Server) -> None:
    job = new_job()
    pilot = server.enrol(job=job)
    for shown in (pilot.credential, job_secret(server.secret, job), server.secret):
        for path in (BAGS, "/api/v1/pilots", "/api/v1/server", "/api/v1/tokens"):
            server.refuses(401, "GET", path, None, shown)
        server.refuses(401, "POST", BAGS, {"argv": ["true"]}, shown)


def test_a_credential_ends_with_its_enrolment(server: Server) -> None:
    key, job = f"a-long-key-{time.monotonic_ns()}", new_job()
    first = server.enrol(key=key, job=job)
    again = server.enrol(key=key, job=job)
    assert first.id == again.id
    assert first.credential != again.credential
    server.refuses(401, "POST", SYNC, first.message(1, 0), first.credential)
    leave = {"pilot": again.id, "epoch": again.epoch}
    assert server.call("POST", LEAVE, leave, again.credential).status == 200
    server.refuses(410, "POST", SYNC, again.message(1, 0), again.credential)


def test_a_secret_that_a_pilot_has_used_is_of_no_use_to_another(server: Server) -> None:
    job = new_job()
    secret = server.secret_of(job)
    first = server.enrol(key="key of the first pilot", job=job)
    words = server.refuses(429, "POST", ENROL, enrolment(job), secret)
    assert "another pilot uses this secret" in words
    assert first.sync(1, 0, ends=[[first.epoch, 10**6, 10**6, 0, "returned"]]).status == 200
    server.refuses(429, "POST", ENROL, enrolment(job), secret)
    assert server.enrol(key="key of the first pilot", job=job).id == first.id


def test_a_pilot_gets_its_owners_tasks_only(server: Server, world: World) -> None:
    job = hand_job("ann", time.time() + 600, f"{time.monotonic_ns()}")
    pilot, anybody = server.enrol(job=job), server.enrol()
    bags = {
        owner: server.call("POST", BAGS, {"argv": ["true"], "owner": owner}).content["bag"]
        for owner in ("bob", "ann")
    }
    tasks = pilot.sync(1, 0, want=5).content["tasks"]
    assert [task[1] for task in tasks] == [bags["ann"]]
    tasks = anybody.sync(1, 0, want=5).content["tasks"]
    assert [task[1] for task in tasks] == [bags["bob"]]
    for bag in bags.values():
        server.call("POST", f"{BAGS}/{bag}/cancel")


def test_no_secret_is_where_a_task_looks(working: World) -> None:
    client, server = working.client(), Server(working)
    folder = working.directory / "pilots"
    seen = working.root / "seen"
    look = LOOK.replace("FOLDER", str(folder)).replace("SEEN", str(seen))
    bag = working.submit(look, 1, retries=0)
    wait_until(lambda: bool((view := client.bag(bag)) and view.over), 60, working.log_tail)
    found = seen.read_text(errors="replace")
    assert "COVEY_TASK" in found, "it saw environments"
    assert "address_file" in found, "it saw the start file"
    (job,) = [view.job for view in client.pilots()]
    assert job
    logs = [path.read_text() for path in (working.log_file, *folder.glob("*/log"))]
    for secret in (server.secret, job_secret(server.secret, job), server.token):
        assert secret not in found
        assert not [text for text in logs if secret in text]
    for one in folder.iterdir():
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
        assert stat.S_IMODE((one / "start.json").stat().st_mode) == 0o600


def test_what_is_secret_is_its_owners(world: World) -> None:
    for name in ("secrets.json", "server.json"):
        mode = stat.S_IMODE((world.directory / name).stat().st_mode)
        assert mode == 0o600, name


def test_tokens_outlive_the_server_and_leave_no_trace_in_the_record() -> None:
    with open_world() as world:
        process = world.serve("--pilots", "0")
        made = world.covey("token", "create", "laptop", "--owner", "ann", "--expires", "30d")
        assert made.returncode == 0, made.stderr
        token = made.stdout.strip()
        assert token.startswith("covey_")
        assert "not shown again" in made.stderr
        other = world.covey("token", "create", "ci", "--role", "viewer", "--json")
        shown = json.loads(other.stdout)
        listed = world.covey("token", "list")
        assert token not in listed.stdout
        assert "laptop" in listed.stdout
        assert "never" in listed.stdout
        assert world.covey("token", "revoke", str(shown["id"])).returncode == 0
        assert "was not valid" in world.covey("token", "revoke", str(shown["id"])).stderr
        assert world.covey("token", "revoke", "77").returncode == 1
        process.kill()
        process.wait(30)
        world.serve("--pilots", "0")
        address = world.client().connection.endpoint.address
        file = world.root / "token"
        file.write_text(token + "\n")
        file.chmod(0o600)
        remote = ("--server", address, "--token-file", str(file))
        ran = world.covey(*remote, "submit", "--", "true")
        assert ran.returncode == 0, ran.stderr
        (bag,) = world.client().bags()
        assert bag.owner == "ann"
        assert [one.name for one in Client(address, token).tokens()] == ["laptop"]
        with pytest.raises(Refused):
            Client(address, shown["token"]).bags()
        for path in world.directory.rglob("*"):
            if path.is_file():
                assert token.encode() not in path.read_bytes(), path
