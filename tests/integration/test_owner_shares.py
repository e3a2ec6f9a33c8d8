"""One owner takes all it can get of everything: another one, and the administrator, find room."""

import hashlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from covey.client.embedded import read_record
from covey.server.limits.shares import INVITATIONS, UNFINISHED_UPLOADS
from tests.faults.world import World, open_world, wait_until

SENDERS = 4


class Person:
    """Somebody with a token, and one connection."""

    def __init__(self, world: World, token: str = "") -> None:
        record = read_record(world.directory)
        assert record is not None
        url = urlsplit(record.address)
        self.place = (url.hostname or "", url.port or 0)
        self.token = token or record.token
        self._connection = http.client.HTTPConnection(*self.place, timeout=60)

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}"}
        self._connection.request(method, f"/api/v1{path}", data, headers)
        found = self._connection.getresponse()
        self.retry_after = found.headers.get("Retry-After")
        return found.status, json.loads(found.read())

    def upload(self, data: bytes) -> tuple[int, Any]:
        digest = hashlib.sha256(data).hexdigest()
        return self.call("PUT", f"/files/{digest}?offset=0&size={len(data)}", data)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as found:
        found.serve("--pilots", "0")
        yield found


@pytest.fixture
def admin(world: World) -> Iterator[Person]:
    found = Person(world)
    yield found
    found.close()


def person(world: World, admin: Person, owner: str) -> Person:
    status, issued = admin.call("POST", "/tokens", {"name": "test", "owner": owner})
    assert status == 201, issued
    return Person(world, issued["token"])


@pytest.fixture
def mallory(world: World, admin: Person) -> Iterator[Person]:
    found = person(world, admin, "mallory")
    yield found
    found.close()


@pytest.fixture
def bob(world: World, admin: Person) -> Iterator[Person]:
    found = person(world, admin, "bob")
    yield found
    found.close()


def test_slow_uploads(mallory: Person, bob: Person, admin: Person) -> None:
    """64 that send a byte, and then nothing: as many as may be written at a time."""
    with ExitStack() as stack:
        for number in range(64):
            line = stack.enter_context(socket.create_connection(mallory.place, 30))
            digest = hashlib.sha256(b"slow %d" % number).hexdigest()
            head = f"PUT /api/v1/files/{digest}?size=1000000 HTTP/1.1\r\nHost: x\r\n"
            head += f"Authorization: Bearer {mallory.token}\r\nContent-Length: 1000000\r\n\r\n"
            line.sendall(head.encode() + b"x")
        began = time.monotonic()
        for who in (bob, admin):
            status, said = who.upload(b"of %s" % who.token.encode())
            assert (status, said["complete"]) == (200, True)
        assert time.monotonic() - began < 10


def test_bytes_of_many_files(world: World, mallory: Person, bob: Person, admin: Person) -> None:
    """10,000 files are begun, and none is finished."""
    refusals: list[tuple[Person, Any]] = []
    numbers = iter(range(UNFINISHED_UPLOADS.total))

    def send() -> None:
        own = Person(world, mallory.token)
        for number in numbers:
            digest = hashlib.sha256(b"begun %d" % number).hexdigest()
            status, said = own.call("PUT", f"/files/{digest}?offset=0&size=2", b"x")
            if status != 200:
                refusals.append((own, said))
                break
        own.close()

    threads = [threading.Thread(target=send) for _ in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refusals) == SENDERS
    for refused, said in refusals:
        assert (said["status"], refused.retry_after) == (429, "60")
        assert said["detail"].startswith("unfinished uploads: you have 4,75")
        assert "an hour after its last piece" in said["detail"]
    for who in (bob, admin):
        status, said = who.upload(b"whole, of %s" % who.token.encode())
        assert (status, said["complete"]) == (200, True)


def test_invitations(mallory: Person, bob: Person, admin: Person) -> None:
    """Those with a long setup count for several: they take as much memory."""
    long = {"setup": "#" * 65536, "check": "#" * 65536, "seconds": 600}
    count = 0
    while (answer := mallory.call("POST", "/invitations", long))[0] == 201:
        count += 1
        assert count < INVITATIONS.total
    status, said = answer
    assert (status, mallory.retry_after) == (429, "60")
    assert said["detail"].startswith("open invitations: you have 4,7"), said
    for who in (bob, admin):
        status, said = who.call("POST", "/invitations", {"owner": "" if who is bob else "ann"})
        assert status == 201, said


def test_questions_that_wait(world: World, mallory: Person, bob: Person, admin: Person) -> None:
    """Some wait for news of a bag, as many as there may be of one owner."""
    spec = {"argv": ["true"]}
    status, said = mallory.call("POST", "/bags", spec)
    assert status == 201, said
    with ExitStack() as stack:
        lines = []
        for _ in range(300):
            line = stack.enter_context(socket.create_connection(mallory.place, 30))
            head = (
                f"GET /api/v1/bags/{said['bag']}/results?order=row&wait=60 HTTP/1.1\r\nHost: x\r\n"
            )
            line.sendall(f"{head}Authorization: Bearer {mallory.token}\r\n\r\n".encode())
            lines.append(line)
        for who in (bob, admin):
            assert who.call("GET", "/bags")[0] == 200
            assert who.call("POST", "/bags", spec)[0] == 201


def test_tokens(mallory: Person, bob: Person) -> None:
    for number in range(1100):
        status, said = mallory.call("POST", "/tokens", {"name": f"number {number}"})
        if status != 201:
            break
    assert status == 429
    assert said["detail"].startswith("mallory has 1,000 tokens, and no owner may have more:")
    assert bob.call("POST", "/tokens", {"name": "one"})[0] == 201


def test_the_administrator_sees_who_is_refused(admin: Person, bob: Person) -> None:
    for _ in range(3):
        assert bob.call("POST", "/stop")[0] == 403

    def refused() -> dict[tuple[str, str], int]:
        found = admin.call("GET", "/server")[1]["refused"]
        return {(one["owner"], one["kind"]): one["count"] for one in found}

    wait_until(lambda: refused().get(("bob", "unauthorized"), 0) >= 3)
    seen = {one["owner"] for one in bob.call("GET", "/server")[1]["refused"]}
    assert seen <= {"", "bob"}, "others' are shown to administrators only"
