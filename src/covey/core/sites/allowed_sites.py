"""Which sites may have pilots for which bags.

A site is out if it does not take such tasks (`site_access`), or if the bag's policy says so:
`GridPolicy`, or requirements that are false whatever host it would be. A requirement that depends
on the host is not known before there is a pilot; then it counts as true. `obstacle` is the whole
answer: for starting pilots, and for explaining why none are started.
"""

import math
from collections import Counter
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import TypeAlias

from msgspec.structs import replace

from covey.classad import ERROR, Ad
from covey.core.match import match_cache, policy_budget
from covey.core.match.pilot_fit import weight
from covey.core.match.policies import GRID
from covey.core.match.site_access import bar_for_tasks
from covey.core.record.model import Need, SiteSpec, SiteStatus
from covey.core.sites import site_fit
from covey.core.sites.demand import DemandRow
from covey.core.state import Bag, Budget, Site, State
from covey.core.state.match_records import Suits
from covey.pilot.protocol.messages import life_of

START_SECONDS = 30.0  # that a pilot needs before its first task, at most
ENOUGH_IDLE = 2  # idle pilots of a site that got no task of a bag: the next one gets none, either
MOST_LOOKED_AT = 1000
_NOTHING = Ad()
_REQUIREMENTS = ("jobrequirements",)

Allowed: TypeAlias = dict[tuple[int, bool], dict[str, bool]]


def allowed(state: State, now: float, rows: list[DemandRow]) -> Allowed:
    """Which sites may have pilots: by bag and whether its tasks failed everywhere else, by site."""
    match_cache.set_scene(state, now)
    answers: Allowed = {}
    everywhere = dict.fromkeys(state.sites, True)
    for row in rows:
        bag, key = row.bag, (row.bag.id, row.rescue)
        if key in answers:
            continue
        asked = not row.rescue and not bag.policy.anywhere
        answers[key] = wanted = suits(state, now, bag) if asked else everywhere
        if row.rescue or state.plan.guarded:
            answers[key] = {
                name: wanted[name]
                and bar_for_tasks(state, site.record.spec, bag, rescue=row.rescue) is None
                for name, site in state.sites.items()
            }
    return answers


class SiteObstacle(StrEnum):
    """Why no pilot is started at a site for tasks that wait, though the site has room."""

    USERS = "users"
    FAILOVER = "failover"
    POLICY = "policy"
    RESOURCES = "resources"
    TIME = "time"
    UNFIT = "unfit"  # hosts of the site have shown that they cannot run them (`site_fit`)
    SHUNNED = "shunned"  # pilots stand idle there, and got none of these tasks


def obstacle(
    state: State,
    now: float,
    site: Site,
    row: DemandRow,
    allowed: Allowed,
    idle: Counter[tuple[str, str]],
) -> SiteObstacle | None:
    """The first thing that is in the way of a pilot there for the row's tasks, or None."""
    spec = site.record.spec
    if not allowed[row.bag.id, row.rescue].get(spec.name):
        barred = bar_for_tasks(state, spec, row.bag, rescue=row.rescue)
        return SiteObstacle.POLICY if barred is None else SiteObstacle(barred)
    if not fits(row, spec):
        return SiteObstacle.TIME if _is_held(row.need, spec) else SiteObstacle.RESOURCES
    if site_fit.obstacle(site, row, now):
        return SiteObstacle.UNFIT
    return SiteObstacle.SHUNNED if is_shunned(state, row, spec.name, idle) else None


def shorten(state: State, now: float, rows: list[DemandRow]) -> None:
    """Limit the longer time that late tasks get to what a pilot can have at any site."""
    for row in rows:
        if row.grown:
            most = longest_life(state, now, row.bag, row.kind)
            if most and row.need.limit_seconds > most:
                row.need = replace(row.need, limit_seconds=most)


def longest_life(state: State, now: float, bag: Bag, kind: int) -> float:
    """Seconds that a pilot for such a task may have, at the site that gives most; 0: at none."""
    need, longest = replace(bag.classes[kind].need, limit_seconds=0.0), 0.0
    wanted = suits(state, now, bag) if not bag.policy.anywhere else {}
    for name, site in state.sites.items():
        spec = site.record.spec
        lets_in = bar_for_tasks(state, spec, bag, rescue=False) is None
        starts = not spec.facts.by_hand and site.record.status is SiteStatus.ON
        if lets_in and starts and wanted.get(name, True) and holds(need, spec):
            most = life_of(spec.wall_seconds) if spec.wall_seconds else math.inf
            longest = max(longest, most - min(START_SECONDS, most / 11.0))
    return longest


def fits(row: DemandRow, spec: SiteSpec) -> int:
    """How many slots of a pilot there a task takes; 0 if it cannot run there."""
    return weight(row.need, PilotSize(spec, row.need, spec.slots)) if _lasts(spec, row.life) else 0


def holds(need: Need, spec: SiteSpec) -> bool:
    """Whether a task of that need can run there."""
    return _lasts(spec, need.limit_seconds) and _is_held(need, spec)


def _is_held(need: Need, spec: SiteSpec) -> bool:
    return weight(need, PilotSize(spec, need, spec.slots)) > 0


def _lasts(spec: SiteSpec, life: float) -> bool:
    least = life + min(START_SECONDS, 0.1 * life)
    return not spec.wall_seconds or life_of(spec.wall_seconds) >= least


class PilotSize:
    """A pilot of a site, with some of the slots that it could have. Of this machine only the slots
    are known before a pilot is there."""

    def __init__(self, spec: SiteSpec, need: Need | None, slots: int) -> None:
        self.slots = slots
        self.memory_mb = -(-spec.memory_mb * slots // spec.slots)
        self.disk_mb = -(-spec.disk_mb * slots // spec.slots)
        self.gpus = -(-spec.gpus * slots // spec.slots)
        if spec.facts.here and not spec.gpus and need is not None:
            self.gpus = need.gpus


def suits(state: State, now: float, bag: Bag) -> dict[str, bool]:
    """The policy's answer for each site, which is kept until something changes that it looks at."""
    owner = bag.spec.owner
    left = policy_budget.of(state, now, owner)
    cache = bag.cache
    unseen = len(cache.jobs) != len(bag.classes) or match_cache.stale(state, now, bag)
    if left.in_turn > 0 and unseen:
        match_cache.refresh(state, now, bag)
    stamps = (cache.stamp, state.scene.stamp, len(cache.jobs), state.plan.defined)
    last = cache.suits
    if last is None or last.stamps != stamps or bag.policy.moody:
        before = {**last.before, **last.sites} if last is not None else {}
        last = cache.suits = Suits(stamps, before=before)
    answers = last.sites
    if len(answers) == len(state.sites):
        return answers
    user = match_cache.user_ad(state, now, owner)
    for site in state.sites:
        if site not in answers:
            if left.in_turn <= 0:
                policy_budget.put_off(state, owner, left)
                break
            try:
                wants = _wants(state, now, bag, site, user, left)
            except Exception as error:
                bag.suspect(match_cache.EVALUATING, error)
                wants = False
            if wants is not None:
                answers[site] = wants
    if len(answers) == len(state.sites):
        return answers
    return {site: answers.get(site, last.before.get(site, False)) for site in state.sites}


def _wants(state: State, now: float, bag: Bag, name: str, user: Ad, left: Budget) -> bool | None:
    """Whether the policy wants pilots at this site. None: it is asked in a later turn."""
    policy, queue, own = bag.policy, state.scene.queue, bag.policy.ad
    site, jobs = match_cache.site_ad(state, now, name), bag.cache.jobs
    asked = bag.cache.suits.asked if bag.cache.suits else {}
    if GRID in policy.texts:
        policy.grid.context.now, policy.grid.context.random = now, state.random.random
        around = (_NOTHING, _NOTHING, site, _NOTHING, user, queue, own, own)
        [value] = policy.grid.evaluate(*around)
        policy_budget.spend(left, policy_budget.cost(policy.static))
        if value is False or value is ERROR:
            return False
    place = policy.places[0]
    if place is None:
        return True
    evaluate = policy.dispatch.evaluate
    if policy.hosted:  # quick code would find that there is no host, and give up
        evaluate, place = partial(policy.dispatch.general, names=_REQUIREMENTS), 0
    different = len(jobs[:1] if policy.by_class else jobs)
    for number in range(asked.get(name, 0), different):
        if left.in_turn <= 0:
            policy_budget.put_off(state, bag.spec.owner, left)
            return None
        job = jobs[number]
        value = evaluate(_NOTHING, _NOTHING, site, job, user, queue, own, own)[place]
        policy_budget.spend(left, policy_budget.cost(policy.static))
        if value is not False:
            return True
        asked[name] = number + 1
    return False


def idle_at(state: State) -> Counter[tuple[str, str]]:
    """How many pilots wait for tasks, by site and owner."""
    records = (state.pilots[id_].record for id_ in state.queue.hungry)
    return Counter((record.site, record.owner) for record in records)


def idle_for(row: DemandRow, site: str, idle: Counter[tuple[str, str]]) -> int:
    """How many idle pilots at the site may have the row's tasks."""
    return sum(idle[site, owner] for owner in {"", row.bag.spec.owner})


def is_shunned(state: State, row: DemandRow, site: str, idle: Counter[tuple[str, str]]) -> bool:
    """Whether pilots at the site are idle although they were offered these tasks, and no pilot
    there runs a task of the bag. More pilots there would be idle, too."""
    if not row.offered or idle_for(row, site, idle) < ENOUGH_IDLE:
        return False
    for attempts in islice(row.bag.places.live.values(), MOST_LOOKED_AT):
        if any(state.pilots[attempt.pilot].record.site == site for attempt in attempts):
            return False
    return True
