"""What answers is not the server: a portal, a proxy without a server behind it, something else
altogether; and connections that break in the middle. A pilot goes on and delivers afterwards."""

import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from covey.client.client import Client
from covey.core.errors import Refused, ServerAway
from tests.faults.world import World, open_world, task_script, wait_until
from tests.network.remote import Remote
from tests.network.rubbish import ANSWERS, ENDLESS, Relay, relaying
from tests.network.serving import pilot, port_of, record_of, serve, wait_enrolled

FILES = b"/files/"
LARGE = 3_000_000  # too large to travel with the end of a task
COPY = task_script("cat in > out; sleep 0.3; echo {i} >> out")


class Post(NamedTuple):
    """A pilot that sees its server through a relay."""

    world: World
    relay: Relay
    pid: int

    @property
    def remote(self) -> Remote:
        return Remote(self.world)


@pytest.fixture(scope="module")
def standing() -> Iterator[Post]:
    """One for all: what one test leaves behind another one would notice."""
    with open_world() as world:
        serve(world, "--pilots", "0", pilot_idle_seconds="600")
        with relaying(port_of(world)) as relay:
            flying = pilot(world, relay.address, None)
            wait_enrolled(world)
            yield Post(world, relay, flying.pid)
            assert flying.poll() is None


@pytest.fixture
def post(standing: Post) -> Iterator[Post]:
    yield standing
    standing.relay.breaks = 0
    standing.relay.say("")


def check(post: Post, bag: int, total: int) -> None:
    """All of it is there, once; its pilot, the first that was there, did not enrol again."""
    world = post.world
    world.wait_over(bag)
    world.check_results(bag, total)
    world.check_once(bag, total)
    its = "SELECT status FROM pilots WHERE job = (SELECT job FROM pilots ORDER BY id LIMIT 1)"
    assert world.rows(its) == [("active",)]


@pytest.mark.parametrize("mood", ANSWERS)
def test_rubbish_in_place_of_the_server(post: Post, mood: str) -> None:
    world, relay = post.world, post.relay
    bag = world.submit(task_script("sleep 0.5; echo {i}"), 2)
    wait_until(lambda: world.started(bag) == 2, 30, world.log_tail)
    relay.say(mood)
    wait_until(lambda: world.ended(bag) == 2 and relay.answered >= 3, 30, world.log_tail)
    assert world.bag(bag).done == 0
    client = Client(relay.address, record_of(world).token, patience_seconds=0)
    with pytest.raises(Refused if mood == "413" else ServerAway):
        client.bags()
    client.close()
    relay.say("")
    check(post, bag, 2)


@pytest.mark.parametrize(
    "mood", ["a page", "JSON of others", "502", "403 of others", "404 of others", "413", ENDLESS]
)
def test_rubbish_in_place_of_files(post: Post, mood: str) -> None:
    """Syncs arrive; what they speak of cannot be had, and then not be sent."""
    world, relay, remote = post.world, post.relay, post.remote
    data = os.urandom(LARGE)
    relay.say(mood, FILES)
    placed = (remote.placed("in", data),)
    bag = world.submit(COPY, 1, inputs=placed, outputs=("out",))
    wait_until(lambda: relay.answered >= 2, 30, world.log_tail)
    relay.say("")
    wait_until(lambda: world.started(bag) == 1, 30, world.log_tail)
    relay.say(mood, FILES)
    wait_until(lambda: relay.answered >= 2, 30, world.log_tail)
    relay.say("")
    check(post, bag, 1)
    assert remote.returned(bag) == {(0, "out"): data + b"0\n"}


@pytest.mark.parametrize("way", ["up", "down"])
def test_connections_reset_within_a_file(post: Post, way: str) -> None:
    world, relay, remote = post.world, post.relay, post.remote
    data = os.urandom(LARGE)
    placed = (remote.placed("in", data),)
    relay.break_off(4, way, 1_200_000)
    bag = world.submit(COPY, 2, inputs=placed, outputs=("out",))
    check(post, bag, 2)
    expected = {(task, "out"): data + b"%d\n" % task for task in range(2)}
    assert remote.returned(bag) == expected
    assert relay.breaks < 3


@pytest.mark.parametrize("way", ["up", "down"])
def test_connections_reset_within_a_sync(post: Post, way: str) -> None:
    """Ends with much to tell, and tasks with much in them."""
    world, relay = post.world, post.relay
    relay.break_off(3, way, 20_000)
    script = f": {'x' * 50_000}; head -c 40000 /dev/zero | tr '\\0' y"
    bag = world.submit(task_script(script), 6)
    check(post, bag, 6)
    assert relay.breaks == 0
    client = world.client()
    for task in range(6):
        output = client.output(bag, task)
        assert output is not None
        assert output.stdout == "y" * 40000
    client.close()


def test_a_pilot_waits_at_a_proxy_without_a_server_behind_it(post: Post) -> None:
    world, relay = post.world, post.relay
    relay.say("502")
    late = pilot(world, relay.address, None)
    wait_until(lambda: relay.answered >= 5, 30, world.log_tail)
    assert late.poll() is None
    relay.say("")
    wait_until(lambda: world.server().pilots == 2, 30, world.log_tail)
    late.terminate()
    assert late.wait(30) == 0


def test_what_others_say_leaves_little_behind(post: Post) -> None:
    """After all of the above, a pilot has no more lines than it needs."""
    with open(f"/proc/{post.pid}/status") as file:
        found = dict(line.split(":", 1) for line in file)
    assert int(found["Threads"]) <= 12
    assert len(os.listdir(f"/proc/{post.pid}/fd")) < 60
    assert int(found["VmRSS"].split()[0]) < 200_000
