"""The sites that core knows: what may be started there, and which of them rest.

A site comes from the configuration, which says what it is, or was added while the server ran; then
it is in the record. Whether it is on, paused or draining is in the record for both. One that is
removed stays, draining, until nothing of ours is left there.

A site that fails rests, longer after each failure. Failures are refused jobs, jobs that end before
their pilot delivered a result, and pilots that leave before they could work, for example because
the site's check failed. After the rest one job tests the site. When a pilot that came after the
last failure delivers a result, or has stayed for `PROVEN_SECONDS`, the site is well again.
"""

from msgspec.structs import replace

from covey.core.after_commit import Replying
from covey.core.errors import InvalidBag
from covey.core.match.policies import parsed
from covey.core.match.site_access import last_resorts
from covey.core.protocol import unix_accounts
from covey.core.protocol.tokens import read_hand_job
from covey.core.record.actions import DefineSites, Done, ForgetSite, Note, Problem, SaveSite
from covey.core.record.capacity import SiteCapacity, believed
from covey.core.record.events import SiteRemoved, SiteSaved, SiteStatusRequested
from covey.core.record.model import JobId, PilotRecord, SiteRecord, SiteSpec, SiteStatus
from covey.core.sites import job_history
from covey.core.sites.job_history import PROVEN_SECONDS
from covey.core.state import Job, Site, State
from covey.core.turn import Turn
from covey.pilot.protocol.messages import MOST_SLOTS

FIRST_REST, LONGEST_REST = 5.0, 3600.0
REST_HERE, LONGEST_REST_HERE = 0.25, 60.0  # on this machine a try costs little
MOST_WORDS = 1000  # characters of what a pilot says of its site
MOST_WAITING = 10_000  # where a site has no limit of its own
GOODBYE_SECONDS = 60.0  # in which the job of a pilot that said goodbye is expected to end


def restore(turn: Turn, records: tuple[SiteRecord, ...]) -> None:
    """Sites of the configuration, as it is now, and sites that were added."""
    state = turn.state
    kept = {one.spec.name: one for one in records}
    for spec in state.settings.sites:
        status = kept[spec.name].status if spec.name in kept else SiteStatus.ON
        _put(state, SiteRecord(spec=spec, status=status, of_file=True))
    for one in records:
        if not one.of_file and one.spec.name not in state.sites:
            _put(state, one)
    look_at_owners(turn, tokens=True)
    define(turn)


def look_at_owners(turn: Turn, *, tokens: bool = False) -> None:
    """Find out again which sites may have whose tasks: who may submit bags may have changed.
    `tokens`: some came or went."""
    state = turn.state
    if tokens:
        state.access.owners = unix_accounts.token_owners(state)
    if not state.access.owners and not state.access.people:
        return
    state.access.people = unix_accounts.people(state, turn.now)
    for name, site in state.sites.items():
        spec = site.record.spec
        problem = unix_accounts.problem(state, spec)
        if problem and problem != site.crowded:
            turn.note(Note("site is not used", detail=f"{name}: {problem}"))
        site.crowded = problem
        if spec.facts.here and spec.users != (users := unix_accounts.own_users(state, spec)):
            site.record = replace(site.record, spec=replace(spec, users=users))
            words = f"only tasks of {users[0]}" if users else "everybody's tasks"
            turn.note(Note("pilots of this machine", detail=f"they run {words} from now on"))
            _guard(state)


def note_owner(turn: Turn, owner: str) -> None:
    """This owner has submitted a bag, perhaps for the first time."""
    if owner not in turn.state.access.people:
        look_at_owners(turn)


def _put(state: State, record: SiteRecord) -> None:
    name = record.spec.name
    known = state.sites.get(name)
    if known is not None:
        known.record = record
    else:
        here = {id_: None for id_, job in state.jobs.items() if job.record.site == name}
        state.sites[name] = Site(record, record.spec.ramp, here)
    _guard(state)


def _guard(state: State) -> None:
    specs = [site.record.spec for site in state.sites.values()]
    state.plan.guarded = {spec.name: spec for spec in specs if spec.users or spec.failover}
    going = {name for name, site in state.sites.items() if site.record.removed}
    state.plan.reserves = tuple(one.name for one in specs if one.failover and one.name not in going)
    for bag in state.bags.values():
        if bag.places.rescued and not last_resorts(state, bag):
            bag.fail_over_no_more()


def define(turn: Turn) -> None:
    turn.state.plan.defined += 1
    specs = tuple(site.record.spec for site in turn.state.sites.values())
    turn.actions.append(DefineSites(specs))


# -- what people ask for --------------------------------------------------------------------


def save(turn: Turn, event: SiteSaved) -> None:
    known = turn.state.sites.get(event.spec.name)
    if known is not None and known.record.of_file:
        words = f"site {event.spec.name} is set in the server's covey.toml: change it there"
        turn.refuse(event.request, Problem.INVALID, words)
        return
    problem = spec_problem(event.spec) or unix_accounts.problem(turn.state, event.spec)
    if problem:
        turn.refuse(event.request, Problem.INVALID, f"site {event.spec.name!r}: {problem}")
        return
    stays = known is not None and not known.record.removed
    status = known.record.status if known is not None and stays else SiteStatus.ON
    record = SiteRecord(spec=event.spec, status=status)
    _put(turn.state, record)
    _well(turn.state.sites[event.spec.name])
    look_at_owners(turn)
    turn.note(Note("site saved", detail=event.spec.name))
    turn.write(SaveSite(record), Replying(event.request, Done(1)))
    define(turn)


def spec_problem(spec: SiteSpec) -> str:
    """What is wrong with the spec, in words. The options of its driver are checked elsewhere."""
    if not spec.name or not spec.name.isprintable() or not spec.driver:
        return "it needs a name and a driver"
    if not 1 <= spec.slots <= MOST_SLOTS:
        return f"slots must be between 1 and {MOST_SLOTS}, not {spec.slots}"
    numbers = {
        "ramp": spec.ramp - 1,  # at least one
        **{name: getattr(spec, name) for name in _NOT_NEGATIVE},
    }
    numbers["weight"] = spec.weight
    wrong = [name for name, value in numbers.items() if not 0 <= value < 2**53]
    if wrong:
        return f"{wrong[0]} cannot be {getattr(spec, wrong[0])}"
    try:
        parsed("preference", spec.preference or "0")
    except InvalidBag as error:
        return str(error)
    return ""


_NOT_NEGATIVE = (
    "memory_mb",
    "disk_mb",
    "gpus",
    "wall_seconds",
    "idle_seconds",
    "queued",
    "running",
    "per_user",
    "all_memory_mb",
    "all_disk_mb",
    "interval_seconds",
    "pause_seconds",
)


def set_status(turn: Turn, event: SiteStatusRequested) -> None:
    site = turn.state.sites.get(event.site)
    if site is None or site.record.removed:
        turn.refuse(event.request, Problem.NOT_FOUND, f"there is no site {event.site}")
        return
    site.record = replace(site.record, status=event.status)
    if event.status is SiteStatus.ON:
        _well(site)
    turn.note(Note(f"site {event.status}", detail=event.site))
    turn.write(SaveSite(site.record), Replying(event.request, Done(1)))


def remove(turn: Turn, event: SiteRemoved) -> None:
    site = turn.state.sites.get(event.site)
    if site is None or site.record.removed:
        turn.refuse(event.request, Problem.NOT_FOUND, f"there is no site {event.site}")
        return
    if site.record.of_file:
        words = f"site {event.site} is set in the server's covey.toml: remove it there"
        turn.refuse(event.request, Problem.INVALID, words)
        return
    site.record = replace(site.record, status=SiteStatus.DRAINING, removed=True)
    _guard(turn.state)
    turn.note(Note("site removed", detail=event.site))
    turn.write(SaveSite(site.record), Replying(event.request, Done(1)))


def forget_removed(turn: Turn) -> None:
    """Forget removed sites that have no jobs left. The others stay in the record, so that a server
    that starts can cancel the jobs that wait there."""
    state = turn.state
    gone = [name for name, site in state.sites.items() if site.record.removed and not site.jobs]
    for name in gone:
        del state.sites[name]
        turn.write(ForgetSite(name))
    if gone:
        _guard(state)
        define(turn)


# -- room -----------------------------------------------------------------------------------


def room(state: State, now: float, site: Site) -> int:
    """Pilots that may be started there now."""
    spec = site.record.spec
    if trouble(site, now) or spec.facts.by_hand:
        return 0
    there = present(state, now, site)
    if site.failures:  # one job finds out whether it is well again
        free = 0 if any(_is_unproven(state, job, now) for job in there) else 1
    else:
        running = sum([job.running for job in there])
        free = min(site.ramp, spec.queued or MOST_WAITING) - (len(there) - running)
    if spec.running:
        free = min(free, spec.running - len(there))
    if spec.all_memory_mb and spec.memory_mb:
        used = sum(job.record.memory_mb for job in there)
        free = min(free, (spec.all_memory_mb - used) // spec.memory_mb)
    if spec.all_disk_mb and spec.disk_mb:
        used = sum(job.record.disk_mb for job in there)
        free = min(free, (spec.all_disk_mb - used) // spec.disk_mb)
    return max(0, free)


def is_well(site: Site, now: float) -> bool:
    """Whether pilots may be started there as far as limits allow it, and none has failed lately."""
    by_hand = site.record.spec.facts.by_hand
    return not (trouble(site, now) or by_hand or site.failures)


def present(state: State, now: float, site: Site) -> list[Job]:
    """Jobs that count against the site's limits. A job whose pilot has said goodbye is about to
    end, so its place is free before a list of the site shows that. If the job is still there after
    `GOODBYE_SECONDS`, it counts again."""
    jobs = [state.jobs[id_] for id_ in site.jobs]
    return [job for job in jobs if not job.left_at or now - job.left_at >= GOODBYE_SECONDS]


def room_of(state: State, now: float, site: Site, owner: str) -> int:
    """Pilots that may be started there for one owner's tasks, as far as `per_user` limits them."""
    most = site.record.spec.per_user
    if not most:
        return MOST_WAITING
    held = sum(job.record.wanted_by == owner for job in present(state, now, site))
    return max(0, most - held)


def _is_unproven(state: State, job: Job, now: float) -> bool:
    """Whether the job may still show that its site is well."""
    if job.useful or job.cancelled or job.record.trial:
        return False
    pilot = state.pilots.get(job.pilot) if job.pilot is not None else None
    return job.pilot is None or (pilot is not None and now - pilot.record.enrolled < PROVEN_SECONDS)


def knows(state: State, job: JobId) -> bool:
    """Whether pilots of this job may enrol: the job has not ended, or a person started them."""
    return not job or job in state.jobs or read_hand_job(job) is not None


def owner_of(state: State, id_: JobId, walled: bool) -> str:
    """The owner whose tasks the job's pilot runs; empty: all owners. A pilot runs tasks of several
    owners only if it puts each task into a sandbox. `walled`: this pilot does that; the site may
    have become `shared` while the job waited there."""
    job = state.jobs.get(id_)
    site = state.sites.get(job.record.site) if job is not None else None
    if job is None or (walled and site is not None and site.record.spec.shared):
        return ""
    return job.record.wanted_by


# -- rest -----------------------------------------------------------------------------------


def failed(turn: Turn, site: Site, asked: float, reason: str) -> None:
    """The site rests, longer each time; this machine does not rest the first time. The failure of a
    job from before the last failure is no new failure: a hundred jobs that are refused together
    count once. `asked`: when the job was submitted."""
    site.ramp, site.problem = max(1, site.ramp // 2), reason
    if site.failures and asked < site.failed_at:
        return
    site.failures += 1
    site.failed_at = turn.now
    row = min(site.failures - 1, 20)
    if site.record.spec.facts.here:
        rest = min(REST_HERE * 2.0 ** (row + 1), LONGEST_REST_HERE) if row else 0.0
    else:
        rest = min(FIRST_REST * 2.0**row, LONGEST_REST)
    site.rests_until = max(site.rests_until, turn.now + rest)
    name = site.record.spec.name
    turn.note(Note("site rests", detail=f"{name}, for {rest:.0f} s: {reason}"))


def enrolled(turn: Turn, id_: JobId) -> None:
    """The job's pilot has called, so the site works: more jobs may wait there."""
    job = turn.state.jobs.get(id_)
    site = turn.state.sites.get(job.record.site) if job is not None else None
    if job is not None and not job.running:
        job.running, job.started = True, turn.now
    if site is not None and not site.failures:
        spec = site.record.spec
        site.ramp = min(max(1, site.ramp) * 2, max(spec.queued or MOST_WAITING, spec.ramp))


def left(turn: Turn, record: PilotRecord, worked: bool, reason: str) -> None:
    """A pilot has said goodbye. If it never asked for work, it could not work there, for example
    because the site's check failed. That is a failure of the site, unless the job was cancelled."""
    job = turn.state.jobs.get(record.job)
    if job is None or job.pilot != record.id:
        return
    job.left_at = turn.now
    job_history.said_goodbye(turn, job, worked=worked or job.useful)
    site = turn.state.sites.get(job.record.site)
    if site is not None and not worked and not job.useful and not job.cancelled:
        words = f"a pilot on {record.host} could not work: {reason or 'it gave no reason'}"
        failed(turn, site, job.record.submitted, words[:MOST_WORDS])


def did_good(state: State, id_: JobId) -> None:
    """The job's pilot has delivered a result. A pilot from before the site's last failure does not
    show that the site works now."""
    job = state.jobs.get(id_)
    if job is not None:
        job.useful = True
        site = state.sites.get(job.record.site)
        if site is not None and site.failures and job.started > site.failed_at:
            _well(site)


def look_for_good(turn: Turn) -> None:
    """A pilot that has stayed for a while shows that its site works, though its tasks are long."""
    state = turn.state
    for site in state.sites.values():
        for id_ in list(site.jobs) if site.failures else ():
            job = state.jobs[id_]
            pilot = state.pilots.get(job.pilot) if job.pilot is not None else None
            if pilot is not None and pilot.heard - pilot.record.enrolled >= PROVEN_SECONDS:
                did_good(state, id_)


def measured(turn: Turn, name: str, capacity: SiteCapacity) -> None:
    """Its batch system says how much there is."""
    site = turn.state.sites.get(name)
    if site is not None:
        site.samples.set_capacity(believed(capacity), turn.now)


def _well(site: Site) -> None:
    site.failures, site.rests_until, site.problem = 0, 0.0, ""
    site.ramp = site.record.spec.ramp


def trouble(site: Site, now: float) -> str:
    """Why no pilot is started there now; empty if pilots may be."""
    if site.record.status is not SiteStatus.ON:
        return f"it is {site.record.status}"
    if site.crowded:
        return site.crowded
    if site.unanswered:
        return site.unanswered
    if now < site.rests_until:
        return f"no pilot is started there for {site.rests_until - now:.0f} s: {site.problem}"
    return ""


def condition(site: Site, now: float) -> str:
    """The site's condition, in words for people: why no pilot is started there, or only one that
    tests whether the site works again. Empty: all is well."""
    stopped = trouble(site, now)
    if stopped or not site.failures:
        return stopped
    times = "once" if site.failures == 1 else f"{site.failures} times in a row"
    return f"it failed {times}; one pilot tests whether it works again: {site.problem}"
