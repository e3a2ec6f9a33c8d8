"""Files against a real server: whoever dies on the way, and whoever asks for what."""

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.client.client import Client
from covey.client.digests import Digests
from covey.client.upload import Upload
from covey.core.errors import NotFound, Refused, ServerAway
from covey.core.record.model import BagSpec, Blob, Placed, Rows
from covey.core.values.space import Axis, Range
from covey.wire import Stored
from tests.faults.world import (
    World,
    kill_process,
    open_world,
    small_disk,
    tail,
    wait_until,
)
from tests.integration.test_server_protocol import Answer, Pilot, Server

FILES, PILOT_FILES = "/api/v1/files", "/pilot/v1/files"
DATA = bytes(range(256)) * 400
HUGE = 2**70


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


DIGEST = digest_of(DATA)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with open_world() as world:
        world.serve("--pilots", "0", env={"COVEY_SERVE_POLL_SECONDS": "1"})
        yield Server(world)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    found = server.world.client()
    yield found
    found.close()


def put(client: Client, data: bytes) -> str:
    assert client.put_piece(digest_of(data), 0, len(data), data).complete
    return digest_of(data)


# -- for people ----------------------------------------------------------------------------


def test_a_file_goes_there_and_back(client: Client) -> None:
    data = b"there and back" * 500
    digest = digest_of(data)
    assert client.missing([digest]) == [digest]
    assert client.file_state(digest) == Stored(size=0, complete=False)
    assert client.put_piece(digest, 0, len(data), data[:1000]).size == 1000
    assert client.put_piece(digest, 5000, len(data), data[5000:]).size == 1000
    with pytest.raises(NotFound):
        list(client.read_file(digest))
    assert client.put_piece(digest, 1000, len(data), data[1000:]).complete
    assert client.file_state(digest) == Stored(size=len(data), complete=True)
    assert client.missing([digest]) == []
    assert b"".join(client.read_file(digest)) == data


def get(server: Server, path: str, secret: str, wanted: str) -> tuple[int, bytes, str]:
    connection = server.connect()
    try:
        headers = {"Authorization": f"Bearer {secret}", "Range": wanted}
        connection.request("GET", path, None, headers)
        found = connection.getresponse()
        return found.status, found.read(), found.headers.get("content-range", "")
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("wanted", "status", "start", "stop"),
    [
        ("bytes=0-99", 206, 0, 100),
        ("bytes=100-", 206, 100, len(DATA)),
        ("bytes=-50", 206, len(DATA) - 50, len(DATA)),
        ("bytes=100-1000000000", 206, 100, len(DATA)),
        ("bytes=1000000000-", 416, 0, 0),
    ],
)
def test_a_part_of_a_file(
    server: Server, client: Client, wanted: str, status: int, start: int, stop: int
) -> None:
    put(client, DATA)
    found = get(server, f"{FILES}/{DIGEST}", server.token, wanted)
    assert found[0] == status
    if status == 206:
        assert found[1:] == (DATA[start:stop], f"bytes {start}-{stop - 1}/{len(DATA)}")


@pytest.mark.parametrize(
    ("status", "method", "path", "body"),
    [
        (422, "PUT", f"/{'x' * 64}?size=1", b"x"),
        (422, "PUT", f"/{'A' * 64}?size=1", b"x"),
        (422, "GET", "/nonsense/state", None),
        (422, "GET", "/nonsense", None),
        (422, "POST", "/missing", ["nonsense"]),
        (400, "POST", "/missing", {"a": 1}),
        (400, "POST", "/missing", [1]),
        (400, "PUT", f"/{'0' * 64}", b"x"),
        (400, "PUT", f"/{'0' * 64}?size=many", b"x"),
        (400, "PUT", f"/{'0' * 64}?size={HUGE}", b"x"),
        (422, "PUT", f"/{'0' * 64}?size=1", b"xx"),
        (422, "PUT", f"/{'0' * 64}?size=1&offset=-1", b"x"),
        (422, "PUT", f"/{'0' * 64}?size=1", b"x"),
        (413, "PUT", f"/{'0' * 64}?size={1 << 30}", bytes((8 << 20) + 1)),
        (404, "GET", f"/{'0' * 64}", None),
        (405, "DELETE", f"/{'0' * 64}", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_makes_no_sense(
    server: Server, status: int, method: str, path: str, body: Any
) -> None:
    assert server.refuses(status, method, FILES + path, body)
    if method == "PUT" and "size=1" in path:
        state = server.call("GET", f"{FILES}/{'0' * 64}/state")
        assert state.content["complete"] is False


def test_only_with_the_token(server: Server) -> None:
    for method, path in (
        ("POST", "/missing"),
        ("GET", f"/{DIGEST}"),
        ("GET", f"/{DIGEST}/state"),
        ("PUT", f"/{DIGEST}?size=1"),
    ):
        server.refuses(401, method, FILES + path, b"[]", "wrong")


def test_many_large_ones_at_once_take_little_memory(server: Server, tmp_path: Path) -> None:
    """96 MB, from six uploads of four threads each, and back."""
    size, count = 16 << 20, 6
    contents = [bytes([number]) * size for number in range(count)]
    record = server.call("GET", "/api/v1/server").content
    before = peak_kb(record["pid"])
    failed: list[Exception] = []

    def send(number: int) -> None:
        try:
            client = server.world.client()
            sending = Upload(client, digests=Digests(tmp_path / "cache"))
            sending.add(contents[number])
            sending.send()
            found = hashlib.sha256()
            for part in client.read_file(digest_of(contents[number])):
                found.update(part)
            assert found.hexdigest() == digest_of(contents[number])
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert peak_kb(record["pid"]) - before < 40_000


def peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


# -- deaths --------------------------------------------------------------------------------

SENDER = """
import sys, time
from pathlib import Path
from covey.client import embedded, upload
from covey.client.digests import Digests

def put_slowly(self, *given):
    time.sleep(0.01)
    return put_piece(self, *given)

put_piece, upload.Client.put_piece = upload.Client.put_piece, put_slowly
upload.PIECE_BYTES = 100_000
sending = upload.Upload(embedded.attach(Path(sys.argv[1])), digests=Digests(Path("no-cache")))
sending.add(Path(sys.argv[2]))
sending.send()
"""


def start_sender(world: World, path: Path) -> "subprocess.Popen[bytes]":
    return world.start([sys.executable, "-c", SENDER, str(world.directory), str(path)])


def test_a_sender_that_is_killed_goes_on_later(server: Server, client: Client) -> None:
    path = server.world.root / "large"
    path.write_bytes(os.urandom(5_000_000))
    blob_digest = digest_of(path.read_bytes())
    sender = start_sender(server.world, path)
    wait_until(lambda: client.file_state(blob_digest).size > 1_000_000, 30, server.world.log_tail)
    kill_process(sender)
    there = client.file_state(blob_digest)
    assert not there.complete
    seen: list[int] = []
    sending = Upload(client, lambda done, total: seen.append(done), Digests(path.parent / "cache"))
    sending.add(path)
    sending.send()
    assert seen[0] > there.size
    assert b"".join(client.read_file(blob_digest)) == path.read_bytes()


def test_the_server_is_killed_in_the_middle() -> None:
    """Again and again: the upload survives, and nothing that was acknowledged is lost."""
    with open_world() as world:
        process = world.serve("--pilots", "0")
        small = put(world.client(), b"acknowledged")
        path = world.root / "large"
        path.write_bytes(os.urandom(6_000_000))
        digest = digest_of(path.read_bytes())
        sender = start_sender(world, path)
        for size in (1_000_000, 2_500_000):
            wait_until(lambda size=size: world.client().file_state(digest).size > size)  # type: ignore[misc]
            before = world.client().file_state(digest).size
            kill_process(process)
            process = world.serve("--pilots", "0")
            assert world.client().file_state(digest).size >= before
            assert world.client().missing([small]) == []
        assert sender.wait(60) == 0, tail(world.log_file)
        client = world.client()
        assert b"".join(client.read_file(digest)) == path.read_bytes()
        assert not list((world.directory / "files" / "incoming").iterdir())


def test_a_download_goes_on_when_the_server_comes_back() -> None:
    with open_world() as world:
        process = world.serve("--pilots", "0")
        client = world.client()
        data = os.urandom(30_000_000)
        sending = Upload(client, digests=Digests(world.root / "cache"))
        digest = sending.add(data).digest
        sending.send()
        found = bytearray()
        for part in client.read_file(digest):
            found += part
            if process.poll() is None and len(found) > 3_000_000:
                kill_process(process)
                world.serve("--pilots", "0")
                process = subprocess.Popen(["true"])
                process.wait()
        assert found == data


def test_a_full_disk() -> None:
    """No more files, but the server lives; and when there is space again, so does the upload."""
    with open_world() as world, small_disk(world.root / "disk", 60_000_000) as disk:
        world.directory = disk / "store"
        process = world.serve("--pilots", "0")
        data = os.urandom(80_000_000)
        client = world.client(patience_seconds=1.0)
        sending = Upload(client, digests=Digests(world.root / "cache"))
        digest = sending.add(data).digest
        with pytest.raises(ServerAway, match="disk is full"):
            sending.send()
        assert world.submit("true", 3) == 1
        assert world.server().state == "ready"
        assert 30_000_000 < client.file_state(digest).size < 60_000_000
        remount = ["mount", "-o", "remount,size=200000000", str(disk)]
        subprocess.run(remount, check=True)
        sending.send()
        assert client.file_state(digest).complete
        kill_process(process)


# -- for pilots ----------------------------------------------------------------------------


def submit(client: Client, *placed: Placed, **fields: Any) -> int:
    space = Axis("i", Range("0", "1", 2))
    return client.submit(BagSpec(argv=("true",), space=space, inputs=placed, **fields)).bag


@pytest.fixture
def pilot(server: Server) -> Iterator[Pilot]:
    found = server.enrol()
    yield found
    for bag in server.call("GET", "/api/v1/bags").content:
        server.call("POST", f"/api/v1/bags/{bag['id']}/cancel")
    leave = {"pilot": found.id, "epoch": found.epoch}
    server.call("POST", "/pilot/v1/leave", leave, found.credential)


def as_pilot(pilot: Pilot, method: str, digest: str, query: str = "", body: Any = None) -> Answer:
    path = f"{PILOT_FILES}/{digest}?pilot={pilot.id}{query}"
    return pilot.server.call(method, path, body, pilot.credential)


def test_a_pilot_reads_what_its_tasks_need(server: Server, client: Client, pilot: Pilot) -> None:
    shared, own, other = (put(client, text) for text in (b"shared", b"own", b"other"))
    placed = Placed(path="in", blob=Blob(shared, 6))
    manifest = {"a": Blob(own, 3)}
    for digest in (shared, own, other):
        assert as_pilot(pilot, "GET", digest).status == 403
    submit(client, placed, manifest=manifest)
    assert as_pilot(pilot, "GET", shared).status == 403, "it has no task of it yet"
    assert pilot.sync(1, 0, want=1).content["tasks"]
    assert as_pilot(pilot, "GET", shared).body == b"shared"
    assert as_pilot(pilot, "GET", own).body == b"own"
    assert as_pilot(pilot, "GET", other).status == 403
    path = f"{PILOT_FILES}/{shared}?pilot={pilot.id}"
    assert get(server, path, pilot.credential, "bytes=2-3")[:2] == (206, b"ar")


def test_a_pilot_writes_while_it_has_tasks(client: Client, pilot: Pilot) -> None:
    data = b"returned" * 1000
    digest = digest_of(data)
    query = f"&offset=0&size={len(data)}"
    assert as_pilot(pilot, "PUT", digest, f"{query}&attempt=1.1", data).status == 403
    submit(client, output_mb=1)
    [task] = pilot.sync(1, 0, want=1).content["tasks"]
    attempt = f"&attempt={pilot.epoch}.{task[0]}"
    assert as_pilot(pilot, "PUT", digest, query, data).status == 400
    query += attempt
    found = as_pilot(pilot, "PUT", digest, query, data[:10])
    assert (found.status, found.content) == (200, {"size": 10, "complete": False})
    found = as_pilot(pilot, "PUT", digest, query, data)
    assert found.content == {"size": len(data), "complete": True}
    assert b"".join(client.read_file(digest)) == data
    assert as_pilot(pilot, "PUT", digest, f"&size={(1 << 20) + 1}{attempt}", data).status == 413
    assert as_pilot(pilot, "PUT", digest_of(b""), f"&size=1{attempt}", b"x").status == 422
    assert as_pilot(pilot, "PUT", digest_of(b"1")).status == 400
    assert as_pilot(pilot, "DELETE", digest).status == 405


def test_a_pilot_shows_who_it_is(server: Server, client: Client, pilot: Pilot) -> None:
    shared = put(client, b"shared")
    submit(client, Placed(path="in", blob=Blob(shared, 6)))
    pilot.sync(1, 0, want=1)
    path = f"{PILOT_FILES}/{shared}"
    server.refuses(401, "GET", f"{path}?pilot={pilot.id}", None, "wrong")
    server.refuses(401, "GET", f"{path}?pilot={pilot.id}", None, server.token)
    server.refuses(401, "GET", f"{path}?pilot=999999", None, pilot.credential)
    server.refuses(400, "GET", path, None, pilot.credential)
    server.refuses(400, "GET", f"{path}?pilot=x", None, pilot.credential)


def test_after_a_restart_a_pilot_waits_until_it_was_heard() -> None:
    with open_world() as world:
        process = world.serve("--pilots", "0", env={"COVEY_SERVE_POLL_SECONDS": "1"})
        client = world.client()
        shared = put(client, b"shared")
        submit(client, Placed(path="in", blob=Blob(shared, 6)))
        pilot = Server(world).enrol()
        [task] = pilot.sync(1, 0, want=1).content["tasks"]
        kill_process(process)
        world.serve("--pilots", "0", env={"COVEY_SERVE_POLL_SECONDS": "1"})
        pilot.server = Server(world)
        assert as_pilot(pilot, "GET", shared).status == 503
        answer = pilot.sync(2, 1).content
        assert answer["resync"]
        held = [[pilot.epoch, task[0], task[1], task[2]]]
        pilot.epoch = answer["epoch"]
        assert pilot.sync(3, 2, held=held, want=1).status == 200
        assert as_pilot(pilot, "GET", shared).body == b"shared"


# -- rows ----------------------------------------------------------------------------------


def rows(digest: str, form: str) -> Rows:
    return Rows(digest=digest, form=form, names=(), count=0)


def test_a_bag_of_rows(client: Client, pilot: Pilot) -> None:
    digest = put(client, b"alpha,who\n0.5,anna\n1,bert\n0.10,carl\n")
    spec = BagSpec(
        argv=("echo", "{who}"), rows=rows(digest, "csv"), space=Axis("s", Range("1", "1", 2))
    )
    found = client.submit(spec)
    assert found.total == 6
    tasks = pilot.sync(1, 0, want=4).content["tasks"]
    assert [task[3] for task in tasks] == [
        [0.5, "anna", 1],
        [0.5, "anna", 2],
        [1, "bert", 1],
        [1, "bert", 2],
    ]
    view = client.bag(found.bag)
    assert view is not None
    assert (view.names, view.total) == (["alpha", "who", "s"], 6)


@pytest.mark.parametrize(
    ("content", "form", "words"),
    [
        (b"a,b\n1,2\n3\n", "csv", "row 2 has 1 columns, not 2"),
        (b"a,b\n", "csv", "no rows"),
        (b'{"a": 1}\n{"b": 1}\n', "jsonl", "row 2"),
        (b"x\n", "xml", "csv, jsonl, lines"),
    ],
)
def test_rows_that_cannot_be_used(client: Client, content: bytes, form: str, words: str) -> None:
    spec = BagSpec(argv=("true",), rows=rows(put(client, content), form))
    with pytest.raises(Refused, match=words):
        client.submit(spec)


def test_rows_that_are_not_there(client: Client) -> None:
    with pytest.raises(Refused, match="upload these first"):
        client.submit(BagSpec(argv=("true",), rows=rows(digest_of(b"never sent"), "lines")))


def test_rows_after_a_restart() -> None:
    """The index is on disk, and tasks of any chunk have their values."""
    with open_world() as world:
        process = world.serve("--pilots", "0", env={"COVEY_SERVE_POLL_SECONDS": "1"})
        client = world.client()
        lines = b"".join(b"line %d\n" % number for number in range(20_000))
        bag = client.submit(BagSpec(argv=("{line}",), rows=rows(put(client, lines), "lines"))).bag
        kill_process(process)
        world.serve("--pilots", "0", env={"COVEY_SERVE_POLL_SECONDS": "1"})
        pilot = Server(world).enrol(slots=1000)
        seen: dict[int, list[Any]] = {}
        ends: list[Any] = []
        for number in range(1, 60):
            answer = pilot.sync(number, number - 1, want=1000, ends=ends).content
            seen |= {task[2]: task[3] for task in answer["tasks"]}
            ends = [[pilot.epoch, task[0], task[1], task[2], "ok"] for task in answer["tasks"]]
            if len(seen) >= 5000:
                break
        assert all(values == [f"line {task}"] for task, values in seen.items())
        assert len(seen) >= 5000
        assert world.bag(bag).total == 20_000
