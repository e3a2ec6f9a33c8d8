"""Strangers, who have no token, secret or credential, keep nobody waiting who has one."""

import asyncio
import http.client
import json
import resource
import socket
import ssl
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from covey.core.protocol.tokens import hand_job, job_secret, one_word
from tests.faults.world import World, wait_until
from tests.network.serving import authority_file, covey, port_of, record_of, serve
from tests.network.test_outages_attacks import resident

MB = 1 << 20
STRANGERS = 40
BODY = 16 * MB - 1
CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CONTEXT.check_hostname, CONTEXT.verify_mode = False, ssl.CERT_NONE
# A server with few descriptors, whatever the machine allows.
FEW_FILES = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))"


class ScriptedPilot:
    """Enrols, and then syncs over one connection; each sync brings an end, so it is answered at
    once."""

    def __init__(self, world: World) -> None:
        self.connection = http.client.HTTPSConnection(
            "127.0.0.1", port_of(world), timeout=60, context=CONTEXT
        )
        master = json.loads((world.directory / "secrets.json").read_text())["secret"]
        job = hand_job("*", time.time() + 600, f"{time.monotonic_ns()}")
        enrol = {
            "key": f"scripted-pilot-{time.monotonic_ns()}",
            "host": "h",
            "slots": 1,
            "shared": True,
        }
        self.credential = one_word(job, job_secret(master, job))
        status, said = self.post("enrol", {**enrol, "job": job})
        assert status == 200, said
        self.pilot, self.epoch = said["pilot"], said["epoch"]
        self.credential = said["credential"]
        self.number = 0

    def post(self, call: str, message: dict[str, Any]) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.credential}"}
        self.connection.request("POST", f"/pilot/v1/{call}", json.dumps(message), headers)
        found = self.connection.getresponse()
        return found.status, json.loads(found.read())

    def sync(self) -> tuple[int, float]:
        """The status, and how long it took."""
        self.number += 1
        end = [self.epoch, 10**9 + self.number, 1, 1, "failed"]
        ids = {"pilot": self.pilot, "epoch": self.epoch, "number": self.number}
        began = time.monotonic()
        status, _ = self.post(
            "sync", {**ids, "received": self.number - 1, "want": 0, "ends": [end]}
        )
        if status != 200:
            self.number -= 1
        return status, time.monotonic() - began

    def syncs(self, seconds: float) -> tuple[Counter[int], list[float]]:
        statuses, times = Counter[int](), []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            status, took = self.sync()
            statuses[status] += 1
            times.append(took)
        return statuses, times


@contextmanager
def flood(port: int, path: str, rate: int) -> Iterator[Counter[str]]:
    """Many strangers send large bodies, without end, each at most so many bytes a second."""
    ends, seen = threading.Event(), Counter[str]()

    async def send() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=CONTEXT)
        try:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY}\r\n\r\n"
            writer.write(head.encode())
            for _ in range(BODY // (64 << 10)):  # all but the last bytes
                writer.write(b" " * (64 << 10))
                await writer.drain()
                seen["bytes"] += 64 << 10
                await asyncio.sleep((64 << 10) / rate)
                if ends.is_set():
                    return
            while not ends.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        finally:
            writer.transport.abort()

    async def one() -> None:
        while not ends.is_set():
            try:
                seen["tries"] += 1
                await send()
            except (OSError, ssl.SSLError):
                await asyncio.sleep(0.05)

    async def run() -> None:
        tasks = [asyncio.create_task(one()) for _ in range(STRANGERS)]
        while not ends.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield seen
    finally:
        ends.set()
        thread.join(30)


def begun(seen: Counter[str]) -> bool:
    return seen["tries"] >= STRANGERS and seen["bytes"] > MB


def test_bodies_of_strangers_keep_no_sync_waiting(world: World) -> None:
    """Fast and slow, to every address that takes a body."""
    server = serve(world, "--listen", "0.0.0.0", "--pilots", "0")
    pilot, port = ScriptedPilot(world), port_of(world)
    _, alone = pilot.syncs(2)
    before = resident(server.pid)
    paths = ("/pilot/v1/sync", "/pilot/v1/enrol", "/api/v1/bags")
    for path, rate in [*((path, 100 * MB) for path in paths), ("/pilot/v1/sync", 2 * MB)]:
        with flood(port, path, rate) as seen:
            wait_until(partial(begun, seen))
            statuses, times = pilot.syncs(4)
        assert set(statuses) == {200}, (path, statuses)
        # On two cores the strangers have most of one. A server that reads all that they send
        # answers hardly anybody.
        bound = 0.1 + 10 * statistics.median(alone)
        assert statistics.median(times) < bound, (path, rate, statistics.median(times), bound)
        assert resident(server.pid) - before < 100 * MB, (path, rate)


def test_half_open_handshakes_keep_nobody_out(world: World) -> None:
    """More than the server has descriptors. Somebody with a token gets in, and who is in stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        server = serve(world, "--listen", "0.0.0.0", "--pilots", "0", patch=FEW_FILES)
        record, ca, port = record_of(world), authority_file(world), port_of(world)
        pilot = ScriptedPilot(world)
        with ExitStack() as stack:
            for number in range(1500):
                line = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
                if number % 2:
                    line.sendall(b"\x16\x03\x01")  # and no more of it
            assert len(list(Path(f"/proc/{server.pid}/fd").iterdir())) < 700
            for _ in range(20):
                status, took = pilot.sync()
                assert (status, took < 2.0) == (200, True), took
            began = time.monotonic()
            done = covey(world, record.address, ca, "bags")
            assert done.returncode == 0, done.stderr
            assert time.monotonic() - began < 20
            refused = metric(world, 'covey_refused_total{kind="connection"}')
            assert refused > 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def metric(world: World, name: str) -> float:
    connection = http.client.HTTPSConnection("127.0.0.1", port_of(world), context=CONTEXT)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    [line] = [line for line in text.splitlines() if line.startswith(name)]
    return float(line.split()[-1])


def test_refusals_are_counted_and_the_doctor_tells(world: World) -> None:
    serve(world, "--listen", "0.0.0.0", "--pilots", "0")
    port = port_of(world)
    assert "few in the last ten minutes" in world.covey("doctor").stdout
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=CONTEXT)
    for _ in range(120):
        connection.request("GET", "/api/v1/bags", headers={"Authorization": "Bearer covey_no"})
        found = connection.getresponse()
        assert (found.status, bool(found.read())) == (401, True)
    connection.close()
    assert metric(world, 'covey_refused_total{kind="unauthorized"}') >= 120
    told = world.covey("doctor").stdout
    assert "strangers refused 120 times in the last ten minutes" in told, told
    assert "firewall" in told
