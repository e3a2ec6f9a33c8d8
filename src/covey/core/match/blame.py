"""Whose fault are failures of tasks: the host's, or the bag's?

The rules, for each bag:
- A run of `SUSPICIOUS` failures on a pilot, or on a host whatever pilots it has, makes it rest
  from the bag: for a moment, then longer each time. Then it is tried with one task; a success makes
  it as good as new.
- A host is *banned* for all bags of the owner once a run of failures there is too unlikely for a
  host like the others: the rate at which the bag's tasks fail elsewhere, to the power of the run's
  length, is below `UNLIKELY`. No host is banned unless a task of the bag has succeeded elsewhere.
- A ban is T(1 - exp(-d/C)) long, at least 0.1 T, d seconds after the run's first failure. Then one
  task of the owner's is tried; a success ends it, a failure bans the host again, for longer.
- No pilot rests and no host is banned if no other pilot can do the bag's tasks. Then the bag may be
  broken: its failures go on, and show it.
- Failures count against the bag, too: many of them in a row pause it (`ends`). But if at least as
  many hosts work on the bag without failures as with failures, only the first `SUSPICIOUS` failures
  in a row on each host count.
- A task that took too long, or was lost with its pilot, says nothing about the host.

A host on which everything fails at once would otherwise take task after task, faster than all
others together, until no task has a retry left.
"""

import math
from collections.abc import Callable
from itertools import islice

from covey.core.match import match_cache
from covey.core.match.pilot_fit import weight
from covey.core.match.site_access import admits
from covey.core.record.actions import Note
from covey.core.record.histories import Ban
from covey.core.record.model import PilotStatus
from covey.core.state import Bag, Pilot, State
from covey.core.state.hosts import Rest, Tally
from covey.core.turn import Turn
from covey.pilot.protocol.messages import FAILED, HOST, MEMORY, OK, OUTPUT, SETUP

SUSPICIOUS = 3
UNLIKELY = 1e-4
FIRST_REST = 2.0
MOST_DOUBLINGS = 60  # of the first rest; the result of many more is too large for arithmetic
MOVING = 0.2  # weight of the latest end in a host's rate
HEAVIEST = 10  # ends that a host's rate counts for, at most
PRIOR_RATE = 0.05
MOST_LOOKED_AT = 200  # running tasks, in search of a host that has not failed
BLAMED = (FAILED, MEMORY, OUTPUT, SETUP, HOST)


def note(turn: Turn, pilot: Pilot, bag: Bag, outcome: str) -> None:
    """An attempt of the bag has ended there with this outcome."""
    if outcome != OK and outcome not in BLAMED:
        return
    hosts = bag.hosts
    tally = hosts.tallies.get(pilot.record.host)
    if tally is None:
        tally = hosts.tallies[pilot.record.host] = Tally()
    if outcome != OK or tally.rate or tally.weight < HEAVIEST:
        change = (outcome != OK) - tally.rate
        rate = tally.rate + change * (MOVING if tally.weight else 1.0)
        hosts.set_rate(tally, rate, min(tally.weight + 1, HEAVIEST))
    if outcome == OK:
        tally.done += 1
        hosts.well += 1
        if tally.failures:
            tally.failures, tally.times, tally.until = 0, 0, 0.0
        if pilot.rests:
            pilot.rests.pop(bag.id, None)
        if turn.state.hosts[pilot.record.host].history.bans:
            _absolve(turn, pilot, bag)
        return
    if not tally.failures:
        tally.since = turn.now
    rest = pilot.rests.setdefault(bag.id, Rest())
    own, all_ = _rests(turn, rest), _rests(turn, tally)
    if own or all_:
        several = all_ and len(turn.state.hosts[pilot.record.host].pilots) > 1
        rested = tally if all_ else rest
        words = f"{rested.failures} failures in a row there; it is tried again in"
        words += f" {rested.until - turn.now:.0f} s"
        what = "host rests" if several else "pilot rests"
        turn.note(Note(what, bag=bag.id, pilot=pilot.record.id, detail=words))
    unlikely = rate_elsewhere(bag, tally) ** tally.failures < UNLIKELY
    if tally.failures >= SUSPICIOUS and unlikely and hosts.well > tally.done:
        _ban(turn, pilot, bag, tally)


def rate_elsewhere(bag: Bag, tally: Tally) -> float:
    """The part of the bag's recent tasks on other hosts that failed."""
    failed = bag.hosts.failed_weight - tally.weight * tally.rate
    return (max(0.0, failed) + PRIOR_RATE) / (bag.hosts.ended_weight - tally.weight + 1.0)


def _rests(turn: Turn, rest: Rest) -> bool:
    """Count one more failure; returns whether a rest begins with it."""
    rest.failures += 1
    if rest.failures < SUSPICIOUS or turn.now < rest.until:
        return False
    longest = 0.1 * turn.state.settings.ban_seconds
    rest.until = turn.now + min(FIRST_REST * 2.0 ** min(rest.times, MOST_DOUBLINGS), longest)
    rest.times += 1
    return True


def _ban(turn: Turn, pilot: Pilot, bag: Bag, tally: Tally) -> None:
    settings, record, owner = turn.state.settings, pilot.record, bag.spec.owner
    host = turn.state.hosts[record.host]
    known = host.history.bans.get(owner)
    if known is not None and turn.now < known.until:
        return  # the failed task was sent before the host was banned
    since = min(tally.since, known.since) if known is not None else tally.since
    longest = settings.ban_seconds
    seconds = longest * (1.0 - math.exp((since - turn.now) / settings.ban_growth))
    seconds = max(seconds, 0.1 * longest)
    times = known.times + 1 if known is not None else 1
    host.history.bans[owner] = Ban(since, turn.now + seconds, times)
    turn.state.histories.unsaved[host.name] = None
    words = (
        f"{record.host}: {tally.failures} failures in a row, while others do well; {seconds:.0f} s"
    )
    turn.note(Note("host banned", bag=bag.id, pilot=record.id, detail=words))


def _absolve(turn: Turn, pilot: Pilot, bag: Bag) -> None:
    host = turn.state.hosts[pilot.record.host]
    if host.history.bans.pop(bag.spec.owner, None) is not None:
        turn.state.histories.unsaved[host.name] = None
        turn.note(Note("ban ended", bag=bag.id, pilot=pilot.record.id, detail=host.name))


def counts(state: State, pilot: Pilot, bag: Bag) -> bool:
    """Whether a failure there counts against the bag."""
    there = bag.hosts.tallies.get(pilot.record.host)
    if there is None or there.failures <= SUSPICIOUS:
        return True
    tallies = islice(bag.hosts.tallies.values(), MOST_LOOKED_AT)
    failing = sum(tally.failures > 0 for tally in tallies)
    sound: set[str] = set()
    for attempts in islice(bag.places.live.values(), MOST_LOOKED_AT):
        host = state.pilots[attempts[0].pilot].record.host
        tally = bag.hosts.tallies.get(host)
        if tally is None or not tally.failures:
            sound.add(host)
            if len(sound) >= failing:
                return False
    return True


def share(turn: Turn, pilot: Pilot, bag: Bag, enough: int) -> int:
    """Up to which load the pilot may take tasks of this bag: at most `enough`."""
    state, now = turn.state, turn.now
    held = withheld(state, pilot, bag)
    if not held or not somebody_can(state, bag, lambda other: _lets(state, now, other, bag)):
        return enough
    if turn.now < held or is_tried(turn.state, pilot, bag):
        return 0
    return min(enough, pilot.load + 1)


def withheld(state: State, pilot: Pilot, bag: Bag) -> float:
    """Until when the pilot gets no task of the bag; after that it gets one. 0: it may have all."""
    until = 0.0
    bans = state.hosts[pilot.record.host].history.bans
    if bans and bag.spec.owner in bans:
        until = bans[bag.spec.owner].until
    if pilot.rests and bag.id in pilot.rests:
        until = max(until, pilot.rests[bag.id].until)
    tally = bag.hosts.tallies.get(pilot.record.host)
    return until if tally is None else max(until, tally.until)


def is_tried(state: State, pilot: Pilot, bag: Bag) -> bool:
    """Whether a task that tries the pilot out is there already: a task of the bag or, if the host
    is banned, any task of the owner."""
    host = state.hosts[pilot.record.host]
    banned = bag.spec.owner in host.history.bans
    tally = bag.hosts.tallies.get(host.name)
    rests = tally is not None and tally.until > 0.0
    for id_ in host.pilots if banned or rests else (pilot.record.id,):
        for attempt in state.pilots[id_].attempts.values():
            other = state.bags.get(attempt.bag) if banned else None
            if attempt.bag == bag.id or (other and other.spec.owner == bag.spec.owner):
                return True
    return False


def somebody_can(state: State, bag: Bag, lets: Callable[[Pilot], bool]) -> bool:
    """Whether a pilot of which nothing bad is known can do the bag's tasks. Only then does the bag
    keep away from others. `lets`: whether the policy lets any class of the bag run there."""
    return any(
        pilot.status is PilotStatus.ACTIVE
        and admits(state, pilot.record, bag)
        and not withheld(state, pilot, bag)
        and any(weight(class_.need, pilot.record) for class_ in bag.classes)
        and lets(pilot)
        for pilot in state.pilots.values()
    )


def _lets(state: State, now: float, pilot: Pilot, bag: Bag) -> bool:
    if bag.policy.plain:
        return True
    face = match_cache.face_of(state, now, pilot, bag.spec.owner)
    return any(match is not None for match in match_cache.matches(state, now, pilot, bag, face))
