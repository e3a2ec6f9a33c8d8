"""The server is away for an hour, its name is gone, somebody's clock is a day off: pilots go on,
and everything is delivered afterwards, once."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.clock import FakeClock
from tests.faults.world import World, kill_process, open_world, task_script, wait_until
from tests.network.remote import Remote
from tests.network.serving import (
    authority_file,
    covey,
    pilot,
    pilot_with,
    port_of,
    record_of,
    serve,
    serve_with,
    wait_enrolled,
)

HOUR, DAY = 3600, 86400
HOST = "covey.test"
LARGE = 600_000  # too large to travel with the end of a task
COPY = "cat in > out; echo {i} >> out"


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


def check_copies(world: World, bag: int, data: bytes, total: int) -> None:
    world.wait_over(bag)
    world.check_results(bag, total)
    world.check_once(bag, total)
    expected = {(task, "out"): data + b"%d\n" % task for task in range(total)}
    assert Remote(world).returned(bag) == expected


@pytest.mark.timeout(180)
def test_an_hour_without_the_server(world: World, tmp_path: Path) -> None:
    """The pilot's clocks run fast: an hour takes some seconds. Its credential is too old then,
    two files wait to be sent, and half of the bag has not been given out."""
    clock, later = FakeClock(tmp_path / "clock"), FakeClock(tmp_path / "later", HOUR + 300)
    first = serve(world, "--pilots", "0")
    address, data = record_of(world).address, os.urandom(LARGE)
    env = clock.environment(monotonic=True)
    flying = pilot_with(world, address, None, python="pypy3", env=env)
    wait_enrolled(world)
    placed = (Remote(world).placed("in", data),)
    bag = world.submit(task_script(f"sleep 2; {COPY}"), 4, inputs=placed, outputs=("out",))
    wait_until(lambda: world.started(bag) == 2, 30, world.log_tail)
    kill_process(first)
    for minutes in range(1, 62):
        clock.jump(60 * minutes)
        time.sleep(0.15)
        assert flying.poll() is None, world.log_tail()
    assert world.ended(bag) == 2
    serve_with(world, later.environment(), "--pilots", "0")
    clock.jump(60 * 62)  # it asks at least every half minute
    check_copies(world, bag, data, 4)
    assert flying.poll() is None
    assert "credential is invalid or has expired: enrol again" in world.log_tail()
    assert world.rows("SELECT count(*), min(status) FROM pilots") == [(1, "active")]


def test_a_name_that_nobody_knows_any_more(world: World, tmp_path: Path) -> None:
    """And a server that has been restarted, so that it must be looked up."""
    hosts, resolving = tmp_path / "hosts", tmp_path / "resolv.conf"
    known = f"127.0.0.1 localhost\n127.0.0.1 {HOST}\n"
    hosts.write_text(known)
    resolving.write_text("nameserver 127.0.0.77\noptions timeout:1 attempts:1\n")
    first = serve(world, "--listen", "0.0.0.0", "--pilots", "0", names=HOST)
    files = {"/etc/hosts": hosts, "/etc/resolv.conf": resolving}
    public, ca = record_of(world).public, authority_file(world)
    flying = pilot_with(world, public, ca, files=files)
    wait_enrolled(world)
    data = os.urandom(LARGE)
    placed = (Remote(world).placed("in", data),)
    bag = world.submit(task_script(f"sleep 2; {COPY}"), 4, inputs=placed, outputs=("out",))
    wait_until(lambda: world.started(bag) == 2, 30, world.log_tail)
    hosts.write_text("127.0.0.1 localhost\n")
    kill_process(first)
    serve(world, "--listen", "0.0.0.0", "--pilots", "0", names=HOST)
    assert record_of(world).public == public
    wait_until(lambda: world.ended(bag) == 2, 30, world.log_tail)
    with pytest.raises(AssertionError):
        wait_until(lambda: world.bag(bag).done, 2)
    assert flying.poll() is None
    hosts.write_text(known)
    check_copies(world, bag, data, 4)
    assert world.rows("SELECT count(*) FROM pilots") == [(1,)]


@pytest.mark.parametrize("skew", [DAY, -DAY])
def test_a_pilot_whose_clock_is_a_day_off(world: World, tmp_path: Path, skew: int) -> None:
    """Our own certificates are good for it all the same."""
    serve(world, "--listen", "0.0.0.0", "--pilots", "0")
    env = FakeClock(tmp_path / "clock", skew).environment()
    address, ca = record_of(world).address, authority_file(world)
    flying = pilot_with(world, address, ca, python="pypy3", env=env)
    data = os.urandom(LARGE)
    placed = (Remote(world).placed("in", data),)
    bag = world.submit(task_script(COPY), 4, inputs=placed, outputs=("out",))
    check_copies(world, bag, data, 4)
    [(began, ended)] = world.rows("SELECT min(started), max(ended) FROM ends WHERE bag=?", bag)
    assert abs(began - time.time()) < 300, "by the server's clock"
    assert abs(ended - time.time()) < 300
    flying.terminate()
    assert flying.wait(30) == 0
    stamp = world.log_tail().splitlines()[-1][:19]
    off = time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%S")) - time.time()
    assert abs(off - skew) < DAY / 2, "its clock was faked"


def test_a_pilot_whose_clock_is_a_week_slow_says_so(world: World, tmp_path: Path) -> None:
    serve(world, "--listen", "0.0.0.0", "--pilots", "0")
    env = FakeClock(tmp_path / "clock", -7 * DAY).environment()
    address, ca = record_of(world).address, authority_file(world)
    stray = pilot_with(world, address, ca, python="pypy3", env=env)
    assert stray.wait(30) == 1
    assert "not valid yet: this host's clock seems to be slow" in world.log_tail()


def test_a_server_whose_clock_is_a_day_off(world: World, tmp_path: Path) -> None:
    """First fast; after a restart in the middle of a bag, slow."""
    clock = FakeClock(tmp_path / "clock", DAY)
    options = ["--listen", "0.0.0.0", "--pilots", "0"]
    first = serve_with(world, clock.environment(), *options)
    address, ca = record_of(world).address, authority_file(world)
    flying = pilot(world, address, ca)
    bag = world.submit(task_script("sleep 0.5; echo {i}"), 8)
    wait_until(lambda: world.bag(bag).done >= 2, 30, world.log_tail)
    kill_process(first)
    clock.jump(-DAY)
    serve_with(world, clock.environment(), *options)
    assert port_of(world) == int(address.rpartition(":")[2])
    done = covey(world, address, ca, "bags")
    assert done.returncode == 0, done.stderr
    world.wait_over(bag)
    world.check_results(bag, 8)
    world.check_once(bag, 8)
    assert flying.poll() is None
    [(sent, delivered)] = world.rows("SELECT max(sent), min(delivered) FROM ends")
    assert sent - delivered > DAY, "the clock was faked"
