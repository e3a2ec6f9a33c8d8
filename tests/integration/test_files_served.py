"""Files through the real server and back, also when it is killed on the way."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.client import embedded
from covey.core.record.model import Blob, Need, Placed
from tests.faults.world import World, kill, open_world, task_script, wait_until

OPTIONS = ("--slots", "2")


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


def put(world: World, data: bytes) -> Blob:
    client = world.client()
    digest = hashlib.sha256(data).hexdigest()
    assert client.put_piece(digest, 0, len(data), data).complete
    client.close()
    return Blob(digest, len(data))


def test_in_and_out(world: World) -> None:
    world.serve(*OPTIONS)
    data = os.urandom(1_000_000)
    bag = world.submit(
        task_script(
            'cat in.bin "$COVEY_SETUP/made" > big; echo {i} > small; echo k=v > $COVEY_TAGS'
        ),
        6,
        owner="ana",
        inputs=(Placed(path="in.bin", blob=put(world, data)),),
        setup="echo made > made",
        outputs=("big", "small"),
        need=Need(memory_mb=100),
    )
    view = world.wait_over(bag)
    assert (view.done, view.failed) == (6, 0)
    client = world.client()
    digest = hashlib.sha256(data + b"made\n").hexdigest()
    files = {(file.task, file.path): file for file in client.files(bag)}
    for task in range(6):
        assert files[task, "big"].digest == digest
        assert files[task, "small"].data == f"{task}\n".encode()
    assert b"".join(client.read_file(digest)) == data + b"made\n"
    wait_until(lambda: client.hosts()[0].tags.get("ana:k") == "v")
    client.close()


def test_an_upload_outlives_the_server(world: World) -> None:
    server = world.serve(*OPTIONS)
    script = task_script("head -c 90000000 /dev/zero > big; echo {i} >> big")
    bag = world.submit(script, 2, outputs=("big",))
    incoming = world.directory / "files" / "incoming"
    wait_until(lambda: incoming.exists() and any(_size(path) for path in incoming.iterdir()))
    kill(server.pid)
    wait_until(lambda: not embedded.is_held(world.directory))
    assert any(incoming.iterdir())
    world.serve(*OPTIONS)
    view = world.wait_over(bag)
    assert (view.done, view.failed, world.started(bag)) == (2, 0, 2)
    client = world.client()
    found = {file.task: file.digest for file in client.files(bag)}
    client.close()
    for task in range(2):
        content = bytes(90_000_000) + f"{task}\n".encode()
        assert found[task] == hashlib.sha256(content).hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
