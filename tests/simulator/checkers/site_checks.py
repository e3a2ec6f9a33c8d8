"""Are sites used as their owners and administrators allow? Judged by what is asked of them, and by
what becomes durable.

- Every job is in the record once, with its times in order and, when it is over, with how it ended.
- A job is durable before it is submitted, is submitted once, and is not forgotten: as long as it
  waits or runs the record has it, unless its site lied about it.
- Nothing is asked of a site beyond its limits, or while it is paused, draining or removed, or when
  nobody has unfinished tasks.
- A site with weight 0 gets no jobs.
- No more than `MOST_CANCELS` jobs are taken back at once.
- A site that is broken, or whose check fails, gets few jobs.
- A job whose pilot has taken leave does not count against the limits.
- A pilot gets no task that its owner may not run there, or that may take longer than the pilot
  lives.
- When nothing breaks any more, jobs that nobody needs are taken back, and needed ones are asked
  for.

Specifications change while decisions are on their way to the disk: it is enough if one that was in
force within the last `SLACK_SECONDS` allows what happens.
"""

import math

from msgspec import Struct, field

from covey.classad import Ad, dependencies, parse
from covey.core.record.actions import Change, EndJob, ForgetSite, SaveJob, SaveSite
from covey.core.record.model import JobId, JobRecord, PolicySpec, SiteRecord, SiteSpec, SiteStatus
from covey.pilot.protocol.messages import OK
from tests.simulator.checkers.ledger import HostLife, Ledger, Sending, Violation
from tests.simulator.plan.site_plans import Nature

SLACK_SECONDS = 15.0
MOST_CANCELS = 100
MOST_CORES = 3  # of one task
FRESH_SECONDS = 100.0  # for which a waiting job is counted on
STARVE_SECONDS = 250.0  # the longest pause of a site that failed while everything broke
MOST_PROBES = 12  # jobs for a broken site by one server, besides its ramp


class _Noted(Struct, eq=False):
    """A job as an observer knows it."""

    record: JobRecord
    durable: bool = True
    ended: bool = False  # in the record
    submitted: bool = False
    arrived: bool = False
    began: float = 0.0
    rounds: int = 0
    over: float = 0.0  # when it really ended
    lied: bool = False
    cancelled: bool = False
    departing: bool = False  # its pilot has taken leave

    @property
    def there(self) -> bool:
        return self.arrived and not self.over


class _Rule(Struct, frozen=True):
    """A specification and the time from which it was in force."""

    at: float
    spec: SiteSpec


class _Ward(Struct, eq=False):
    """A site under supervision."""

    rules: list[_Rule] = field(default_factory=list)
    shut: float = 0.0  # since when nothing may be started there, as the administrator was told
    asked: int = 0

    def lately(self, now: float) -> list[SiteSpec]:
        """The specifications that may have decided."""
        recent = [rule.spec for rule in self.rules if rule.at > now - SLACK_SECONDS]
        before = [rule.spec for rule in self.rules if rule.at <= now - SLACK_SECONDS]
        return [*before[-1:], *recent]


class Supervisor:
    def __init__(self, ledger: Ledger, natures: dict[str, Nature]) -> None:
        self._ledger = ledger
        self._natures = natures
        self._jobs: dict[JobId, _Noted] = {}
        self._wards: dict[str, _Ward] = {}
        self._cancels: list[tuple[float, str]] = []
        self._served = 0.0  # when a sound site last had a job, or nobody needed one
        self.records: dict[str, SiteRecord] = {}  # as the record has them

    def _ward(self, name: str) -> _Ward:
        return self._wards.setdefault(name, _Ward())

    def _at(self, name: str) -> list[_Noted]:
        return [job for job in self._jobs.values() if job.record.site == name]

    # -- as it happens ---------------------------------------------------------------------

    def applied(self, change: Change) -> None:
        """This change has become durable."""
        match change:
            case SaveJob(record):
                job = self._jobs.get(record.id)
                if job is None:
                    self._jobs[record.id] = _Noted(record)
                else:
                    job.record = record
                    if job.ended:
                        raise Violation(f"job {record.id} had ended, and is saved once more")
                _check_times(record, math.inf)
            case EndJob(id_, at, _, outcome):
                job = self._jobs[id_]
                if job.ended:
                    raise Violation(f"job {id_} ended twice in the record")
                if not outcome:
                    raise Violation(f"the record does not tell how job {id_} ended")
                _check_times(job.record, at)
                if job.there and not job.lied:
                    raise Violation(f"job {id_} is there, but the record has it as ended")
                job.ended = True
            case SaveSite(site):
                self.records[site.spec.name] = site
                if site.status is SiteStatus.ON:
                    self._ward(site.spec.name).shut = 0.0
            case ForgetSite(name):
                self.records.pop(name, None)
                left = [job.record.id for job in self._at(name) if job.there and not job.lied]
                if left:
                    raise Violation(f"site {name} is forgotten, with jobs {left}")
            case _:
                pass

    def defined(self, specs: tuple[SiteSpec, ...], now: float) -> None:
        for spec in specs:
            rules = self._ward(spec.name).rules
            if not rules or rules[-1].spec != spec:
                rules.append(_Rule(now, spec))

    def told_shut(self, site: str, now: float) -> None:
        """The administrator has been told that nothing more is started there."""
        record = self.records.get(site)
        if record is None or record.status is not SiteStatus.ON:  # nobody turned it on meanwhile
            self._ward(site).shut = now

    def asks_to_open(self, site: str) -> None:
        self._ward(site).shut = 0.0

    def submitted(self, jobs: tuple[JobRecord, ...], now: float) -> None:
        name = jobs[0].site
        ward = self._ward(name)
        for record in jobs:
            job = self._jobs.get(record.id)
            if job is None:
                raise Violation(f"job {record.id} was submitted, and is not durable")
            if job.submitted:
                raise Violation(f"job {record.id} was submitted twice")
            if ward.shut and record.submitted > ward.shut:
                raise Violation(f"job {record.id} was submitted to {name}, which is shut")
            job.submitted = True
        ward.asked += len(jobs)
        if all(job.trial for job in jobs):
            return
        self._check_wanted(jobs)
        self._check_place(jobs, ward, now)
        self._check_limits(name, ward, len(jobs), now)
        self._check_broken(name, ward)

    def took(self, record: JobRecord, arrived: bool) -> None:
        self._jobs[record.id].arrived = arrived

    def began(self, record: JobRecord, now: float) -> None:
        job = self._jobs[record.id]
        job.began, job.rounds, job.departing = now, job.rounds + 1, False

    def requeued(self, record: JobRecord) -> None:
        self._jobs[record.id].began = 0.0

    def ended(self, record: JobRecord, now: float) -> None:
        self._jobs[record.id].over = now

    def departs(self, id_: str) -> None:
        if (job := self._jobs.get(JobId(id_))) is not None:
            job.departing = True

    def lied(self, id_: JobId) -> None:
        self._jobs[id_].lied = True

    def watched(self, jobs: tuple[JobRecord, ...]) -> None:
        """A server has started with these jobs."""
        known = {job.id for job in jobs}
        for job in self._jobs.values():
            if job.there and not job.lied and job.record.id not in known:
                raise Violation(f"job {job.record.id} is there, but a new server forgets it")

    def cancelled(self, jobs: tuple[JobRecord, ...], now: float) -> None:
        if len(jobs) > MOST_CANCELS:
            raise Violation(f"{len(jobs)} jobs were taken back at once")
        name = jobs[0].site
        for record in jobs:
            self._jobs[record.id].cancelled = True
        self._cancels = [cancel for cancel in self._cancels if cancel[0] > now - 1.0]
        self._cancels.append((now, name))
        if sum(site == name for _, site in self._cancels) > 4:
            count = len(self._cancels)
            raise Violation(f"jobs of {name} were taken back {count} times in a second")

    def sent(self, sending: Sending, limit: float) -> None:
        """This attempt leaves the server for the first time."""
        place = sending.life.place.site
        owner = self._ledger.bags[sending.task[0]].spec.owner
        specs = self._wards[place].lately(sending.at) if place in self._wards else []
        if specs and all(spec.users and owner not in spec.users for spec in specs):
            raise Violation(f"{sending} is {owner}'s, for whom {place} is not")
        job = self._jobs.get(JobId(sending.life.job))
        whose = job.record.wanted_by if job is not None else owner
        if whose != owner and specs and not any(spec.shared for spec in specs):
            raise Violation(f"{sending} is {owner}'s, and its pilot is there for {whose}")
        if job is None or not job.record.wall_seconds or not limit or not sending.life.contacts:
            return
        until = sending.life.contacts[0] + job.record.wall_seconds
        if sending.decided + limit > until + 1.0:
            raise Violation(f"{sending} may take {limit:.0f} s, and its pilot ends at {until:.0f}")

    def is_open(self, life: HostLife, owner: str) -> bool:
        """Certainly the owner's tasks may run there, and its pilot has time for them."""
        ward, job = self._wards.get(life.place.site), self._jobs.get(JobId(life.job))
        if ward is not None and any(rule.spec.users or rule.spec.failover for rule in ward.rules):
            return False
        if job is not None and job.record.wanted_by != owner:
            return False
        record = self.records.get(life.place.site)
        if record is not None and record.status is SiteStatus.DRAINING:
            return False
        return job is None or not job.record.wall_seconds

    def is_reserve(self, site: str) -> bool:
        """Whether tasks that failed elsewhere may have been sent there for that reason."""
        ward = self._wards.get(site)
        return ward is not None and any(rule.spec.failover for rule in ward.rules)

    def has_reserves(self) -> bool:
        return any(map(self.is_reserve, self._wards))

    # -- what is asked ---------------------------------------------------------------------

    def _check_wanted(self, jobs: tuple[JobRecord, ...]) -> None:
        running = [notes for notes in self._ledger.bags.values() if notes.status == "running"]
        if not running:
            over = [notes.touched for notes in self._ledger.bags.values()]
            if not over or max(over) < jobs[0].submitted:
                raise Violation(f"jobs {[job.id for job in jobs]} were asked for, for nobody")
        self._check_enough(jobs[0].site, jobs[0].submitted)

    def _check_enough(self, site: str, now: float) -> None:
        """Nothing is asked for while more than enough jobs have waited there, not for long."""
        waiting = [
            job.record.slots
            for job in self._at(site)
            if job.there
            and not job.rounds
            and not job.cancelled
            and FRESH_SECONDS > now - job.record.submitted > 0.0
        ]
        tasks = sum(notes.total for notes in self._ledger.bags.values())
        for runs in self._ledger.runs.values():
            tasks -= any(run.outcome == OK for run in runs)
        if sum(waiting) > MOST_CORES * tasks + 2 * max(waiting, default=0):
            words = f"{sum(waiting)} slots wait there for {tasks} tasks"
            raise Violation(f"more jobs at {site} were asked for, while {words}")

    def _check_place(self, jobs: tuple[JobRecord, ...], ward: _Ward, now: float) -> None:
        name, specs, owner = jobs[0].site, ward.lately(now), jobs[0].wanted_by
        if specs and all(spec.users and owner not in spec.users for spec in specs):
            raise Violation(f"jobs at {name} are asked for, for {owner}, who is no user there")
        if specs and all(spec.weight == 0 for spec in specs):
            raise Violation(f"jobs at {name} are asked for, whose weight is 0")
        policies = [
            policy
            for notes in self._ledger.bags.values()
            if notes.spec.owner == owner
            for policy in notes.in_force(now - SLACK_SECONDS, now)
        ]
        if not self.is_reserve(name) and not any(_may_place(policy, name) for policy in policies):
            raise Violation(f"jobs at {name} are asked for, where {owner} has no bag: {policies}")

    def _check_limits(self, name: str, ward: _Ward, more: int, now: float) -> None:
        """Counts only what is certainly there: the server may believe that there is more."""
        there = [job for job in self._at(name) if job.there and not job.lied and not job.departing]
        specs = ward.lately(now)
        waiting = sum(not job.rounds for job in there) + more
        owners: dict[str, int] = {}
        for job in there:
            owner = job.record.wanted_by
            owners[owner] = owners.get(owner, 0) + bool(owner)
        self._hold(name, specs, "queued", waiting)
        self._hold(name, specs, "running", len(there) + more)
        self._hold(name, specs, "per_user", max(owners.values(), default=0))
        self._hold(name, specs, "all_memory_mb", sum(job.record.memory_mb for job in there))

    def _hold(self, name: str, specs: list[SiteSpec], limit: str, there: int) -> None:
        most = max((getattr(spec, limit) or math.inf for spec in specs), default=math.inf)
        if there > most:
            raise Violation(f"{there} at {name}, where {limit} is {most}")

    def _check_broken(self, name: str, ward: _Ward) -> None:
        nature = self._natures.get(name)
        if nature is None or nature.kind not in ("broken", "unfit") or not ward.rules:
            return
        ramp = max(rule.spec.ramp for rule in ward.rules)
        opened = 2 + len(self._ledger.restarts) + len(ward.rules)
        if ward.asked > opened * (ramp + MOST_PROBES):
            raise Violation(f"{name} is {nature.kind}, and got {ward.asked} jobs")

    # -- nothing breaks any more -----------------------------------------------------------

    def calm(self, now: float, since: float, wanted: bool) -> None:
        """For worlds in which nobody starts pilots by hand. As long as somebody has work, a sound
        site has a job of ours."""
        sound = any(
            job.there and self._natures[job.record.site].kind in ("sound", "slow")
            for job in self._jobs.values()
        )
        if sound or not wanted:
            self._served = now
        elif now - max(self._served, since) > STARVE_SECONDS:
            raise Violation(f"there is work, and nobody was asked for since {self._served:.0f}")

    # -- in the end ------------------------------------------------------------------------

    def final(self, now: float) -> None:
        for job in self._jobs.values():
            if job.over and now - job.over > 60.0 and not job.ended:
                raise Violation(f"job {job.record.id} is over, but nobody has noticed")


def _check_times(record: JobRecord, ended: float) -> None:
    """What happened to a job happened in this order, as far as it happened."""
    steps = [record.submitted, record.requeued, record.started, record.enrolled]
    times = [at for at in (*steps, record.goodbye, ended) if at]
    if times != sorted(times):
        raise Violation(f"times of job {record.id} are not in order: {record}, ended at {ended}")
    if record.enrolled and not record.pilot:
        raise Violation(f"job {record.id} has had a pilot, and nobody knows which: {record}")


def _may_place(policy: PolicySpec, site: str) -> bool:
    """Whether the policy may let pilots be started there, as far as an observer can know."""
    if site in policy.failover_sites:
        return True
    if (policy.only_sites and site not in policy.only_sites) or site in policy.avoid_sites:
        return False
    expression = parse(policy.grid) if policy.grid else None
    if expression is None or any(path != "site.name" for path in dependencies(expression)):
        return True
    return expression.evaluate(Ad({"Site": Ad({"Name": site})})) is not False
