"""A covey of real processes in a directory of its own, which a test may kill as it likes.

The rule: every process carries the world's mark in its environment. So a test can say exactly
what is left of it, and its end finds and kills whatever that is. Tasks write a journal of their
own: what really ran, whatever covey believes.
"""

import json
import os
import random
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from covey.client.client import Client
from covey.client.embedded import read_record
from covey.client.http import Endpoint
from covey.core.protocol import tokens
from covey.core.record.model import BagSpec
from covey.core.values.space import Axis, Range
from covey.whoami import user
from covey.wire import BagView, ServerView

MARK = "FAULTS_MARK"
COVEY = [sys.executable, "-P", "-m", "covey"]

# A task that says when it starts and when it ends; `>>` makes each line one atomic write.
SAYS = 'echo "$COVEY_BAG $COVEY_TASK $COVEY_ATTEMPT {}" >> "$JOURNAL"; '


def task_script(work: str) -> str:
    return SAYS.format("start") + work + "; " + SAYS.format("end")


class Line(NamedTuple):
    """What a task wrote."""

    bag: int
    task: int
    attempt: str
    what: str


class World:
    def __init__(self, root: Path, mark: str) -> None:
        self.root = root
        self.mark = mark
        self.directory = root / "store"
        self.journal_file = root / "journal"
        self.log_file = root / "log"
        self.journal_file.touch()
        self._started: list[subprocess.Popen[bytes]] = []

    # -- starting --------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """As it is here, but for settings that whoever runs the tests may have."""
        own = {name: text for name, text in os.environ.items() if not name.startswith("COVEY_")}
        homes = {f"XDG_{name}_HOME": str(self.root / name) for name in ("CONFIG", "CACHE")}
        return {**own, **homes, MARK: self.mark}

    def start(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        options.setdefault("stdin", subprocess.DEVNULL)
        with self.log_file.open("ab") as log:
            options.setdefault("stdout", log)
            options.setdefault("stderr", log)
            env = {**self.environment(), **options.pop("env", {})}
            process = subprocess.Popen(command, env=env, cwd=self.root, **options)
        self._started.append(process)
        return process

    def serve(
        self, *options: str, ready: bool = True, env: dict[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        command = [*COVEY, "serve", "--dir", str(self.directory), *options]
        process = self.start(command, env=env or {}, start_new_session=True)
        if ready:
            self.wait_ready(process)
        return process

    def wait_ready(self, process: "subprocess.Popen[bytes]", seconds: float = 60) -> None:
        def ready() -> bool:
            assert process.poll() is None, f"the server ended:\n{self.log_tail()}"
            record = read_record(self.directory)
            return record is not None and record.pid == process.pid and self.answers()

        wait_until(ready, seconds, self.log_tail)

    def answers(self) -> bool:
        try:
            return self.server().state == "ready"
        except Exception:
            return False

    def server(self) -> ServerView:
        client = self.client(patience_seconds=0)
        try:
            return client.server()
        finally:
            client.close()

    def pilot(
        self,
        *options: str,
        python: str = sys.executable,
        env: dict[str, str] | None = None,
        owner: str = "",
    ) -> "subprocess.Popen[bytes]":
        """One started by hand, from the file that the server has written; our own, unless it is
        another owner's."""
        secret = self.root / "secret"
        if owner or not secret.exists():
            secret = self.root / f"secret-{secrets.token_hex(8)}"
            secret.write_text(self.pilot_secret(owner))
        record = read_record(self.directory)
        assert record is not None
        command = [python, str(self.directory / "pilot.pyz"), "--server", record.address]
        command += ["--secret-file", str(secret), *options]
        return self.start(command, env=env or {}, start_new_session=True)

    def pilot_secret(self, owner: str = "") -> str:
        """For a pilot of its own site job, which runs our tasks, or this owner's."""
        master = json.loads((self.directory / "secrets.json").read_text())["secret"]
        job = tokens.hand_job(owner or user(), time.time() + 7 * 86400, secrets.token_hex(8))
        return tokens.one_word(job, tokens.job_secret(master, job))

    def covey(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        """The command line, to its end."""
        return subprocess.run(
            [*COVEY, "--dir", str(self.directory), *words],
            env={**self.environment(), **env},
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def client(self, patience_seconds: float = 60) -> Client:
        """It follows the server wherever it goes, and starts none."""

        def find() -> Endpoint | None:
            record = read_record(self.directory)
            return record.endpoint if record is not None else None

        endpoint = find()
        assert endpoint is not None
        return Client(*endpoint, patience_seconds=patience_seconds, find=find)

    # -- work ------------------------------------------------------------------------------

    def spec(self, script: str, total: int, key: str = "", **fields: Any) -> BagSpec:
        env = {"JOURNAL": str(self.journal_file), MARK: self.mark, **fields.pop("env", {})}
        space = Axis("i", Range("0", "1", total))
        fields = {"owner": user(), **fields}
        return BagSpec(argv=("sh", "-c", script), space=space, key=key, env=env, **fields)

    def submit(self, script: str, total: int, key: str = "", **fields: Any) -> int:
        client = self.client()
        try:
            return client.submit(self.spec(script, total, key, **fields)).bag
        finally:
            client.close()

    def bag(self, bag: int) -> BagView:
        client = self.client()
        try:
            view = client.bag(bag)
        finally:
            client.close()
        assert view is not None
        return view

    def wait_over(self, bag: int, seconds: float = 90) -> BagView:
        wait_until(lambda: self.bag(bag).over, seconds, lambda: f"{self.bag(bag)}")
        return self.bag(bag)

    def journal(self) -> list[Line]:
        found = []
        for text in self.journal_file.read_text().splitlines():
            bag, task, attempt, what = text.split()
            found.append(Line(int(bag), int(task), attempt, what))
        return found

    def started(self, bag: int = 0) -> int:
        return sum(line.what == "start" and bag in (0, line.bag) for line in self.journal())

    def ended(self, bag: int = 0) -> int:
        return sum(line.what == "end" and bag in (0, line.bag) for line in self.journal())

    def running(self) -> int:
        """By the tasks' own word; those that were killed say nothing."""
        whats = Counter(line.what for line in self.journal())
        return whats["start"] - whats["end"]

    # -- what is true ----------------------------------------------------------------------

    def rows(self, sql: str, *values: object) -> list[Any]:
        """From the record itself, past the server."""
        connection = sqlite3.connect(
            f"file:{self.directory}/covey.db?mode=ro", uri=True, timeout=30
        )
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def check_results(self, bag: int, total: int) -> None:
        """The bag is over, by itself, and every task has one counted result, a good one."""
        [(status, done, failed)] = self.rows(
            "SELECT status, done, failed FROM bags WHERE id=?", bag
        )
        assert (status, done, failed) == ("finished", total, 0)
        counted = self.rows("SELECT task, outcome FROM ends WHERE bag=? AND counted=1", bag)
        assert sorted(counted) == [(task, 0) for task in range(total)]
        doubled = self.rows(
            "SELECT epoch, sequence FROM ends GROUP BY epoch, sequence HAVING count(*) > 1"
        )
        assert doubled == [], "an attempt ended twice"

    def check_once(self, bag: int, total: int) -> None:
        """Every task ran exactly once: its own journal says so, and so does the record."""
        lines = [line for line in self.journal() if line.bag == bag]
        for what in ("start", "end"):
            tasks = Counter(line.task for line in lines if line.what == what)
            wrong = {task: tasks[task] for task in range(total) if tasks[task] != 1}
            assert not wrong, f"{what} was written so often: {wrong}"
        assert len({line.attempt for line in lines}) == total
        assert self.rows("SELECT count(*) FROM ends WHERE bag=?", bag) == [(total,)]

    def processes(self, *more: bytes) -> list[int]:
        """All that live and carry the mark (and these words in their environment too)."""
        mark = f"{MARK}={self.mark}".encode()
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                words = environment(int(name)).split(b"\0")
                if mark in words and all(word in words for word in more):
                    found.append(int(name))
        return found

    def tasks(self) -> list[int]:
        """Processes of tasks: only they know where the journal is."""
        return self.processes(f"JOURNAL={self.journal_file}".encode())

    def pilots(self) -> list[int]:
        """Main processes of pilots: of all that run a pilot file, those that others came from."""
        own = [pid for pid in self.processes() if b"pilot.pyz" in command_line(pid)]
        return [pid for pid in own if parent(pid) not in own]

    def log_tail(self) -> str:
        """The last words of servers and pilots, whoever started them."""
        files = [self.log_file, self.directory / "server.log"]
        files += self.directory.glob("pilots/*/log")
        texts = [f"{file}:\n{tail(file)}" for file in files if file.exists()]
        return "\n".join(texts)

    def log_notes(self) -> list[dict[str, Any]]:
        lines = self.log_file.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def close(self) -> None:
        """Whatever happened: nothing of this world is left."""
        until = time.monotonic() + 30
        while left := self.processes():
            for pid in left:
                kill(pid)
            for process in self._started:
                process.poll()
            assert time.monotonic() < until, f"these cannot be killed: {left}"
            time.sleep(0.01)
        for process in self._started:
            process.wait(10)


def kill(pid: int) -> None:
    send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_process(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait(30)


def environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def tail(path: Path) -> str:
    return path.read_bytes()[-4000:].decode("utf-8", "replace")


def nothing() -> str:
    return ""


def wait_until(
    condition: Callable[[], object], seconds: float = 30, tell: Callable[[], str] = nothing
) -> None:
    """What takes long to find out is asked for less often: others need the processors, too."""
    began = time.monotonic()
    asked = began
    while not condition():
        now = time.monotonic()
        assert now < began + seconds, f"it did not happen within {seconds} s\n{tell()}"
        time.sleep(max(0.02, min(3 * (now - asked), 0.5)))
        asked = time.monotonic()


def new_random() -> random.Random:
    """A seed that a failed test shows, and that FAULTS_SEED brings back."""
    seed = int(os.environ.get("FAULTS_SEED", random.SystemRandom().getrandbits(32)))
    print(f"FAULTS_SEED={seed}")
    return random.Random(seed)


@contextmanager
def open_world() -> Iterator[World]:
    """A world that is gone afterwards, with all that was in it."""
    root = Path(tempfile.mkdtemp(prefix="covey-faults-"))
    world = World(root, secrets.token_hex(8))
    try:
        yield world
    finally:
        print(world.log_tail())
        world.close()
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """A real file system of that size (the tests run as root)."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path) -> Path:
    """To the last byte."""
    path = disk / "filler"
    with path.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return path
