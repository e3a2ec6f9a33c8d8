"""Walled tasks that change their directories while the pilot, outside of the walls, works in them.

A task is the pilot's user. Inside of its walls it cannot name a file of that user, but it can make
symbolic links to one, and have the pilot follow them: as it collects outputs, reads results, and
cleans up. The racers here do that in a tight loop. They outlive the task whose directory they
change: a task in another slot is handed descriptors of it over the network, which walls do not
part. Nothing from outside may come back, and nothing outside may be changed.
"""

import base64
import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.protocol.messages import Body, End
from tests.integration.pilot_stand import Stand
from tests.integration.test_calls import a_bag, called
from tests.integration.test_pilot_sandbox import NOBODY, WAYS, place, shared, shell, stand

__all__ = ["place", "stand"]  # fixtures

SECRET = b"the secret of somebody else"
PYTHON = "/usr/bin/python3"


class Outside:
    """Files of the pilot's user that no task sees: small ones and large ones."""

    def __init__(self, place: Path) -> None:
        self.path = place / "outside"
        (self.path / "deep" / "x").mkdir(parents=True)
        for name, size in (("leak", 1), ("large", 2000), ("deep/leak", 1), ("deep/x/leak", 1)):
            (self.path / name).write_bytes(SECRET * size)
            (self.path / name).chmod(0o640)
        for path in (self.path, *self.path.rglob("*")):
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
            if path.is_dir():
                path.chmod(0o750)
        self.before = self._look()

    def _look(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in (self.path, *sorted(self.path.rglob("*"))):
            seen = path.lstat()
            data = path.read_bytes() if path.is_file() else b""
            found[str(path)] = (seen.st_mode, seen.st_ino, seen.st_nlink, seen.st_mtime_ns, data)
        return found

    def check(self, stand: Stand, ends: list[End]) -> None:
        """It is as it was, and none of it came back."""
        assert self._look() == self.before
        for end in ends:
            assert SECRET.decode() not in repr(end)
            for file in end.files:
                assert SECRET not in base64.b64decode(file.data), end
        assert not any(SECRET in bytes(data) for data in stand.arrived.values())
        assert SECRET.decode() not in repr(stand.tags)


@pytest.fixture
def outside(place: Path) -> Outside:
    return Outside(place)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [10, 30000], ids=["small", "large"])
def test_a_check_that_puts_a_link_in_an_outputs_place(
    stand: Stand, place: Path, outside: Outside, way: str, size: int
) -> None:
    """What the check finds when it begins is not what is there when it ends."""
    there, name = outside.path, "leak" if size == 10 else "large"
    make = f"mkdir d e; head -c {size} /dev/zero | tee {name} d/{name} > e/{name}"
    checks = [
        f"rm {name}; ln -s {there}/{name} {name}",
        f"rm {name}; ln -s {place}/secret {name}",
        f"rm -r d; ln -s {there} d",
        f"rm -r d; ln -s ../../outside d; rm {name}; ln -s d/{name} {name}",
        f"rm e/{name}; ln -s {there}/{name} e/{name}",
        f"rm {name}; mkdir {name}",
        f"rm {name}; mkfifo {name}",
        f"mv {name} {name}.other; ln {name}.other {name}; chmod 0 {name}; chmod 0 d",
        "rm -rf *; chmod 0 .",
    ]
    with shared(stand, place, way):
        ends = []
        for number, check in enumerate(checks):
            body = shell(
                number + 1, make, outputs=[name, f"d/{name}", "e"], check=check,
                optional_outputs=["**"], owner="mallory",
            )  # fmt: skip
            ends += stand.wait(stand.give(body))
        good = shell(50, "echo mine > x", outputs=["x"], check="echo checked >> x", owner="bob")
        (last,) = stand.wait(stand.give(good))
    outside.check(stand, [*ends, last])
    assert "the-secret" not in repr(ends)
    assert [end.outcome for end in ends] == ["output"] * 7 + ["ok", "output"], ends
    assert "'leak' is a link that leads out of" in ends[0].message or size != 10
    assert base64.b64decode(last.files[0].data) == b"mine\nchecked\n"


# What all racers have: a round of changes in a task's directory, in which links to files and
# directories outside come and go where a moment ago the task's own were.
RACE = """
import array, os, socket, sys, time
address, outside, role = sys.argv[1:4]

def go(function, *words, **more):
    try:
        function(*words, **more)
    except OSError:
        pass

def write(name, fd, size):
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600, dir_fd=fd)
    os.write(file, b"m" * size)
    os.close(file)

def swap(name, fd, target, size):
    go(os.symlink, target, "link", dir_fd=fd)
    go(os.rename, "link", name, src_dir_fd=fd, dst_dir_fd=fd)
    go(write, "own", fd, size)
    go(os.rename, "own", name, src_dir_fd=fd, dst_dir_fd=fd)

def turn(home, told):
    swap("leak", home, outside + "/leak", 5)
    swap("large", home, outside + "/large", 30000)
    go(os.mkdir, "d", dir_fd=home)
    go(write, "d/leak", home, 5)
    go(os.rename, "d", "e", src_dir_fd=home, dst_dir_fd=home)
    go(os.symlink, outside, "d", dir_fd=home)
    go(os.chmod, "e", 0, dir_fd=home)
    go(os.unlink, "d", dir_fd=home)
    go(os.symlink, outside + "/deep", "e", dir_fd=home)
    go(os.chmod, "e", 0o700, dir_fd=home)
    go(os.rename, "e", "d", src_dir_fd=home, dst_dir_fd=home)
    go(os.mkdir, "d/x", dir_fd=home)
    go(os.rename, "d/x", ".covey-1", src_dir_fd=home, dst_dir_fd=home)
    go(os.symlink, outside + "/deep", "d/x", dir_fd=home)
    go(os.unlink, "e", dir_fd=home)
    swap("result", told, outside + "/leak", 5)
    swap("tags", told, outside + "/leak", 5)

def here():
    told = os.path.dirname(os.environ["COVEY_RESULT"])
    return [os.open(path, os.O_RDONLY) for path in (".", told)]

def main():
    if role == "lurk":
        lurk()
    elif role == "stop":
        talk(b"stop")
    elif role == "check":
        until = time.monotonic() + 0.05
        own = here()
        while time.monotonic() < until:
            turn(*own)
    else:
        own = here()
        turn(*own)
        write("leak", own[0], 5)
        talk(b"turn", own)
        if os.fork() == 0:
            os.setsid()
            while True:
                turn(*own)

def talk(word, fds=()):
    line = socket.socket(socket.AF_UNIX)
    while line.connect_ex("\\0" + address):
        time.sleep(0.01)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    line.sendmsg([word], rights)
    line.recv(10)

def lurk():
    door = socket.socket(socket.AF_UNIX)
    door.bind("\\0" + address)
    door.listen(5)
    door.setblocking(False)
    print("lurking", flush=True)
    own = []
    rounds = 0
    while True:
        try:
            line = door.accept()[0]
        except BlockingIOError:
            if own:
                turn(*own)
                rounds += 1
            else:
                time.sleep(0.001)
            continue
        line.setblocking(True)
        word, rights, _, _ = line.recvmsg(10, socket.CMSG_SPACE(8))
        for fd in own:
            os.close(fd)
        own = list(array.array("i", rights[0][2])) if rights else []
        if own:
            turn(*own)
        line.send(b"y")
        if word == b"stop":
            print("rounds", rounds)
            return

main()
"""


def racer(bag: int, outside: Outside, address: str, role: str, **more: object) -> Body:
    argv = [PYTHON, "-c", RACE, address, str(outside.path), role]
    return Body(bag, argv, ["n"], env={"PATH": "/usr/bin:/bin"}, **more)  # type: ignore[arg-type]


@contextlib.contextmanager
def lurking(stand: Stand, outside: Outside, address: str) -> Iterator[None]:
    """A task that goes on changing the directories of others, who handed it the descriptors."""
    stand.most_tasks = 1
    first = stand.give(racer(1, outside, address, "lurk", owner="mallory"))
    yield
    stand.wait(stand.give(racer(2, outside, address, "stop", owner="mallory")))
    (end,) = stand.wait(first)
    assert end.outcome == "ok", end
    assert int(end.stdout.split()[-1]) > 100, end.stdout


@pytest.mark.parametrize("way", WAYS)
def test_racing_with_the_pilot(stand: Stand, place: Path, outside: Outside, way: str) -> None:
    address = "covey-" + secrets.token_hex(8)
    check = f'{PYTHON} -c "$CODE" {address} {outside.path} check; ln -sfn {outside.path} d; true'
    patterns = ["leak", "large", "d/leak", "**"]
    with shared(stand, place, way):
        with lurking(stand, outside, address):
            ends = []
            for number in range(16):
                body = racer(
                    10 + number, outside, address, "task", owner="mallory",
                    optional_outputs=patterns, check=check if number % 2 else "",
                    outputs=["leak"] if number % 3 else [],
                )  # fmt: skip
                body = body._replace(env={**body.env, "CODE": RACE})
                ends += stand.wait(stand.give(body), 60)
        # The slots are in order, and somebody else has new directories.
        script = "ls -A . $(dirname $COVEY_RESULT); pwd; echo 1 > x"
        (last,) = stand.wait(stand.give(shell(90, script, outputs=["x"], owner="bob"), 1))
    outside.check(stand, [*ends, last])
    assert last.outcome == "ok", last
    assert last.stdout.splitlines()[:2] == [".:", ""], last.stdout
    assert {end.outcome for end in ends} <= {"ok", "output", "host"}, ends
    assert any(end.files for end in ends)
    assert not outside.path.parent.joinpath("desk").exists()


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_races_with_its_slot(
    stand: Stand, place: Path, outside: Outside, way: str
) -> None:
    """It lives while large calls are placed into its directory, and its values are taken."""
    race = f"""
import os, threading

def go(function, *words):
    try:
        function(*words)
    except OSError:
        pass

def own(name):
    with open("own", "wb") as file:
        file.write(b"m" * 50000)
    os.rename("own", name)

def race():
    while True:
        for name in ("value", ".covey-call"):
            for target in ("large", "leak", "deep"):
                go(os.symlink, "{outside.path}/" + target, "link")
                go(os.rename, "link", name)
                go(own, name)
        go(os.unlink, ".covey-call")
        go(os.mkdir, "folder")
        go(os.rename, "folder", "value")
        go(os.rmdir, "value")

go(own, "value")
if "racing" not in globals():
    racing = threading.Thread(target=race, daemon=True)
    racing.start()
answer = b"fvalue"
"""
    begin, again = race.encode(), b"answer = b'fvalue'#" + b"x" * 300000
    with shared(stand, place, way):
        ends = []
        for _ in range(20):
            ends += stand.wait(stand.call(a_bag(stand, owner="mallory"), called(begin.decode())))
            ends += stand.wait(stand.call(a_bag(stand, owner="mallory"), again, again))
    outside.check(stand, ends)
    taken = [end for end in ends if end.outcome == "ok"]
    assert taken
    assert all(bytes(stand.arrived[file.digest]) for end in taken for file in end.files)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_handed_on_is_of_no_use_with_the_next_task(
    stand: Stand, place: Path, way: str
) -> None:
    """A task gives its directories and its output to another one that goes on. The next task in its
    slot, of another owner, has new ones."""
    address = "covey-" + secrets.token_hex(8)
    keep = f"""
import array, os, socket, time
door = socket.socket(socket.AF_UNIX)
door.bind("\\0{address}")
door.listen(5)
print("lurking", flush=True)
line = door.accept()[0]
_, rights, _, _ = line.recvmsg(10, socket.CMSG_SPACE(12))
fds = list(array.array("i", rights[0][2]))
line.send(b"y")
line.close()
line = door.accept()[0]
line.recv(10)  # the next one is there, and has written
for fd in fds[:2]:
    print(os.listdir(fd))
    try:
        os.close(os.open("planted", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        print("planted")
    except OSError:
        print("cannot")
output = os.open("/proc/self/fd/%d" % fds[2], os.O_RDONLY)
print(os.read(output, 1000))
os.write(fds[2], b"forged")
"""
    give = f"""
import array, os, socket, time
told = os.path.dirname(os.environ["COVEY_RESULT"])
fds = [os.open(".", os.O_RDONLY), os.open(told, os.O_RDONLY), 1]
line = socket.socket(socket.AF_UNIX)
while line.connect_ex("\\0{address}"):
    time.sleep(0.01)
line.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
line.recv(10)
"""
    write = f"""
import os, socket, time
open("private", "w").write("of bob")
open(os.environ["COVEY_RESULT"], "w").write('{{"of": "bob"}}')
print("bob's output", flush=True)
line = socket.socket(socket.AF_UNIX)
while line.connect_ex("\\0{address}"):
    time.sleep(0.01)
line.send(b"x")
line.recv(10)  # until the other one has tried
print(sorted(os.listdir(".")))
"""
    env = {"PATH": "/usr/bin:/bin"}
    with shared(stand, place, way):
        stand.most_tasks = 1
        first = stand.give(Body(1, [PYTHON, "-c", keep], ["n"], env=env, owner="mallory"))
        second = stand.give(Body(2, [PYTHON, "-c", give], ["n"], env=env, owner="mallory"))
        assert stand.wait(second)[0].outcome == "ok"
        third = stand.give(Body(3, [PYTHON, "-c", write], ["n"], env=env, owner="bob"))
        (bob,) = stand.wait(third)
        (mallory,) = stand.wait(first)
    assert (mallory.outcome, mallory.stdout) == (
        "ok", "lurking\n[]\ncannot\n[]\ncannot\nb''\n",
    )  # fmt: skip
    assert (bob.outcome, bob.stdout) == ("ok", "bob's output\n['private']\n")
    assert bob.result == '{"of":"bob"}'
