"""The pilots that are missing, shared out over the sites that may have them.

Rows of demand have the first choice in turn (`_first_served`). Each becomes an ask, with the sites
that can have pilots for it and what the broker says that they are worth; `matching` fits the asks
into the rooms of the sites.
"""

import math
from collections.abc import Collection, Iterator
from functools import partial
from typing import NamedTuple

from covey.core.broker import choices as broker
from covey.core.broker.choices import Choices
from covey.core.broker.worth import SiteChoice, Work
from covey.core.match import site_preference
from covey.core.match.pilot_fit import weight
from covey.core.record.model import SiteSpec
from covey.core.sites import allowed_sites, owner_turns, site_fit, site_table
from covey.core.sites.allowed_sites import Allowed, PilotSize
from covey.core.sites.demand import DemandRow, Shape, Supply
from covey.core.sites.matching import Matching, PilotAsk, PilotCount, SiteOption
from covey.core.state import State


class PilotShare(NamedTuple):
    """Pilots, of so many slots each, that a site is to start for a row."""

    row: DemandRow
    site: str
    pilots: int
    slots: int


class Rooms:
    """Where pilots may be started now, how many, and at which sites they wait for long."""

    def __init__(self, state: State, now: float, supply: dict[Shape, Supply]) -> None:
        self.state, self.now = state, now
        self.free: dict[str, int] = {}
        self.limited: dict[tuple[str, str], int] = {}  # of sites with a limit for each owner
        for name, site in state.sites.items():
            if (room := site_table.room(state, now, site)) > 0:
                self.free[name] = room
        self.late = {shape.site for shape, there in supply.items() if there.slow}
        self.idle = allowed_sites.idle_at(state)
        self.probes: dict[str, int] = {}  # that are left, of sites about which nothing is known

    def limit_owners(self, owners: set[str]) -> None:
        """Find out how many pilots each of them may still have where there is such a limit."""
        for name in self.free:
            site = self.state.sites[name]
            for owner in sorted(owners) if site.record.spec.per_user else ():
                room = site_table.room_of(self.state, self.now, site, owner)
                self.limited[name, owner] = room


def shares(
    state: State,
    now: float,
    found: list[DemandRow],
    allowed: Allowed,
    supply: dict[Shape, Supply],
) -> Iterator[PilotShare]:
    """How many pilots each site gets for each row."""
    short = [row for row in found if row.missing > 0 or row.late > 0]
    rooms = Rooms(state, now, supply) if short else None
    if rooms is None or not rooms.free:
        return
    rooms.limit_owners({row.bag.spec.owner for row in short})
    matching, choices = Matching(rooms.free, rooms.limited), Choices(state, now)
    asked: list[tuple[DemandRow, float, SiteChoice]] = []
    for row in _first_served(state, now, short):
        # Late tasks are covered only by jobs that have waited for long. More pilots for them are
        # started only at sites where pilots do not wait for long.
        for tasks, every in ((row.missing, True), (row.late, False)):
            if tasks > 0 and not matching.full:
                able = _able(row, rooms, allowed, every)
                work = _work(row, tasks, now)
                limits = {name: site_able.most for name, site_able in able.items()}
                full = partial(_full, row, rooms, allowed, every, able)
                choice = choices.choose(row.bag, work, limits, full)
                matching.add(_ask(row, work, able, choice, rooms))
                asked.append((row, tasks, choice))
    for number, (row, tasks, choice) in enumerate(asked):
        parts = matching.parts(number)
        pilots = {name: part.count for name, part in parts.items()}
        broker.remember(state, now, row.bag, choice, tasks, pilots)
        for name, part in parts.items():
            yield _share(row, state.sites[name].record.spec, part)


def _first_served(state: State, now: float, short: list[DemandRow]) -> list[DemandRow]:
    """In the order in which rows choose: first those that a site's owners prefer, then those of
    owners who have the fewest jobs, then those of owners who were served longest ago."""
    names = [name for name, site in state.sites.items() if site.record.spec.preference]
    worths = [site_preference.worth(state, now, name) for name in names]
    if not worths and len({row.bag.spec.owner for row in short}) == 1:
        return short
    held = owner_turns.held(state, now)

    def key(row: DemandRow) -> tuple[float, int, float]:
        owner = row.bag.spec.owner
        worth = max((by_bag.get(row.bag.id, 0.0) for by_bag in worths), default=0.0)
        return -worth, held[owner], state.plan.asked_for.get(owner, 0.0)

    return sorted(short, key=key)


class _Able(NamedTuple):
    """A site that can have pilots for a row: places in one of them, and pilots at most."""

    holds: int
    most: int
    whole: bool


def _able(row: DemandRow, rooms: Rooms, allowed: Allowed, every: bool) -> dict[str, _Able]:
    """The sites that can have pilots for the row. `every`: also sites at which pilots wait for
    long."""
    state, owner, found = rooms.state, row.bag.spec.owner, dict[str, _Able]()
    for name, room in rooms.free.items():
        if not every and name in rooms.late:
            continue
        site = state.sites[name]
        if allowed_sites.obstacle(state, rooms.now, site, row, allowed, rooms.idle) is not None:
            continue
        spec, most = site.record.spec, min(room, rooms.limited.get((name, owner), room))
        if site_fit.is_probe(site, row, rooms.now):
            theirs = any(state.jobs[id_].record.wanted_by == owner for id_ in site.jobs)
            most = min(most, 0 if theirs else 1)
        if most:
            holds = spec.slots // allowed_sites.fits(row, spec)
            found[name] = _Able(holds, most, spec.facts.whole_nodes)
    return found


def _full(
    row: DemandRow, rooms: Rooms, allowed: Allowed, every: bool, able: Collection[str]
) -> list[str]:
    """The sites that could have pilots for the row if they were not full. A site that has failed is
    not among them: nobody knows when it works again."""
    state, now = rooms.state, rooms.now
    return [
        name
        for name, site in state.sites.items()
        if name not in able
        and (every or name not in rooms.late)
        and site_table.is_well(site, now)
        and allowed_sites.obstacle(state, now, site, row, allowed, rooms.idle) is None
        and not site_fit.is_probe(site, row, now)
    ]


def _work(row: DemandRow, tasks: float, now: float) -> Work:
    spec, left = row.bag.spec, None
    if spec.finish_seconds:
        left = row.bag.created + spec.finish_seconds - now
    return Work(
        bag=row.bag.id,
        owner=spec.owner,
        tasks=tasks,
        places=tasks / max(1.0, row.in_time),
        seconds=row.seconds,
        taken=row.need.cores,
        seconds_left=left,
    )


def _ask(
    row: DemandRow, work: Work, able: dict[str, _Able], choice: SiteChoice, rooms: Rooms
) -> PilotAsk:
    """The pilots that may find out about a site are those of the first ask that could start them:
    so they are never more than the broker allows."""
    options: dict[str, SiteOption] = {}
    for name, (holds, most, whole) in able.items():
        worth = choice.worths[name]
        if worth.most is not None and worth.weight > 0:
            left = rooms.probes.setdefault(name, worth.most)
            most = min(most, left)
            rooms.probes[name] = left - most
        if most and worth.weight > 0:
            options[name] = SiteOption(holds, worth.weight, worth.tier, most, whole)
    dice = rooms.state.random if choice.drawn else None
    return PilotAsk(row.bag.spec.owner, work.places, options, dice)


def _share(row: DemandRow, spec: SiteSpec, part: PilotCount) -> PilotShare:
    """A single pilot has only as many slots as there is work for; of several pilots each has all
    slots of the site's pilots."""
    taken, slots = allowed_sites.fits(row, spec), spec.slots
    if part.count == 1 and not spec.facts.whole_nodes:
        wanted = max(1, math.ceil(part.places - 1e-9)) * taken
        fewer = min(slots, wanted)
        if weight(row.need, PilotSize(spec, row.need, fewer)):
            slots = fewer
    return PilotShare(row, spec.name, part.count, slots)
