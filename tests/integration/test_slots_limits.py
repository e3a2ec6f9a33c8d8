"""Limits that bind: memory, processors, and how much a task may print."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot import confine, scratch
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
    found = confine.own_group()
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
    found = confine.own_group()
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
    monkeypatch.setattr(scratch, "_SPARE_BYTES", 4 << 20)
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
