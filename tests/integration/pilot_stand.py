"""A pilot in a process of its own, and something that speaks to it as the server does."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from covey import __version__
from covey.pilot.calls.call_records import CALL_FILE
from covey.pilot.protocol.messages import (
    Answer,
    Body,
    End,
    Enrolled,
    Followed,
    Input,
    OutputFile,
    Scalar,
    Task,
)
from tests.unit.pilot.standin import Files, Handler, digest_of, serving

PATIENCE_SECONDS = 100.0  # a busy machine takes its time
SOURCES = Path(__file__).parents[2] / "src"


class Stand(Files):
    """Hands `give`n tasks out to whoever asks, and keeps what came of them."""

    def __init__(self) -> None:
        super().__init__()
        self.change = threading.Condition()
        self.enrols: list[dict[str, Any]] = []
        self.ends: dict[int, End] = {}  # by sequence
        self.tags: dict[str, str] = {}
        self.printed: list[list[Any]] = []
        self.left: list[str] = []
        self.follow: list[Followed] | None = None
        self.leave = False
        self.most_tasks = 4  # an answer, so that several pilots get some
        self.version = __version__  # of the server, and its pilot file
        self.pilot_file = b""
        self.pilot_digest = ""
        self.greeted: list[str] = []  # how pilots asked for it
        self.enrol_status = 200
        self._bodies: dict[int, Body] = {}
        self._tasks: list[Task] = []
        self._sequence = 0
        self._latest: dict[int, int] = {}  # pilot -> its last sync
        self._answers: dict[tuple[int, int], Answer] = {}

    def give(self, body: Body, count: int = 1, **more: Any) -> list[int]:
        """The sequence numbers of the attempts; task numbers are 0, 1, …, and the only value."""
        with self.change:
            self._bodies[body.bag] = body
            first = self._sequence + 1
            for number in range(count):
                self._sequence += 1
                values: list[Scalar] = [number] if body.names else []
                self._tasks.append(Task(self._sequence, body.bag, number, values, **more))
            self.change.notify_all()
            return list(range(first, self._sequence + 1))

    def call(self, body: Body, *calls: str | bytes) -> list[int]:
        """As `give`, for a bag of calls; those in bytes travel as files."""
        with self.change:
            self._bodies[body.bag] = body
            first = self._sequence + 1
            for number, call in enumerate(calls):
                self._sequence += 1
                task = Task(self._sequence, body.bag, number, [""])
                self._tasks.append(self._with_call(task, call))
            self.change.notify_all()
            return list(range(first, self._sequence + 1))

    def _with_call(self, task: Task, call: str | bytes) -> Task:
        if isinstance(call, str):
            return task._replace(values=[call])
        digest = self.add(call)
        inputs = [Input(CALL_FILE, digest, len(call))]
        return task._replace(values=[f"@{digest}:{len(call):09}"], inputs=inputs)

    def send_home(self) -> None:
        with self.change:
            self.leave = True
            self.change.notify_all()

    def watch(self, *followed: Followed) -> None:
        with self.change:
            self.follow = list(followed)
            self.change.notify_all()

    def wait(self, sequences: list[int], seconds: float = PATIENCE_SECONDS) -> list[End]:
        self.until(lambda: all(number in self.ends for number in sequences), seconds)
        return [self.ends[number] for number in sequences]

    def until(self, holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        with self.change:
            assert self.change.wait_for(holds, seconds), "not in time"

    def sync(self, sync: dict[str, Any]) -> Answer:
        with self.change:
            for row in sync["ends"]:
                end = End(*row)
                self.ends[end.sequence] = end._replace(files=[OutputFile(*f) for f in end.files])
            if sync["tags"]:
                self.tags = sync["tags"]
            self.change.notify_all()
            pilot, number = sync["pilot"], sync["number"]
            self._latest[pilot] = max(number, self._latest.get(pilot, 0))
            if not sync["ends"]:
                self.change.wait_for(lambda: self._news() or self._latest[pilot] > number, 0.5)
            if (pilot, number) not in self._answers:
                self._answers[pilot, number] = self._answer(number)
            return self._answers[pilot, number]

    def _answer(self, number: int) -> Answer:
        tasks, self._tasks = self._tasks[: self.most_tasks], self._tasks[self.most_tasks :]
        bodies = [self._bodies[bag] for bag in dict.fromkeys(task.bag for task in tasks)]
        follow, self.follow = self.follow, None
        return Answer(1, number, bodies, tasks, leave=self.leave, follow=follow)

    def _news(self) -> bool:
        return bool(self._tasks or self.leave or self.follow is not None)


class StandHandler(Handler):
    world: Stand

    def do_GET(self) -> None:
        if urlsplit(self.path).path.endswith("/pilot.pyz"):
            self._answer_pilot(self.world.pilot_file)
        else:
            super().do_GET()

    def do_HEAD(self) -> None:
        self._answer_pilot(b"")

    def _answer_pilot(self, content: bytes) -> None:
        """The server's own pilot file, and what the server is."""
        world = self.world
        with world.change:
            world.greeted.append(self.command)
            world.change.notify_all()
        self.send_response(200)  # with a Date
        self.send_header("X-Covey-Version", world.version)
        self.send_header("X-Covey-Pilot", world.pilot_digest or digest_of(world.pilot_file))
        self.send_header("Content-Type", "application/zip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        world, path = self.world, urlsplit(self.path).path
        answer: Any = {}
        if path.endswith("enrol"):
            world.enrols.append(message)
            answer = Enrolled(len(world.enrols), "credential", 1, 1.0, 60.0, 60.0)._asdict()
        elif path.endswith("sync"):
            answer = world.sync(message)._asdict()
        elif path.endswith("printed"):
            with world.change:
                world.printed += message["pieces"]
                world.change.notify_all()
        elif path.endswith("leave"):
            with world.change:
                world.left.append(message["reason"])
                world.change.notify_all()
        status = world.enrol_status if path.endswith("enrol") else 200
        self._answer(status, json.dumps(answer).encode())


@contextlib.contextmanager
def standing() -> Iterator[Stand]:
    with serving(Stand(), StandHandler) as world:
        yield world


@contextlib.contextmanager
def pilot(
    stand: Stand, place: Path, *flags: str, python: str = sys.executable, **environment: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A pilot that works in `place`/work, with a cache in `place`/cache; ended at the end."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "secret").write_text("secret")
    command = [
        python, "-m", "covey.pilot", "--server", stand.address,
        "--secret-file", str(place / "secret"), "--directory", str(place / "work"),
        *flags,
    ]  # fmt: skip
    if "--cache" not in flags:
        command += ["--cache", str(place / "cache")]
    env = {**os.environ, "PYTHONPATH": str(SOURCES), "COVEY_GPUS": "none", **environment}
    with open(place / "log", "wb") as log:
        process = subprocess.Popen(command, env=env, stderr=log, stdout=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGINT)  # two equal ones might arrive as one
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
