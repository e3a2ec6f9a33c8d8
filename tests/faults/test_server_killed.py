"""`kill -9` of the server, again and again: every task runs once, and nothing acknowledged is
lost."""

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from covey.client import embedded
from covey.core.errors import CoveyError
from tests.faults.world import COVEY, World, kill, kill_process, task_script, wait_until

KILLS = 32
BUSY = 50  # tasks that run at each of those kills
SLOTS = 64
OPTIONS = ("--embedded", "--slots", str(SLOTS))

# Long enough that the slots stay full while the server is away.
WORK = task_script("sleep 2.$(({i} % 10)); echo {i}")
BAG = 150
CAUGHT = 30  # tasks of a bag that is submitted while the server dies


class Hunt:
    """A server that is killed, in one way after the other, while it has work."""

    def __init__(self, world: World, seeded: random.Random) -> None:
        self.world = world
        self.random = seeded
        self.bags: dict[str, int] = {}  # acknowledged: key, bag
        self.totals: dict[int, int] = {}
        self.busy_kills = 0
        self.pid = 0
        self.ways: list[Callable[[], None]] = [
            self.at_any_moment,
            self.within_a_commit,
            self.within_a_commit,
            self.while_starting,
            self.while_submitting,
        ]

    def start(self) -> None:
        """As people do, or as their clients do for them."""
        if self.random.random() < 0.5:
            self.pid = self.world.serve(*OPTIONS).pid
        else:
            client = embedded.attach_or_start(self.world.directory, OPTIONS[1:])
            self.pid = client.server().pid
            client.close()

    def kill(self) -> None:
        self.busy_kills += self.world.running() >= BUSY
        kill(self.pid)
        wait_until(lambda: not embedded.is_held(self.world.directory))

    def feed(self) -> None:
        """See that there is work to hand out, and that the slots have theirs."""
        client = self.world.client()
        views = client.bags()
        client.close()
        if sum(view.total - view.done - view.running for view in views) < 2 * SLOTS:
            self.submit(f"feed-{len(self.bags)}", BAG)
        wait_until(lambda: self.world.running() >= BUSY, 60, self.world.log_tail)

    def submit(self, key: str, total: int) -> None:
        client = self.world.client()
        try:
            self.bags[key] = client.submit(self.world.spec(WORK, total, key)).bag
            self.totals[self.bags[key]] = total
        finally:
            client.close()

    # -- ways to die -----------------------------------------------------------------------

    def at_any_moment(self) -> None:
        time.sleep(self.random.uniform(0, 0.4))
        self.kill()

    def within_a_commit(self) -> None:
        """Within three milliseconds of the first byte of one."""
        wait_for_write(self.world.directory / "covey.db-wal")
        time.sleep(self.random.uniform(0, 0.003))
        self.kill()

    def while_starting(self) -> None:
        self.kill()
        process = self.world.serve(*OPTIONS, ready=False)
        self.pid = process.pid
        time.sleep(self.random.uniform(0, 0.6))
        self.kill()

    def while_submitting(self) -> None:
        """A client that loses its server says the same again, until it is answered."""
        key = f"caught-{len(self.bags)}"
        client = threading.Thread(target=self.submit, args=(key, CAUGHT))
        client.start()
        time.sleep(self.random.uniform(0, 0.03))
        self.kill()
        self.start()
        client.join(60)
        assert key in self.bags


def wait_for_write(path: Path) -> None:
    """Without a pause: a commit takes a millisecond."""
    before = stamp(path)
    until = time.monotonic() + 5
    while stamp(path) == before and time.monotonic() < until:
        pass


def stamp(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_task_runs_once_however_often_the_server_is_killed(
    world: World, seeded: random.Random
) -> None:
    hunt = Hunt(world, seeded)
    hunt.start()
    hunt.submit("first", BAG)
    while hunt.busy_kills < KILLS:
        hunt.feed()
        seeded.choice(hunt.ways)()
        if not embedded.is_held(world.directory):
            hunt.start()
    for key, bag in hunt.bags.items():
        world.wait_over(bag)
        assert world.rows("SELECT id FROM bags WHERE key=?", key) == [(bag,)]
        world.check_results(bag, hunt.totals[bag])
        world.check_once(bag, hunt.totals[bag])
    assert len(world.rows("SELECT id FROM bags")) == len(hunt.bags)
    assert len(world.rows("SELECT id FROM pilots")) == 1, "one pilot was there all the time"
    assert hunt.busy_kills >= KILLS


def test_a_pilot_that_was_just_being_started_is_found_again(
    world: World, seeded: random.Random
) -> None:
    """The server is killed within the moments in which it starts a pilot."""
    for number in range(5):
        process = world.serve("--slots", "2")
        bag = world.submit(task_script("true"), 4)
        time.sleep(seeded.uniform(0, 0.15))
        kill_process(process)
        process = world.serve("--slots", "2")
        world.wait_over(bag)
        world.check_results(bag, 4)
        world.check_once(bag, 4)
        assert len(world.pilots()) == 1, f"round {number}"
        assert world.covey("stop").returncode == 0
        assert process.wait(30) == 0
        wait_until(lambda: not world.processes())
        assert list((world.directory / "pilots").iterdir()) == []


def test_what_was_acknowledged_is_there_after_a_kill_while_idle(world: World) -> None:
    process = world.serve("--slots", "4")
    bag = world.submit(task_script("echo out {i}; echo err {i} >&2"), 20)
    world.wait_over(bag)
    kill_process(process)
    world.check_results(bag, 20)
    world.serve("--slots", "4")
    client = world.client()
    for task in range(20):
        output = client.output(bag, task)
        assert output is not None
        assert (output.stdout, output.stderr) == (f"out {task}\n", f"err {task}\n")
    client.close()
    world.check_once(bag, 20)


@pytest.mark.timeout(240)
def test_no_acknowledged_submission_is_lost(world: World, seeded: random.Random) -> None:
    """A loop of submissions, each repeated with its key until it is acknowledged, while the
    server is killed under it."""
    acknowledged: dict[str, int] = {}
    over = threading.Event()

    def submit_on() -> None:
        client = world.client()
        while not over.is_set():
            key = f"key-{len(acknowledged)}"
            found = client.submit(world.spec("true", 2, key))
            acknowledged[key] = found.bag
        client.close()

    process = world.serve("--pilots", "0")
    submitter = threading.Thread(target=submit_on)
    submitter.start()
    try:
        for _ in range(12):
            before = len(acknowledged)
            wait_until(lambda: len(acknowledged) > before)  # noqa: B023
            wait_for_write(world.directory / "covey.db-wal")
            time.sleep(seeded.uniform(0, 0.003))
            kill_process(process)
            process = world.serve("--pilots", "0")
    finally:
        over.set()
        submitter.join(60)
    stored = world.rows("SELECT key, id FROM bags")
    assert len({bag for _, bag in stored}) == len(stored)
    assert dict(stored) == acknowledged


def test_the_command_line_submits_once(world: World, seeded: random.Random) -> None:
    """`covey submit` whose server dies under it starts another, and says the same."""
    for number in range(5):
        process = world.serve("--embedded", "--pilots", "0")
        command = ["submit", "-p", "i=1..3", "--name", f"n{number}", "--", "true"]
        place = ["--dir", str(world.directory)]
        submitting = world.start([*COVEY, *place, *command], stdout=subprocess.PIPE)
        time.sleep(seeded.uniform(0.1, 0.4))
        kill_process(process)
        out, _ = submitting.communicate(timeout=60)
        assert submitting.returncode == 0, world.log_tail()
        found = world.rows("SELECT id FROM bags WHERE spec LIKE ?", f'%"name":"n{number}"%')
        assert found == [(int(out),)]
        world.covey("stop")
        wait_until(lambda: not embedded.is_held(world.directory))


def test_a_second_server_is_refused_and_told_who_holds_the_store(world: World) -> None:
    first = world.serve("--pilots", "0")
    second = world.covey("serve", "--pilots", "0")
    assert second.returncode == 1
    assert f"process {first.pid} on {os.uname().nodename}" in second.stderr
    assert "Traceback" not in second.stderr
    assert first.poll() is None
    assert world.answers()
    kill_process(first)
    world.serve("--pilots", "0")


def test_a_store_that_is_damaged_is_refused_with_words(world: World) -> None:
    world.directory.mkdir()
    (world.directory / "covey.db").write_bytes(b"this is not a database, it only looks busy" * 99)
    found = world.covey("serve")
    assert found.returncode == 1
    assert "not a record" in found.stderr
    with pytest.raises(CoveyError, match="not a record"):
        embedded.attach_or_start(world.directory)
