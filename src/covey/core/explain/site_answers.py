"""Why a site gets no more pilots; and which sites could get some for a bag.

The questions are those of `overlay`, in the same order: may pilots be started there, is there room,
do tasks wait, may they go there and do they fit (`allowed_sites.obstacle`), do present pilots cover
them? Everything is a function of the state and the time. `owner`: only this owner's bags are told
of; None: all bags.
"""

import math
from collections.abc import Iterator, Sequence

from covey.classad import unparse
from covey.core.explain import broker_answers
from covey.core.explain.answers import Chance, Limit, Reason, SiteAnswer, Wanting
from covey.core.explain.policy_view import PolicyView, SampledClass, parts
from covey.core.explain.steps import Steps
from covey.core.match.policies import GRID, KEYS
from covey.core.match.site_access import SiteBar, bar_for_owner, bar_for_tasks
from covey.core.record.model import Need, PilotStatus, SiteSpec, SiteStatus
from covey.core.sites import allowed_sites, demand, site_fit, site_table
from covey.core.sites.allowed_sites import Allowed, SiteObstacle
from covey.core.sites.demand import DemandRow, Lives, Serves
from covey.core.sites.site_measures import measures_of
from covey.core.sites.site_table import MOST_WAITING
from covey.core.state import Bag, Job, Pilot, Site, State

FEW = 3  # parts of a policy that are named
QUEUE_SECONDS = 30.0  # after which it is told that pilots wait at a site
ABLE = "able"
_LAST_RESORT = "it is only for tasks that failed elsewhere (failover)"
# Expressions that may keep a bag from a site, by their attribute's name.
_DECIDING = (GRID, "JobRequirements")


def of_site(state: State, now: float, site: Site, owner: str | None = None) -> Steps[SiteAnswer]:
    jobs = _jobs(state, site)
    pilots = _pilots(state, site)
    limits = list(_limits(state, now, site))
    answer = SiteAnswer(
        summary="",
        reasons=list(_stops(state, now, site)),
        limits=limits,
        wanting=[],
        waiting=sum(not job.running for job in jobs),
        running=sum(job.running for job in jobs),
        suspended=sum(job.suspended for job in jobs),
        pilots=len(pilots),
        slots=sum(pilot.record.slots for pilot in pilots),
        busy=sum(min(pilot.load, pilot.record.slots) for pilot in pilots),
        room=site_table.room(state, now, site),
        measures=measures_of(state, now, site.record.spec.name),
        shares=broker_answers.of_site(state, now, site.record.spec.name, owner),
    )
    yield
    rows, allowed = _covered(state, now)
    seen = [row for row in rows if owner is None or row.bag.spec.owner == owner]
    for row in seen:
        yield
        answer.wanting.append(_wanting(state, now, site, row, allowed))
    able = [wanting for wanting in answer.wanting if wanting.kind == ABLE]
    if any(wanting.missing for wanting in able) and not answer.reasons:
        answer.reasons += _reached(state, now, site, answer, able)
    answer.reasons += _no_demand(state, answer, len(rows) - len(seen))
    answer.summary = _summary(answer)
    return answer


def _jobs(state: State, site: Site) -> list[Job]:
    return [state.jobs[id_] for id_ in site.jobs]


def _pilots(state: State, site: Site) -> list[Pilot]:
    name, here = site.record.spec.name, PilotStatus.ACTIVE
    return [
        pilot
        for pilot in state.pilots.values()
        if pilot.record.site == name and pilot.status is here
    ]


def _covered(state: State, now: float) -> tuple[list[DemandRow], Allowed]:
    """The demand, with what is missing of it; and which of it may go where."""
    rows = demand.rows(state, now)
    allowed_sites.shorten(state, now, rows)
    allowed = allowed_sites.allowed(state, now, rows)
    demand.cover(
        rows, demand.supplies(state, now, Lives(rows)).values(), Serves(allowed, state.sites)
    )
    return rows, allowed


# -- may anything be started there? --------------------------------------------------------------


def stop_words(state: State, now: float, site: Site) -> str:
    """Why no pilot can be started there now, whoever needs one; empty: pilots can be started."""
    return next((reason.text for reason in _stops(state, now, site)), "")


def _stops(state: State, now: float, site: Site) -> Iterator[Reason]:
    name, status = site.record.spec.name, site.record.status
    if site.record.spec.facts.by_hand:
        words = f"its pilots are started by hand: covey pilot-command --site {name}"
        yield Reason(kind="manual", text=words)
    if site.record.removed:
        words = f"it is being removed, as soon as {_count(len(site.jobs), 'job')} ended there"
        yield Reason(kind="removed", text=words)
    elif status is SiteStatus.PAUSED:
        words = (
            f"it is paused: no new pilot is started there; to continue: covey site resume {name}"
        )
        yield Reason(kind="paused", text=words)
    elif status is SiteStatus.DRAINING:
        words = "it is draining: waiting pilots are cancelled, the others end after their tasks"
        yield Reason(kind="draining", text=f"{words}; to continue: covey site resume {name}")
    if site.crowded:
        yield Reason(kind="crowded", text=f"it is not used: {site.crowded}")
    if state.draining:
        yield Reason(kind="ending", text="the server is shutting down, and starts no more pilots")
    if site.unanswered:
        yield Reason(kind="unanswered", text=f"it does not answer: {site.unanswered}")
    if now < site.rests_until:
        words = (
            f"no pilot is started after {_count(site.failures, 'failure')} in a row: {site.problem}"
        )
        yield Reason(kind="resting", text=words, until=site.rests_until)


# -- is there room? ------------------------------------------------------------------------------


def _limits(state: State, now: float, site: Site) -> Iterator[Limit]:
    """The site's limits, as `site_table.room` has them; the one with the least left counts."""
    spec, jobs = site.record.spec, site_table.present(state, now, site)
    waiting, all_ = sum(not job.running for job in jobs), len(jobs)
    queued = spec.queued or MOST_WAITING
    yield Limit(key="queued", used=waiting, most=spec.queued, left=queued - waiting)
    yield Limit(key="ramp", used=waiting, most=site.ramp, left=site.ramp - waiting)
    left = spec.running - all_ if spec.running else queued
    yield Limit(key="running", used=all_, most=spec.running, left=left)
    memory, disk = (sum(job.record.memory_mb for job in jobs), sum(j.record.disk_mb for j in jobs))
    for key, used, most, each in (
        ("all_memory", memory, spec.all_memory_mb, spec.memory_mb),
        ("all_disk", disk, spec.all_disk_mb, spec.disk_mb),
    ):
        if most and each:
            yield Limit(key=key, used=used, most=most, left=(most - used) // each)


def _reached(
    state: State, now: float, site: Site, answer: SiteAnswer, able: list[Wanting]
) -> Iterator[Reason]:
    if site.failures and not answer.room:
        words = f"it failed {_count(site.failures, 'time')} in a row ({site.problem})"
        text = f"{words}: one pilot tests whether it works again"
        yield Reason(kind="probing", text=text)
        return
    queued = answer.limits[0]
    for limit in answer.limits if not answer.room else ():
        if limit.left <= 0 and (limit.key != "ramp" or queued.left > 0):
            yield Reason(kind="limit", text=_limit(limit))
    most = site.record.spec.per_user
    for owner in (
        dict.fromkeys(wanting.owner for wanting in able if wanting.missing) if most else ()
    ):
        if not site_table.room_of(state, now, site, owner):
            whose = f"tasks of {owner}" if owner else "tasks without an owner"
            there = f"{_count(most, 'pilot')} {'is' if most == 1 else 'are'} there for {whose}"
            yield Reason(kind="limit", text=f"{there}; no more are allowed (per_user = {most})")


def _limit(limit: Limit) -> str:
    used, many = limit.used, "waits" if limit.used == 1 else "wait"
    if limit.key == "queued":
        return f"{_count(used, 'pilot')} {many} there; no more are allowed (queued = {limit.most})"
    if limit.key == "ramp":
        rest = f"more are submitted when one has started (ramp: {limit.most} now)"
        return f"{_count(used, 'pilot')} {many} there; {rest}"
    if limit.key == "running":
        there = f"{_count(used, 'pilot')} {'runs' if used == 1 else 'run'} or {many} there"
        return f"{there}; no more are allowed (running = {limit.most})"
    what = limit.key.removeprefix("all_")
    most = f"at most {limit.most:,} MB are allowed ({limit.key})"
    return f"its pilots have {used:,} MB of {what}; {most}"


# -- does anything wait that may go there? -------------------------------------------------------


def _wanting(state: State, now: float, site: Site, row: DemandRow, allowed: Allowed) -> Wanting:
    kind, text = _why_not(state, now, site, row, allowed)
    return Wanting(
        bag=row.bag.id,
        name=row.bag.spec.name,
        owner=row.bag.spec.owner,
        tasks=round(row.tasks),
        missing=math.ceil(row.missing + row.late - 1e-9) if kind == ABLE else 0,
        kind=kind,
        text=text,
    )


def _why_not(
    state: State, now: float, site: Site, row: DemandRow, allowed: Allowed
) -> tuple[str, str]:
    """`ABLE`, or the obstacle to starting pilots there for the row; and that in words."""
    idle = allowed_sites.idle_at(state)
    obstacle = allowed_sites.obstacle(state, now, site, row, allowed, idle)
    if obstacle is None:
        rescued = "it takes tasks that failed elsewhere"
        return ABLE, rescued if row.rescue else "its pilots could run them"
    return obstacle.value, _obstacle_words(state, now, site, row, obstacle)


def _obstacle_words(
    state: State, now: float, site: Site, row: DemandRow, obstacle: SiteObstacle
) -> str:
    spec = site.record.spec
    match obstacle:
        case SiteObstacle.USERS:
            return _bar_words(spec, SiteBar.USERS, rescue=row.rescue)
        case SiteObstacle.FAILOVER:
            return _bar_words(spec, SiteBar.FAILOVER, rescue=row.rescue)
        case SiteObstacle.POLICY:
            return _refusal(state, now, spec.name, row)
        case SiteObstacle.RESOURCES:
            return f"a task needs {_lacking(row.need, spec)}"
        case SiteObstacle.TIME:
            words = "may take" if row.need.limit_seconds else "take"
            return f"tasks {words} {_outliving(row.life, spec)}"
        case SiteObstacle.UNFIT:
            return site_fit.obstacle(site, row, now)
        case SiteObstacle.SHUNNED:
            count = allowed_sites.idle_for(row, spec.name, allowed_sites.idle_at(state))
            return f"{_count(count, 'pilot')} there could not run them"


def _bar_words(spec: SiteSpec, bar: SiteBar, *, rescue: bool = False) -> str:
    """Why the site takes no such tasks."""
    if bar is SiteBar.FAILOVER:
        other = "they failed elsewhere, and this site is not in failover_sites"
        return other if rescue else _LAST_RESORT
    if spec.facts.here:
        words = f"its pilots run as {spec.users[0]}, so a task could read this server's secrets"
        return f"{words}: other owners' tasks run there only in a sandbox (local.shared = true)"
    return f"it is for tasks of {', '.join(spec.users)} only (users)"


def is_hidden(spec: SiteSpec, owner: str) -> bool:
    """Whether the owner is told nothing of the site: it belongs to others. That this machine is not
    for everybody's tasks is no secret."""
    return not spec.facts.here and bar_for_owner(spec, owner) is not None


def _refusal(state: State, now: float, site: str, row: DemandRow) -> str:
    """The part of the bag's policy that is false at the site, whatever the host."""
    bag = row.bag
    if by_name := _by_name(site, bag):
        return by_name
    view = PolicyView(state, now, bag)
    view.at_site(site, SampledClass(row.kind, bag.classes[row.kind].sample))
    for name in _DECIDING:
        if name in view.compiled.texts:
            false = [part for part in parts(view.node(name)) if view.value(part) is False]
            if false:
                texts = " and ".join(unparse(part) for part in false[:FEW])
                values = [
                    f"{key} is {value}"
                    for part in false[:FEW]
                    for key, value in view.values(part).items()
                    if key.lower().startswith("site.")
                ]
                where = f", where {', '.join(values)}" if values else ""
                return f"{KEYS[name]} is false there: {texts}{where}"
    return f"{' or '.join(KEYS[name] for name in _DECIDING)} is false there for all of its tasks"


def _by_name(site: str, bag: Bag) -> str:
    """Why the lists of sites in its policy keep the bag away from the site, if they do."""
    policy = bag.policy.spec
    if policy.only_sites and site not in policy.only_sites:
        return f"its policy allows other sites only: only_sites = {', '.join(policy.only_sites)}"
    if site in policy.avoid_sites:
        return f"its policy excludes it: avoid_sites = {', '.join(policy.avoid_sites)}"
    return ""


def _outliving(seconds: float, spec: SiteSpec) -> str:
    return f"{seconds:,.0f} s, but its pilots live for {spec.wall_seconds:,.0f} s (wall)"


def _lacking(need: Need, spec: SiteSpec) -> str:
    texts = []
    for wanted, there, unit in (
        (need.cores, spec.slots, "slots"),
        (need.gpus, spec.gpus, "GPUs"),
        (need.memory_mb, spec.memory_mb, "MB of memory"),
        (need.disk_mb, spec.disk_mb, "MB of disk"),
    ):
        if wanted > there and (there or unit in ("slots", "GPUs")):
            texts.append(f"{wanted:,} {unit}; its pilots have {there:,}")
    return ", and ".join(texts)


def _no_demand(state: State, answer: SiteAnswer, hidden: int) -> Iterator[Reason]:
    """Why the waiting tasks cannot go to the site, or need no more pilots."""
    if not answer.wanting:
        whose = "of yours " if hidden else ""
        yield Reason(kind="idle", text=f"no task {whose}waits, so no pilot is needed")
        return
    able = [wanting for wanting in answer.wanting if wanting.kind == ABLE]
    if able and not any(wanting.missing for wanting in able):
        yield Reason(kind="covered", text=_cover(state, sum(wanting.tasks for wanting in able)))
    by_text: dict[str, list[Wanting]] = {}
    for wanting in answer.wanting:
        if wanting.kind != ABLE:
            by_text.setdefault(wanting.text, []).append(wanting)
    for text, alike in by_text.items():
        tasks, bags = (
            sum(wanting.tasks for wanting in alike),
            dict.fromkeys(wanting.bag for wanting in alike),
        )
        named = ", ".join(str(bag) for bag in list(bags)[:FEW]) + (", …" if len(bags) > FEW else "")
        many = f"bag {named}" if len(bags) == 1 else f"bags {named}"
        words = f"{_count(tasks, 'task')} of {many} cannot go there: {text}"
        yield Reason(kind=alike[0].kind, text=words)


def _cover(state: State, tasks: int) -> str:
    """Which slots cover the tasks: those of connected pilots, and those that wait at sites."""
    slots = sum(p.record.slots for p in state.pilots.values() if p.status is PilotStatus.ACTIVE)
    parts_ = [f"{_count(slots, 'slot')} of connected pilots"] if slots else []
    for name, site in state.sites.items():
        coming = [j for j in _jobs(state, site) if j.pilot is None and not j.cancelled]
        if coming:
            wait = sum(job.record.slots for job in coming)
            parts_.append(f"{_count(wait, 'slot')} on the way at {name}")
    by = " and ".join(parts_) or "the present slots"
    return f"{by} {'is' if by.startswith('1 slot ') else 'are'} enough for {_count(tasks, 'task')}"


def _summary(answer: SiteAnswer) -> str:
    there = f"{_count(answer.pilots, 'pilot')} with {_count(answer.slots, 'slot')} there"
    if answer.waiting:
        there += f", {answer.waiting:,} waiting"
    first = answer.reasons[0].text if answer.reasons else ""
    if not first:
        missing = sum(wanting.missing for wanting in answer.wanting)
        first = f"it gets up to {_count(answer.room, 'more pilot')} for {_count(missing, 'task')}"
    return f"{there}: {first}"


# -- a bag's ---------------------------------------------------------------------------------------


def never(state: State, site: Site, bag: Bag, needs: Sequence[Need]) -> str:
    """Why pilots of the site could not run tasks of these needs; empty if they could. The policy is
    not asked: its answer from when pilots were last wanted counts."""
    spec = site.record.spec
    barred = bar_for_tasks(state, spec, bag, rescue=False)
    if barred is not None:
        return _bar_words(spec, barred)
    if bag.cache.suits is not None and bag.cache.suits.sites.get(spec.name) is False:
        return _by_name(spec.name, bag) or f"its policy does not want it (covey explain {bag.id})"
    if any(allowed_sites.holds(need, spec) for need in needs):
        return ""
    if lacking := _lacking(needs[0], spec):
        return f"a task needs {lacking}"
    return f"tasks may take {_outliving(needs[0].limit_seconds, spec)}"


def in_queues(state: State, now: float, bag: Bag) -> Reason | None:
    """The pilots for tasks of the bag's owner that have waited at sites for `QUEUE_SECONDS`."""
    if not bag.unsent():
        return None
    queues = []
    for name, site in state.sites.items():
        jobs = [
            job
            for job in _jobs(state, site)
            if job.asked and not job.running and not job.cancelled and not job.record.trial
            if job.record.wanted_by == bag.spec.owner and now - job.since >= QUEUE_SECONDS
        ]
        if jobs:
            since = min(job.since for job in jobs)
            many = f"{_count(len(jobs), 'pilot')} {'waits' if len(jobs) == 1 else 'wait'}"
            queues.append(f"{many} in the queue of site {name}, the first for {now - since:.0f} s")
    if not queues:
        return None
    return Reason(kind="queue", text=f"tasks wait for pilots: {'; '.join(queues[:FEW])}")


def for_bag(state: State, now: float, bag: Bag) -> list[Chance]:
    """The sites that the owner may use, and whether each could get pilots for the waiting tasks."""
    rows = [row for row in demand.rows(state, now) if row.bag is bag]
    allowed = allowed_sites.allowed(state, now, rows)
    chances = []
    for name, site in state.sites.items():
        spec = site.record.spec
        if is_hidden(spec, bag.spec.owner) or not rows:
            continue
        waiting = sum(not job.running for job in _jobs(state, site)) if not spec.facts.here else 0
        why = [_why_not(state, now, site, row, allowed) for row in rows]
        stop = next(iter(_stops(state, now, site)), None)
        if all(kind != ABLE for kind, _ in why):
            chances.append(Chance(site=name, able=False, text=why[0][1], waiting=waiting))
        elif stop is not None:
            chances.append(Chance(site=name, able=False, text=stop.text, waiting=waiting))
        else:
            words = (
                f"{_count(waiting, 'pilot')} waiting there"
                if waiting
                else "no pilot is waiting there"
            )
            chances.append(Chance(site=name, able=True, text=words, waiting=waiting))
    return chances


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"
