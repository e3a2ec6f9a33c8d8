"""Processes killed with -9: no task survives, no order is lost, no file is left."""

import errno
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

import pytest

from covey.pilot.slots import process_tree, slot, spawn
from covey.pilot.slots.current_task import CurrentTask
from tests.integration.slots_harness import Harness, alive, processes_with, wait_until

STORM = """
import os, signal, sys, threading, time
from random import Random
from covey.pilot.slots.orders import Order, Plan
from covey.pilot.slots.slot_pool import Slots

slots = Slots(sys.argv[1], 2)
slots.start()
slots.plan(Plan(1, {"PATH": "/usr/bin:/bin"}))
pids = [seat.pid for seat in slots._seats]
names = "IO CHLD USR1 TERM HUP INT USR2 XCPU TSTP ALRM PIPE QUIT"
numbers = [getattr(signal, "SIG" + name) for name in names.split()]
over = threading.Event()

def storm():
    random = Random(1)
    while not over.is_set():
        os.kill(random.choice(pids), random.choice(numbers))
        time.sleep(random.random() * 2e-4)

thread = threading.Thread(target=storm)
thread.start()
outcomes, count = [], 0
try:
    while len(outcomes) < 1500:
        while count < 1500 and slots.offer(Order(str(count), 1, ["/bin/true"])):
            count += 1
        outcomes += slots.read(1)
finally:
    over.set()
    thread.join()
kinds = {(outcome.kind, outcome.message) for outcome in outcomes}
print(kinds, pids == [seat.pid for seat in slots._seats])
slots.close()
"""

PARENT = """
import sys, time
from covey.pilot.slots.orders import Order, Plan
from covey.pilot.slots.slot_pool import Slots

slots = Slots(sys.argv[1], 2)
slots.start()
slots.plan(Plan(1, {"PATH": "/usr/bin:/bin"}))
script = "echo x > file; (setsid sh -c 'setsid sleep %s & sleep %s' &); sleep %s"
for key in "abcd":
    assert slots.offer(Order(key, 1, ["sh", "-c", script % ((sys.argv[2],) * 3)]))
while sum(1 for pid in slots.running().values() if pid) < 2:
    time.sleep(0.01)
time.sleep(0.3)
print(slots._keeper_pid, *(seat.pid for seat in slots._seats), slots._guard_pid, flush=True)
time.sleep(600)
"""


# Its tasks leave daemons: in sessions of their own, with no parent, in no directory of ours and
# with no file of ours. It prints what it has started, and then reads on as a pilot does.
DAEMONS = """
import sys, time
from covey.pilot.slots.orders import Order, Plan
from covey.pilot.slots.slot_pool import Slots

slots = Slots(sys.argv[1], 2, alone=True)
slots.start()
slots.plan(Plan(1, {"PATH": "/usr/bin:/bin"}))
script = "cd /; (setsid sh -c 'setsid sleep %s &' </dev/null >/dev/null 2>&1 &); echo x; sleep %s"
for key in "ab":
    assert slots.offer(Order(key, 1, ["sh", "-c", script % ((sys.argv[2],) * 2)]))
while sum(1 for pid in slots.running().values() if pid) < 2:
    time.sleep(0.01)
print(slots._guard_pid, slots._keeper_pid, *(seat.pid for seat in slots._seats), flush=True)
while True:
    slots.read(0.1)
"""
KINDS = ("pilot", "guard", "keeper", "slots")
SUBSETS = [subset for count in (1, 2, 3) for subset in itertools.combinations(KINDS, count)]


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "slots", grace_seconds=0.5)
    yield harness
    harness.close()


def mark() -> str:
    """Seconds to sleep that nobody else sleeps."""
    return f"7{os.getpid()}.25"


def start_parent(
    directory: Path, script: str = PARENT
) -> tuple["subprocess.Popen[str]", list[int]]:
    source = Path(__file__).parents[2] / "src"
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(directory), mark()],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(source)),
    )
    assert parent.stdout is not None
    return parent, [int(word) for word in parent.stdout.readline().split()]


def test_a_killed_slot_is_replaced(slots: Harness) -> None:
    process_tree = f"(setsid sh -c 'setsid sleep {mark()} & sleep {mark()}' &); sleep {mark()}"
    slots.sh("running", process_tree)
    slots.sh("beside", "sleep 0.4; echo fine")
    slots.sh("waiting", "true")
    slots.wait_running("running")
    wait_until(lambda: len(processes_with(mark())) >= 3)
    before = slots.slot_pids()
    os.kill(before[0], signal.SIGKILL)
    running, waiting, beside = slots.wait("running", "waiting", "beside")
    assert (running.kind, running.message) == ("host", "its slot died")
    assert waiting.kind in ("returned", "ok")  # the other slot may have taken it over
    assert (beside.kind, beside.stdout) == ("ok", b"fine\n")
    assert processes_with(mark()) == []
    wait_until(lambda: slots.slots.read() == [] and 0 not in slots.slot_pids())
    assert slots.slot_pids()[1] == before[1]
    assert slots.slot_pids()[0] != before[0]
    for _ in range(4):
        assert slots.run("pwd; ls").kind == "ok"


def test_orders_behind_a_killed_slot_come_back(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1)
    harness.sh("running", "sleep 600")
    harness.sh("waiting", "true")
    harness.wait_running("running")
    os.kill(harness.slot_pids()[0], signal.SIGKILL)
    running, waiting = harness.wait("running", "waiting")
    assert (running.kind, waiting.kind) == ("host", "returned")
    assert harness.run("echo on").stdout == b"on\n"
    harness.close()


def test_a_slot_killed_again_and_again(slots: Harness) -> None:
    for turn in range(3):
        slots.sh(f"a{turn}", "sleep 600")
        slots.sh(f"b{turn}", "sleep 600")
        slots.wait_running(f"a{turn}")
        for pid in slots.slot_pids():
            os.kill(pid, signal.SIGKILL)
        kinds = {found.kind for found in slots.wait(f"a{turn}", f"b{turn}")}
        assert kinds <= {"host", "returned"}
        wait_until(lambda: slots.slots.read() == [] and 0 not in slots.slot_pids())


def test_a_killed_idle_slot_is_replaced(slots: Harness) -> None:
    before = slots.slot_pids()
    os.kill(before[1], signal.SIGKILL)
    wait_until(lambda: slots.slots.read() == [] and slots.slot_pids()[1] not in (0, before[1]))
    for _ in range(4):
        assert slots.run("true").kind == "ok"


def test_a_killed_keeper_is_replaced(slots: Harness) -> None:
    slots.sh("a", f"setsid sleep {mark()}& sleep {mark()}")
    slots.sh("b", f"sleep {mark()}")
    slots.sh("c", "true")
    for key in "ab":
        slots.wait_running(key)
    before = slots.slot_pids()
    os.kill(slots.slots._keeper_pid, signal.SIGKILL)
    kinds = [found.kind for found in slots.wait("a", "b", "c")]
    assert kinds == ["host", "host", "returned"]
    assert processes_with(mark()) == []
    assert not any(alive(pid) for pid in before)
    assert slots.run("echo on").stdout == b"on\n"


def test_a_keeper_and_a_slot_killed_together_while_threads_run(slots: Harness) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        own = subprocess.Popen(["sleep", "600"])  # of the pilot's, not of a task
        slots.sh("a", f"(setsid sleep {mark()} &) ; sleep {mark()}")
        slots.sh("b", f"(setsid sleep {mark()} &) ; sleep {mark()}")
        wait_until(lambda: len(processes_with(f"sleep\0{mark()}")) == 4)
        for pid in [slots.slots._keeper_pid, *slots.slot_pids()]:
            process_tree.send(pid, signal.SIGKILL)  # one may have ended because another was killed
        assert [found.kind for found in slots.wait("a", "b")] == ["host", "host"]
        assert processes_with(mark()) == []
        assert slots.run("echo on").stdout == b"on\n"
        assert own.poll() is None
    finally:
        own.kill()
        own.wait()
        stop.set()
        thread.join()


def test_nothing_is_left_of_a_killed_pilot(tmp_path: Path) -> None:
    parent, pids = start_parent(tmp_path / "slots")
    assert len(processes_with(mark())) > 4
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids))
    assert processes_with(mark()) == []
    assert not (tmp_path / "slots").exists()


def test_nothing_is_left_of_a_pilot_killed_with_its_keeper(tmp_path: Path) -> None:
    parent, pids = start_parent(tmp_path / "slots")
    os.kill(parent.pid, signal.SIGSTOP)  # so that it cannot put another in its place
    os.kill(pids[0], signal.SIGKILL)
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids))
    wait_until(lambda: processes_with(mark()) == [])
    assert not (tmp_path / "slots").exists()


@pytest.mark.parametrize("subset", SUBSETS, ids="+".join)
def test_whichever_of_our_processes_die_nothing_of_a_task_is_left(
    tmp_path: Path, subset: tuple[str, ...]
) -> None:
    parent, (guard, keeper, *slot_pids) = start_parent(tmp_path / "slots", DAEMONS)
    by_kind = {"pilot": [parent.pid], "guard": [guard], "keeper": [keeper], "slots": slot_pids}
    try:
        # Of each task a shell, what it waits for, and a daemon.
        wait_until(lambda: len(_task_processes({parent.pid})) == 6)
        for pid in [pid for kind in subset for pid in by_kind[kind]]:
            process_tree.send(pid, signal.SIGKILL)  # one may have ended because another was killed
        if "pilot" in subset:
            parent.wait()
        ours = set() if "pilot" in subset else {parent.pid}
        wait_until(lambda: _task_processes(ours) == [], seconds=30)
        if "pilot" in subset:
            wait_until(lambda: not (tmp_path / "slots").exists(), seconds=30)
    finally:
        parent.kill()
        parent.wait()
        wait_until(lambda: _task_processes(()) == [], seconds=30)


def _task_processes(ours: Collection[int]) -> list[int]:
    """Those that carry the mark, but for our own processes: their names begin with covey."""
    return [pid for pid in processes_with(mark()) if pid not in ours and not _is_ours(pid)]


def _is_ours(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("covey-")
    except OSError:
        return True  # gone meanwhile


def test_a_storm_of_signals_ends_no_slot_and_loses_no_end(tmp_path: Path) -> None:
    """Whenever they come: between tasks, while one is started, while one runs. (Not from here: what
    is forked of pytest has faulthandler's small stack for signals, too small for many at once.)"""
    command = [sys.executable, "-c", STORM, str(tmp_path / "slots")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout == "{('ok', '')} True\n"


def test_signals_to_the_group_of_the_pilot_do_not_reach_tasks(slots: Harness) -> None:
    slots.sh("task", "sleep 0.3; echo done")
    pid = slots.wait_running("task")
    assert os.getpgid(pid) == pid
    for slot_pid in slots.slot_pids():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            os.kill(slot_pid, number)
    assert slots.wait("task")[0].stdout == b"done\n"


def test_a_slot_with_a_bug_says_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(self: slot.Slot, task: CurrentTask) -> None:
        raise ZeroDivisionError("our bug")

    monkeypatch.setattr(slot.Slot, "_finish", finish)
    harness = Harness(tmp_path / "slots", count=1)
    found = harness.run("true")
    assert (found.kind, found.message) == ("host", "its slot died: ZeroDivisionError: our bug")
    harness.close()


def test_who_changed_his_user_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill, foreign = os.kill, tmp_path / "pid"

    def refuse(pid: int, number: int) -> None:
        if foreign.exists() and foreign.read_text() == f"{pid}\n":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        kill(pid, number)

    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(process_tree, "_FOREIGN_SECONDS", 2.0)
    harness = Harness(tmp_path / "slots", count=1)
    harness.sh("before", "echo fine")
    harness.sh("leaves", f"sleep 600 & echo $! > {foreign}.new; mv {foreign}.new {foreign}")
    harness.wait("before")
    found = harness.wait("leaves")[0]
    assert (found.kind, found.exit_code) == ("ok", 0)
    left = int(foreign.read_text())
    assert alive(left)
    out = f"/proc/{left}/fd/1"
    assert harness.run(f"echo mine; echo theirs > {out}").stdout == b"mine\n"
    # Nor is it waited for again.
    monkeypatch.undo()
    assert all(harness.run("sleep 600 & true").wall_seconds < 2.0 for _ in range(3))
    os.kill(left, signal.SIGKILL)
    wait_until(lambda: not alive(left))
    harness.close()


def test_what_cannot_run_is_told_and_the_next_runs_once_without_vfork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for its slot to be back before exec fails.
    real, late = spawn._fork_exec, partial(time.sleep, 0.1)
    monkeypatch.setattr(spawn, "_fork_exec", lambda *words: real(*words[:-2], late, False))
    script = tmp_path / "script"
    script.write_text("echo by sh\n")
    script.chmod(0o700)
    harness = Harness(tmp_path / "slots", count=1)
    harness.offer("missing", [str(tmp_path / "missing")])
    harness.offer("call", [], plan=harness.plan(calls=[str(tmp_path / "missing")]), call="")
    found = harness.wait("missing", "call")
    assert [(one.kind, one.exit_code) for one in found] == [("failed", 127)] * 2
    harness.sh("once", f"echo x >> {tmp_path}/runs; exit 255")
    assert harness.wait("once")[0].exit_code == 255
    harness.offer("script", [str(script)])
    assert harness.wait("script")[0].stdout == b"by sh\n"
    assert (tmp_path / "runs").read_text() == "x\n"
    harness.close()


@pytest.mark.parametrize(("refusals", "kind"), [(2, "ok"), (100, "host")])
def test_a_host_that_cannot_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int, kind: str
) -> None:
    start, left = spawn.start, [refusals]

    def refuse(path: str, argv: list[str], env: list[bytes]) -> int:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return start(path, argv, env)

    monkeypatch.setattr(spawn, "start", refuse)
    monkeypatch.setattr(slot, "_RETRY_SECONDS", (0.05, 0.1, 0.1, 0.0))
    harness = Harness(tmp_path / "slots", count=1)
    found = harness.run("true")
    assert found.kind == kind
    assert kind == "ok" or "cannot start a process" in found.message
    harness.close()
