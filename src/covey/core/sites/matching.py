"""Which site gets how many pilots for whom: the asks of one decision against the rooms of sites.

An *ask* is the lack of pilots of one row of demand: so many places (tasks that run at once), and
the sites that could have pilots for them, each with a weight. Asks come in the order in which they
have the first choice. Three things hold:

- Each ask is split over its sites in proportion to their weights, as far as these have room; what a
  site has no room for goes to the others. A site of a later tier gets only what no site of the
  tiers before it has room for.
- An ask gets as many pilots as it can have beside the asks before it. If its sites are full, asks
  before it move to other sites of theirs. They lose nothing but their split. That is a maximum flow
  with augmenting paths, one ask after the other; so the sum over all asks is the largest possible
  as well. Where pilots of different sites hold different numbers of places, a move takes as many
  pilots as hold the same, and the sum may be a little less than the largest.
- The work is bounded by `MOST_LOOKS`. Beyond that, asks are still split, but none moves.
"""

import math
from itertools import pairwise
from random import Random
from typing import NamedTuple

from msgspec import Struct, field

MOST_LOOKS = 50_000  # at pairs of an ask and a site, for moves
_LEAST = 1e-9  # places that are not worth a pilot
_UNLIMITED = 1 << 60


class SiteOption(NamedTuple):
    """A site that can have pilots for an ask."""

    holds: int  # places of one pilot there
    weight: float
    tier: int = 0
    most: int = _UNLIMITED  # pilots for this ask
    whole: bool = False  # a pilot there cannot be made smaller


class PilotAsk(Struct, eq=False):
    """Pilots that are missing. With `dice`, a site is drawn for each pilot, by weight."""

    owner: str
    places: float
    options: dict[str, SiteOption]  # by site
    dice: Random | None = None


class PilotCount(Struct, eq=False):
    """What a site gets of an ask."""

    count: int = 0  # pilots
    places: float = 0.0  # that they are to hold, all together


class _Placed(Struct, eq=False):
    """An ask, where it was put, and its sites in the order of their worth."""

    number: int
    ask: PilotAsk
    parts: dict[str, PilotCount] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    def lack(self) -> float:
        return self.ask.places - sum(part.places for part in self.parts.values())


class Matching:
    """`free`: pilots for which each site has room. `limited`: the same for one owner, of pairs of a
    site and an owner for whom the site has a limit of its own."""

    def __init__(self, free: dict[str, int], limited: dict[tuple[str, str], int]) -> None:
        self.free = {name: room for name, room in free.items() if room > 0}
        self._limited = dict(limited)
        self._placed: list[_Placed] = []
        self._users: dict[str, dict[int, None]] = {name: {} for name in self.free}
        self._hopeless: set[tuple[str, str]] = set()  # sites of which no room can be had by moves
        self._looks = 0

    @property
    def full(self) -> bool:
        """No site has any room: whatever else is added gets nothing."""
        return not self.free

    def add(self, ask: PilotAsk) -> None:
        number = len(self._placed)
        placed = _Placed(number, ask)
        self._placed.append(placed)
        if ask.dice is not None:
            self._draw(placed, ask.dice)
        else:
            self._split(placed)
        while self.free and (lack := placed.lack()) > _LEAST and self._looks < MOST_LOOKS:
            if not self._make_room(number, lack):
                break

    def parts(self, number: int) -> dict[str, PilotCount]:
        """Of the ask that was added as number … (from 0)."""
        return {name: part for name, part in self._placed[number].parts.items() if part.count}

    # -- split ----------------------------------------------------------------------------------

    def _room(self, placed: _Placed, name: str) -> int:
        """Pilots that the site can still have for this ask."""
        ask = placed.ask
        part = placed.parts.get(name)
        most = ask.options[name].most - (part.count if part is not None else 0)
        return min(self.free.get(name, 0), self._limit(name, ask.owner), most)

    def _limit(self, name: str, owner: str) -> int:
        return self._limited.get((name, owner), _UNLIMITED)

    def _tiers(self, placed: _Placed) -> list[dict[str, SiteOption]]:
        """Sites that have room and weight, by tier."""
        tiers: dict[int, dict[str, SiteOption]] = {}
        for name, option in placed.ask.options.items():
            if option.weight > 0.0 and option.holds > 0 and self._room(placed, name) > 0:
                tiers.setdefault(option.tier, {})[name] = option
        return [tiers[tier] for tier in sorted(tiers)]

    def _split(self, placed: _Placed) -> None:
        left = placed.ask.places
        for options in self._tiers(placed):
            left = self._fill(placed, options, left)
            rest = sorted(options, key=lambda name: (-options[name].weight, name))
            whole = math.fsum(option.weight for option in options.values())
            for name in rest:
                if left <= _LEAST:
                    return
                option = options[name]
                wanted = min(left, left * option.weight / whole)
                whole -= option.weight
                count = max(1, math.ceil(wanted / option.holds - _LEAST))
                count = min(count, self._room(placed, name))
                held = count * option.holds
                if count == 1 and not option.whole:  # a smaller pilot will do
                    held = min(held, max(1, math.ceil(wanted - _LEAST)))
                self._put(placed, name, count, min(left, held))
                left = max(0.0, left - held)

    def _fill(self, placed: _Placed, options: dict[str, SiteOption], left: float) -> float:
        """Take out of `options` the sites whose share is more than they have room for, full."""
        while options:
            whole = math.fsum(option.weight for option in options.values())
            rooms = {name: self._room(placed, name) for name in options}
            full = [
                name
                for name, option in options.items()
                if left * option.weight / whole >= rooms[name] * option.holds - _LEAST
            ]
            if not full:
                return left
            for name in full:
                holds = options.pop(name).holds
                count = min(rooms[name], math.ceil(left / holds - _LEAST))
                if count > 0:
                    self._put(placed, name, count, min(left, count * holds))
                    left = max(0.0, left - count * holds)
        return left

    def _draw(self, placed: _Placed, dice: Random) -> None:
        """One draw for each pilot for which there is room. A site that has no room left is drawn no
        more."""
        left = placed.ask.places
        for options in self._tiers(placed):
            while options and left > _LEAST:
                names = list(options)
                weights = [option.weight for option in options.values()]
                most = max(option.holds for option in options.values())
                room = sum(self._room(placed, name) for name in names)
                wanted = max(1, min(room, math.ceil(left / most)))
                drawn: dict[str, int] = {}
                for name in dice.choices(names, weights, k=wanted):
                    drawn[name] = drawn.get(name, 0) + 1
                for name, times in drawn.items():
                    room, holds = self._room(placed, name), options[name].holds
                    count = min(times, room, math.ceil(left / holds - _LEAST))
                    if count > 0:
                        self._put(placed, name, count, min(left, count * holds))
                        left = max(0.0, left - count * holds)
                    if count >= room:
                        del options[name]

    # -- moves ----------------------------------------------------------------------------------

    def _make_room(self, number: int, lack: float) -> bool:
        """Find the shortest chain of moves at whose end is a site with room, and do them."""
        came: dict[int, tuple[int, str]] = {}  # ask -> who takes its place, at which site
        seen: dict[tuple[str, str], None] = {}
        queue = [number]
        for asking in queue:
            if self._looks >= MOST_LOOKS:
                return False
            placed = self._placed[asking]
            owner, options = placed.ask.owner, placed.ask.options
            for name in self._ordered(placed):
                self._looks += 1
                limit = self._limit(name, owner)
                key = (name, owner if limit < _UNLIMITED else "")
                part = placed.parts.get(name)
                if key in seen or key in self._hopeless:
                    continue
                if part is not None and part.count >= options[name].most:
                    continue
                if limit > 0 and self.free.get(name, 0) > 0:
                    return self._move(number, asking, name, came, lack)
                seen[key] = None
                for other in self._users.get(name, ()):
                    theirs = self._placed[other]
                    if other == number or other in came:
                        continue
                    if theirs.parts[name].count and (limit > 0 or theirs.ask.owner == owner):
                        came[other] = (asking, name)
                        queue.append(other)
        self._hopeless.update(seen)
        return False

    def _ordered(self, placed: _Placed) -> list[str]:
        if not placed.order:
            options = placed.ask.options
            able = [name for name, option in options.items() if option.weight > 0 < option.holds]
            placed.order = sorted(
                able, key=lambda name: (options[name].tier, -options[name].weight, name)
            )
        return placed.order

    def _move(
        self, number: int, last: int, name: str, came: dict[int, tuple[int, str]], lack: float
    ) -> bool:
        """The ask `last` takes room at the site `name`, and so makes place for the one before it,
        up to the ask that lacks pilots. False: they hold too differently."""
        chain = [(last, name)]  # who enters which site, from the last to the first
        while chain[-1][0] != number:
            chain.append(came[chain[-1][0]])
        chain.reverse()
        factors, most = [1], math.ceil(lack / self._holds(*chain[0]) - _LEAST)
        for (_, left_site), (mover, entered) in pairwise(chain):
            here, there = self._holds(mover, left_site), self._holds(mover, entered)
            there_are = self._placed[mover].parts[left_site].count
            most = min(most, there_are // factors[-1])
            factors.append(factors[-1] * -(-here // there))
        for place, (factor, (mover, entered)) in enumerate(zip(factors, chain, strict=True)):
            most = min(most, self._enters(mover, entered, chain[place + 1 :]) // factor)
        most = min(most, self.free[name] // factors[-1])
        if most <= 0:
            return False
        moved = min(lack, most * self._holds(*chain[0]))
        for place, (mover, entered) in enumerate(chain):
            count = most * factors[place]
            if place + 1 < len(chain):
                other = chain[place + 1][0]
                gone = self._take(self._placed[other], entered, count)
            self._put(self._placed[mover], entered, count, moved)
            moved = gone
        return True

    def _enters(self, mover: int, name: str, others: list[tuple[int, str]]) -> int:
        """How many pilots the ask may bring to the site, if as many of the next ask leave it."""
        placed = self._placed[mover]
        part = placed.parts.get(name)
        most = placed.ask.options[name].most - (part.count if part is not None else 0)
        if others and self._placed[others[0][0]].ask.owner == placed.ask.owner:
            return most
        return min(most, self._limit(name, placed.ask.owner))

    def _holds(self, number: int, name: str) -> int:
        return self._placed[number].ask.options[name].holds

    # -- counts ---------------------------------------------------------------------------------

    def _put(self, placed: _Placed, name: str, count: int, places: float) -> None:
        part = placed.parts.setdefault(name, PilotCount())
        part.count += count
        part.places += places
        self._use(placed.ask.owner, name, count)
        self._users[name][placed.number] = None

    def _take(self, placed: _Placed, name: str, count: int) -> float:
        """So many pilots leave the site, with the places that they hold."""
        part = placed.parts[name]
        places = part.places * count / part.count
        part.count -= count
        part.places -= places
        self._use(placed.ask.owner, name, -count)
        return places

    def _use(self, owner: str, name: str, count: int) -> None:
        self.free[name] = self.free.get(name, 0) - count
        if not self.free[name]:
            del self.free[name]
        if (name, owner) in self._limited:
            self._limited[name, owner] -= count
