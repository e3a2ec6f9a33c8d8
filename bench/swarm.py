"""A crowd of pilots in one process, each with a connection of its own, that speak the protocol
and run nothing: what the cases `sync` and `stampede` load the server with.

Run as a program it reads one JSON object of `Orders`, does what it says, prints a line of JSON
whenever something of note has happened, and goes on at each line that comes back.
"""

import asyncio
import json
import os
import random
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import uvloop

from covey.core.protocol.tokens import ANYBODY, hand_job, job_secret, one_word
from covey.pilot.protocol.messages import End, Enrol, Enrolled, Sync, Task

GIVE_UP_SECONDS = 120.0


class Answer(msgspec.Struct):
    """What these pilots look at, of the server's."""

    epoch: int
    tasks: list[Task] = []
    resync: bool = False
    leave: bool = False


_answers = msgspec.json.Decoder(Answer)


class Orders(NamedTuple):
    """`what`: park, exchange or stampede."""

    what: str
    address: str
    ca: str
    secrets: list[tuple[str, str]]  # site job and secret, one for each pilot
    seconds: float = 0.0
    core: int = -1  # where to run; -1: anywhere


class Line(asyncio.Protocol):
    """One connection: a request goes out, its response comes in, one at a time."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.heard: Callable[[int, bytes, float], None] = lambda *_: None
        self.lost: Callable[[], None] = lambda: None
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        headers = head.lower()
        at = headers.find(b"content-length: ")
        end = headers.find(b"\r\n", at)
        size = int(headers[at + 16 : end if end >= 0 else len(headers)])
        if len(rest) >= size:
            self._buffer = rest[size:]
            self.heard(int(head[9:12]), rest[:size], _retry_after(headers))

    def post(self, call: str, secret: str, body: bytes) -> None:
        head = (
            f"POST /pilot/v1/{call} HTTP/1.1\r\nHost: covey\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {secret}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)


def _retry_after(headers: bytes) -> float:
    at = headers.find(b"retry-after: ")
    if at < 0:
        return 0.0
    end = headers.find(b"\r\n", at)
    return float(headers[at + 13 : end if end >= 0 else len(headers)])


class Talker:
    """A pilot with one slot. It comes back whenever it is told to, and counts that."""

    def __init__(self, crowd: "Crowd", place: int, job: str, secret: str) -> None:
        self.crowd = crowd
        self.place = place
        self.came_at = 0.0
        self.job = job
        self.secret = secret
        self.enrolled: Enrolled | None = None
        self.enrolled_at = 0.0
        self.first_task_at = 0.0
        self.answered_at = 0.0
        self.exchanges = 0
        self.turned_away = 0
        self.connections = 0
        self.line = Line()
        self._number = 0
        self._again: tuple[str, bytes] = ("", b"")
        self.acts: Callable[[Talker, Answer], None] = lambda *_: None

    async def connect(self) -> None:
        _, self.line = await self.crowd.connect()
        self.connections += 1
        self.line.heard = self._heard
        self.line.lost = self.crowd.dropped

    def enrol(self) -> None:
        enrol = Enrol(f"talker-{self.place:08d}", f"host{self.place}", 1, job=self.job, shared=True)
        self._post("enrol", json.dumps(enrol._asdict()).encode())

    def sync(self, ends: list[End], want: int = 1) -> None:
        self._number += 1
        assert self.enrolled is not None
        sync = Sync(
            self.enrolled.pilot, self.enrolled.epoch, self._number, self._number - 1, want, ends
        )
        self._post("sync", msgspec.json.encode(sync._asdict()))

    def _post(self, call: str, body: bytes) -> None:
        self._again = (call, body)
        self.line.post(call, self.secret, body)

    def _heard(self, status: int, body: bytes, retry_after: float) -> None:
        now = time.monotonic()
        if status == 503:
            self.turned_away += 1
            loop = asyncio.get_running_loop()
            loop.call_later(retry_after, lambda: self._post(*self._again))
        elif status != 200:
            self.crowd.fail(f"{self._again[0]}: {status} {body[:300]!r}")
        elif self._again[0] == "enrol":
            self.enrolled = Enrolled(**json.loads(body))
            self.enrolled_at = now
            self.secret = self.enrolled.credential
            self.crowd.has_enrolled(self)
        else:
            self.answered_at = now
            answer = _answers.decode(body)
            if answer.resync or answer.leave:
                self.crowd.fail(f"the server answered {body[:300]!r}")
            if answer.tasks and not self.first_task_at:
                self.first_task_at = now
            self.acts(self, answer)


class Crowd:
    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.began = time.monotonic()
        self.problem = ""
        self.lost = 0
        self.done = asyncio.Event()
        self.left = len(orders.secrets)
        self.has_enrolled: Callable[[Talker], None] = lambda _: None
        url = urlsplit(orders.address)
        self._place = (url.hostname or "", url.port or 0)
        self._ssl = _context(orders.ca) if url.scheme == "https" else None
        self.talkers = [Talker(self, k, *one) for k, one in enumerate(orders.secrets)]

    async def connect(self) -> tuple[Any, Line]:
        loop = asyncio.get_running_loop()
        host, port = self._place
        if self._ssl is None:
            return await loop.create_connection(Line, host, port)
        return await loop.create_connection(
            Line, host, port, ssl=self._ssl, server_hostname=host, ssl_handshake_timeout=60.0
        )

    def fail(self, problem: str) -> None:
        self.problem = self.problem or problem
        self.done.set()

    def dropped(self) -> None:
        self.lost += 1
        self.fail("the server closed a connection")

    def one_less(self) -> None:
        self.left -= 1
        if not self.left:
            self.done.set()

    async def all_of(self, count: int) -> None:
        """Wait until so many have called `one_less`, or something is wrong."""
        if self.problem:
            raise RuntimeError(self.problem)
        self.left = count
        self.done.clear()
        await asyncio.wait_for(self.done.wait(), GIVE_UP_SECONDS)
        if self.problem:
            raise RuntimeError(self.problem)

    async def connect_all(self, at_once: int = 50) -> None:
        waiting = list(reversed(self.talkers))

        async def some() -> None:
            while waiting:
                await waiting.pop().connect()

        await asyncio.gather(*(some() for _ in range(at_once)))

    async def enrol_all(self) -> None:
        self.has_enrolled = lambda _: self.one_less()
        for talker in self.talkers:
            talker.enrol()
        await self.all_of(len(self.talkers))


def _context(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca)


# -- what they do --------------------------------------------------------------------------


async def park(crowd: Crowd) -> None:
    """All parked; then each is answered once, when the other side has done something."""
    began = time.monotonic()
    await crowd.connect_all()
    connected = time.monotonic() - began
    await crowd.enrol_all()

    def woken(talker: Talker, answer: Answer) -> None:
        if answer.tasks:
            crowd.one_less()
        else:
            talker.sync([])  # the time for parking was over

    for talker in crowd.talkers:
        talker.acts = woken
        talker.sync([])
    await asyncio.sleep(1.0)
    say({"parked": len(crowd.talkers), "connect_seconds": connected})
    await hear()
    await crowd.all_of(len(crowd.talkers))
    last = max(talker.answered_at for talker in crowd.talkers)
    first = min(talker.answered_at for talker in crowd.talkers)
    say({"last": last, "first": first})
    await hear()


async def exchange(crowd: Crowd) -> None:
    """Each reports the end of its task and gets the next, again and again."""
    await crowd.connect_all()
    await crowd.enrol_all()

    def go_on(talker: Talker, answer: Answer) -> None:
        ends = [
            End(answer.epoch, task.sequence, task.bag, task.task, "ok", 0, wall_seconds=2.0)
            for task in answer.tasks
        ]
        talker.exchanges += len(ends)
        talker.sync(ends)

    for talker in crowd.talkers:
        talker.acts = go_on
        talker.sync([])
    await asyncio.sleep(1.0)
    say({"started": True})
    began, before = time.monotonic(), sum(talker.exchanges for talker in crowd.talkers)
    cpu = time.process_time()
    while time.monotonic() - began < crowd.orders.seconds:
        await asyncio.sleep(0.05)
        if crowd.problem:
            raise RuntimeError(crowd.problem)
    seconds = time.monotonic() - began
    count = sum(talker.exchanges for talker in crowd.talkers) - before
    least = min(talker.exchanges for talker in crowd.talkers)
    most = max(talker.exchanges for talker in crowd.talkers)
    busy = (time.process_time() - cpu) / seconds
    away = sum(talker.turned_away for talker in crowd.talkers)
    say({
        "count": count, "seconds": seconds, "least": least, "most": most, "busy": busy,
        "turned_away": away,
    })  # fmt: skip
    await hear()


async def stampede(crowd: Crowd) -> None:
    """All come within one second, without any connection yet; each wants one task."""

    def got(talker: Talker, answer: Answer) -> None:
        if answer.tasks:
            crowd.one_less()
        else:
            talker.sync([])

    crowd.has_enrolled = lambda talker: talker.sync([])
    dice = random.Random(1)
    times = sorted(dice.random() for _ in crowd.talkers)
    began = time.monotonic()

    async def come(talker: Talker, at: float) -> None:
        await asyncio.sleep(began + at - time.monotonic())
        talker.acts = got
        talker.came_at = time.monotonic()
        await talker.connect()
        talker.enrol()

    coming = [asyncio.create_task(come(*one)) for one in zip(crowd.talkers, times, strict=True)]
    await crowd.all_of(len(crowd.talkers))
    await asyncio.gather(*coming)
    say({
        "seconds": max(talker.first_task_at for talker in crowd.talkers) - began,
        "enrolled": max(talker.enrolled_at for talker in crowd.talkers) - began,
        "came": [talker.came_at - began for talker in crowd.talkers],
        "at": [talker.enrolled_at - began for talker in crowd.talkers],
        "turned_away": sum(talker.turned_away for talker in crowd.talkers),
        "most_away": max(talker.turned_away for talker in crowd.talkers),
        "connections": sum(talker.connections for talker in crowd.talkers),
        "lost": crowd.lost,
    })  # fmt: skip
    await hear()


# -- the other side ------------------------------------------------------------------------


class Swarm:
    """The program, run by a case: its orders go in, what it says comes out."""

    def __init__(self, orders: Orders) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._write(json.dumps(orders._asdict()))

    def hear(self) -> dict[str, Any]:
        """The next thing that it says. Raises RuntimeError if that is bad news."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {"problem": "it has ended"}
        if "problem" in found:
            raise RuntimeError(found["problem"])
        return found

    def go_on(self) -> None:
        self._write("")

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def secrets_of(directory: Path, count: int) -> list[tuple[str, str]]:
    """For so many pilots that somebody starts by hand on one server, each its own."""
    master = json.loads((directory / "secrets.json").read_text())["secret"]
    until = time.time() + 3600
    jobs = [hand_job(ANYBODY, until, f"{k:06d}") for k in range(count)]
    return [(job, one_word(job, job_secret(master, job))) for job in jobs]


# -- the program ---------------------------------------------------------------------------


def say(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)


async def hear() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def main() -> None:
    crowd = Crowd(Orders(**json.loads(sys.stdin.readline())))
    if crowd.orders.core >= 0:
        os.sched_setaffinity(0, {crowd.orders.core})
    try:
        await {"park": park, "exchange": exchange, "stampede": stampede}[crowd.orders.what](crowd)
    except (Exception, TimeoutError) as error:
        say({"problem": f"{type(error).__name__}: {error}"})
        sys.exit(1)


if __name__ == "__main__":
    uvloop.run(main())
