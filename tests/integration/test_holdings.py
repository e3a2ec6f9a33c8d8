"""Two people on one real server: to know the digest of the other's file grants nothing."""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.client.client import Client
from covey.client.digests import Digests
from covey.client.upload import Upload
from covey.core.errors import NotFound, Refused
from covey.core.protocol.tokens import hand_job
from covey.core.record import call_files
from covey.core.record.model import BagSpec, Blob, Placed, Rows, Segment
from covey.core.values.space import Axis, Values
from covey.wire import Stored
from tests.faults.world import World, kill_process, open_world
from tests.integration.test_server_protocol import Pilot, Server

SECRET = b"x,y\n1,ann's secret\n"
NOTHING = Stored(size=0, complete=False)
POLL = {"COVEY_SERVE_POLL_SECONDS": "1"}


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as found:
        found.serve("--pilots", "0", env=POLL)
        yield found


def token(world: World, owner: str, *options: str) -> str:
    made = world.covey("token", "create", f"for {owner}", "--owner", owner, *options)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def client_of(world: World, owner: str, *options: str) -> Client:
    return Client(world.client().connection.endpoint.address, token(world, owner, *options))


@pytest.fixture(scope="module")
def ann(world: World) -> Client:
    return client_of(world, "ann")


@pytest.fixture(scope="module")
def bob(world: World) -> Client:
    return client_of(world, "bob")


def put(client: Client, data: bytes) -> Blob:
    digest = digest_of(data)
    assert client.put_piece(digest, 0, len(data), data).complete
    return Blob(digest, len(data))


def naming(blob: Blob, how: str) -> BagSpec:
    """A bag that gets at this file, in every way that there is."""
    if how == "input":
        return BagSpec(argv=("cat", "in"), inputs=(Placed(path="in", blob=blob),))
    if how == "manifest":
        return BagSpec(argv=("true",), manifest={"in": blob})
    if how == "rows":
        rows = Rows(digest=blob.digest, form="csv", names=(), count=0)
        return BagSpec(argv=("echo", "{y}"), rows=rows)
    return BagSpec(argv=("true",), calls=True, open=True, space=large_call(blob))


def large_call(blob: Blob) -> Axis:
    return Axis("call", Values((call_files.reference(blob),)))


WAYS = ["input", "manifest", "rows", "call"]


@pytest.mark.parametrize("how", WAYS)
def test_nobody_names_anothers_file(ann: Client, bob: Client, how: str) -> None:
    secret = put(ann, SECRET)
    with pytest.raises(Refused, match="you have not uploaded all files") as caught:
        bob.submit(naming(secret, how))
    assert caught.value.status == 409
    absent = Blob("0" * 64, secret.size)
    with pytest.raises(Refused) as also:
        bob.submit(naming(absent, how))
    said = str(caught.value).replace(secret.digest, absent.digest)
    assert said == str(also.value), "he learns whether it is there"
    assert ann.submit(naming(secret, how)).bag


@pytest.mark.parametrize("how", ["rows", "call"])
def test_nobody_appends_anothers_file(ann: Client, bob: Client, how: str) -> None:
    secret = put(ann, SECRET)
    own = put(bob, b"x,y\n1,bob's\n")
    bag = bob.submit(
        BagSpec(
            argv=("true",), open=True, rows=Rows(digest=own.digest, form="csv", names=(), count=0)
        )
        if how == "rows"
        else BagSpec(argv=("true",), calls=True, open=True, space=Axis("call", Values(("YQ==",))))
    ).bag
    segment = (
        Segment(rows=Rows(digest=secret.digest, form="csv", names=(), count=0))
        if how == "rows"
        else Segment(space=large_call(secret))
    )
    for _ in range(2):  # while the bag is open, and when it is over
        with pytest.raises(Refused, match="you have not uploaded all files"):
            bob.append(bag, segment)
        bob.cancel(bag)


def test_nobody_is_told_what_others_have(ann: Client, bob: Client) -> None:
    data = os.urandom(100_000)
    secret, absent = digest_of(data), digest_of(b"never sent")
    put(ann, data)
    begun = os.urandom(100_000)
    ann.put_piece(digest_of(begun), 0, len(begun), begun[:50_000])
    for digest in (secret, digest_of(begun), absent):
        assert bob.missing([digest]) == [digest]
        assert bob.file_state(digest) == NOTHING
        assert bob.put_piece(digest, 0, len(data), b"") == NOTHING
        assert bob.put_piece(digest, 40_000, len(data), data[40_000:]) == NOTHING
        assert bob.put_piece(digest, 0, len(data), b"guess") == Stored(size=5, complete=False)
        assert bob.file_state(digest) == Stored(size=5, complete=False)
        with pytest.raises(Refused, match="another digest"):
            bob.put_piece(digest, 5, 10, b"wrong")
        with pytest.raises(NotFound, match="you did not send it here"):
            list(bob.read_file(digest))
    assert ann.missing([secret]) == []
    assert ann.file_state(digest_of(begun)) == Stored(size=50_000, complete=False), "spoilt"
    assert ann.put_piece(digest_of(begun), 50_000, len(begun), begun[50_000:]).complete


def on_disk(world: World, digest: str) -> list[Path]:
    return [path for path in world.directory.rglob(f"*{digest[2:]}*") if path.stat().st_size]


def test_who_sends_the_same_has_it_too_and_it_is_kept_once(
    world: World, ann: Client, bob: Client, tmp_path: Path
) -> None:
    data = os.urandom(9 << 20)
    secret = digest_of(data)
    for client in (ann, bob):
        sending = Upload(client, digests=Digests(tmp_path / "cache"))
        sending.add(data)
        assert sending.send() == len(data), "all of it, whoever sent it before"
        assert client.missing([secret]) == []
        assert b"".join(client.read_file(secret)) == data
        assert client.submit(naming(Blob(secret, len(data)), "input")).bag
    assert [path.stat().st_size for path in on_disk(world, secret)] == [len(data)]


def test_through_the_command_line(world: World, ann: Client) -> None:
    """As people do it: the second one's file is the same, and is sent again."""
    (world.root / "data.bin").write_bytes(os.urandom(3000))
    (world.root / "job.toml").write_text('command = "cat data.bin"\ninputs = ["data.bin"]\n')
    ran = {}
    for owner in ("carl", "dora"):
        (world.root / owner).write_text(token(world, owner))
        (world.root / owner).chmod(0o600)
        env = {
            "COVEY_SERVER": ann.connection.endpoint.address,
            "COVEY_TOKEN_FILE": str(world.root / owner),
        }
        ran[owner] = world.covey("submit", "job.toml", **env)
    assert [found.returncode for found in ran.values()] == [0, 0], ran
    sent = [found.stdout + found.stderr for found in ran.values()]
    assert sent[0].count("upload") == sent[1].count("upload")


def test_an_admin_gives_what_they_have(world: World, ann: Client, bob: Client) -> None:
    admin = client_of(world, "root", "--role", "admin")
    secret = put(ann, b"ann's other secret")
    spec = naming(secret, "input")
    with pytest.raises(Refused, match="you have not uploaded"):
        admin.submit(spec)
    mine = put(admin, b"from the admin")
    given = BagSpec(argv=("x",), owner="bob", inputs=(Placed(path="in", blob=mine),))
    assert bob.missing([mine.digest]) == [mine.digest]
    assert admin.submit(given).bag
    assert bob.missing([mine.digest]) == []
    assert b"".join(admin.read_file(secret.digest)) == b"ann's other secret"
    server = world.client()
    named = BagSpec(argv=("x",), owner="bob", inputs=(Placed(path="in", blob=secret),))
    assert server.submit(named).bag, "the server's own token is believed"
    assert b"".join(bob.read_file(secret.digest)) == b"ann's other secret"


def pilot_of(world: World, owner: str, **fields: Any) -> Pilot:
    job = hand_job(owner, time.time() + 600, f"{time.monotonic_ns()}")
    return Server(world).enrol(job=job, **fields)


def send(pilot: Pilot, data: bytes, attempt: str, size: int = 0) -> tuple[int, str]:
    query = f"?pilot={pilot.id}&size={size or len(data)}&attempt={attempt}"
    path = f"/pilot/v1/files/{digest_of(data)}{query}"
    found = pilot.server.call("PUT", path, data, pilot.credential)
    return found.status, found.content.get("detail", "")


def attempts_of(pilot: Pilot, client: Client, count: int, **fields: Any) -> list[list[Any]]:
    space = Axis("i", Values(tuple(range(count))))
    client.submit(BagSpec(argv=("true",), space=space, **fields))
    tasks: list[list[Any]] = pilot.sync(1, 0, want=count).content["tasks"]
    assert len(tasks) == count
    return tasks


def test_what_a_task_returned_is_its_owners_alone() -> None:
    with open_world() as world:
        world.serve("--pilots", "0", env=POLL)
        ann, bob = client_of(world, "ann"), client_of(world, "bob")
        pilot = pilot_of(world, "ann")
        [task] = attempts_of(pilot, ann, 1, outputs=("out",))
        data = os.urandom(20_000)
        digest = digest_of(data)
        assert send(pilot, data, f"{pilot.epoch}.{task[0]}") == (200, "")
        file = ["out", len(data), digest, "", False]
        end = [*pilot.end(task), *[0] * 7, "", "", 0, 0, "", "", [file]]
        assert pilot.sync(2, 1, ends=[end]).status == 200
        assert [one.digest for one in ann.files(task[1])] == [digest]
        assert b"".join(ann.read_file(digest)) == data
        assert ann.submit(naming(Blob(digest, len(data)), "input")).bag
        # Bob's own pilot says that his task returned the same, without having it.
        liar = pilot_of(world, "bob")
        [task] = attempts_of(liar, bob, 1, outputs=("out",))
        end = [*liar.end(task), *[0] * 7, "", "", 0, 0, "", "", [file]]
        assert liar.sync(2, 1, ends=[end]).status == 200
        assert [one.digest for one in bob.files(task[1])] == [digest]
        with pytest.raises(NotFound):
            list(bob.read_file(digest))
        with pytest.raises(Refused, match="you have not uploaded"):
            bob.submit(naming(Blob(digest, len(data)), "input"))


def test_an_attempt_sends_what_its_task_may_return_in_all() -> None:
    with open_world() as world:
        world.serve("--pilots", "0", env=POLL)
        ann = client_of(world, "ann")
        pilot = pilot_of(world, "ann")
        first, second = attempts_of(pilot, ann, 2, output_mb=1)
        one, other = (f"{pilot.epoch}.{task[0]}" for task in (first, second))
        parts = [bytes([number]) * 400_000 for number in range(4)]
        assert [send(pilot, part, one)[0] for part in parts] == [200, 200, 413, 413]
        assert "1,048,576" in send(pilot, parts[2], one)[1]
        assert send(pilot, parts[0], one)[0] == 200, "again, the same"
        assert send(pilot, b"announced", one, size=300_000)[0] == 413
        assert [send(pilot, part, other)[0] for part in parts] == [200, 200, 413, 413]
        for wrong, status in (("1.99999", 403), ("9.1", 403), ("x", 400), ("1", 400)):
            assert send(pilot, b"x", wrong)[0] == status
        stranger = pilot_of(world, "ann")
        assert send(stranger, b"x", one)[0] == 403


def test_whose_the_files_are_outlives_the_server() -> None:
    """Also one that was killed, and one of a version that did not keep it."""
    with open_world() as world:
        process = world.serve("--pilots", "0", env=POLL)
        ann, bob = client_of(world, "ann"), client_of(world, "bob")
        named, sent = put(ann, b"named by a bag"), put(ann, b"sent only")
        ann.submit(naming(named, "input"))
        tokens = [one.connection.endpoint.token for one in (ann, bob)]
        for holders in (True, False):
            kill_process(process)
            if not holders:
                for path in (world.directory / "files").glob("holders.db*"):
                    path.unlink()
            process = world.serve("--pilots", "0", env=POLL)
            address = world.client().connection.endpoint.address
            ann, bob = (Client(address, token) for token in tokens)
            assert ann.missing([named.digest]) == []
            assert b"".join(ann.read_file(named.digest)) == b"named by a bag"
            assert ann.missing([sent.digest]) == ([] if holders else [sent.digest])
            assert bob.missing([named.digest, sent.digest]) == [named.digest, sent.digest]


# -- what is shown -----------------------------------------------------------------------------


def test_hosts_and_pilots_of_others_are_not_shown() -> None:
    last = f"in:{'ab' * 32}"
    with open_world() as world:
        world.serve("--pilots", "0", env=POLL)
        ann, bob = client_of(world, "ann"), client_of(world, "bob")
        viewer = client_of(world, "ann", "--role", "viewer")
        admin = client_of(world, "root", "--role", "admin")
        tags = {"arch": "x86", "ann:genome": "hg38", "bob:x": "1"}
        pilot_of(world, "ann", host="anns", tags={**tags, "ann:last_input_files": last})
        pilot_of(world, "*", host="shared", tags=tags)
        for client in (ann, viewer):
            assert {one.host for one in client.hosts()} == {"anns", "shared"}
            assert {one.host for one in client.pilots()} == {"anns", "shared"}
        assert [one.host for one in bob.hosts()] == ["shared"]
        assert [one.host for one in bob.pilots(everyone=True)] == ["shared"]
        assert [one.tags for one in bob.hosts()] == [{"arch": "x86", "bob:x": "1"}]
        assert [one.tags for one in bob.pilots()] == [{"arch": "x86", "bob:x": "1"}]
        own = {one.host: one.tags for one in ann.hosts()}
        assert own["anns"] == {"arch": "x86", "ann:genome": "hg38", "ann:last_input_files": last}
        assert own["shared"] == {"arch": "x86", "ann:genome": "hg38"}
        every = {one.host: one.tags for one in admin.hosts()}
        assert set(every) == {"anns", "shared"}
        assert every["anns"]["bob:x"] == "1"
        listed = str(world.covey("policy", "attributes", "--json").stdout)
        assert "ab" * 32 not in listed.replace("ann:", "")
        # A second pilot, for everybody, on Ann's host: what hers says is not shown through it.
        pilot_of(world, "*", host="anns", tags={"arch": "arm"})
        found = {one.host: one for one in bob.hosts()}
        assert found["anns~2"].tags == {"arch": "arm"}
        assert found["anns~2"].pilots == 1
