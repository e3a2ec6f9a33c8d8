"""`kill -9` of pilots, of their slots, of all they have: their tasks die with them and run again
elsewhere, and nothing is left of them."""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable

import pytest

from covey.pilot.protocol.messages import HOST, LOST, OK
from covey.store.sqlite.rows import OUTCOMES
from tests.faults.world import (
    SAYS,
    World,
    kill,
    parent,
    process_name,
    send,
    task_script,
    wait_until,
)

KILLS = 24
TASKS = 150  # a bag
PILOTS, SLOTS = 3, 6

# The lock is inherited by all that the task starts, so it is free only when nothing of it lives.
ALONE = 'exec 9>> "$LOCKS/{bag}-{i}"; flock -n 9 || ' + SAYS.format("overlap")
WORK = ALONE + task_script("sleep 0.$((3 + {i} % 6))")


class Hunt:
    def __init__(self, world: World, seeded: random.Random) -> None:
        self.world = world
        self.random = seeded
        self.kills: Counter[str] = Counter()
        self.ways: list[Callable[[int], list[int]]] = [
            self.pilot,
            self.pilot,
            self.slot,
            self.keeper,
            self.everything,
        ]

    def kill_one(self) -> None:
        pilot = self.random.choice(self.world.pilots() or [0])
        tasks = [pid for pid in self.world.tasks() if pilot in ancestors(pid)]
        if not tasks:
            return
        way = self.random.choice(self.ways)
        victims = way(pilot)
        for pid in victims:
            kill(pid)
        print(f"{way.__name__} of {pilot} after line {len(self.world.journal())}: {victims}")
        self.kills[way.__name__] += bool(victims)
        if way != self.slot:  # else only one of them dies
            wait_until(lambda: not set(tasks) & set(self.world.tasks()), 20)

    def pilot(self, pid: int) -> list[int]:
        return [pid]

    def slot(self, pid: int) -> list[int]:
        return self._of_kind(pid, "covey-slot")[:1]

    def keeper(self, pid: int) -> list[int]:
        return self._of_kind(pid, "covey-keeper")

    def everything(self, pid: int) -> list[int]:
        """Stopped first, so that nothing is started while we look: they die as one."""
        stopped: list[int] = []
        while fresh := [one for one in self._family(pid) if one not in stopped]:
            for one in fresh:
                send(one, signal.SIGSTOP)
            stopped += fresh
        return stopped

    def _family(self, pid: int) -> list[int]:
        return [pid, *(one for one in self.world.processes() if pid in ancestors(one))]

    def _of_kind(self, pid: int, name: str) -> list[int]:
        own = self._family(pid)
        self.random.shuffle(own)
        return [one for one in own if process_name(one).startswith(name)]


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = parent(pid)
        found.append(pid)
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tasks_of_killed_pilots_run_again_elsewhere(world: World, seeded: random.Random) -> None:
    locks = world.root / "locks"
    locks.mkdir()
    process = world.serve("--pilots", str(PILOTS), "--slots", str(SLOTS))
    hunt = Hunt(world, seeded)
    bags: list[int] = []
    while hunt.kills.total() < KILLS:
        if len(bags) * TASKS - world.ended() < TASKS // 2:
            bags.append(world.submit(WORK, TASKS, env={"LOCKS": str(locks)}))
        before = world.ended()
        hunt.kill_one()
        wait_until(lambda: world.ended() > before, 60, world.log_tail)  # noqa: B023
    for bag in bags:
        world.wait_over(bag, 120)
        world.check_results(bag, TASKS)
    lines = world.journal()
    assert not [line for line in lines if line.what == "overlap"], "a task ran beside itself"
    starts = Counter(line.attempt for line in lines if line.what == "start")
    assert max(starts.values()) == 1, "an attempt started twice"
    outcomes = Counter(OUTCOMES[code] for (code,) in world.rows("SELECT outcome FROM ends"))
    assert set(outcomes) <= {OK, HOST, LOST}, "nobody is to blame but the infrastructure"
    assert outcomes[OK] == TASKS * len(bags)
    assert world.covey("stop").returncode == 0
    assert process.wait(30) == 0
    wait_until(lambda: not world.processes())
    assert os.listdir(world.directory / "pilots") == []


@pytest.mark.parametrize("whole", [False, True])
def test_a_pilot_by_hand_that_is_killed_leaves_no_process(
    world: World, seeded: random.Random, whole: bool
) -> None:
    """Nobody watches this one: its own keeper does. Killed with all it has, no file of a slot
    matters to anyone, but no process may be left."""
    world.serve("--pilots", "0")
    place = world.root / "pilot"
    pilot = world.pilot("--slots", "4", "--directory", str(place))
    world.submit(task_script("setsid sleep 60 & sleep 60"), 4)
    wait_until(lambda: world.running() == 4)
    hunt = Hunt(world, seeded)
    own = hunt.everything(pilot.pid) if whole else hunt.pilot(pilot.pid)
    assert len(own) > 10 or not whole
    for pid in own:
        kill(pid)
    pilot.wait(10)
    wait_until(lambda: not world.tasks())
    wait_until(lambda: not world.pilots())
    if not whole:
        wait_until(lambda: not place.exists())


@pytest.mark.parametrize("pilot_first", [True, False])
def test_a_signal_to_all_processes_of_a_job_is_no_tasks_fault(
    world: World, seeded: random.Random, pilot_first: bool
) -> None:
    """So Slurm, PBS and LSF end a job. No task has a retry here."""
    world.serve("--pilots", "0")
    pilot = world.pilot("--slots", "4")
    quick = world.root / "quick"
    bag = world.submit(task_script(f"test -e {quick} || exec sleep 100"), 8)
    wait_until(lambda: world.running() == 4)
    quick.touch()
    tasks = set(world.tasks())
    family = sorted(Hunt(world, seeded)._family(pilot.pid))
    for pid in sorted(family, key=lambda one: (one in tasks) is pilot_first):
        send(pid, signal.SIGTERM)
    assert pilot.wait(15) == 0  # it waits for nobody
    world.pilot("--slots", "4")
    world.wait_over(bag)
    world.check_results(bag, 8)
    assert world.started() == 12
    outcomes = Counter(OUTCOMES[code] for (code,) in world.rows("SELECT outcome FROM ends"))
    assert outcomes == {OK: 8, LOST: 4}
