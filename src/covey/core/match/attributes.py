"""Everything a policy can look at: one table, for evaluating, checking, explaining and listing.

Names are those of GridBot where it has one. A `Host` has besides these every tag that is published
of it: by its pilots (GWpilot's Table 2: `cpu_mhz`, `free_mem_mb`, …), or by tasks of the bag's own
owner, whose names stand without their prefix. Tags that read as numbers are numbers. A `Job` has
the task's parameters under their names.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from covey.classad import UNDEFINED, Ad
from covey.classad.values import Special
from covey.core.bags.estimate import expected
from covey.core.match.pilot_fit import weight
from covey.core.match.site_access import admits
from covey.core.protocol import host_history
from covey.core.protocol.hosts import called_name
from covey.core.record.attempts import Attempt
from covey.core.record.histories import History
from covey.core.record.model import BagStatus, Need, PilotStatus, SiteSpec
from covey.core.sites import site_table
from covey.core.sites.site_figures import COUNT, FIGURES, SiteFigure
from covey.core.sites.site_measures import measures_of
from covey.core.state import Bag, Host, Pilot, State
from covey.core.state.match_records import Value
from covey.core.values.scalars import read
from covey.core.values.space import Scalar

ALL = frozenset("*")
NEVER = 1e9  # seconds since something that has not happened, or until something that will not
Names: TypeAlias = frozenset[str]
_NO_SITE = SiteSpec(name="", driver="", wall_seconds=0.0)


class Attribute(NamedTuple):
    """`find` gets the state, the time, and what the role is about."""

    name: str
    text: str
    find: Callable[[State, float, Any], Value | list[str] | Special]


class JobSubject(NamedTuple):
    """What a `Job` is about: tasks of a class, or (`number`) one of them."""

    bag: Bag
    kind: int
    number: int = -1


def host_of(state: State, pilot: Pilot) -> Host:
    return host_history.host_of(state, pilot.record)


def _rate(state: State, now: float, pilot: Pilot) -> float:
    return _part(host_history.error_rate(state, host_of(state, pilot).history, now))


def _part(rate: float) -> float:
    """Rounded to three digits: policies are not asked again because of a smaller change."""
    return round(rate, 3)


def _today(state: State, now: float, pilot: Pilot, name: str) -> int:
    found = host_of(state, pilot).history
    return int(getattr(found, name)) if found.day == int(now // host_history.DAY) else 0


def _measured(figure: SiteFigure) -> Attribute:
    """Undefined as long as nothing is known."""

    def find(state: State, now: float, name: str) -> Value | Special:
        found = getattr(measures_of(state, now, name), figure.field)
        if found is None:
            return UNDEFINED
        return int(found) if figure.kind == COUNT else float(f"{found:.2g}")

    return Attribute(figure.name, figure.text, find)


def _since(now: float, then: float) -> float:
    return now - then if then else NEVER


# What its history says. These are looked at once a second, and when a task has failed.
STATISTICS = (
    Attribute(
        "ErrorRate",
        "fraction of its recent tasks that failed; for a new host, its site's ErrorRate",
        _rate,
    ),
    Attribute(
        "LossRate",
        "fraction of its recent tasks that were lost with a pilot, or late",
        lambda s, t, p: _part(host_history.loss_rate(s, host_of(s, p).history)),
    ),
    Attribute(
        "Turnaround",
        "mean seconds from sending a task to its result, for recent tasks",
        lambda s, t, p: host_history.turnaround(s, host_of(s, p).history),
    ),
    Attribute(
        "Speed",
        "how fast tasks run there, compared to other hosts; 1: as fast as the others",
        lambda s, t, p: host_of(s, p).history.speed,
    ),
    Attribute(
        "RecentCpu",
        "CPU seconds of recent tasks that were done",
        lambda s, t, p: host_history.recent_cpu(host_of(s, p).history, t),
    ),
    Attribute("JobsToday", "tasks done today (UTC)", lambda s, t, p: _today(s, t, p, "done_today")),
    Attribute(
        "FailedToday", "tasks that failed today", lambda s, t, p: _today(s, t, p, "failed_today")
    ),
    Attribute(
        "ConsecutiveFailures",
        "tasks that failed there since the last one that was done",
        lambda s, t, p: host_of(s, p).history.row,
    ),
    Attribute(
        "SinceSuccess",
        "seconds since a task was last done there",
        lambda s, t, p: _since(t, host_of(s, p).history.last_done),
    ),
    Attribute(
        "SinceFailure",
        "seconds since a task last failed there",
        lambda s, t, p: _since(t, host_of(s, p).history.last_failed),
    ),
)
HOST = (
    Attribute("Name", "the host's name", lambda s, t, p: p.record.host),
    Attribute(
        "CalledName",
        "the name that the host itself uses: Name without the ~2 of a second host of that name",
        lambda s, t, p: called_name(p.record.host),
    ),
    Attribute("Site", "the site that it belongs to", lambda s, t, p: p.record.site),
    Attribute(
        "Owner", "the owner whose tasks it runs; empty: all owners", lambda s, t, p: p.record.owner
    ),
    Attribute("NumCpus", "processors that its pilot found", lambda s, t, p: _cpus(p)),
    Attribute("Memory", "MB of memory for tasks", lambda s, t, p: p.record.memory_mb),
    Attribute("Disk", "MB of disk for tasks", lambda s, t, p: p.record.disk_mb),
    Attribute("Gpus", "GPUs for tasks", lambda s, t, p: p.record.gpus),
    Attribute("RunningJobs", "tasks that it has now, of all owners", lambda s, t, p: _held(s, p)),
    *STATISTICS,
)
PILOT = (
    Attribute("Id", "its number", lambda s, t, p: p.record.id),
    Attribute("Slots", "tasks of one core that it runs at a time", lambda s, t, p: p.record.slots),
    Attribute(
        "FreeSlots",
        "free slots",
        lambda s, t, p: max(0, p.record.slots - p.load),
    ),
    Attribute("RunningJobs", "tasks that it has now", lambda s, t, p: len(p.attempts)),
    Attribute("Age", "seconds since it enrolled", lambda s, t, p: max(0.0, t - p.record.enrolled)),
    Attribute("TimeLeft", "seconds until it must end", lambda s, t, p: min(NEVER, p.until - t)),
    Attribute("Version", "version of covey there", lambda s, t, p: p.record.version),
    Attribute(
        "Proven", "number of bags of which it has done a task", lambda s, t, p: len(p.proven)
    ),
)
SITE = (
    Attribute("Name", "the site's name", lambda s, t, n: n),
    Attribute("Driver", "the kind of site, such as slurm", lambda s, t, n: _spec(s, n).driver),
    Attribute("Price", "the price that is set for it", lambda s, t, n: _spec(s, n).price),
    Attribute(
        "Failover",
        "whether it is only for tasks that failed elsewhere",
        lambda s, t, n: _spec(s, n).failover,
    ),
    Attribute("MaxWall", "seconds that a pilot may live there", lambda s, t, n: _wall(_spec(s, n))),
    Attribute("PilotSlots", "slots of a pilot there, at most", lambda s, t, n: _spec(s, n).slots),
    Attribute("Pilots", "pilots that work there now", lambda s, t, n: sum(1 for _ in _at(s, n))),
    Attribute("Slots", "their slots", lambda s, t, n: sum(p.record.slots for p in _at(s, n))),
    Attribute(
        "Waiting", "pilots that wait in its queue", lambda s, t, n: _jobs(s, n, running=False)
    ),
    Attribute(
        "Running", "pilots that have left its queue", lambda s, t, n: _jobs(s, n, running=True)
    ),
    Attribute(
        "FreePilots", "pilots that could be started there now", lambda s, t, n: _free(s, t, n)
    ),
    Attribute(
        "RunningJobs", "tasks there now", lambda s, t, n: sum(len(p.attempts) for p in _at(s, n))
    ),
    Attribute(
        "ErrorRate",
        "fraction of its recent tasks that failed",
        lambda s, t, n: _part(host_history.site_error_rate(s, n)),
    ),
    Attribute(
        "LossRate",
        "fraction of its recent tasks that were lost",
        lambda s, t, n: _part(host_history.loss_rate(s, History(site=n))),
    ),
    Attribute(
        "Turnaround",
        "mean seconds from sending a task to its result, for recent tasks",
        lambda s, t, n: host_history.turnaround(s, History(site=n)),
    ),
    *map(_measured, FIGURES),
)
BAG = (
    Attribute("Id", "its number", lambda s, t, b: b.id),
    Attribute("Name", "its name", lambda s, t, b: b.spec.name),
    Attribute("Owner", "its owner", lambda s, t, b: b.spec.owner),
    Attribute("JobsTotal", "number of its tasks", lambda s, t, b: b.total),
    Attribute("JobsLeft", "tasks without a result", lambda s, t, b: _left(b)),
    Attribute("JobsDone", "tasks done", lambda s, t, b: len(b.places.done)),
    Attribute("JobsFailed", "tasks that failed", lambda s, t, b: len(b.places.failed)),
    Attribute("JobsUnsent", "tasks that wait for a host", lambda s, t, b: b.unsent()),
    Attribute(
        "JobsRunning", "tasks that are running or sent ahead", lambda s, t, b: len(b.places.live)
    ),
    Attribute("Open", "whether tasks may still be added", lambda s, t, b: b.open),
    Attribute(
        "Tail",
        "whether TailCondition is true (with sticky_tail: was ever true)",
        lambda s, t, b: b.replicas.tail,
    ),
    Attribute("Age", "seconds since it was submitted", lambda s, t, b: max(0.0, t - b.created)),
    Attribute("MeanTime", "mean seconds that its tasks ran", lambda s, t, b: _mean(b)),
    Attribute(
        "Replicas",
        "attempts that were sent beyond the first of each task",
        lambda s, t, b: b.replicas.sent,
    ),
    Attribute(
        "BestErrorRate",
        "the lowest ErrorRate of the hosts that can run its tasks by owner, sites, hosts and "
        "resources; other requirements are not considered",
        lambda s, t, b: _best_rate(s, t, b),
    ),
)
JOB = (
    Attribute("Cores", "cores that the task needs", lambda s, t, j: _need(j).cores),
    Attribute("Memory", "MB of memory that it needs", lambda s, t, j: _need(j).memory_mb),
    Attribute("Disk", "MB of disk that it needs", lambda s, t, j: _need(j).disk_mb),
    Attribute("Gpus", "GPUs that it needs", lambda s, t, j: _need(j).gpus),
    Attribute(
        "TimeLimit",
        "seconds that it may run; 0: no limit",
        lambda s, t, j: _need(j).limit_seconds,
    ),
    Attribute(
        "MeanTime", "mean seconds of similar tasks", lambda s, t, j: expected(j.bag, j.kind).mean
    ),
    Attribute(
        "TimeDeviation",
        "standard deviation of these seconds",
        lambda s, t, j: expected(j.bag, j.kind).deviation,
    ),
    Attribute(
        "Measured",
        "number of similar tasks that were measured",
        lambda s, t, j: expected(j.bag, j.kind).count,
    ),
    Attribute(
        "Number",
        "its number; -1 where a whole class of tasks is looked at",
        lambda s, t, j: j.number,
    ),
    Attribute(
        "NumberOfReplicas",
        "its attempts that are running or sent ahead",
        lambda s, t, j: len(live(j)),
    ),
    Attribute(
        "RunningTime",
        "seconds since the oldest attempt was sent",
        lambda s, t, j: max((t - a.sent for a in live(j)), default=0.0),
    ),
    Attribute(
        "SinceReplication",
        "seconds since the latest attempt was sent",
        lambda s, t, j: min((t - a.sent for a in live(j)), default=NEVER),
    ),
    Attribute(
        "Suspected",
        "whether the pilot of one of its attempts is silent",
        lambda s, t, j: any(_silent(s, a) for a in live(j)),
    ),
    Attribute(
        "Tries", "how often it failed", lambda s, t, j: j.bag.failures.tries.get(j.number, 0)
    ),
    Attribute(
        "Losses",
        "how often it was lost with a pilot",
        lambda s, t, j: j.bag.failures.losses.get(j.number, 0),
    ),
    Attribute(
        "FailedHosts",
        "a list: names of the hosts where it failed; empty where tasks of a class are looked at "
        "together",
        lambda s, t, j: _failed_hosts(j),
    ),
)
REPLICA = (
    Attribute("SentTime", "when it was sent, in seconds since 1970", lambda s, t, a: a.sent),
    Attribute("RunningTime", "seconds since it was sent", lambda s, t, a: t - a.sent),
    Attribute("Suspected", "whether its pilot is silent", lambda s, t, a: _silent(s, a)),
    Attribute("Expired", "whether its deadline has passed", lambda s, t, a: a.expired),
    Attribute(
        "Progress",
        "seconds since it was sent, as a fraction of the mean time of its class; at most 0.99",
        lambda s, t, a: _progress(s, t, a),
    ),
)
USER = (
    Attribute("Name", "the bag's owner", lambda s, t, o: o),
    Attribute(
        "Bags", "unfinished bags of this owner", lambda s, t, o: sum(1 for _ in _bags_of(s, o))
    ),
    Attribute(
        "JobsLeft",
        "tasks of this owner without a result",
        lambda s, t, o: sum(map(_left, _bags_of(s, o))),
    ),
    Attribute(
        "RunningJobs",
        "tasks of this owner that are running or sent ahead",
        lambda s, t, o: sum(len(b.places.live) for b in _bags_of(s, o)),
    ),
)
QUEUE = (
    Attribute("BOTsInQueue", "unfinished bags", lambda s, t, _: len(s.bags)),
    Attribute("Pilots", "pilots that work now", lambda s, t, _: sum(1 for _ in _here(s))),
    Attribute("Slots", "their slots", lambda s, t, _: s.slots()),
    Attribute(
        "FreeSlots",
        "free slots",
        lambda s, t, _: sum(max(0, p.record.slots - p.load) for p in _here(s)),
    ),
    Attribute("JobsUnsent", "tasks that wait for a host", lambda s, t, _: s.unsent()),
    Attribute(
        "RunningJobs",
        "tasks that are running or sent ahead",
        lambda s, t, _: sum(len(b.places.live) for b in s.bags.values()),
    ),
    Attribute(
        "ErrorRate",
        "fraction of all recent tasks that failed",
        lambda s, t, _: _part(host_history.queue_error_rate(s)),
    ),
)

TABLE: dict[str, dict[str, Attribute]] = {
    role: {one.name.lower(): one for one in attributes}
    for role, attributes in (
        ("host", HOST),
        ("pilot", PILOT),
        ("site", SITE),
        ("bag", BAG),
        ("job", JOB),
        ("user", USER),
        ("queue", QUEUE),
    )
}


def _cpus(pilot: Pilot) -> int:
    cores = pilot.record.tags.get("cores", "")
    return int(cores) if cores.isdecimal() else pilot.record.slots


def _held(state: State, pilot: Pilot) -> int:
    host = host_of(state, pilot)
    return sum(len(state.pilots[id_].attempts) for id_ in host.pilots)


def _here(state: State) -> Iterator[Pilot]:
    return (one for one in state.pilots.values() if one.status is PilotStatus.ACTIVE)


def _at(state: State, site: str) -> Iterator[Pilot]:
    return (one for one in _here(state) if one.record.site == site)


def _spec(state: State, site: str) -> SiteSpec:
    """Of a place where only people start pilots, one that says nothing."""
    known = state.sites.get(site)
    return known.record.spec if known is not None else _NO_SITE


def _wall(spec: SiteSpec) -> float:
    return spec.wall_seconds or NEVER


def _jobs(state: State, site: str, *, running: bool) -> int:
    known = state.sites.get(site)
    return sum(state.jobs[id_].running is running for id_ in known.jobs) if known else 0


def _free(state: State, now: float, site: str) -> int:
    known = state.sites.get(site)
    return site_table.room(state, now, known) if known is not None else 0


def _bags_of(state: State, owner: str) -> Iterator[Bag]:
    alive = (BagStatus.RUNNING, BagStatus.PAUSED)
    return (b for b in state.bags.values() if b.spec.owner == owner and b.status in alive)


def _need(job: JobSubject) -> Need:
    return job.bag.classes[job.kind].need


def _left(bag: Bag) -> int:
    return bag.total - len(bag.places.done) - len(bag.places.failed)


def _mean(bag: Bag) -> float:
    times = [one.times for one in bag.classes]
    count = sum(one.count for one in times)
    return sum(one.count * one.mean for one in times) / count if count else 0.0


def _best_rate(state: State, now: float, bag: Bag) -> float:
    """Looked for once a second: there may be thousands of pilots."""
    if now - bag.hosts.best_at >= 1.0:
        best = math.inf
        for pilot in _here(state):
            rate = _rate(state, now, pilot)
            if rate < best and _can_have(state, now, pilot, bag):
                best = rate
        bag.hosts.best_at, bag.hosts.best_rate = now, best if best < math.inf else 0.0
    return bag.hosts.best_rate


def _can_have(state: State, now: float, pilot: Pilot, bag: Bag) -> bool:
    record, policy = pilot.record, bag.policy.spec
    ban = host_of(state, pilot).history.bans.get(bag.spec.owner)
    return (
        admits(state, record, bag)
        and (not policy.only_sites or record.site in policy.only_sites)
        and record.site not in policy.avoid_sites
        and (not policy.only_hosts or _is_named(record.host, policy.only_hosts))
        and not _is_named(record.host, policy.avoid_hosts)
        and (ban is None or ban.until <= now)
        and any(weight(one.need, record) for one in bag.classes)
    )


def _is_named(host: str, names: tuple[str, ...]) -> bool:
    return host in names or called_name(host) in names


def live(job: JobSubject) -> list[Attempt]:
    """Attempts of the task that are not past their deadline."""
    return [one for one in job.bag.places.live.get(job.number, ()) if not one.expired]


def _failed_hosts(job: JobSubject) -> list[str]:
    failed = job.bag.failures.failed_on.get(job.number)
    return list(failed.hosts) if failed is not None else []


def _silent(state: State, attempt: Attempt) -> bool:
    return state.pilots[attempt.pilot].status is PilotStatus.SUSPECTED


def _progress(state: State, now: float, attempt: Attempt) -> float:
    bag = state.bags.get(attempt.bag)
    mean = expected(bag, attempt.kind).mean if bag is not None else 0.0
    return min(0.99, max(0.0, now - attempt.sent) / mean) if mean > 0 else 0.0


class HostTags(NamedTuple):
    """Tags of a host, names in small letters: those published by the owner's tasks, and others."""

    own: dict[str, Value]
    others: dict[str, Value]


def tags_of(tags: dict[str, str], owner: str) -> HostTags:
    """The tags as bags of this owner see them. Tags of the owner's own tasks hide others of the
    same name."""
    found = HostTags({}, {})
    for name, text in tags.items():
        whose, _, plain = name.rpartition(":")
        if not whose:
            found.others[name.lower()] = number_or_text(text)
        elif whose == owner:
            found.own[plain.lower()] = number_or_text(text)
    return found


def number_or_text(text: str) -> Value:
    for kind in (int, float):
        try:
            found = kind(text)
        except ValueError:
            continue
        return found if abs(found) < 2**62 else text  # also for NaN and infinity
    return text


def full_ad(
    state: State, now: float, role: str, thing: Any, owner: str = "", names: Names = ALL
) -> Ad:
    """All attributes of a role, or those of them that are in `names` (small letters), with the tags
    of a host and the parameters of a job."""
    found = _ad(state, now, role, thing, names)
    if role == "host":
        own, others = tags_of(thing.record.tags, owner)
        for name, value in (*others.items(), *own.items()):
            wanted = "*" in names or name in names
            if wanted and (name in own or name not in found):
                found[name] = value
    if role == "job":
        add_parameters(found, thing)
        add_replicas(found, state, now, thing, owner)
    return found


def _ad(state: State, now: float, role: str, thing: object, names: Names) -> Ad:
    return Ad({one.name: one.find(state, now, thing) for one in _looked(role, names)})


@lru_cache(maxsize=256)
def _looked(role: str, names: Names) -> tuple[Attribute, ...]:
    known = REPLICA if role == "replica" else TABLE[role].values()
    return tuple(one for one in known if "*" in names or one.name.lower() in names)


def parameters(bag: Bag, values: Sequence[Scalar] | None) -> Iterator[tuple[str, Scalar]]:
    """The parameters of a task as policies see them: text that spells a number is that number."""
    for name, value, reading in zip(
        bag.body.names, values or (), bag.numbering.readings, strict=False
    ):
        yield name, read(value, reading)


def add_parameters(ad: Ad, job: JobSubject) -> None:
    bag = job.bag
    if job.number >= 0 and not bag.spec.calls:
        for name, value in parameters(bag, bag.values(job.number)):
            ad[name] = value


def add_replicas(
    ad: Ad, state: State, now: float, job: JobSubject, owner: str, names: Names = ALL
) -> None:
    """Add `Replicas`, a list, and `Replica1` and so on: where the task runs now. Each has only the
    attributes in `names`, since a draw makes a thousand of them."""
    replicas = []
    for number, attempt in enumerate(live(job), 1):
        pilot = state.pilots[attempt.pilot]
        one = _ad(state, now, "replica", attempt, names)
        one["Name"] = f"{job.bag.id}.{job.number}_{number}"
        if names & {"*", "host"}:
            one["Host"] = full_ad(state, now, "host", pilot, owner, names)
        if names & {"*", "pilot"}:
            one["Pilot"] = full_ad(state, now, "pilot", pilot, owner, names)
        if names & {"*", "site"}:
            one["Site"] = Ad({"Name": pilot.record.site})
        replicas.append(one)
        ad[f"Replica{number}"] = one
    ad["Replicas"] = [one.within(None) for one in replicas]


def can_see(state: State, bag: Bag) -> Iterator[Pilot]:
    """Pilots whose owner lets them run the bag's tasks."""
    return (pilot for pilot in state.pilots.values() if admits(state, pilot.record, bag))
