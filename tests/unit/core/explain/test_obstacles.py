"""For each kind of obstacle: it is named, and when it is taken away the task goes."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from covey.core.explain.obstacles import (
    AVOIDED,
    BANNED,
    ENDING,
    FILES,
    FREE,
    FULL,
    LIMITED,
    REFUSED,
    RESTING,
    SHORT,
    SILENT,
    SMALL,
    TRIED,
)
from covey.core.record.histories import Ban
from covey.core.record.model import BagId, Need, PilotId, PilotStatus
from covey.core.state import Bag, Pilot
from covey.core.state.hosts import Rest
from tests.simulator.checkers.explain_check import disagreement, obstacles
from tests.unit.core.explain.obstacle_removal import KINDS, remove_all
from tests.unit.core.match.test_blame import a_worker
from tests.unit.core.match.test_policies import gets, policy
from tests.unit.core.table import Table, spec


class Scene(NamedTuple):
    """A bag with tasks that wait, and a pilot on host `a`; another one is on host `b`."""

    table: Table
    bag: Bag
    pilot: Pilot


def a_scene(count: int = 4, **fields: object) -> Scene:
    table = Table()
    hand = table.enrol(2, host="a")
    table.enrol(2, host="b")
    state = table.scheduler.state
    bag = state.bags[BagId(table.submit(spec(count, **fields)))]
    return Scene(table, bag, state.pilots[PilotId(hand.pilot)])


def silent() -> Scene:
    scene = a_scene()
    scene.pilot.status = PilotStatus.SUSPECTED
    return scene


def short_of_disk() -> Scene:
    scene = a_scene()
    scene.pilot.shortage = "no disk space"
    return scene


def waits_for_files() -> Scene:
    scene = a_scene()
    scene.pilot.set_aside({scene.bag.id: 1})
    return scene


def too_small() -> Scene:
    return a_scene(need=Need(cores=8))


def ends_too_soon() -> Scene:
    scene = a_scene(need=Need(limit_seconds=100.0))
    scene.pilot.until = scene.table.now + 10.0
    return scene


def refused() -> Scene:
    return a_scene(policy=policy(requirements='Host.Name != "a"'))


def limited() -> Scene:
    return a_scene(policy=policy(concurrency="0"))


def banned() -> Scene:
    scene = a_scene()
    history = scene.table.scheduler.state.hosts["a"].history
    history.bans[scene.bag.spec.owner] = Ban(scene.table.now, scene.table.now + 60.0, 1)
    return scene


def resting() -> Scene:
    scene = a_scene()
    scene.pilot.rests[scene.bag.id] = Rest(failures=3, until=scene.table.now + 60.0)
    return scene


def tried() -> Scene:
    """The rest is over, and one task finds out whether all is well."""
    table = Table()
    hand = table.enrol(2, host="a")
    table.enrol(2, host="b")
    state = table.scheduler.state
    bag = state.bags[BagId(table.submit(spec(4)))]
    assert len(gets(hand)) == 1
    pilot = state.pilots[PilotId(hand.pilot)]
    pilot.rests[bag.id] = Rest(failures=3, until=table.now - 1.0)
    return Scene(table, bag, pilot)


def avoided() -> Scene:
    """All tasks of the bag have failed there, and another host could run them."""
    table = Table()
    state = table.scheduler.state
    bag = state.bags[BagId(table.submit(spec(2, retries=3)))]
    worker = a_worker(table, "host-a", 2)
    assert worker.gets(2) == 2
    a_worker(table, "host-b", 2)
    worker.ends("failed")
    return Scene(table, bag, state.pilots[PilotId(worker.hand.pilot)])


def full() -> Scene:
    scene = a_scene()
    hand = scene.table.enrol(1, host="c")
    assert len(gets(hand)) == 1
    return scene._replace(pilot=scene.table.scheduler.state.pilots[PilotId(hand.pilot)])


SCENES: dict[str, Callable[[], Scene]] = {
    SILENT: silent,
    SHORT: short_of_disk,
    FILES: waits_for_files,
    SMALL: too_small,
    ENDING: ends_too_soon,
    REFUSED: refused,
    LIMITED: limited,
    BANNED: banned,
    RESTING: resting,
    TRIED: tried,
    AVOIDED: avoided,
    FULL: full,
}


def kind_of(scene: Scene) -> str:
    state, now = scene.table.scheduler.state, scene.table.now
    [found] = [one for one in obstacles(state, now, scene.bag) if one.pilot is scene.pilot]
    assert not disagreement(state, now, scene.bag, found)
    return found.kind


def test_each_kind_has_a_scene() -> None:
    assert SCENES.keys() == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_obstacle_the_task_goes(kind: str) -> None:
    scene = SCENES[kind]()
    state, now = scene.table.scheduler.state, scene.table.now
    [found] = [one for one in obstacles(state, now, scene.bag) if one.pilot is scene.pilot]
    assert found.kind == kind
    assert remove_all(state, now, scene.bag, found) == [kind]


def test_nothing_is_in_the_way() -> None:
    assert kind_of(a_scene()) == FREE


def test_a_ban_holds_if_the_only_other_host_waits_for_disk_space() -> None:
    scene = banned()
    for pilot in scene.table.scheduler.state.pilots.values():
        if pilot is not scene.pilot:
            pilot.shortage = "no disk space"
    assert kind_of(scene) == BANNED


def test_no_ban_holds_if_no_other_host_is_large_enough() -> None:
    scene = banned()
    for pilot in scene.table.scheduler.state.pilots.values():
        if pilot is not scene.pilot:
            pilot.record = replace(pilot.record, memory_mb=1)
    scene.bag.classes[0].need = Need(memory_mb=100)
    assert kind_of(scene) == FREE


def test_a_class_is_limited_by_those_that_do_not_rank_lower() -> None:
    table = Table()
    hand = table.enrol(2, host="a")
    words = policy(rank="Job.i", concurrency="Job.i == 1 ? 1 : undefined")
    state = table.scheduler.state
    bag = state.bags[BagId(table.submit(spec(2, policy=words)))]
    scene = Scene(table, bag, state.pilots[PilotId(hand.pilot)])
    assert kind_of(scene) == FREE
    assert gets(hand) == [(bag.id, 1)]
    assert kind_of(scene) == LIMITED
