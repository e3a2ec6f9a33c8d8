"""What hosts of a site have shown, and which tasks therefore get no more pilots there.

A site may not say what its hosts have (no `memory`), and a policy may ask for more than any of them
has. Then pilots would start, be idle and leave, again and again. So two things are remembered for
`REMEMBER_SECONDS`:

- How much memory and disk the hosts of the site had. Tasks that need more than any of them, of at
  least `ENOUGH` pilots, get no pilot there. This is known for all bags.
- Which pilots were idle there although tasks of a class waited, because the host does not meet the
  bag's requirements. After `ENOUGH` such pilots, and no other, the class gets no pilot there.

When that time is over, one pilot finds out whether it is still so. Requirements that change by
themselves (with the queue, the user, the time) are not remembered.
"""

from covey.core.match import match_cache, policy_budget
from covey.core.match.attributes import STATISTICS
from covey.core.match.pilot_fit import weight
from covey.core.match.site_access import admits
from covey.core.record.model import Need, PilotRecord
from covey.core.sites.demand import DemandRow
from covey.core.state import Bag, Pilot, Site, State
from covey.core.state.policy_cache import Unfit
from covey.core.state.sites import HostShown

REMEMBER_SECONDS = 1800.0
ENOUGH = 3  # pilots that show the same
MOST_HOSTS = 200  # of a site that are remembered
MOST_LOOKED_AT = 200  # pilots and classes in one go
_STATISTICS = frozenset(one.name.lower() for one in STATISTICS)


def shown(site: Site, record: PilotRecord, now: float) -> None:
    """Note what the host of a pilot has that has just enrolled."""
    before = site.shown.pop(record.host, None)
    pilots = before.pilots + 1 if before is not None and _is_fresh(before, now) else 1
    site.shown[record.host] = HostShown(now, record.memory_mb, record.disk_mb, pilots)
    while len(site.shown) > MOST_HOSTS:
        del site.shown[next(iter(site.shown))]


def notice(state: State, now: float, rows: list[DemandRow]) -> None:
    """Find classes that idle pilots could not run, and will never be able to."""
    offered = [row for row in rows if row.offered and not row.rescue]
    left = MOST_LOOKED_AT
    for id_ in state.queue.hungry if offered else ():
        pilot = state.pilots[id_]
        for row in offered if not pilot.attempts and pilot.record.site in state.sites else ():
            if left <= 0:
                return
            left -= _judge(state, now, pilot, row)


def _judge(state: State, now: float, pilot: Pilot, row: DemandRow) -> int:
    """Returns how much work that was."""
    bag, record = row.bag, pilot.record
    if not admits(state, record, bag) or not _lasts(bag):
        return 0
    unfit = bag.cache.unfit.get((row.kind, record.site))
    if unfit is not None and record.id in unfit.pilots and unfit.policy is bag.policy:
        return 0
    if not weight(row.need, record):
        return 0  # by its size: see `shown`
    face = match_cache.face_of(state, now, pilot, bag.spec.owner)
    matches = match_cache.matches(state, now, pilot, bag, face)
    if policy_budget.of(state, now, bag.spec.owner).in_turn <= 0 or row.kind >= len(matches):
        return 1  # perhaps it was not asked
    if matches[row.kind] is not None:
        bag.cache.unfit.pop((row.kind, record.site), None)
        return 1
    if unfit is None or unfit.policy is not bag.policy:
        unfit = bag.cache.unfit[row.kind, record.site] = Unfit(bag.policy)
    unfit.pilots[record.id] = None
    unfit.at = now
    while len(unfit.pilots) > 2 * ENOUGH:
        del unfit.pilots[next(iter(unfit.pilots))]
    return 1


def _lasts(bag: Bag) -> bool:
    """Whether the policy's answer about a host will still be true later."""
    policy = bag.policy
    if (
        policy.plain
        or policy.erratic
        or policy.timed
        or policy.at_dispatch.keys()
        & {
            "user",
            "queue",
            "bag",
        }
    ):
        return False
    return not policy.at_dispatch.get("host", set()) & (_STATISTICS | {"*"})


def obstacle(site: Site, row: DemandRow, now: float) -> str:
    """Why hosts of the site cannot run the row's tasks, as far as is remembered. Empty: they
    may."""
    small = _too_small(site, row.need, now)
    if small:
        return small
    unfit = row.bag.cache.unfit.get((row.kind, site.record.spec.name))
    if unfit is None or unfit.policy is not row.bag.policy or len(unfit.pilots) < ENOUGH:
        return ""
    if now - unfit.at >= REMEMBER_SECONDS:
        return ""
    return f"its requirements were met on no host of this site{_most(site, now)}"


def is_probe(site: Site, row: DemandRow, now: float) -> bool:
    """Whether the memory is too old: then one pilot finds out whether it is still true."""
    unfit = row.bag.cache.unfit.get((row.kind, site.record.spec.name))
    old = unfit is not None and len(unfit.pilots) >= ENOUGH and not obstacle(site, row, now)
    stale = [host for host in site.shown.values() if not _is_fresh(host, now)]
    too_small = bool(stale) and not any(_is_fresh(host, now) for host in site.shown.values())
    return old or (too_small and bool(_lacking(site, row.need, list(site.shown.values()))))


def _is_fresh(one: HostShown, now: float) -> bool:
    return now - one.at < REMEMBER_SECONDS


def _too_small(site: Site, need: Need, now: float) -> str:
    hosts = [host for host in site.shown.values() if _is_fresh(host, now)]
    if sum(host.pilots for host in hosts) < ENOUGH:
        return ""
    return _lacking(site, need, hosts)


def _lacking(site: Site, need: Need, hosts: list[HostShown]) -> str:
    """What all hosts have too little of, if the site itself does not say how much it has. A host
    that does not say is taken to have enough."""
    spec = site.record.spec
    for wanted, said, there, what in (
        (need.memory_mb, spec.memory_mb, [host.memory_mb for host in hosts], "memory"),
        (need.disk_mb, spec.disk_mb, [host.disk_mb for host in hosts], "disk"),
    ):
        if wanted and not said and all(there) and wanted > max(there):
            words = f"a task needs {wanted:,} MB of {what}"
            return f"{words}; hosts of this site had at most {max(there):,} MB"
    return ""


def _most(site: Site, now: float) -> str:
    hosts = [host for host in site.shown.values() if _is_fresh(host, now)]
    if not hosts:
        return ""
    memory, disk = max(host.memory_mb for host in hosts), max(host.disk_mb for host in hosts)
    return f"; hosts of this site had at most {memory:,} MB of memory and {disk:,} MB of disk"
