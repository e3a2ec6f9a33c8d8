"""Attempts wait for what is theirs, and for nothing else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.pilot.files.file_cache import News
from covey.pilot.files.readiness import (
    FILES_AGAIN_SECONDS,
    MOST_ECHOES,
    SETUP_AGAIN_SECONDS,
    VERIFY_SECONDS,
    Readiness,
    Unable,
)
from covey.pilot.files.setups import Setups
from covey.pilot.protocol.commands import Start
from covey.pilot.protocol.held_attempts import Holding
from covey.pilot.protocol.messages import Body, Input, Task
from covey.pilot.slots.orders import Outcome

ONE, TWO, OWN = (Input(name, letter * 64, 1) for name, letter in zip("abc", "abc", strict=True))


class Larder:
    """Says what the test tells it to."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.held: list[str] = []
        self.told: list[News] = []
        self.broken: set[str] = set()

    def name_of(self, item: Input, bag: int, owner: str) -> str:
        return item.digest

    def path(self, name: str) -> str:
        return "/cache/" + name

    def request(self, item: Input, name: str) -> None:
        self.requests.append(name)
        self.held.append(name)

    def release(self, name: str) -> None:
        self.held.remove(name)

    def intact(self, name: str) -> bool:
        return name not in self.broken

    def news(self) -> list[News]:
        told, self.told = self.told, []
        return told


class Desk:
    def __init__(self, path: Path) -> None:
        self.larder = Larder()
        self.setups = Setups(str(path), "n")
        self.readiness = Readiness(self.larder, self.setups)  # type: ignore[arg-type]
        self.now = 100.0
        self.sequence = 0

    def prepare(self, body: Body, *inputs: Input) -> str:
        self.sequence += 1
        key = f"1.{self.sequence}"
        task = Task(self.sequence, body.bag, 0, [], inputs=list(inputs))
        self.readiness.prepare(Start(key, body, task), self.now)
        return key

    def turn(self, *news: News, later: float = 0.0) -> tuple[list[str], list[Unable]]:
        self.now += later
        self.larder.told += news
        self.readiness.turn(self.now)
        found = self.readiness.ready, self.readiness.unable
        self.readiness.ready, self.readiness.unable = [], []
        return found

    def setup_over(self, kind: str, **more: Any) -> None:
        body = self.readiness.to_run.popleft()
        self.readiness.setup_over(body, Outcome(f"setup:{body.bag}", kind, **more), self.now)


def here(item: Input) -> News:
    return News(item.digest, "")


def bag(number: int, *inputs: Input, setup: str = "") -> Body:
    return Body(number, ["x"], [], inputs=list(inputs), setup=setup)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path)
    yield found
    found.setups.close()


def test_ready_when_all_files_are_there(desk: Desk) -> None:
    body = bag(1, ONE, TWO)
    first, second, other = desk.prepare(body), desk.prepare(body, OWN), desk.prepare(bag(2, TWO))
    assert desk.larder.requests == [ONE.digest, TWO.digest, OWN.digest, TWO.digest]
    assert desk.turn() == ([], [])
    assert desk.turn(here(TWO)) == ([other], [])
    assert desk.turn(here(ONE)) == ([first], [])
    assert desk.turn(here(OWN)) == ([second], [])
    third = desk.prepare(body)
    assert desk.turn() == ([third], [])
    assert len(desk.larder.requests) == 4


def test_a_file_that_cannot_be_had(desk: Desk) -> None:
    body = bag(1, ONE)
    key, other = desk.prepare(body), desk.prepare(bag(2, TWO))
    lost = News(ONE.digest, "a: not there")
    words = "cannot get an input: a: not there"
    assert desk.turn(lost) == ([], [Unable(key, "host", words)])
    assert desk.turn(here(TWO)) == ([other], [])
    desk.readiness.forget(key, body)
    again = desk.prepare(body)
    assert desk.turn() == ([], [])
    assert desk.larder.requests.count(ONE.digest) == 1
    desk.turn(later=FILES_AGAIN_SECONDS)
    assert desk.larder.requests.count(ONE.digest) == 2
    assert desk.turn(here(ONE)) == ([again], [])


def test_a_file_that_nobody_can_have_is_the_fault_of_its_bag(desk: Desk) -> None:
    body = bag(1, ONE)
    first = desk.prepare(body)
    lost = News(ONE.digest, "a: it answers 404", wrong=True)
    words = "cannot get an input: a: it answers 404"
    assert desk.turn(lost) == ([], [Unable(first, "setup", words)])
    desk.readiness.forget(first, body)
    echoes = [desk.prepare(body) for _ in range(MOST_ECHOES)]
    waiting = desk.prepare(body)
    assert desk.turn() == ([], [Unable(key, "setup", words) for key in echoes])
    assert desk.turn(later=SETUP_AGAIN_SECONDS - 1.0) == ([], [])
    assert desk.larder.requests.count(ONE.digest) == 1
    desk.turn(later=1.0)
    assert desk.turn(here(ONE)) == ([waiting], [])


def test_a_spoilt_file_is_got_again(desk: Desk) -> None:
    body = bag(1, ONE)
    desk.prepare(body)
    desk.turn(here(ONE))
    desk.larder.broken.add(ONE.digest)
    desk.now += VERIFY_SECONDS
    key = desk.prepare(body)
    assert desk.turn() == ([], [])
    desk.larder.broken.clear()
    assert desk.turn(here(ONE)) == ([key], [])
    assert desk.larder.held == [ONE.digest]


def test_files_are_let_go_when_nobody_needs_them(desk: Desk) -> None:
    body = bag(1, ONE)
    first, second = desk.prepare(body), desk.prepare(body, OWN)
    desk.turn(here(ONE), here(OWN))
    held = {key: Holding(1, body, Task(1, 1, 0, []), 0.0, 1) for key in (first, second)}
    desk.readiness.sweep(held)
    assert desk.larder.held == [ONE.digest, OWN.digest]
    desk.readiness.forget(second, body)
    assert desk.larder.held == [ONE.digest]
    desk.readiness.sweep({first: held[first]})
    assert desk.larder.held == [ONE.digest]
    desk.readiness.sweep({})  # it was given back
    assert desk.larder.held == []


def test_a_setup_is_run_once_when_the_bags_files_are_there(desk: Desk) -> None:
    body = bag(1, setup="make")
    first, second = desk.prepare(body), desk.prepare(body)
    assert [one.bag for one in desk.readiness.to_run] == [1]
    assert desk.turn() == ([], [])
    desk.setup_over("ok")
    assert desk.turn() == ([first, second], [])
    assert desk.turn() == ([], [])
    third = desk.prepare(body)
    assert desk.turn() == ([third], [])


def test_a_failed_setup_is_tried_again_but_not_soon(desk: Desk) -> None:
    body = bag(1, setup="make")
    keys = [desk.prepare(body), desk.prepare(body)]
    desk.setup_over("failed", message="exit code 2", stderr=b"no compiler\n")
    words = "the bag's setup failed on this host: exit code 2: no compiler"
    assert desk.turn() == ([], [Unable(key, "setup", words) for key in keys])
    for _ in range(MOST_ECHOES):
        echo = desk.prepare(body)
        assert desk.turn() == ([], [Unable(echo, "setup", words)])
    later = desk.prepare(body)
    assert desk.turn(later=SETUP_AGAIN_SECONDS / 2) == ([], [])
    assert not desk.readiness.to_run
    desk.turn(later=SETUP_AGAIN_SECONDS / 2 + 0.1)
    desk.setup_over("ok")
    assert desk.turn() == ([later], [])
    last = desk.prepare(body)
    assert desk.turn() == ([last], [])


def test_a_setup_that_the_host_could_not_run(desk: Desk) -> None:
    key = desk.prepare(bag(1, setup="make"))
    desk.setup_over("host", message="no processes")
    ready, ((found, outcome, words),) = desk.turn()
    assert (ready, found, outcome) == ([], key, "host")
    assert "no processes" in words


def test_a_setup_that_another_pilot_runs_is_waited_for(desk: Desk, tmp_path: Path) -> None:
    body = bag(1, setup="make")
    other = Setups(str(tmp_path), "n")
    assert other.begin(body) == "run"
    first, second = desk.prepare(body), desk.prepare(body)
    assert desk.turn(later=1.0) == ([], [])
    assert desk.readiness.wake_at(desk.now) < desk.now + 0.5
    assert not desk.readiness.to_run
    other.over(body, good=True)
    assert desk.turn(later=1.0) == ([first, second], [])


def test_one_that_was_given_back_is_not_reported(desk: Desk) -> None:
    body = bag(1, setup="make")
    first, second = desk.prepare(body), desk.prepare(body)
    desk.readiness.sweep({second: Holding(1, body, Task(2, 1, 0, []), 0.0, 1)})
    desk.setup_over("ok")
    assert desk.turn() == ([second], [])
    assert first not in desk.readiness.ready


def test_a_setup_that_cannot_begin(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "setups").write_text("")  # where a directory should be
    key = desk.prepare(bag(1, ONE, setup="make"))
    ready, ((found, outcome, words),) = desk.turn(here(ONE))
    assert (ready, found, outcome) == ([], key, "host")
    assert "cannot start" in words


def test_links_name_the_cached_files(desk: Desk) -> None:
    (link,) = desk.readiness.links(bag(1), [ONE._replace(copy=True)])
    assert link == ("/cache/" + ONE.digest, "a", True)


def test_what_is_known_of_a_bags_files_is_known_for_a_moment(desk: Desk) -> None:
    body = bag(1, ONE)
    desk.prepare(body)
    assert desk.readiness.ready_until == {}
    desk.turn(here(ONE), later=0.5)
    until = desk.readiness.ready_until[1, 1]
    assert desk.now < until <= desk.now + VERIFY_SECONDS
    desk.larder.broken.add(ONE.digest)
    desk.now = until
    key = desk.prepare(body)
    assert desk.turn() == ([], [])  # it was lost, and is fetched again
    assert desk.readiness.ready_until[1, 1] <= desk.now
    assert desk.turn(here(ONE)) == ([key], [])


def test_a_bags_files_are_kept_while_it_has_attempts_that_nobody_asked_about(desk: Desk) -> None:
    body = bag(1, ONE)
    key = desk.prepare(body)
    desk.turn(here(ONE))
    desk.readiness.forget(key, body)
    held = {"1.9": Holding(1, body, Task(9, 1, 9, []), desk.now, 1)}
    desk.readiness.sweep(held)
    assert desk.larder.held == [ONE.digest]
    desk.readiness.sweep({})
    assert desk.larder.held == []
    assert desk.readiness.ready_until == {}


def test_changed_inputs_are_fetched_while_attempts_with_the_old_ones_go_on(desk: Desk) -> None:
    old, new = bag(1, ONE), bag(1, TWO)._replace(inputs_version=2)
    first = desk.prepare(old)
    assert desk.turn(here(ONE)) == ([first], [])
    second, third = desk.prepare(new), desk.prepare(old)
    assert desk.turn() == ([third], [])
    assert desk.turn(here(TWO)) == ([second], [])
    desk.readiness.sweep({second: Holding(1, new, Task(2, 1, 0, []), 0.0, 1)})
    assert desk.larder.held == [TWO.digest]


def test_a_setup_runs_again_for_changed_inputs(desk: Desk) -> None:
    old = bag(1, setup="make")
    first = desk.prepare(old)
    second = desk.prepare(old._replace(inputs_version=2, inputs=[TWO]))
    assert [one.inputs_version for one in desk.readiness.to_run] == [1]
    desk.setup_over("ok")
    assert desk.turn() == ([first], [])
    assert desk.turn(here(TWO)) == ([], [])
    assert [one.inputs_version for one in desk.readiness.to_run] == [2]
    desk.setup_over("ok")
    assert desk.turn() == ([second], [])
