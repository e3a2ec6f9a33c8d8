"""A flood of pilots that honour nothing: people are still served, memory stays bounded, and when
it is over everything is as it should be."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from covey.client.embedded import read_record
from covey.core.protocol.tokens import hand_job, job_secret, one_word
from tests.faults.world import World, open_world

CONNECTIONS = 500
FLOOD_SECONDS = 6.0
MB = 1 << 20


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as found:
        found.serve("--slots", "2")
        yield found


class Flood:
    """Every connection enrols a pilot, then syncs, and again, as fast as it is answered; it does
    not care when it is told to come back. In a thread of its own."""

    def __init__(self, world: World) -> None:
        record = read_record(world.directory)
        assert record is not None
        url = urlsplit(record.address)
        self.place = (url.hostname or "", url.port or 0)
        self.master = json.loads((world.directory / "secrets.json").read_text())["secret"]
        self.statuses: Counter[int] = Counter()
        self.without_delay = 0
        self.dropped = 0
        self.ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        await asyncio.gather(*(self._one(number) for number in range(CONNECTIONS)))

    async def _one(self, number: int) -> None:
        reader, writer = await asyncio.open_connection(*self.place)
        turn = 0
        try:
            while not self.ending.is_set():
                turn += 1
                job = hand_job("*", time.time() + 600, f"{number}x{turn}")
                enrol = {
                    "key": f"flood-{number}-{turn}",
                    "host": f"h{number}",
                    "slots": 1,
                    "shared": True,
                }
                secret = one_word(job, job_secret(self.master, job))
                status, said = await self._ask(
                    reader, writer, "enrol", {**enrol, "job": job}, secret
                )
                if status != 200:
                    continue
                sync = {"pilot": said["pilot"], "epoch": said["epoch"], "want": 0, "ends": []}
                for sent in range(1, 4):
                    await self._ask(
                        reader, writer, "sync",
                        {**sync, "number": sent, "received": sent - 1,
                         "ends": [[said["epoch"], 10**9 + sent, 1, 1, "failed"]]},
                        said["credential"],
                    )  # fmt: skip
                goodbye = {"pilot": said["pilot"], "epoch": said["epoch"]}
                await self._ask(reader, writer, "leave", goodbye, said["credential"])
        except (OSError, asyncio.IncompleteReadError):
            self.dropped += 1
        finally:
            writer.close()

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        call: str,
        message: dict[str, Any],
        secret: str,
    ) -> tuple[int, dict[str, Any]]:
        body = json.dumps(message).encode()
        head = f"POST /pilot/v1/{call} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Authorization: Bearer {secret}\r\n\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(answer.split()[1])
        size = int(answer.split(b"content-length: ")[1].split(b"\r\n")[0])
        content = json.loads(await reader.readexactly(size))
        self.statuses[status] += 1
        self.without_delay += status == 503 and b"retry-after" not in answer
        return status, content

    def __enter__(self) -> "Flood":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self._thread.join(30)


def memory(world: World) -> int:
    client = world.client()
    pid = client.server().pid
    client.close()
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError


@contextmanager
def looks(world: World) -> Iterator[list[float]]:
    """How long a look at the bags takes, each on a connection of its own."""
    found: list[float] = []
    ending = threading.Event()

    def look() -> None:
        while not ending.wait(0.2):
            began = time.monotonic()
            client = world.client()
            client.bags()
            client.close()
            found.append(time.monotonic() - began)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ending.set()
        thread.join(30)


def test_people_are_served_in_a_flood_of_pilots(world: World) -> None:
    before = memory(world)
    with looks(world) as seconds, Flood(world) as flood:
        time.sleep(FLOOD_SECONDS)
        bag = world.submit("true", 50)
    assert flood.statuses[200] > 1000
    assert set(flood.statuses) <= {200, 503}, flood.statuses
    assert flood.without_delay == 0
    assert flood.dropped == 0
    assert len(seconds) > 5
    assert sorted(seconds)[int(0.9 * len(seconds))] < 5.0, seconds
    assert memory(world) - before < 150 * MB
    view = world.wait_over(bag)
    assert view.done == 50


def test_bodies_of_strangers_take_little(world: World) -> None:
    """Each claims 15 MB of a sync, and sends what it can in some seconds."""
    before = memory(world)
    flood = Flood(world)

    async def claim() -> bytes:
        reader, writer = await asyncio.open_connection(*flood.place)
        size = 15 * MB
        head = f"POST /pilot/v1/sync HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
        try:
            writer.write(head.encode())
            async with asyncio.timeout(15):  # strangers are read slowly
                for _ in range(15):
                    writer.write(b" " * (MB - 1))
                    await writer.drain()
                return await reader.read(1 << 16)
        except (OSError, TimeoutError):
            return b""
        finally:
            writer.close()

    async def claim_all() -> list[bytes]:
        return await asyncio.gather(*(claim() for _ in range(40)))

    asyncio.run(claim_all())
    assert memory(world) - before < 100 * MB
    bag = world.submit("true", 5)
    assert world.wait_over(bag).done == 5
