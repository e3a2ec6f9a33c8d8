"""On which host a task is tried again after a failure: on another one first, if there is one.

The rules:
- A host on which a task has failed gets that task again only when no other host could run it, or
  `WAIT_SECONDS` after its last failure (twice the mean time of its class, if that is longer), if no
  other host has taken it. Meanwhile the host gets other tasks of the bag.
- The last try of a task that has failed before is kept from every host on which `FAILING` tasks of
  the bag have failed in a row, while a host that does better could run it. That lasts `LAST_TRY`
  times as long as `WAIT_SECONDS`.
- "Could run it" means: it is there, it is large enough, the policy allows it, it is not banned and
  does not rest, and the task has not failed there. It may be busy.
- A policy that looks at `Job.FailedHosts` is asked about each task that has failed, by itself.
- A time limit, or a loss with the pilot, says nothing about the host (`blame`).

All of this is forgotten when the task is done, when its owner asks for it again, and when the
server restarts.
"""

from collections.abc import Iterable
from itertools import islice

from pyroaring import BitMap

from covey.core.match import blame, match_cache
from covey.core.match.pilot_fit import weight_on
from covey.core.match.site_access import admits
from covey.core.record.model import PilotStatus
from covey.core.state import Bag, Pilot, State
from covey.core.turn import Turn

WAIT_SECONDS = 60.0
LAST_TRY = 10.0
FAILING = 2  # failures in a row of a host that gets no last tries
MOST_LOOKED_AT = 16  # tasks, one by one, in search of one that the host may have
CHECK_SECONDS = 1.0  # for which it holds that another host could run a task
_SAYS_NOTHING = BitMap()


def note(turn: Turn, bag: Bag, task: int, host: str, outcome: str) -> None:
    """Remember that the task has failed there; it may be tried again."""
    if outcome not in blame.BLAMED:
        return
    last_try = bag.failures.tries.get(task, 0) >= bag.spec.retries > 0
    bag.failures.note_host(task, host, turn.now, last_try=last_try)


def lowest(turn: Turn, bag: Bag, pilot: Pilot, tasks: BitMap) -> int | None:
    """The lowest of these tasks of one class that this pilot may have. Tasks that failed there, and
    last tries on a failing host, come after all others."""
    kept = _kept(bag, pilot)
    if not kept:
        return tasks.min() if tasks else None
    others = tasks - kept
    if others:
        return others.min()
    return next(
        (task for task in islice(tasks, MOST_LOOKED_AT) if not avoids(turn, bag, task, pilot)), None
    )


def _kept(bag: Bag, pilot: Pilot) -> BitMap:
    """Tasks that are looked at one by one before this pilot gets them."""
    host = pilot.record.host
    kept = bag.failures.avoided.get(host, _SAYS_NOTHING)
    if bag.failures.last_tries and _is_failing(bag, host):
        kept = kept | bag.failures.last_tries
    if bag.failures.failed_on and _asks_each(bag):
        kept = kept | BitMap(bag.failures.failed_on)
    return kept


def avoids(turn: Turn, bag: Bag, task: int, pilot: Pilot) -> bool:
    """Whether the task does not go to this pilot now, because of where it has failed."""
    failed = bag.failures.failed_on.get(task)
    if failed is None:
        return False
    if turn.now < until(turn.state, turn.now, bag, task, pilot.record.host):
        return True
    if not _asks_each(bag):
        return False
    face = match_cache.face_of(turn.state, turn.now, pilot, bag.spec.owner)
    return match_cache.match_task(turn.state, turn.now, pilot, bag, face, task) is None


def until(state: State, now: float, bag: Bag, task: int, host: str) -> float:
    """Until when the task waits for another host than this one; 0.0: it does not."""
    failed = bag.failures.failed_on.get(task)
    if failed is None:
        return 0.0
    kind = bag.class_of(task)
    seconds = max(WAIT_SECONDS, 2.0 * bag.classes[kind].times.mean)
    if task in bag.failures.last_tries and _is_failing(bag, host):
        end = failed.at + LAST_TRY * seconds
        if now < end and _could(state, now, bag, kind, (*failed.hosts, host), better=True):
            return end
    end = failed.at + seconds
    if host in failed.hosts and now < end and _could(state, now, bag, kind, failed.hosts):
        return end
    return 0.0


def waits_until(state: State, now: float, bag: Bag, task: int) -> tuple[tuple[str, ...], float]:
    """The hosts where the task failed, if it waits for another host, and until when it waits."""
    failed = bag.failures.failed_on.get(task)
    if failed is None:
        return (), 0.0
    ends = {host: until(state, now, bag, task, host) for host in failed.hosts}
    hosts = tuple(host for host, end in ends.items() if end > now)
    return hosts, min((ends[host] for host in hosts), default=0.0)


def _asks_each(bag: Bag) -> bool:
    return "failedhosts" in bag.policy.at_dispatch.get("job", ())


def _is_failing(bag: Bag, host: str) -> bool:
    tally = bag.hosts.tallies.get(host)
    return tally is not None and tally.failures >= FAILING


def _could(
    state: State, now: float, bag: Bag, kind: int, hosts: tuple[str, ...], *, better: bool = False
) -> bool:
    """Whether another host than these could run a task of this class. With `better`: another host
    that is not failing itself."""
    if now - bag.failures.elsewhere_at >= CHECK_SECONDS:
        bag.failures.elsewhere_at = now
        bag.failures.elsewhere.clear()
    key = (kind, hosts, better)
    known = bag.failures.elsewhere.get(key)
    if known is None:
        others = (one for one in state.pilots.values() if one.record.host not in hosts)
        known = bag.failures.elsewhere[key] = _any_could(state, now, bag, kind, others, better)
    return known


def _any_could(
    state: State, now: float, bag: Bag, kind: int, others: Iterable[Pilot], better: bool
) -> bool:
    return any(
        other.status is PilotStatus.ACTIVE
        and admits(state, other.record, bag)
        and not blame.withheld(state, other, bag)
        and weight_on(bag, kind, other, now) > 0
        and not (better and _is_failing(bag, other.record.host))
        and _lets(state, now, bag, kind, other)
        for other in others
    )


def _lets(state: State, now: float, bag: Bag, kind: int, pilot: Pilot) -> bool:
    if bag.policy.plain:
        return True
    face = match_cache.face_of(state, now, pilot, bag.spec.owner)
    found = match_cache.matches(state, now, pilot, bag, face)
    return kind < len(found) and found[kind] is not None
