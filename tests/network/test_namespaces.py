"""Machines that can open connections to one port of the server, and that nothing can reach: bags
run there, over lines that are cut, throttled and moved, and whoever is killed in the middle."""

import os
import socket
import subprocess
from collections.abc import Callable

import pytest

from tests.faults.world import kill_process, task_script, wait_until
from tests.network.lab import PORT, Far, Quality
from tests.network.remote import NAME, Remote

SLOW = Quality(bits_per_second=1e6, delay_seconds=0.1, loss=0.02)  # 200 ms there and back
COPY = "cat in > out; echo {i} >> out"


def run_copies(remote: Remote, data: bytes, total: int, work: str = COPY) -> int:
    placed = (remote.placed("in", data),)
    script = task_script(work)
    return remote.world.submit(script, total, inputs=placed, outputs=("out",))


def check_copies(remote: Remote, bag: int, data: bytes, total: int) -> None:
    expected = {(task, "out"): data + b"%d\n" % task for task in range(total)}
    assert remote.returned(bag) == expected


def fetches(far: Far, port: int) -> bool:
    words = [
        "curl",
        "-sk",
        "-o",
        "/dev/null",
        "--max-time",
        "2",
        f"https://{far.near}:{port}/healthz",
    ]
    return subprocess.run(far.within(*words), timeout=30).returncode == 0


@pytest.mark.parametrize("python", ["/usr/bin/python3", "pypy3"])
def test_one_port_out_and_nothing_in(remote: Remote, python: str) -> None:
    """The pilot file alone, on a system's own Python, without any environment or package."""
    world, far = remote.world, remote.lab.place()
    remote.serve()
    pilot = remote.pilot(far, "--slots", "3", python=python, bare=True)
    data = os.urandom(3 << 20)
    bag = run_copies(remote, data, 6)
    world.wait_over(bag)
    world.check_results(bag, 6)
    world.check_once(bag, 6)
    check_copies(remote, bag, data, 6)

    assert fetches(far, PORT), "the one port"
    with socket.create_server(("0.0.0.0", PORT + 1)):
        assert socket.create_connection(("127.0.0.1", PORT + 1), 2)
        assert not fetches(far, PORT + 1), "another port"
    for port in (22, PORT):
        with pytest.raises(OSError):
            socket.create_connection((far.address, port), 0.5)
    pilot.terminate()
    assert pilot.wait(30) == 0
    wait_until(lambda: not far.processes())


def break_silently(far: Far) -> Callable[[], None]:
    far.wire.cut()
    return far.wire.mend


def break_openly(far: Far) -> Callable[[], None]:
    far.down()
    return far.up


@pytest.mark.parametrize("break_line", [break_silently, break_openly])
def test_a_line_is_cut_for_a_while(
    remote: Remote, break_line: Callable[[Far], Callable[[], None]]
) -> None:
    """All tasks end while nobody can be told; a second bag waits at the server."""
    world, far = remote.world, remote.lab.place()
    remote.serve()
    pilot = remote.pilot(far, "--slots", "4")
    data = os.urandom(100_000)
    bag = run_copies(remote, data, 4, f"sleep 2; {COPY}")
    wait_until(lambda: world.started(bag) == 4, 30, world.log_tail)
    mend = break_line(far)
    wait_until(lambda: world.ended(bag) == 4, 30, world.log_tail)
    later = world.submit(task_script("true"), 8)
    with pytest.raises(AssertionError):
        wait_until(lambda: world.bag(bag).done or world.started(later), 4)
    mend()
    world.wait_over(bag, 40)
    world.wait_over(later, 40)
    for one, total in ((bag, 4), (later, 8)):
        world.check_results(one, total)
        world.check_once(one, total)
    check_copies(remote, bag, data, 4)
    assert world.rows("SELECT count(*), min(status) FROM pilots") == [(1, "active")]
    assert pilot.poll() is None


def test_a_line_that_is_slow_long_and_lossy(remote: Remote) -> None:
    """1 Mbit/s, 200 ms, 2% lost, both ways."""
    world, far = remote.world, remote.lab.place()
    remote.serve()
    far.wire.quality = SLOW
    remote.pilot(far, "--slots", "2")
    data = os.urandom(150_000)
    bag = run_copies(remote, data, 2)
    world.wait_over(bag, 60)
    world.check_results(bag, 2)
    world.check_once(bag, 2)
    check_copies(remote, bag, data, 2)
    assert far.wire.lost > 0


def test_the_pilot_gets_another_address(remote: Remote) -> None:
    world, far = remote.world, remote.lab.place()
    remote.serve()
    pilot = remote.pilot(far, "--slots", "2")
    bag = world.submit(task_script("sleep 1; echo {i}"), 8)
    wait_until(lambda: world.ended() >= 2, 30, world.log_tail)
    far.move()
    world.wait_over(bag, 60)
    world.check_results(bag, 8)
    world.check_once(bag, 8)
    assert pilot.poll() is None


def test_the_server_gets_another_address(remote: Remote) -> None:
    """It is known by a name; whoever looks it up again finds it."""
    world, far = remote.world, remote.lab.place()
    hosts = world.root / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{far.near} {NAME}\n")
    remote.serve()
    pilot = remote.pilot(far, "--slots", "2", server=NAME, files={"/etc/hosts": hosts})
    bag = world.submit(task_script("sleep 1; echo {i}"), 8)
    wait_until(lambda: world.ended() >= 2, 30, world.log_tail)
    far.move_server()
    hosts.write_text(f"127.0.0.1 localhost\n{far.near} {NAME}\n")
    world.wait_over(bag, 60)
    world.check_results(bag, 8)
    world.check_once(bag, 8)
    assert pilot.poll() is None


TRANSFER = Quality(bits_per_second=4e6, delay_seconds=0.01)
SIZE = 1_500_000  # three seconds of it


def passed(far: Far, packets: int) -> None:
    """Until so many more packets have gone over the line."""
    before = far.wire.passed
    wait_until(lambda: far.wire.passed >= before + packets)


@pytest.mark.parametrize("way", ["down", "up"])
def test_the_server_is_killed_within_a_transfer(remote: Remote, way: str) -> None:
    world, far = remote.world, remote.lab.place()
    server = remote.serve()
    remote.pilot(far, "--slots", "1")
    remote.wait_pilots(1)
    data = os.urandom(SIZE)
    far.wire.quality = TRANSFER
    bag = run_copies(remote, data, 1)
    if way == "up":
        wait_until(lambda: world.ended() == 1, 30, world.log_tail)
    passed(far, 400)
    assert world.ended() == (way == "up")
    kill_process(server)
    remote.serve()
    world.wait_over(bag, 60)
    world.check_results(bag, 1)
    world.check_once(bag, 1)
    check_copies(remote, bag, data, 1)


@pytest.mark.parametrize("way", ["down", "up"])
def test_the_pilot_is_killed_within_a_transfer(remote: Remote, way: str) -> None:
    """Nobody tells the server: it finds out by itself, and another pilot does it all."""
    world, far, other = remote.world, remote.lab.place(), remote.lab.place()
    remote.serve(lease_seconds="6")
    remote.pilot(far, "--slots", "1")
    remote.wait_pilots(1)
    data = os.urandom(SIZE)
    far.wire.quality = TRANSFER
    bag = run_copies(remote, data, 1)
    if way == "up":
        wait_until(lambda: world.ended() == 1, 30, world.log_tail)
    passed(far, 400)
    remote.kill_all(far)
    far.wire.cut()
    remote.pilot(other, "--slots", "1")
    world.wait_over(bag, 60)
    world.check_results(bag, 1)
    check_copies(remote, bag, data, 1)
    assert world.ended() == (2 if way == "up" else 1)
