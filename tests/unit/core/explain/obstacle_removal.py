"""Obstacles are taken away, one after the other, until dispatch sends a task."""

import math

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
    Obstacle,
)
from covey.core.match import bag_policy
from covey.core.match.policies import DEFAULT_PRESET, Compiled
from covey.core.record.model import PilotStatus
from covey.core.state import Bag, Pilot, State
from tests.simulator.checkers.explain_check import copy_of, disagreement, obstacles

KINDS = (
    SILENT,
    SHORT,
    FILES,
    SMALL,
    ENDING,
    REFUSED,
    LIMITED,
    BANNED,
    RESTING,
    TRIED,
    AVOIDED,
    FULL,
)


def take_away(kind: str, state: State, bag: Bag, pilot: Pilot) -> None:
    """This obstacle, and nothing else that stands between the two."""
    if kind == SILENT:
        pilot.status = PilotStatus.ACTIVE
    elif kind == SHORT:
        pilot.shortage = ""
    elif kind == FILES:
        pilot.set_aside({})
    elif kind == SMALL:
        pilot.record = replace(pilot.record, slots=100, memory_mb=0, disk_mb=0, gpus=100)
    elif kind == ENDING:
        pilot.until = math.inf
    elif kind == REFUSED:
        _change(state, bag, requirements="", only_sites=(), avoid_sites=(), only_hosts=())
    elif kind == LIMITED:
        _change(state, bag, concurrency="")
    elif kind in (BANNED, RESTING, TRIED):
        state.hosts[pilot.record.host].history.bans.pop(bag.spec.owner, None)
        bag.hosts.tallies.pop(pilot.record.host, None)
        pilot.rests.pop(bag.id, None)
    elif kind == AVOIDED:
        pilot.until = math.inf
        for task in list(bag.failures.failed_on):
            bag.failures.forget_hosts(task)
    elif kind == FULL:
        for attempt in list(pilot.attempts):
            pilot.drop(attempt)


def _change(state: State, bag: Bag, **fields: object) -> None:
    spec = replace(bag.policy.spec, preset=DEFAULT_PRESET, **fields)
    bag_policy.replace(bag, Compiled(spec))
    bag_policy.noticed(state, bag)


def remove_all(state: State, now: float, bag: Bag, obstacle: Obstacle) -> list[str]:
    """The kinds of obstacles that had to be taken away, in a copy of the state, until dispatch
    sends a task of the bag to the pilot. Each time explain and dispatch agree on what is left."""
    copy = copy_of(state)
    bag, pilot = copy.bags[bag.id], copy.pilots[obstacle.pilot.record.id]
    removed: list[str] = []
    while True:
        [obstacle] = [one for one in obstacles(copy, now, bag) if one.pilot is pilot]
        assert not disagreement(copy, now, bag, obstacle)
        if obstacle.kind == FREE:
            return removed
        assert obstacle.kind not in removed, "this obstacle was taken away"
        take_away(obstacle.kind, copy, bag, pilot)
        removed.append(obstacle.kind)
