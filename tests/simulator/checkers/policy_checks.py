"""Are policies kept? Judged from outside, by what leaves the server and what an observer knows.

- No task goes where its bag's requirements forbid it, as far as these are about what an observer
  knows: names, sites, tags, slots, parameters. (They do not count where a task that failed
  everywhere has its last chance.)
- No pilot gets more of a bag than its `Concurrency`, and no task has more attempts than
  `MaxReplicas`, including those past their deadline.
- A task that is out is sent again only if its deadline has passed, or if its bag is closed and has
  a policy that wants replicas; never to a host that has it; never if it must not run twice.
- No host is banned for longer than `ban_seconds`, or because of a bag that succeeded nowhere. While
  other hosts can do the work, a banned host gets nothing; then it gets one task, and soon.
- A bag in which everything fails is paused soon.
- When nothing breaks any more, tasks that an idle and sound host may run do not wait, unless it is
  a task's last try: that may wait for a host where the bag's latest tasks did not fail.

While a change is under way several policies may decide; then it is enough if one of them allows
what happens. Nothing is required that depends on facts which an observer cannot know.
"""

import math
import re
from collections.abc import Callable
from functools import lru_cache

from covey.classad import Ad, Expression, dependencies, parse
from covey.core.match.attributes import TABLE, number_or_text
from covey.core.record.actions import Change, Note, SaveHistory
from covey.core.record.model import BagSpec, PolicySpec, Segment, Settings
from covey.core.record.task_numbers import names_in
from covey.core.values.space import Scalar
from covey.pilot.protocol.messages import FAILED, OK, OWN_FAILURES
from covey.ports import Reader
from covey.wire import ResultQuery
from tests.simulator.checkers.ledger import BagNotes, HostLife, Ledger, Sending, TaskKey, Violation
from tests.simulator.checkers.site_checks import Supervisor
from tests.simulator.plan.workload import MOST_CORES

FEW_FAILURES = 5  # prove nothing yet
MOST_FAILURES = 50  # in a row, until a bag is paused
BREAKER = 30  # … if its owner allows no more than that
RETRY_SECONDS = 55.0  # for which a task waits for another host than the one where it failed
LOOK_SECONDS = 1.1  # for which core may believe that there is no other host, though one has come
FAILING = 2  # failures of a bag in a row: a host that gets no last tries of its tasks
LAST_TRY_SECONDS = 600.0  # for which a last try waits for a better host
LAST_TRY_RUNS = 20.0  # … or so many times as long as a task of the bag runs
TRY_SECONDS = 15.0  # after the end of its ban a host must have been tried within this time
MOST_PASSED = 5  # tasks that may go to others meanwhile
WAIT_SECONDS = 40.0  # besides adoption: for which a task may wait although a host is idle
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
REPLICATING = ("fast-tail", "reliable-tail")
MOST_REPLICAS = {"fast-tail": "3", "reliable-tail": "2"}

parsed: Callable[[str], Expression] = lru_cache(maxsize=None)(parse)


class Ban:
    def __init__(self, until: float) -> None:
        self.until = until
        self.tried_at = 0.0  # when a task of the owner was last sent there
        self.passed = 0  # times that tasks went to others while the host was idle
        self.passed_at = 0.0  # the last of them: tasks sent at the same moment count once


class Police:
    def __init__(
        self, ledger: Ledger, settings: Settings, reader: Reader, supervisor: Supervisor
    ) -> None:
        self._ledger = ledger
        self._supervisor = supervisor
        self._settings = settings
        self._reader = reader
        self._bans: dict[tuple[str, str], Ban] = {}  # (host, owner)

    # -- as it happens ---------------------------------------------------------------------

    def sent(self, sending: Sending, values: list[Scalar]) -> None:
        """This attempt leaves the server for the first time."""
        ledger, bag = self._ledger, sending.task[0]
        notes = ledger.bags[bag]
        policies = notes.in_force(sending.decided, sending.at)
        scene = _scene(sending.life, _parameters(notes.spec, values))
        if not self._check_place(sending, policies, scene):
            self._check_load(sending, policies, scene)
        self._check_again(sending, notes, policies, scene)
        self._check_ban(sending, notes)
        self._check_retry(sending, notes)
        self._check_broken(sending, notes)
        times = [_seconds(policy.deadline, scene) for policy in policies if policy.deadline]
        sending.deadline = sending.decided + min(times) if times else math.inf
        notes.touched = sending.at
        if sending.key not in ledger.over_at:
            ledger.live[sending.key] = sending

    def restarted(self) -> None:
        """Bans that were not durable are forgotten."""
        self._bans = {
            (host, owner): Ban(ban.until)
            for host, history in self._ledger.histories.items()
            for owner, ban in history.bans.items()
        }

    def noted(self, note: Note, now: float) -> None:
        if note.what not in ("host banned", "ban ended"):
            return
        life, notes = self._ledger.lives[note.pilot], self._ledger.bags[note.bag]
        key = (life.place.host, notes.spec.owner)
        if note.what == "ban ended":
            self._bans.pop(key, None)
            return
        seconds = float(note.detail.split()[-2])
        self._check_length(seconds, life.place.host)
        if not self._done_elsewhere(note.bag, life.place.host):
            raise Violation(f"{note}, but nobody else has done a task of that bag well")
        self._bans[key] = Ban(now + seconds)

    def applied(self, change: Change, now: float) -> None:
        if isinstance(change, SaveHistory):
            for ban in change.history.bans.values():
                self._check_length(ban.until - now, change.host)

    # -- where, and how much ---------------------------------------------------------------

    def _check_place(self, sending: Sending, policies: list[PolicySpec], scene: Ad) -> bool:
        """Whether it may be there only because it failed elsewhere, whatever its policy says: we do
        not know all attributes that the policy uses."""
        life = sending.life
        site = life.place.site
        failover = any(site in policy.failover_sites for policy in policies)
        failover |= self._supervisor.is_reserve(site)
        last_chance = failover and self._has_failed(sending.task)
        if not last_chance and not any(_lets(policy, life, scene) for policy in policies):
            raise Violation(f"{sending}, where {policies} does not let it run")
        return last_chance

    def _has_failed(self, task: TaskKey) -> bool:
        return any(run.outcome in OWN_FAILURES for run in self._ledger.runs.get(task, ()))

    def _check_load(self, sending: Sending, policies: list[PolicySpec], scene: Ad) -> None:
        limits = [_concurrency(policy, scene) for policy in policies]
        bag = sending.task[0]
        there = sum(
            other.pilot == sending.pilot and other.task[0] == bag
            for other in self._ledger.live.values()
        )
        if there >= max(limits, default=math.inf):
            raise Violation(f"{sending}, which has {there} of them, by {policies}")

    # -- again -----------------------------------------------------------------------------

    def _check_again(
        self, sending: Sending, notes: BagNotes, policies: list[PolicySpec], scene: Ad
    ) -> None:
        beside = self._ledger.out(sending.task)
        sending.beside = tuple(other.key for other in beside)
        sending.may_repeat = (
            notes.spec.idempotent and notes.closed and any(map(_speculates, policies))
        )
        if not beside:
            return
        words = f"{sending} while there are {', '.join(map(str, beside))}"
        if not notes.spec.idempotent:
            raise Violation(f"{words}: it is not idempotent")
        if any(other.life.place.host == sending.life.place.host for other in beside):
            raise Violation(f"{words}: it is there already")
        waited_for = [other for other in beside if sending.at < other.deadline]
        if waited_for and not sending.may_repeat:
            raise Violation(f"{words}: nobody wants that")
        most = max(_most_replicas(policy, scene, not waited_for) for policy in policies)
        if len(beside) >= most:
            raise Violation(f"{words}: more than MaxReplicas")

    # -- whose fault -----------------------------------------------------------------------

    def _check_length(self, seconds: float, host: str) -> None:
        if seconds > self._settings.ban_seconds + 1.0:
            raise Violation(f"{host} is banned for {seconds:.0f} s")

    def _done_elsewhere(self, bag: int, host: str) -> bool:
        for task, runs in self._ledger.runs.items():
            if task[0] == bag:
                for run in runs:
                    if run.outcome == OK and run.host.place.host != host:
                        return True
        return False

    def _check_ban(self, sending: Sending, notes: BagNotes) -> None:
        now, host, owner = sending.at, sending.life.place.host, notes.spec.owner
        self._note_passed(sending, notes)
        ban = self._bans.get((host, owner))
        if ban is None or sending.decided < now or not self._others_can(sending, notes):
            return
        if abs(now - ban.until) < 1.0:
            return  # notes are in whole seconds
        if now < ban.until:
            raise Violation(f"{sending}, which is banned until {ban.until:.2f}")
        for live in self._ledger.live.values():
            bag_notes = self._ledger.bags[live.task[0]]
            if live.life.place.host != host or bag_notes.spec.owner != owner:
                continue
            if bag_notes.status in ("running", "paused"):
                raise Violation(f"{sending}, which is tried after a ban with {live}")

    def _check_retry(self, sending: Sending, notes: BagNotes) -> None:
        """A task does not go back at once to the host where it failed, while there certainly is
        another host for it that has not failed at anything."""
        now, host = sending.at, sending.life.place.host
        failover = any(ruling.policy.failover_sites for ruling in notes.rulings)
        if sending.decided < now or failover or self._supervisor.has_reserves():
            return
        for run in self._ledger.runs.get(sending.task, ()):
            key = run.sending.key
            same_server = key[0] == sending.key[0]
            recorded = self._ledger.recorded.get(key) == [FAILED] and same_server
            lately = run.ended > max(now - RETRY_SECONDS, self._wishes(sending))
            there = run.host.place.host == host
            if recorded and lately and there and self._others_can(sending, notes):
                raise Violation(f"{sending}, where it failed at {run.ended:.2f}")

    def _wishes(self, sending: Sending) -> float:
        """When the owner last asked for failed tasks of the bag again."""
        return max(self._ledger.retries.get(sending.task[0], ()), default=0.0)

    def _others_can(self, sending: Sending, notes: BagNotes) -> bool:
        """Certainly there is another host for this bag, and nothing bad is known about it."""
        bad = {
            run.host.place.host
            for runs in self._ledger.runs.values()
            for run in runs
            if run.outcome not in ("", OK)
        }
        return any(
            life is not sending.life
            and life.place.host not in bad
            and (life.place.host, notes.spec.owner) not in self._bans
            and self._known_since(life) < sending.at - LOOK_SECONDS
            and self._is_there(life, notes.spec.owner, sending.at)
            and _surely_lets(notes, life)
            for life in self._ledger.lives.values()
        )

    def _known_since(self, life: HostLife) -> float:
        """When the server that runs now first heard it, after its connection last broke."""
        unknown = max(self._ledger.restarts[-1], life.dropped)
        return next((contact for contact in life.contacts if contact > unknown), math.inf)

    def _is_there(self, life: HostLife, owner: str, now: float) -> bool:
        """Certainly the server knows it as a pilot that this owner may use."""
        last = life.contacts[-1] if life.contacts else 0.0
        is_known = last > max(self._ledger.restarts[-1], life.dropped)
        here = is_known and now - last < self._settings.lease_seconds and _is_large(life)
        return here and self._supervisor.is_open(life, owner)

    def _note_passed(self, sending: Sending, notes: BagNotes) -> None:
        """A host that was banned and is idle must be tried before long."""
        now, owner = sending.at, notes.spec.owner
        for (host, whose), ban in self._bans.items():
            if whose == owner and host == sending.life.place.host:
                ban.tried_at = now
            if whose != owner or now < ban.until + TRY_SECONDS or sending.beside:
                continue
            lives = [life for life in self._ledger.lives.values() if life.place.host == host]
            alive = [life for life in lives if not life.died]
            ready = [
                life
                for life in alive
                if self._is_there(life, owner, now) and _surely_lets(notes, life)
            ]
            idle = all(now - life.idle_since > TRY_SECONDS for life in alive)
            # A task that died there and is still waited for counts as a try.
            live = self._ledger.live.values()
            tried = any(other.life.place.host == host for other in live)
            tried |= now - ban.tried_at < TRY_SECONDS  # and failed too soon for anybody to see
            if not (idle and ready and not tried):
                ban.passed = 0
            elif now > ban.passed_at:
                ban.passed, ban.passed_at = ban.passed + 1, now
            if ban.passed > MOST_PASSED:
                words = f"tasks went to others {ban.passed} times: {sending}"
                raise Violation(f"the ban of {host} was over at {ban.until:.2f}, but {words}")

    def _check_broken(self, sending: Sending, notes: BagNotes) -> None:
        """A bag with too many failures must be paused, unless hosts may be at fault: as many hosts
        work on it as fail. Failures before such a moment prove nothing."""
        if not 0 < notes.spec.breaker <= BREAKER or notes.row < FEW_FAILURES:
            return
        bag, runs = sending.task[0], self._ledger.runs
        ended = [run for task in runs if task[0] == bag for run in runs[task] if run.outcome]
        last = {run.host.place.host: run for run in sorted(ended, key=lambda run: run.ended)}
        failing = {host for host, run in last.items() if run.outcome in OWN_FAILURES}
        live = self._ledger.live.values()
        working = {other.life.place.host for other in live if other.task[0] == bag} - failing
        if len(working) >= len(failing):
            notes.row = 0
        elif notes.row >= MOST_FAILURES:
            raise Violation(f"{sending} after {notes.row} failures in a row")

    # -- nothing breaks any more -----------------------------------------------------------

    def calm(self, now: float, since: float) -> None:
        """No task waits for long while a host waits for work."""
        bound = WAIT_SECONDS + self._settings.adopt_seconds
        idle = [life for life in self._ledger.lives.values() if now - life.idle_since > TRY_SECONDS]
        for bag, notes in self._ledger.bags.items() if idle else ():
            waited = now - max(notes.touched, since)
            last_chances = notes.policy.failover_sites or self._supervisor.has_reserves()
            if notes.status != "running" or waited < bound or last_chances:
                continue
            for life in idle:
                there = self._is_there(life, notes.spec.owner, now)
                sound = there and _surely_lets(notes, life) and self._is_sound(life, now)
                if sound and self._waits(bag, notes, life, now):
                    words = f"nothing of it was sent for {waited:.0f} s, while {life.name} is idle"
                    raise Violation(f"tasks of bag {bag} wait: {words}")

    def _is_sound(self, life: HostLife, now: float) -> bool:
        """Certainly the host has no recent failure and is not banned."""
        late = now - self._settings.ban_seconds
        return not any(
            run.host.place.host == life.place.host and run.outcome != OK and run.ended > late
            for runs in self._ledger.runs.values()
            for run in runs
        )

    def _waits(self, bag: int, notes: BagNotes, life: HostLife, now: float) -> bool:
        """Whether the bag has a task that no host runs, and that does not wait for a better host
        than this one."""
        results = self._reader.results(bag, ResultQuery(limit=notes.total + 1))
        settled = {row.task for row in results}
        for task in range(notes.total):
            runs = self._ledger.runs.get((bag, task), ())
            runs_somewhere = any(not run.outcome and not run.host.died for run in runs)
            if task in settled or runs_somewhere or self._ledger.out((bag, task)):
                continue
            if not self._waits_for_better((bag, task), notes, life, now):
                return True
        return False

    def _waits_for_better(self, task: TaskKey, notes: BagNotes, life: HostLife, now: float) -> bool:
        """Whether this may be the last try of a task that has failed, kept from a host on which the
        bag's latest tasks have failed, for another one that does better."""
        if notes.failures.get(life.place.host, 0) < FAILING:
            return False
        failed = [run for run in self._ledger.runs.get(task, ()) if run.outcome in OWN_FAILURES]
        if not 0 < notes.spec.retries <= len(failed):
            return False
        runs = [
            run for key in self._ledger.runs if key[0] == task[0] for run in self._ledger.runs[key]
        ]
        longest = max(run.ended - run.started for run in runs)
        seconds = max(LAST_TRY_SECONDS, LAST_TRY_RUNS * longest) + TRY_SECONDS
        if now > max(run.ended for run in failed) + seconds:
            return False
        worse = {life.place.host, *(run.host.place.host for run in failed)}
        return any(
            other.place.host not in worse and self._does_better(notes, other, now)
            for other in self._ledger.lives.values()
        )

    def _does_better(self, notes: BagNotes, life: HostLife, now: float) -> bool:
        """Whether the server may believe that tasks of the bag can run there, and do not fail."""
        there = bool(life.contacts) and now - life.contacts[-1] < self._settings.lease_seconds
        fails = notes.failures.get(life.place.host, 0) >= FAILING
        serves = life.owner in ("", notes.spec.owner) and _lets_by_lists(notes.policy, life)
        return there and serves and not fails


# -- what a policy says to an observer ---------------------------------------------------------


def _scene(life: HostLife, parameters: dict[str, Scalar]) -> Ad:
    place = life.place
    host = Ad({"Name": place.host, "Site": place.site})
    for name, text in place.tags.items():
        host[name] = number_or_text(text)
    return Ad(
        {
            "Host": host,
            "Site": Ad({"Name": place.site}),
            "Pilot": Ad({"Slots": life.slots}),
            "Job": Ad(parameters),
        }
    )


def _parameters(spec: BagSpec, values: list[Scalar]) -> dict[str, Scalar]:
    names = names_in(Segment(space=spec.space, rows=spec.rows))
    return dict(zip(names, values, strict=True))


def _is_known(path: str) -> bool:
    """Whether an observer can know this attribute, or know that there is none."""
    role, _, name = path.partition(".")
    if role == "job":
        return name not in TABLE["job"] and not name.startswith("replica")
    if path in ("host.name", "host.site", "site.name", "pilot.slots"):
        return True
    return role == "host" and bool(name) and name not in TABLE["host"]


def _lets(policy: PolicySpec, life: HostLife, scene: Ad) -> bool:
    """Whether the policy may let a task run there."""
    if not _lets_by_lists(policy, life):
        return False
    if not policy.requirements:
        return True
    value = parsed(policy.requirements).evaluate(scene)
    if all(map(_is_known, dependencies(parsed(policy.requirements)))):
        return value is True
    return value is not False


def _lets_by_lists(policy: PolicySpec, life: HostLife) -> bool:
    host, site = life.place.host, life.place.site
    return (
        (not policy.only_sites or site in policy.only_sites)
        and (not policy.only_hosts or host in policy.only_hosts)
        and site not in policy.avoid_sites
        and host not in policy.avoid_hosts
    )


def _surely_lets(notes: BagNotes, life: HostLife) -> bool:
    """Whether any task of the bag may run there, whatever the unknown facts are."""
    policies = [ruling.policy for ruling in notes.rulings if ruling.until == math.inf]
    if len(policies) != 1 or policies[0].preset in ("reliable-tail", "frugal"):
        return False
    policy = policies[0]
    if not _lets_by_lists(policy, life):
        return False
    if not policy.requirements:
        return True
    return parsed(policy.requirements).evaluate(_scene(life, {})) is True


def _is_large(life: HostLife) -> bool:
    """Whether it is for anybody's tasks, of any size."""
    return not life.died and not life.owner and life.slots >= MOST_CORES


def _number(text: str, scene: Ad) -> float | None:
    """The value of an expression; None if an observer cannot know it."""
    if not all(map(_is_known, dependencies(parsed(text)))):
        return None
    value = parsed(text).evaluate(scene)
    return float(value) if isinstance(value, int | float) else None


def _concurrency(policy: PolicySpec, scene: Ad) -> float:
    text = policy.concurrency or ("Pilot.Slots" if policy.preset == "frugal" else "")
    limit = _number(text, scene) if text else None
    return math.inf if limit is None else limit


def _most_replicas(policy: PolicySpec, scene: Ad, late: bool) -> float:
    """`late`: all attempts that are out are past their deadline."""
    text = policy.max_replicas or MOST_REPLICAS.get(policy.preset, "10" if late else "2")
    most = _number(text, scene)
    return math.inf if most is None else max(1.0, most)


def _seconds(text: str, scene: Ad) -> float:
    match = re.fullmatch(r"([\d.]+)([smhd])", text)
    if match:
        return float(match[1]) * UNITS[match[2]]
    seconds = _number(text, scene)
    return 0.0 if seconds is None else seconds or math.inf


def _speculates(policy: PolicySpec) -> bool:
    """Whether the policy may want replicas at some time."""
    wants = policy.replication or policy.preset in REPLICATING
    return bool(wants) and policy.replication != "false" and policy.tail != "false"
