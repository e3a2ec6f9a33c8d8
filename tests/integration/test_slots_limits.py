"""Limits that bind: memory, processors, and how much a task may print."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.slots import slot_files
from covey.pilot.slots.orders import Link
from covey.pilot.walls import resource_limits
from tests.integration.slots_harness import Harness, alive, processes_with, wait_until

# Takes so many MB in small steps, and holds them for so many seconds.
EATER = """
import sys, time
held = []
for _ in range(int(sys.argv[1])):
    held.append(b"x" * 1048576)
    time.sleep(float(sys.argv[3]))
time.sleep(float(sys.argv[2]))
print("full")
"""


def eater(megabytes: int, hold_seconds: float = 0, step_seconds: float = 0) -> list[str]:
    words = [str(word) for word in (megabytes, hold_seconds, step_seconds)]
    return [sys.executable, "-c", EATER, *words]


def groups() -> list[str]:
    found = resource_limits.own_group()
    assert found is not None
    return [name for name in os.listdir(found[0]) if name.startswith(f"covey-{os.getpid()}-")]


@pytest.fixture(params=["group", "sampled"])
def slots(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Harness]:
    """Both ways; the tests run as root, where groups can be made."""
    grouped = request.param == "group"
    harness = Harness(tmp_path / "slots", count=1, grace_seconds=0.5, control_groups=grouped)
    yield harness
    harness.close()
    assert groups() == []


def test_a_task_within_its_memory(slots: Harness) -> None:
    slots.offer("small", eater(30, 0.5), memory_mb=100)
    (small,) = slots.wait("small")
    assert (small.kind, small.stdout, small.message) == ("ok", b"full\n", "")
    assert 30 * 1024 < small.memory_kb < 100 * 1024
    assert len(groups()) == bool(slots.slots._settings.group)


def test_a_task_over_its_memory(slots: Harness) -> None:
    slots.offer("large", eater(200, 60, 0.002), memory_mb=60)
    (large,) = slots.wait("large")
    assert (large.kind, large.signal) == ("memory", signal.SIGKILL)
    assert large.message.startswith("over its limit of 60 MB (used ")
    assert large.memory_kb > 50 * 1024
    assert large.wall_seconds < 10
    assert slots.run("echo on", memory_mb=60).stdout == b"on\n"


def test_a_family_over_its_memory(slots: Harness) -> None:
    # None of them alone is over the limit.
    words = " ".join(f"'{word}'" for word in eater(40, 60))
    slots.sh("family", f"{words} & {words} & {words} & wait", memory_mb=90)
    (family,) = slots.wait("family")
    assert family.kind == "memory"
    assert family.wall_seconds < 10


def test_a_task_that_grows_at_once(slots: Harness) -> None:
    # Faster than anybody can look: the kernel kills it, or refuses the memory.
    code = "x = b'x' * (600 << 20); print(len(x))"
    slots.offer("fast", [sys.executable, "-c", code], memory_mb=50)
    (fast,) = slots.wait("fast")
    assert (fast.kind, fast.stdout) == ("memory", b"")


def test_a_part_killed_for_memory_ends_the_whole(slots: Harness) -> None:
    words = " ".join(f"'{word}'" for word in eater(300, 60, 0.01))
    slots.sh("part", f"{words}; sleep 600", memory_mb=50)
    (part,) = slots.wait("part")
    assert part.kind == "memory"
    assert part.wall_seconds < 10


def test_a_limit_does_not_stay(slots: Harness) -> None:
    for key, limit, kind in (("low", 50, "memory"), ("higher", 200, "ok"), ("none", 0, "ok")):
        slots.offer(key, eater(100, 0.4), memory_mb=limit)
        assert slots.wait(key)[0].kind == kind


def test_the_slot_itself_is_not_limited(slots: Harness) -> None:
    slots.offer("task", eater(10, 0.5), memory_mb=64)
    slots.wait_running("task")
    pid = slots.slot_pids()[0]
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert "Max data size             unlimited" in limits
    where = Path(f"/proc/{pid}/cgroup").read_text()
    assert where == Path("/proc/self/cgroup").read_text()
    assert slots.wait("task")[0].kind == "ok"


def test_other_ends_stay_what_they_are(slots: Harness) -> None:
    assert slots.run("exit 3", memory_mb=100)[1:3] == ("failed", 3)
    assert slots.run("sleep 60", 0.3, memory_mb=100).kind == "timeout"
    slots.sh("cancelled", "sleep 60", memory_mb=100)
    slots.wait_running("cancelled")
    slots.slots.cancel("cancelled")
    assert slots.wait("cancelled")[0].kind == "cancelled"


def test_memory_in_a_group_is_counted_without_the_slot(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1)
    harness.offer("tiny", ["/bin/true"], memory_mb=50)
    (tiny,) = harness.wait("tiny")
    status = Path(f"/proc/{harness.slot_pids()[0]}/status").read_text()
    own_kb = int(status.partition("VmRSS:")[2].split()[0])
    assert 0 < tiny.memory_kb < own_kb / 2
    # Files that it reads are not its memory.
    files = harness.run("head -c 40000000 /dev/zero > f; cat f > /dev/null", memory_mb=100)
    assert files.memory_kb < 20_000
    harness.close()


def test_shared_memory_counts_once(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1, control_groups=False)
    code = (
        "import os, time\nx = b'x' * (40 << 20)\n"
        "pids = [os.fork() or time.sleep(1.2) or os._exit(0) for _ in range(4)]\n"
        "[os.waitpid(pid, 0) for pid in pids]"
    )
    harness.offer("shared", [sys.executable, "-c", code], memory_mb=120)
    (shared,) = harness.wait("shared")
    assert (shared.kind, shared.message) == ("ok", "")
    harness.close()


def test_the_group_of_a_killed_slot_is_removed(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=2)
    for key in ("a", "b"):
        harness.sh(key, "sleep 600", memory_mb=50)
        harness.wait_running(key)
    assert len(groups()) == 2
    os.kill(harness.slot_pids()[0], signal.SIGKILL)
    harness.wait("a")
    assert len(groups()) == 1
    os.kill(harness.slots._keeper_pid, signal.SIGKILL)
    harness.wait("a", "b")
    assert groups() == []
    assert harness.run("echo on", memory_mb=50).stdout == b"on\n"
    harness.close()
    assert groups() == []


def test_what_a_killed_pilot_left_is_swept_away(tmp_path: Path) -> None:
    found = resource_limits.own_group()
    assert found is not None
    stale = os.path.join(found[0], "covey-4194305-00000000-0")  # no process has such a number
    os.mkdir(stale)
    harness = Harness(tmp_path / "slots", count=1)
    assert harness.run("true").kind == "ok"
    assert os.path.exists(stale)  # nobody asked for a group yet
    assert harness.run("true", memory_mb=50).kind == "ok"
    assert not os.path.exists(stale)
    harness.close()


# Processors


def test_a_task_is_bound_to_its_processors(tmp_path: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    harness = Harness(tmp_path / "slots", count=1)
    show = "grep Cpus_allowed_list /proc/self/status | cut -f2"
    assert harness.run(show, cores=[mine[-1]]).stdout == f"{mine[-1]}\n".encode()
    assert os.sched_getaffinity(harness.slot_pids()[0]) == set(mine)
    free = harness.run(show).stdout
    assert free == harness.run(show, cores=mine).stdout
    none = harness.run(show, cores=[9999])
    assert none.kind == "host"
    assert "cannot bind it to processors [9999]" in none.message
    assert harness.run(show).stdout == free
    harness.close()


# Output


def test_a_task_that_prints_for_ever_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_files, "_SPARE_BYTES", 4 << 20)
    harness = Harness(tmp_path / "slots", count=1, log_bytes=1000)
    harness.sh("loud", "echo first; head -c 200000000 /dev/zero; sleep 1.5; echo last; sleep 1.5")
    harness.wait_running("loud")
    out = tmp_path / "slots" / "slot-0.out"
    wait_until(lambda: out.stat().st_size > 200_000_000)
    wait_until(lambda: out.stat().st_blocks * 512 < 8 << 20)
    assert harness.slots.printed("loud", 1, 0, 6) == b"first\n"
    (loud,) = harness.wait("loud")
    assert loud.stdout_bytes == 200_000_011
    assert loud.stdout.startswith(b"first\n")
    assert loud.stdout.endswith(b"\0last\n")
    assert b"[... 199999011 bytes left out ...]" in loud.stdout
    assert harness.run("echo on").stdout == b"on\n"
    harness.close()


def test_output_is_seen_while_a_task_runs(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1)
    slots = harness.slots
    harness.sh("speaks", "echo one; echo two >&2; sleep 600")
    harness.sh("waits", "echo other; sleep 600")
    wait_until(lambda: slots.printed("speaks", 2, 0, 100) == b"two\n")
    assert slots.printed("speaks", 1, 0, 100) == b"one\n"
    assert slots.printed("speaks", 1, 2, 1) == b"e"
    assert slots.printed("speaks", 1, 4, 100) == b""
    assert slots.printed("waits", 1, 0, 100) == b""
    assert slots.printed("unknown", 1, 0, 100) == b""
    slots.cancel("speaks")
    assert harness.wait("speaks")[0].stdout == b"one\n"
    wait_until(lambda: slots.printed("waits", 1, 0, 100) == b"other\n")
    assert slots.printed("speaks", 1, 0, 100) == b""
    harness.close()


def test_live_output_is_never_of_another_task(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1)
    until = time.monotonic() + 2
    number = seen = 0
    while time.monotonic() < until:
        while harness.slots.free():
            harness.sh(f"k{number}", f"echo k{number}")
            number += 1
        for key in list(harness.slots.running()):
            data = harness.slots.printed(key, 1, 0, 100)
            assert data in (b"", key.encode() + b"\n")
            seen += bool(data)
        harness.note(harness.slots.read())
    assert seen
    harness.close()


def test_a_limited_task_dies_with_its_slot(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1)
    mark = f"8{os.getpid()}.5"
    harness.sh("task", f"setsid sleep {mark} & sleep {mark}", memory_mb=50, cores=[0])
    wait_until(lambda: len(processes_with(f"sleep\0{mark}")) == 2)
    pid = harness.slot_pids()[0]
    os.kill(pid, signal.SIGKILL)
    assert harness.wait("task")[0].kind == "host"
    assert processes_with(mark) == []
    assert not alive(pid)
    harness.close()
    assert groups() == []


# Time, and tasks that stop whoever holds them to it


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "slots", count=2, grace_seconds=0.5)
    yield harness
    harness.close()


def test_a_task_that_stops_its_slot_has_no_more_time(plain: Harness) -> None:
    mark = f"7{os.getpid()}.5"
    stops = plain.run(f"kill -STOP $PPID; sleep {mark}", 1.0)
    assert (stops.kind, stops.message) == ("timeout", "over its limit of 1 s")
    assert processes_with(mark) == []
    assert plain.run("echo on").stdout == b"on\n"


def test_a_task_that_stops_its_slot_and_the_keeper(plain: Harness) -> None:
    mark = f"6{os.getpid()}.5"
    keeper = plain.slots._keeper_pid
    # The keeper first: it would let the slot go on at once. The slot cannot wake it then.
    stops = plain.run(f"kill -STOP {keeper} && kill -STOP $PPID; sleep {mark}", 1.0)
    assert (stops.kind, stops.message) == ("timeout", "over its limit of 1 s")
    assert processes_with(mark) == []
    # Another slot's task does not wait for anybody.
    os.kill(keeper, signal.SIGSTOP)
    assert plain.run("sleep 600", 0.3).kind == "timeout"


def test_a_slot_that_is_stopped_for_ever_is_given_up(plain: Harness) -> None:
    code = "import os, signal\nslot = os.getppid()\nwhile 1: os.kill(slot, signal.SIGSTOP)"
    plain.offer("evil", [sys.executable, "-c", code], limit_seconds=600)
    (evil,) = plain.wait("evil")
    assert evil.kind == "host"
    assert evil.message == "its slot died: a process stopped it repeatedly (SIGSTOP)"
    assert processes_with(code) == []
    assert plain.run("echo on").stdout == b"on\n"


# Disk


def test_a_task_over_its_disk(plain: Harness) -> None:
    within = plain.run("head -c 5000000 /dev/zero > f; sleep 0.5; echo in", disk_mb=10)
    assert (within.kind, within.stdout) == ("ok", b"in\n")
    over = plain.run("mkdir d; head -c 20000000 /dev/zero > d/f; sleep 600", disk_mb=10)
    assert (over.kind, over.signal) == ("failed", signal.SIGKILL)
    assert over.message.startswith("over its limit of 10 MB of disk (used ")
    assert over.wall_seconds < 10
    wait_until(lambda: list(plain.directory.glob("slot-?/*")) == [])


def test_disk_that_no_listing_shows(plain: Harness) -> None:
    """A file that was removed but is open; a directory that nobody may list."""
    gone = plain.run("exec 9> f; rm f; head -c 20000000 /dev/zero >&9; sleep 600", disk_mb=10)
    assert gone.message.startswith("over its limit of 10 MB of disk (used ")
    closed = "mkdir -m 300 d; head -c 20000000 /dev/zero > d/f; sleep 600"
    assert plain.run(closed, disk_mb=10).message.startswith("over its limit of 10 MB of disk")
    deep = "i=0; while [ $i -lt 300 ]; do mkdir d && cd d; i=$((i+1)); done; sleep 600"
    assert "nested more than 200 levels deep" in plain.run(deep, disk_mb=10).message


def test_what_does_not_count_as_disk(plain: Harness, tmp_path: Path) -> None:
    """Inputs, other names of the same file, what a symbolic link leads to."""
    source = tmp_path / "input"
    source.write_bytes(bytes(20_000_000))
    script = (
        "head -c 6000000 /dev/zero > f; ln f g; ln f h; ln -s / root; ln in again;"
        " sleep 1; ls; echo in"
    )
    for copy in (False, True):
        plan = plain.plan(links=[Link(str(source), "in", copy)])
        found = plain.run(script, plan=plan, disk_mb=10)
        assert (found.kind, found.message) == ("ok", "")
    grown = plain.run("head -c 20000000 /dev/zero >> in; sleep 600", plan=plan, disk_mb=10)
    assert grown.message.startswith("over its limit of 10 MB of disk (used ")


def test_a_directory_of_many_files_is_measured_to_its_end(plain: Harness) -> None:
    """In many short looks."""
    many = "mkdir a z; cd a; seq 8000 | xargs touch; cd ..; head -c 20000000 /dev/zero > {}/f;"
    for folder in "az":  # whichever comes first
        found = plain.run(many.format(folder) + " sleep 600", disk_mb=10)
        assert found.message.startswith("over its limit of 10 MB of disk")


# Files in memory


def shared_memory(mark: str) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if mark in name]


def test_shared_memory_is_memory_and_does_not_stay(slots: Harness) -> None:
    mark = f"covey-test-{os.getpid()}-{int(time.time() * 1e6)}"
    path = f"/dev/shm/{mark}"
    try:
        fill = f"exec 9> {path}; for i in 1 2 3 4 5 6 7 8; do head -c 20000000 /dev/zero >&9;"
        over = slots.run(fill + " sleep 0.2; done; sleep 600", memory_mb=60)
        assert over.kind == "memory", over
        assert over.message.startswith("over its limit of 60 MB")
        assert shared_memory(mark) == []
        left = slots.run(f"exec 9> {path}; head -c 30000000 /dev/zero >&9; sleep 2", memory_mb=60)
        assert left.kind == "ok", left
        assert shared_memory(mark) == []
    finally:
        for name in shared_memory(mark):
            os.unlink(f"/dev/shm/{name}")


def test_what_one_task_left_in_memory_is_not_charged_to_the_next(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1)
    path = Path(f"/dev/shm/covey-test-{os.getpid()}-{int(time.time() * 1e6)}")
    try:
        assert harness.run(f"head -c 50000000 /dev/zero > {path}", memory_mb=90).kind == "ok"
        harness.offer("next", eater(60, 0.3), memory_mb=90)
        (found,) = harness.wait("next")
        assert (found.kind, found.stdout) == ("ok", b"full\n"), found
        assert found.memory_kb < 90 * 1024
    finally:
        path.unlink(missing_ok=True)
    harness.close()
    assert groups() == []
