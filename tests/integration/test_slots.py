"""What a task does to its slot, and what the pilot hears of it."""

import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.slots.orders import Order
from tests.integration.slots_harness import ENV, Harness, alive, processes_with, wait_until

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read():
    time.sleep(0.01)
"""


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "slots", grace_seconds=0.5, log_bytes=1000)
    yield harness
    harness.close()


def test_exit_codes_and_usage(slots: Harness) -> None:
    good = slots.run("echo out; echo err >&2; exit 0")
    assert (good.kind, good.exit_code, good.signal, good.message) == ("ok", 0, 0, "")
    assert (good.stdout, good.stderr) == (b"out\n", b"err\n")
    assert good.stdout_bytes == good.stderr_bytes == 4
    assert 0 < good.started <= time.monotonic()
    bad = slots.run("exit 7")
    assert (bad.kind, bad.exit_code, bad.message) == ("failed", 7, "exit code 7")
    assert bad.stdout == bad.stderr == b""
    busy = slots.run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
    assert busy.cpu_seconds > 0
    assert busy.wall_seconds > 0
    assert busy.memory_kb > 0


def test_signals(slots: Harness) -> None:
    crashed = slots.run("kill -SEGV $$")
    assert (crashed.kind, crashed.exit_code, crashed.signal) == ("failed", -1, signal.SIGSEGV)
    assert crashed.message == "killed by SIGSEGV"
    assert "not by covey" in slots.run("kill -KILL $$").message


def test_a_task_has_default_signals_and_three_descriptors(slots: Harness) -> None:
    script = (
        "import os;print(sorted(os.listdir('/proc/self/fd')));"
        "print(os.getpgid(0) == os.getpid(), os.readlink('/proc/self/fd/0'))"
    )
    # Not seen by a Python, which would ignore SIGPIPE itself.
    slots.offer("status", ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"])
    slots.offer("fds", [sys.executable, "-c", script])
    status, fds = slots.wait("status", "fds")
    # 32 and 33 are the C library's own: glibc's posix_spawn ignores them in every child.
    masks = [int(line.split()[1], 16) & ~(0b11 << 31) for line in status.stdout.splitlines()]
    assert masks == [0, 0]
    assert fds.stdout.startswith(b"['0', '1', '2', '3']\n")  # 3: the listing itself
    assert fds.stdout.endswith(b"True /dev/null\n")


def test_descriptors_of_the_pilot_are_not_inherited(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    harness = Harness(tmp_path / "slots")
    try:
        assert harness.run("ls /proc/self/fd | wc -l").stdout == b"4\n"
    finally:
        harness.close()
        os.close(reader)
        os.close(writer)


def test_timeout(slots: Harness) -> None:
    started = time.monotonic()
    late = slots.run("sleep 600", limit_seconds=0.3)
    assert (late.kind, late.signal, late.message) == (
        "timeout",
        signal.SIGTERM,
        "over its limit of 0.3 s",
    )
    assert 0.3 <= late.wall_seconds <= time.monotonic() - started < 5
    assert slots.run("true", limit_seconds=5).kind == "ok"


def test_a_task_that_ignores_sigterm_is_killed(slots: Harness) -> None:
    stubborn = slots.run("trap '' TERM; while :; do sleep 0.1; done", limit_seconds=0.3)
    assert (stubborn.kind, stubborn.signal) == ("timeout", signal.SIGKILL)
    assert 0.8 <= stubborn.wall_seconds < 5


def test_a_task_may_clean_up_on_sigterm(slots: Harness) -> None:
    polite = slots.run("trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done", 0.3)
    assert (polite.kind, polite.exit_code, polite.stdout) == ("timeout", 0, b"bye\n")


def test_so_may_what_a_task_has_started(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1, grace_seconds=20)
    child = "trap 'sleep 0.2; echo saved; exit 0' TERM; while :; do sleep 0.05; done"
    found = harness.run(f'sh -c "{child}"; true', limit_seconds=0.3)
    assert (found.kind, found.signal, found.stdout) == ("timeout", signal.SIGTERM, b"saved\n")
    assert found.wall_seconds < 20
    harness.close()


def test_but_not_for_ever(slots: Harness) -> None:
    child = f"trap '' TERM; while :; do sleep 0.1{os.getpid()}; done"
    found = slots.run(f'sh -c "{child}"; true', limit_seconds=0.3)
    assert (found.kind, found.signal) == ("timeout", signal.SIGTERM)
    assert 0.8 <= found.wall_seconds < 5
    assert not processes_with(f"0.1{os.getpid()}")


def test_a_stopped_task_still_ends_at_its_limit(slots: Harness) -> None:
    stopped = slots.run("kill -STOP $$; sleep 600", limit_seconds=0.3)
    assert stopped.kind == "timeout"
    assert stopped.wall_seconds < 5


def test_long_output_keeps_head_and_tail(slots: Harness) -> None:
    long = slots.run("printf 'head'; head -c 100000 /dev/zero; printf 'tail' ; echo e >&2")
    assert long.stdout_bytes == 100008
    assert long.stdout.startswith(b"head\0")
    assert long.stdout.endswith(b"\0tail")
    assert b"\n[... 99008 bytes left out ...]\n" in long.stdout
    assert len(long.stdout) < 1100
    assert long.stderr == b"e\n"
    assert slots.run("printf x").stdout == b"x"


def test_output_flags_changed_by_a_task(slots: Harness) -> None:
    code = "import fcntl,os; print('a' * 500, flush=True); fcntl.fcntl(1, fcntl.F_SETFL, 0)"
    for key in ("one", "two"):  # both slots
        slots.offer(key, [sys.executable, "-c", code])
    slots.wait("one", "two")
    for _ in range(4):
        assert slots.run("printf b; printf c").stdout == b"bc"


def test_every_task_writes_from_the_beginning(slots: Harness) -> None:
    places = f"{sys.executable} -c 'import os; print(os.lseek(1, 0, 1), os.lseek(2, 0, 1))'"
    slots.run("echo out; echo err >&2")
    assert [slots.run(places).stdout for _ in range(2)] == [b"0 0\n"] * 2


def test_a_daemon_dies_with_its_task(slots: Harness, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    slots.offer("daemon", [sys.executable, "-c", DAEMON, str(path)])
    assert slots.wait("daemon")[0].kind == "ok"
    assert not alive(int(path.read_text()))


def test_a_daemon_of_a_cancelled_task_dies(slots: Harness, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    slots.offer("daemon", [sys.executable, "-c", DAEMON + "time.sleep(600)", str(path)])
    wait_until(lambda: path.exists() and path.read_text())
    slots.slots.cancel("daemon")
    assert slots.wait("daemon")[0].kind == "cancelled"
    assert not alive(int(path.read_text()))


def test_a_storm_of_grandchildren(slots: Harness) -> None:
    mark = f"6{os.getpid()}.125"
    storm = (
        f"i=0; while [ $i -lt 60 ]; do (setsid sh -c '(setsid sleep {mark} & sleep {mark}) & "
        f"exec sleep {mark}' &) ; i=$((i+1)); done; exit 5"
    )
    found = slots.run(storm)
    assert (found.kind, found.exit_code) == ("failed", 5)
    assert processes_with(mark) == []
    assert slots.run("true").kind == "ok"


def test_a_growing_family_is_overtaken(slots: Harness) -> None:
    mark = f"covey-storm-{os.getpid()}"
    # Each generation ignores SIGTERM, leaves its session and is replaced when it dies.
    code = (
        "import os,signal,time,sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for _ in range(4000):\n"
        " if os.fork():\n  time.sleep(0.005)\n  os._exit(0)\n os.setsid()\n"
    )
    slots.offer("storm", [sys.executable, "-c", code, mark])
    assert slots.wait("storm")[0].kind == "ok"
    assert processes_with(mark) == []


LITTER = {
    "files": "echo a > file; mkdir -p d/e/f; echo b > d/e/f/g; ln -s / link; mkfifo pipe",
    "removed": "rm -rf $PWD",
    "replaced": "cd ..; rm -rf $OLDPWD; echo no > $OLDPWD",
    "renamed": "mv $PWD $PWD.away",
    "unwritable": "mkdir -p a/b; echo x > a/b/c; chmod 0 a/b; chmod 500 a; chmod 0 .",
    "deep": "i=0; while [ $i -lt 700 ]; do mkdir 0123456789; cd 0123456789; i=$((i+1)); done",
    "parent": "rm -rf ../../slots",
    "outputs": "rm -f ../slot-*.out ../slot-*.err; echo kept",
}


@pytest.mark.parametrize("litter", LITTER)
def test_every_task_finds_an_empty_directory(tmp_path: Path, litter: str) -> None:
    harness = Harness(tmp_path / "slots", count=1)
    assert harness.run(LITTER[litter]).kind == "ok"
    for _ in range(2):
        after = harness.run("pwd; ls -A; stat -c %a .; echo works > here; cat here")
        assert after.stdout == f"{tmp_path}/slots/slot-0\n700\nworks\n".encode()
    os.system(f"rm -rf {tmp_path}/slots/slot-0.away")
    harness.close()


def test_a_directory_that_cannot_be_emptied_is_put_aside(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1)
    aside = tmp_path / "slots" / "slot-0-1"
    assert harness.run("mkdir mnt && mount -t tmpfs none mnt").kind == "ok"
    assert harness.run("pwd; ls -A").stdout == f"{tmp_path}/slots/slot-0\n".encode()
    assert os.system(f"umount {aside}/mnt") == 0
    assert harness.run("chmod 755 .").kind == "ok"  # so it gets another, and tries again
    wait_until(lambda: not aside.exists())
    harness.close()


def test_a_directory_that_is_mounted_is_left(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1)
    mounted = tmp_path / "slots" / "slot-0"
    assert harness.run(f"mount -t tmpfs none {mounted}").kind == "ok"
    assert harness.run("pwd; ls -A").stdout == f"{tmp_path}/slots/slot-0-2\n".encode()
    assert os.system(f"umount {mounted}") == 0
    harness.close()


def test_chdir(slots: Harness, tmp_path: Path) -> None:
    slots.offer("there", ["pwd"], slots.plan(chdir=str(tmp_path)))
    slots.offer("nowhere", ["pwd"], slots.plan(chdir=str(tmp_path / "missing")))
    there, nowhere = slots.wait("there", "nowhere")
    assert there.stdout.decode() == f"{tmp_path}\n"
    assert (nowhere.kind, nowhere.exit_code) == ("failed", 126)
    assert b"missing: No such file" in nowhere.stderr
    assert slots.run("pwd").stdout.startswith(str(slots.directory).encode())


def test_a_task_elsewhere_runs_once_although_the_slots_directory_is_gone(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    plan = harness.plan(chdir=str(elsewhere))
    harness.run("true")
    for round in range(3):
        shutil.rmtree(tmp_path / "slots" / "slot-0")
        assert harness.run("echo x >> runs", plan=plan).kind == "ok"
        assert (elsewhere / "runs").read_text() == "x\n" * (round + 1)
        assert harness.run("pwd").stdout == f"{tmp_path}/slots/slot-0\n".encode()
    harness.close()


def test_commands_that_cannot_run(slots: Harness, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("echo no")
    for key, argv in {
        "missing": ["no-such-command"],
        "nowhere": ["/no/such/command"],
        "text": [str(text)],
        "nothing": [],
        "nul": ["echo", "a\0b"],
        "huge": ["echo", "x" * 3_000_000],
    }.items():
        slots.offer(key, argv)
        slots.wait(key)
    codes = {key: (found.kind, found.exit_code) for key, found in slots.found.items()}
    assert codes == {
        "missing": ("failed", 127),
        "nowhere": ("failed", 127),
        "text": ("failed", 126),
        "nothing": ("failed", 126),
        "nul": ("failed", 126),
        "huge": ("failed", 126),
    }
    assert slots.found["missing"].stderr == b"covey: no-such-command: command not found\n"
    assert b"Permission denied" in slots.found["text"].stderr


@pytest.mark.parametrize("name", ["", "A=B"])
def test_a_variable_that_cannot_be_is_refused(slots: Harness, name: str) -> None:
    found = slots.run("env", env={name: "x"})
    assert (found.kind, found.exit_code) == ("failed", 126)
    assert "environment" in found.message
    assert slots.run("true", plan=slots.plan(env=dict(ENV, **{name: "x"}))).exit_code == 126


def test_a_script_without_a_first_line_runs_in_sh(slots: Harness, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$1 from $0"\n')
    script.chmod(stat.S_IRWXU)
    slots.offer("script", [str(script), "hello"])
    assert slots.wait("script")[0].stdout.decode() == f"hello from {script}\n"


def test_the_command_comes_from_the_path_of_the_order(slots: Harness, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text(f"#!/bin/sh\necho {name}\n")
        (tmp_path / name / "tool").chmod(0o700)
        env = {"PATH": f"/nowhere:{tmp_path}/{name}"}
        slots.offer(name, ["tool"], env=env)
        slots.offer(name * 2, ["tool"], slots.plan(env))
    found = slots.wait("a", "b", "aa", "bb")
    assert [outcome.stdout for outcome in found] == [b"a\n", b"b\n"] * 2


def test_environment_and_arguments_pass_unchanged(slots: Harness) -> None:
    plan = slots.plan(dict(ENV, WORD="käse \udcff", OTHER="no"))
    script = 'printf "%s" "$WORD$OTHER$0"'
    slots.offer("env", ["sh", "-c", script, "é"], plan, env={"OTHER": "ö"})
    assert slots.wait("env")[0].stdout == "käse ".encode() + b"\xff" + "öé".encode()


def test_a_large_order_passes_in_parts(slots: Harness) -> None:
    large = {f"V{i}": "x" * 100_000 for i in range(12)}
    slots.sh("large", "echo ${#V11}", env=large)
    slots.offer("planned", ["sh", "-c", "echo ${#V11}"], slots.plan(dict(ENV, **large)))
    assert [found.stdout for found in slots.wait("large", "planned")] == [b"100000\n"] * 2


def test_cancel_running_waiting_and_ended(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1, grace_seconds=0.5)
    harness.sh("running", "sleep 600")
    harness.sh("waiting", "sleep 600")
    assert harness.slots.free() == 0
    assert not harness.slots.offer(Order("more", 0, ["true"]))
    harness.wait_running("running")
    harness.slots.cancel("waiting")
    (waiting,) = harness.wait("waiting")  # at once, not when its turn comes
    harness.slots.cancel("running")
    (running,) = harness.wait("running")
    assert (running.kind, running.message) == ("cancelled", "cancelled")
    assert (waiting.kind, waiting.started) == ("returned", 0.0)
    harness.slots.cancel("running")
    harness.slots.cancel("unknown")
    assert harness.run("echo on").stdout == b"on\n"
    harness.close()


def test_cancel_at_any_moment_gives_one_outcome(slots: Harness) -> None:
    for turn in range(150):
        key = f"race-{turn}"
        slots.offer(key, ["sleep", "0.002"])
        if turn % 3:
            time.sleep(turn % 7 / 2000)
        slots.slots.cancel(key)
        assert slots.wait(key)[0].kind in ("ok", "cancelled", "returned")
    assert slots.slots.running() == {}
    assert {found.kind for found in slots.found.values()} > {"cancelled"}


def test_recall_takes_back_only_what_waits(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1)
    harness.sh("running", "sleep 0.5; echo done")
    harness.sh("waiting", "echo no")
    harness.wait_running("running")
    harness.slots.recall(["running", "waiting", "unknown"])
    running, waiting = harness.wait("running", "waiting")
    assert (running.kind, running.stdout, waiting.kind) == ("ok", b"done\n", "returned")
    harness.close()


def test_what_waits_moves_to_an_idle_slot(slots: Harness) -> None:
    slots.sh("long", "sleep 600")
    slots.sh("short", "sleep 0.3")
    slots.sh("behind-one", "echo a")
    slots.sh("behind-other", "echo b")
    slots.wait("short", "behind-one", "behind-other")
    assert list(slots.slots.running()) == ["long"]


def test_orders_are_spread_evenly(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=5, grace_seconds=0.2)
    for turn in range(2):
        for number in range(5):
            harness.sh(f"{turn}.{number}", "sleep 600")
        assert {len(seat.inside) for seat in harness.slots._seats} == {turn + 1}
    assert not harness.slots.offer(Order("more", 0, ["true"]))
    harness.slots.cancel("1.3")
    harness.wait("1.3")
    harness.sh("next", "sleep 600")
    assert {len(seat.inside) for seat in harness.slots._seats} == {2}
    harness.close()


def test_many_short_tasks_each_give_one_outcome(slots: Harness) -> None:
    offered = 0
    while len(slots.found) < 1500:
        while offered < 1500 and slots.slots.free():
            slots.offer(f"t{offered}", ["/bin/true" if offered % 10 else "/bin/false"])
            offered += 1
        slots.note(slots.slots.read(1))
    kinds = [found.kind for found in slots.found.values()]
    assert kinds.count("failed") == 150


def test_a_slow_pilot_loses_nothing_and_stops_nobody(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", count=1, log_bytes=4 << 20)
    harness.sh("a", "head -c 2000000 /dev/zero")
    harness.sh("b", "sleep 600", limit_seconds=0.5)
    time.sleep(1.5)  # nobody reads: the limit of b is kept all the same
    a, b = harness.wait("a", "b")
    assert len(a.stdout) == 2_000_000
    assert b.wall_seconds < 1
    harness.close()


def test_close_waits_or_kills(tmp_path: Path) -> None:
    gentle = Harness(tmp_path / "gentle", count=1)
    gentle.sh("running", "sleep 0.3; echo done")
    gentle.sh("waiting", "true")
    gentle.wait_running("running")
    gentle.close(kill=False)
    assert {key: found.kind for key, found in gentle.found.items()} == {
        "running": "ok",
        "waiting": "returned",
    }
    hard = Harness(tmp_path / "hard", count=1, grace_seconds=0.2)
    hard.sh("running", "trap '' TERM; sleep 600")
    pid = hard.wait_running("running")
    hard.close()
    assert hard.found["running"].kind == "cancelled"
    assert not alive(pid)
    assert hard.slots.close() == []


def test_a_short_task_takes_no_less_than_its_cpu_time(slots: Harness) -> None:
    """It may be over before its slot is back from starting it."""
    keys = [f"t{number}" for number in range(100)]
    for key in keys:
        while not slots.slots.offer(Order(key, 0, ["/bin/true"])):
            slots.note(slots.slots.read(0.1))
    assert min(one.wall_seconds / one.cpu_seconds for one in slots.wait(*keys)) > 0.95


def test_slots_have_all_their_orders_before_the_pilot_rests(tmp_path: Path) -> None:
    """Orders that were left for later, to be sent together, are not left while the pilot sleeps."""
    harness = Harness(tmp_path / "slots", count=1)
    made = tmp_path / "made"
    made.mkdir()
    number = 0
    while harness.slots.free() < 40:  # it learns how short its tasks are
        number += 1
        harness.run("true")
        assert number < 200
    for number in range(40):
        harness.sh(f"late-{number}", f"touch {made}/{number}")
    harness.slots.wait(0.0)
    wait_until(lambda: len(list(made.iterdir())) == 40)
    harness.close()
