"""`kill -9` of whoever has to do with a call while it is made: server, pilot, slot, worker. Every
call has one result in the end, and none ran twice without a reason."""

import sys
from base64 import b64encode
from collections import Counter
from pathlib import Path

import pytest

from covey.core.record.model import BagSpec, Segment
from covey.core.values.space import Axis, Values
from covey.pilot.calls.call_records import CALL
from covey.wire import ResultQuery
from tests.faults.world import MARK, World, kill, kill_process, parent, process_name, wait_until

WORKER = Path(__file__).parents[1] / "integration" / "calls_worker.py"
SLOTS = 4
CALLS = 60
OPTIONS = ("--embedded", "--slots", str(SLOTS))

# What it did is in a file of its own; an append is one atomic write.
SAYS = "file = open({!r}, 'a'); file.write('{} {} - {}\\n'); file.close()\n"


class Calls:
    def __init__(self, world: World, ahead: bool) -> None:
        self.world = world
        self.ahead = ahead
        self.bag = 0
        self.made = 0

    def open(self, **fields: object) -> None:
        """An open bag of calls, as an Executor has it."""
        env = {"JOURNAL": str(self.world.journal_file), MARK: self.world.mark}
        if self.ahead:
            env["AHEAD"] = "yes"
        client = self.world.client()
        spec = BagSpec(
            argv=(sys.executable, str(WORKER)),
            env=env,
            calls=True,
            open=True,
            space=Axis(CALL, Values(())),
            **fields,  # type: ignore[arg-type]
        )
        self.bag = client.submit(spec).bag
        client.close()

    def append(self, count: int, seconds: float = 0.1) -> None:
        calls = []
        for number in range(self.made, self.made + count):
            code = self.says(number, "start") + f"import time; time.sleep({seconds})\n"
            code += self.says(number, "end") + f"answer = b'v{number}'"
            calls.append(b64encode(code.encode()).decode())
        self.made += count
        client = self.world.client()
        client.append(self.bag, Segment(space=Axis(CALL, Values(tuple(calls)))))
        client.close()

    def says(self, number: int, what: str) -> str:
        return SAYS.format(str(self.world.journal_file), self.bag, number, what)

    def wait_half(self) -> None:
        """Until half have run, and others do."""
        half = self.made // 2
        wait_until(lambda: self.world.ended() >= half and self.world.running() > 0, 60)

    def finish(self) -> None:
        client = self.world.client()
        client.close_bag(self.bag)
        client.close()
        self.world.wait_over(self.bag)

    def check_values(self) -> None:
        """Each call has the result of this very call."""
        client = self.world.client()
        rows = client.results(self.bag, ResultQuery(limit=10_000))
        client.close()
        found = {row.task: row.result.get("value") for row in rows}
        assert found == {n: b64encode(b"%d" % n).decode() for n in range(self.made)}


@pytest.fixture(params=["ahead", "one by one"])
def calls(world: World, request: pytest.FixtureRequest) -> Calls:
    return Calls(world, request.param == "ahead")


def test_a_killed_server_repeats_no_call(world: World, calls: Calls) -> None:
    server = world.serve(*OPTIONS)
    calls.open()
    for _ in range(6):
        calls.append(CALLS // 6)
    calls.wait_half()
    kill_process(server)
    world.serve(*OPTIONS)
    calls.finish()
    world.check_results(calls.bag, CALLS)
    calls.check_values()
    runs = Counter((line.task, line.what) for line in world.journal())
    assert set(runs.values()) == {1}, "a call ran twice"


def test_calls_of_a_killed_pilot_are_made_by_another(world: World, calls: Calls) -> None:
    world.serve(*OPTIONS)
    calls.open()
    calls.append(CALLS)
    calls.wait_half()
    (pilot,) = world.pilots()
    workers = world.tasks()
    kill(pilot)
    wait_until(lambda: not set(workers) & set(world.tasks()), 20)
    calls.finish()
    world.check_results(calls.bag, CALLS)
    calls.check_values()


def test_the_call_of_a_killed_slot_is_made_again(world: World, calls: Calls) -> None:
    world.serve(*OPTIONS)
    calls.open()
    calls.append(CALLS)
    calls.wait_half()
    slot = parent(world.tasks()[0])
    assert process_name(slot).startswith("covey-slot")
    kill(slot)
    calls.finish()
    world.check_results(calls.bag, CALLS)
    calls.check_values()
    starts = Counter(line.task for line in world.journal() if line.what == "start")
    again = sum(starts.values()) - CALLS
    assert again <= 3, "only what ran in that slot, or was not reported yet, runs again"


def test_the_call_of_a_killed_worker_fails_or_is_tried_again(world: World, calls: Calls) -> None:
    world.serve(*OPTIONS)
    calls.open(retries=2)
    calls.append(CALLS)
    calls.wait_half()
    for worker in world.tasks():
        kill(worker)
    calls.finish()
    world.check_results(calls.bag, CALLS)
    calls.check_values()
    failed = world.rows("SELECT signal, counted FROM ends WHERE bag=? AND outcome=1", calls.bag)
    assert 1 <= len(failed) <= SLOTS
    assert set(failed) == {(9, 0)}


SHORT = 4000
SHORT_SECONDS = 0.0005


@pytest.mark.parametrize("victim", ["worker", "slot", "pilot"])
def test_short_calls_survive_whoever_is_killed(world: World, calls: Calls, victim: str) -> None:
    """So short that many are given ahead. A killed worker may take one call with it; a slot, and a
    pilot, what they had not reported; nothing is lost, and nothing else runs again."""
    world.serve(*OPTIONS)
    calls.open(retries=3)
    calls.append(SHORT, SHORT_SECONDS)
    wait_until(lambda: world.ended() >= SHORT // 4, 60)
    if victim == "pilot":
        kill(world.pilots()[0])
    else:
        worker = world.tasks()[0]
        kill(worker if victim == "worker" else parent(worker))
    assert world.ended() < SHORT, "too late"
    calls.finish()
    world.check_results(calls.bag, SHORT)
    calls.check_values()
    failed = world.rows("SELECT signal, counted FROM ends WHERE bag=? AND outcome=1", calls.bag)
    starts = Counter(line.task for line in world.journal() if line.what == "start")
    again = sum(starts.values()) - SHORT
    if victim == "worker":
        assert len(failed) <= 1
        assert set(failed) <= {(9, 0)}
        assert again <= len(failed)
    else:
        assert not failed
        held = 260 * (SLOTS if victim == "pilot" else 1)
        assert again <= held


def test_nothing_of_a_worker_is_left_when_its_server_ends(world: World, calls: Calls) -> None:
    server = world.serve(*OPTIONS)
    calls.open()
    calls.append(SLOTS * 2)
    wait_until(lambda: world.ended() == SLOTS * 2, 30)
    assert world.tasks(), "workers wait for more"
    client = world.client()
    client.stop()
    client.close()
    server.wait(30)
    wait_until(lambda: not world.tasks(), 20)
