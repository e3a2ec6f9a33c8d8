"""Tasks of several owners on one pilot, as an ordinary user has it: what they see, and what not.

The pilots here run as `nobody`, from the system's own Python: root is refused, and a checkout's
Python may not be for everybody.
"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.protocol.messages import Body, Input, Need
from tests.integration.pilot_stand import SOURCES, Stand, pilot, standing
from tests.integration.slots_harness import wait_until
from tests.unit.pilot.standin import digest_of

NOBODY = pwd.getpwnam("nobody")
PYTHONS = ["/usr/bin/python3", "/usr/bin/pypy3"]
LONG = 600 + os.getpid() / 1e7  # seconds; other tests may run beside these
WAYS = ["bubblewrap", "namespaces"]


@pytest.fixture
def stand() -> Iterator[Stand]:
    with standing() as found:
        yield found


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of nobody's, to which the way is open."""
    found = Path(tempfile.mkdtemp(prefix="covey-shared-", dir="/tmp"))
    os.chown(found, NOBODY.pw_uid, NOBODY.pw_gid)
    yield found
    shutil.rmtree(found, ignore_errors=True)


@contextlib.contextmanager
def shared(
    stand: Stand,
    place: Path,
    way: str = "bubblewrap",
    python: str = PYTHONS[0],
    flags: tuple[str, ...] = ("--shared",),
) -> Iterator["subprocess.Popen[bytes]"]:
    """A shared pilot; without bubblewrap on its PATH it has to do by itself."""
    tools = place / "tools"
    tools.mkdir()
    for name in ("bwrap",) if way == "bubblewrap" else ():
        (tools / name).symlink_to(shutil.which(name) or f"/no/{name}")
    secret = place / "secret"
    secret.write_text("the-secret")
    os.chown(secret, NOBODY.pw_uid, NOBODY.pw_gid)
    command = [
        python, "-m", "covey.pilot", "--server", stand.address, "--secret-file", str(secret),
        "--directory", str(place / "desk"), "--cache", str(place / "cache"), "--slots", "2",
        *flags,
    ]  # fmt: skip
    env = {
        "PATH": str(tools), "PYTHONPATH": str(SOURCES), "PYTHONDONTWRITEBYTECODE": "1",
        "COVEY_GPUS": "none", "HOME": str(place), "SECRET_OF_THE_PILOT": "x",
    }  # fmt: skip
    with open(place / "log", "wb") as log:
        process = subprocess.Popen(
            command, env=env, stderr=log, stdout=log, user="nobody", group=NOBODY.pw_gid, cwd="/",
            extra_groups=[],
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        time.sleep(0.05)
        process.terminate()
        process.wait(20)
        print((place / "log").read_text())


def shell(bag: int, script: str, **more: object) -> Body:
    env = {"PATH": "/usr/bin:/bin"}
    return Body(bag, ["sh", "-c", script], ["n"], env=env, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_task_sees(stand: Stand, place: Path, way: str) -> None:
    (place / "private").write_text("of the pilot's user")
    os.chown(place / "private", NOBODY.pw_uid, NOBODY.pw_gid)
    script = f"""
        pwd; ls -A
        ls {place} {place}/desk
        ls -A /tmp /var/tmp
        cat {place}/private {place}/secret 2>/dev/null
        ls -d /home /root /mnt /srv 2>/dev/null
        set -- /proc/[0-9]*; echo processes $#
        true > /usr/bin/x 2>/dev/null && echo wrote to the system
        touch {place}/desk/planted
        echo capabilities $(grep CapEff /proc/self/status)
        echo open $(ls /proc/self/fd)
        echo user $(id -u)
        echo $HOME $SECRET_OF_THE_PILOT
    """
    with shared(stand, place, way):
        (end,) = stand.wait(stand.give(shell(1, script)))
        assert end.outcome == "ok", end
        assert stand.enrols[0]["shared"] is True
        assert not (place / "desk" / "planted").exists()
    assert end.stdout.splitlines() == [
        f"{place}/desk/slot-0",
        f"{place}:", "desk", "",
        f"{place}/desk:", "slot-0", "slot-0.told",
        "/tmp:", *([place.name] if place.parent == Path("/tmp") else []), "", "/var/tmp:",
        "processes 2",
        "capabilities CapEff: 0000000000000000",
        "open 0 1 2 3",
        f"user {NOBODY.pw_uid}",
        f"{place}/desk/slot-0",
    ]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_two_tasks_cannot_touch_each_other(stand: Stand, place: Path, way: str) -> None:
    lurk = shell(1, f"echo mine > file; echo $$; sleep {LONG} & sleep {LONG}", owner="ana")
    script = f"""
        for d in {place}/desk/slot-*; do cat $d/file 2>/dev/null && echo read; done
        for d in {place}/desk/slot-*; do true > $d/planted 2>/dev/null; done
        grep -lx sleep /proc/[0-9]*/comm
        for p in $LURKERS; do kill -9 $p 2>/dev/null && echo killed $p; done
        echo done
    """
    with shared(stand, place, way):
        stand.most_tasks = 1
        (first,) = stand.give(lurk)
        wait_until(lambda: len(_sleeping()) >= 2)
        lurkers = " ".join(map(str, _sleeping()))
        evil = shell(2, script, owner="bob")
        evil = evil._replace(env={**evil.env, "LURKERS": lurkers})
        (end,) = stand.wait(stand.give(evil))
        assert (end.stdout, end.outcome) == ("done\n", "ok")
        assert first not in stand.ends
        assert len(_sleeping()) >= 2
    assert not _sleeping()


def _sleeping() -> list[int]:
    """Processes of nobody's that sleep LONG."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            owner = os.stat(f"/proc/{entry}").st_uid if entry.isdigit() else -1
            command = Path(f"/proc/{entry}/cmdline")
            if owner == NOBODY.pw_uid and command.read_text() == f"sleep\0{LONG}\0":
                found.append(int(entry))
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("python", PYTHONS)
def test_everything_else_works_as_ever(stand: Stand, place: Path, way: str, python: str) -> None:
    data = b"input\n"
    body = shell(
        1,
        'cat in "$COVEY_SETUP/made" > out; chmod u+w in; echo spoilt > in; '
        'echo x 2>/dev/null > "$COVEY_SETUP/made";'
        " head -c 50000 /dev/zero > big; printf %s 'té' >&2;"
        " echo '{\"n\": {n}}' > $COVEY_RESULT.new; mv $COVEY_RESULT.new $COVEY_RESULT;"
        " echo speed={n} > $COVEY_TAGS; test {n} != 2 || exit 7",
        inputs=[Input("in", stand.add(data), len(data))],
        outputs=["out", "big"],
        setup="cat in; echo made > made; test ! -e " + str(place / "secret"),
        check="test -s out",
        needs=[Need(1, 64)],
        owner="ana",
    )
    with shared(stand, place, way, python) as process:
        ends = stand.wait(stand.give(body, 6))
        stand.until(lambda: "ana:speed" in stand.tags)
        stand.send_home()
        assert process.wait(20) == 0
    for number, end in enumerate(ends):
        assert (end.outcome, end.exit_code) == (("ok", 0) if number != 2 else ("failed", 7)), end
        assert (end.result, end.stderr) == (f'{{"n":{number}}}', "té")
        if number != 2:
            large, small = sorted(end.files)
            assert (small.path, large.digest) == ("out", digest_of(bytes(50_000)))
    kept = [path for path in (place / "cache").rglob("*") if path.is_file()]
    assert data in [path.read_bytes() for path in kept]
    assert b"spoilt\n" not in [path.read_bytes() for path in kept]
    assert not (place / "desk").exists()


@pytest.mark.parametrize("way", WAYS)
def test_limits_and_ends(stand: Stand, place: Path, way: str) -> None:
    """Its time is over, gently and then not; too much memory; orphans; programs that are not."""
    gentle = shell(
        1, f"trap 'echo bye; exit 3' TERM; sleep {LONG} & wait", needs=[Need(1, 0, 0, 0, 1)]
    )
    deaf = shell(2, f"trap '' TERM; sleep {LONG}; sleep {LONG}", needs=[Need(1, 0, 0, 0, 1)])
    greedy = shell(3, "/usr/bin/python3 -c 'x = bytearray(400 << 20)'", needs=[Need(1, 50)])
    parent = shell(4, f"(setsid sleep {LONG} >/dev/null 2>&1 &) ; echo left")
    absent = Body(5, ["/home/x/no-such-program"], ["n"])
    hidden = Body(6, [str(place / "program")], ["n"])
    (place / "program").write_text("#!/bin/sh\necho no\n")
    (place / "program").chmod(0o755)
    elsewhere = shell(7, "pwd", chdir=str(place))
    preload = shell(8, "echo in")
    preload = preload._replace(env={**preload.env, "LD_PRELOAD": "/no/such.so", "A": "b=c\nd"})
    stdout = shell(9, "echo one > /dev/stdout; echo $A; kill -9 $$")
    bodies = [gentle, deaf, greedy, parent, absent, hidden, elsewhere, preload, stdout]
    with shared(stand, place, way):
        ends = [stand.wait(stand.give(body))[0] for body in bodies]
        assert not _sleeping()
    by_bag = {end.bag: end for end in ends}
    assert (by_bag[1].outcome, by_bag[1].stdout) == ("timeout", "bye\n")
    assert by_bag[2].outcome == "timeout"
    assert by_bag[3].outcome == "memory", by_bag[3]
    assert (by_bag[4].outcome, by_bag[4].stdout) == ("ok", "left\n")
    for bag in (5, 6):
        assert by_bag[bag].outcome == "failed"
        assert "cannot see this program" in by_bag[bag].message, by_bag[bag]
    assert by_bag[7].outcome == "failed"
    assert "leave out chdir" in by_bag[7].message
    assert by_bag[8].stdout == "in\n"
    assert by_bag[9].stdout == "one\n\n"
    # Bubblewrap ends as shells do; what we build ourselves knows better.
    killed = (137, 0) if way == "bubblewrap" else (-1, 9)
    assert (by_bag[9].exit_code, by_bag[9].signal) == killed


@pytest.mark.parametrize("way", WAYS)
def test_what_is_in_memory_has_a_size_and_ends_with_the_task(
    stand: Stand, place: Path, way: str
) -> None:
    """/tmp and /dev/shm hold no more than the task may have of memory, and count as such; nothing
    else in memory can be written to."""
    full = shell(
        1,
        "for d in /tmp /var/tmp /dev/shm; do head -c 70000000 /dev/zero > $d/x && echo $d; done"
        " 2>/dev/null; true",
        needs=[Need(1, 64)],
    )
    both = shell(
        2,
        f"head -c 40000000 /dev/zero > /tmp/x; head -c 40000000 /dev/zero > /dev/shm/x;"
        f" sleep {LONG}",
        needs=[Need(1, 64)],
    )
    closed = shell(
        3,
        "for d in / /dev /home /mnt; do mkdir $d/x && echo wrote to $d; done 2>/dev/null;"
        " true > /dev/x && echo wrote to /dev; echo device > /dev/null;"
        " ls /tmp /dev/shm | grep -x x;"
        " df -k /tmp /dev/shm | awk 'NR > 1 {print $2}' | sort -u",
    )
    disk = shell(4, f"head -c 40000000 /dev/zero > x; sleep {LONG}", needs=[Need(1, 0, 20)])
    told = shell(
        5,
        f"head -c 40000000 /dev/zero > $(dirname $COVEY_RESULT)/x; sleep {LONG}",
        needs=[Need(1, 0, 20)],
    )
    with shared(stand, place, way, flags=("--shared", "--memory-mb", "512")):
        bodies = [full, both, closed, disk, told]
        ends = [stand.wait(stand.give(body))[0] for body in bodies]
    assert ends[0].stdout == ""
    assert (ends[1].outcome, ends[1].message[:24]) == ("memory", "over its limit of 64 MB ")
    assert ends[2].stdout == f"{256 << 10}\n"  # 512 MB and two slots
    for end in ends[3:]:
        assert end.outcome == "failed"
        assert end.message.startswith("over its limit of 20 MB of disk (used ")


@pytest.mark.parametrize("way", WAYS)
def test_a_task_behind_walls_can_stop_nobody(stand: Stand, place: Path, way: str) -> None:
    script = f"kill -STOP $PPID; kill -STOP 1; kill -STOP -1; sleep {LONG}"
    with shared(stand, place, way):
        (end,) = stand.wait(stand.give(shell(1, script, needs=[Need(1, 0, 0, 0, 1)])))
        assert end.outcome == "timeout"
        assert not _sleeping()


@pytest.mark.parametrize("way", WAYS)
def test_the_cache_is_hidden_in_what_a_site_shows(stand: Stand, way: str) -> None:
    """Though it is made only when the pilot has found its walls."""
    place = Path(tempfile.mkdtemp(prefix="covey-shown-", dir="/srv"))  # /tmp is never shown
    data = b"input\n"
    script = f"cat in; ls -A {place}; ls -A {place}/cache {place}/desk; mkdir {place}/desk/x"
    body = shell(1, script, inputs=[Input("in", stand.add(data), len(data))], owner="ana")
    start = {
        "address": stand.address, "secret": "x", "directory": str(place / "desk"), "slots": 1,
        "cache": str(place / "cache"), "shared": True, "shows": [str(place)],
    }  # fmt: skip
    try:
        (place / "start").write_text(json.dumps(start))
        for path in (place, place / "start"):
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
        with shared(stand, place, way, flags=(str(place / "start"),)):
            (end,) = stand.wait(stand.give(body))
            assert (place / "cache" / "files").is_dir()
    finally:
        shutil.rmtree(place)
    shown = ["cache", "desk", "log", "secret", "tools"]
    inside = [f"{place}/cache:", "", f"{place}/desk:", "slot-0", "slot-0.told"]
    assert end.stdout.splitlines() == ["input", *shown, *inside], end
    assert "Read-only file system" in end.stderr


@pytest.mark.parametrize("way", WAYS)
def test_killed_without_a_word_it_leaves_nothing(stand: Stand, place: Path, way: str) -> None:
    with shared(stand, place, way) as process:
        stand.give(shell(1, f"sleep {LONG} & setsid sleep {LONG}"), 2)
        wait_until(lambda: len(_sleeping()) >= 4)
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: not _sleeping())
        wait_until(lambda: not (place / "desk" / "slot-0").exists())


@pytest.mark.parametrize("python", PYTHONS)
def test_without_walls_a_task_cannot_look_into_its_pilot(
    stand: Stand, place: Path, python: str
) -> None:
    """Though it is the same user: of slot, keeper and pilot it reads neither memory nor
    environment nor open files."""
    script = """
        A=visible sleep 5 & sleep 0.3; cat /proc/$!/environ | tr '\\0' '\\n' | grep -a A=visible
        pid=$PPID
        for who in slot keeper pilot; do
            cat /proc/$pid/comm
            for f in environ maps auxv; do cat /proc/$pid/$f > /dev/null 2>&1 && echo read $f; done
            ls /proc/$pid/fd > /dev/null 2>&1 && echo read fd
            head -c 1 /proc/$pid/mem 2>&1 | grep -c denied
            pid=$(awk '/PPid/ {print $2}' /proc/$pid/status)
        done
    """
    with shared(stand, place, python=python, flags=()) as process:
        (end,) = stand.wait(stand.give(shell(1, script)))
        assert process.poll() is None
    lines = end.stdout.splitlines()
    assert lines[0] == "A=visible"
    assert lines[1:5] == ["covey-slot-0", "1", "covey-keeper", "1"]
    assert lines[6:] == ["1"], lines
    assert "read" not in end.stdout


def test_root_is_refused(stand: Stand, tmp_path: Path) -> None:
    with pilot(stand, tmp_path, "--shared", "--slots", "1") as process:
        assert process.wait(20) == 1
    words = (tmp_path / "log").read_text()
    assert "none works here: the pilot runs as root" in words
    assert not stand.enrols


def test_a_host_without_namespaces_is_refused(stand: Stand, place: Path) -> None:
    """The kernel's own limit says no, for this user alone: in a user namespace of theirs."""
    limit = "echo 0 > /proc/sys/user/max_user_namespaces"
    command = [
        "unshare", "--user", "--map-user", str(NOBODY.pw_uid), "--keep-caps", "sh", "-c",
        f"{limit}; PYTHONPATH={SOURCES} exec {PYTHONS[0]} -m covey.pilot --check --shared"
        f" --server {stand.address} --secret-file {place}/secret --directory {place}/desk",
    ]  # fmt: skip
    (place / "secret").write_text("x")
    os.chown(place / "secret", NOBODY.pw_uid, NOBODY.pw_gid)
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, user="nobody")
    assert found.returncode == 1, found.stdout
    assert "tasks of several owners need sandboxes (shared), and none works here" in found.stderr
