"""How fast tasks run at a site, compared to other sites, and how well its slots are filled.

**Speed.** Bags differ, so only tasks of one class of one bag are compared with each other: the mean
run time of a class at a site is the class's length divided by the site's speed. Lengths and speeds
are those that fit all classes best, where classes of many tasks weigh more (least squares of the
logarithms, by turns). The average site has speed 1.

What bags that are over have shown is remembered as one more class, which all sites share. It weighs
no more than `REMEMBERED_TASKS` tasks, so that it fades as others come.

**Filling.** Every few seconds the slots of all pilots are counted, and those that have a task. The
sums lose half their weight in `HALF_LIFE`.

Both are written at most once in `SAVE_SECONDS`. A crash takes with it what came after that.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from covey.core.record.actions import SaveSiteHistory
from covey.core.record.histories import SiteHistory
from covey.core.record.model import PilotStatus
from covey.core.state import Bag, Site, State
from covey.core.state.classes import TaskClass
from covey.core.turn import Turn
from covey.core.values.durations import Times

MEASURED = 3  # tasks of a class at a site, before they count
MOST_TASKS = 100  # of a class at a site: more of them weigh no more
REMEMBERED_TASKS = 100.0
MOST_LOOKS = 20_000  # at classes, in one go
MOST_CELLS = 5_000  # classes at sites that are looked at together
ROUNDS = 8
SHORTEST_SECONDS = 1e-3  # of a task: what is shorter says nothing of its host
FASTEST = 1000.0
CHANGE = 0.01  # smaller ones of a speed or a filling are not told
COUNT_SECONDS = 5.0
SPEED_SECONDS = 10.0
SAVE_SECONDS = 60.0
HALF_LIFE = 3600.0


class Speed(NamedTuple):
    """The logarithm of a speed, and how many tasks that comes from."""

    log: float
    weight: float


class Cell(NamedTuple):
    """Tasks of one class at one site."""

    site: str
    weight: float
    log_seconds: float


def restore(state: State, histories: Mapping[str, SiteHistory]) -> None:
    for name, history in histories.items():
        if (site := state.sites.get(name)) is not None:
            site.samples.history = history
            _tell(site, Speed(history.log_speed, history.speed_weight), history.at)


def note_success(state: State, known: TaskClass, site: str, seconds: float) -> None:
    """A task of that class has ended well there."""
    times = known.by_site.get(site)
    if times is None:
        if site not in state.sites:
            return
        times = known.by_site[site] = Times()
    times.add(seconds)


def tick(turn: Turn) -> None:
    state, plan = turn.state, turn.state.plan
    if turn.now - plan.filling_at >= COUNT_SECONDS or turn.now < plan.filling_at:
        _count_slots(state, turn.now, min(turn.now - plan.filling_at, 2 * COUNT_SECONDS))
        plan.filling_at = turn.now
    if turn.now - plan.speeds_at >= SPEED_SECONDS or turn.now < plan.speeds_at:
        plan.speeds_at = turn.now
        ended, before = sum(state.counters.ended.values()), plan.speeds_ended
        plan.speeds_ended = ended
        found = _speeds(state, _cells(state.bags.values())) if ended != before else {}
        for name, site in state.sites.items():
            _tell(site, found.get(name, Speed(*site.samples.speed)), turn.now)
        save(turn)


def remember(state: State, bag: Bag) -> None:
    """A bag is over: what its tasks have shown of sites stays."""
    cells = list(_cells([bag]))
    for name, speed in _speeds(state, cells).items() if cells else ():
        samples = state.sites[name].samples
        weight = min(speed.weight, REMEMBERED_TASKS)
        samples.history = replace(samples.history, log_speed=speed.log, speed_weight=weight)
        samples.unsaved = True


def save(turn: Turn, *, at_once: bool = False) -> None:
    """Write what has changed, unless that was done just now."""
    for name, site in turn.state.sites.items():
        samples = site.samples
        due = at_once or turn.now - samples.saved >= SAVE_SECONDS or turn.now < samples.saved
        if samples.unsaved and due:
            samples.unsaved, samples.saved = False, turn.now
            log, weight = samples.speed
            history = samples.history
            if weight > history.speed_weight:
                weight = min(weight, REMEMBERED_TASKS)
                history = replace(history, log_speed=log, speed_weight=weight)
            turn.write(SaveSiteHistory(name, replace(history)))


def _tell(site: Site, speed: Speed, now: float) -> None:
    """Answers are computed anew only if this makes a difference."""
    samples = site.samples
    slots = samples.history.slots
    filling = samples.history.busy / slots if slots > 0.0 else None
    found = math.exp(speed.log) if speed.weight else None
    samples.unsaved = samples.unsaved or speed != samples.speed
    samples.speed = speed
    samples.tell(found, filling, CHANGE, now)


# -- filling ---------------------------------------------------------------------------------


def _count_slots(state: State, now: float, seconds: float) -> None:
    busy: dict[str, int] = {}
    slots: dict[str, int] = {}
    for pilot in state.pilots.values():
        if pilot.status is PilotStatus.ACTIVE and not pilot.resync:
            name, count = pilot.record.site, pilot.record.slots
            slots[name] = slots.get(name, 0) + count
            busy[name] = busy.get(name, 0) + min(pilot.load, count)
    for name, count in slots.items():
        if (site := state.sites.get(name)) is not None and seconds > 0.0:
            history = site.samples.history
            faded = 0.5 ** (max(0.0, now - history.at) / HALF_LIFE)
            history.busy = history.busy * faded + busy[name] * seconds
            history.slots = history.slots * faded + count * seconds
            history.at = now
            site.samples.unsaved = True


# -- speed -----------------------------------------------------------------------------------


def _cells(bags: Iterable[Bag]) -> Iterator[list[Cell]]:
    """Of each class that has run at several sites."""
    left, looks = MOST_CELLS, MOST_LOOKS
    for bag in bags:
        for known in bag.classes:
            looks -= 1
            if looks < 0:
                return
            if len(known.by_site) < 2:
                continue
            cells = [
                Cell(
                    name,
                    float(min(times.count, MOST_TASKS)),
                    math.log(max(times.mean, SHORTEST_SECONDS)),
                )
                for name, times in known.by_site.items()
                if times.count >= MEASURED
            ]
            left -= len(cells)
            if left < 0:
                return
            if len(cells) > 1:
                yield cells


def _speeds(state: State, cells: Iterable[list[Cell]]) -> dict[str, Speed]:
    known = {
        name: Speed(site.samples.history.log_speed, site.samples.history.speed_weight)
        for name, site in state.sites.items()
    }
    there = ([cell for cell in row if cell.site in known] for row in cells)
    return fit(known, [row for row in there if len(row) > 1])


def fit(known: Mapping[str, Speed], classes: list[list[Cell]]) -> dict[str, Speed]:
    """The speeds of sites that fit best: what is known of them, and how long tasks of these
    classes took. Only of sites of which anything is known."""
    weights = {name: speed.weight for name, speed in known.items()}
    for cells in classes:
        for cell in cells:
            weights[cell.site] += cell.weight
    logs = {name: speed.log if speed.weight else 0.0 for name, speed in known.items()}
    for _ in range(ROUNDS if classes else 0):
        sums = {name: speed.weight * speed.log for name, speed in known.items()}
        for cells in classes:
            whole = sum([cell.weight for cell in cells])
            length = sum([w * (seconds + logs[site]) for site, w, seconds in cells]) / whole
            for site, weight, seconds in cells:
                sums[site] += weight * (length - seconds)
        logs = {name: sums[name] / weight if weight else 0.0 for name, weight in weights.items()}
    told = [name for name, weight in weights.items() if weight]
    middle = sum([logs[name] for name in told]) / len(told) if told and classes else 0.0
    most = math.log(FASTEST)
    return {name: Speed(min(most, max(-most, logs[name] - middle)), weights[name]) for name in told}
