"""Why: a bag waits, a task runs where it runs, a running task gets another attempt or none.

Everything is a function of the state and the time; asking changes nothing. `hindrance` is the short
answer in every view of a bag; it uses the policies' last answers to dispatch. `of_bag` and
`of_task` evaluate policies as dispatch would now, which is much more work: `of_bag` is done in
steps.

For each pilot there is one obstacle (`obstacles`). The reasons count the obstacles of each kind.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from covey.core.bags.estimate import probably_running
from covey.core.bags.input_versions import version_in
from covey.core.explain import broker_answers, replica_answers, site_answers
from covey.core.explain.answers import BagAnswer, Chance, Reason, RunningAttempt, TaskAnswer
from covey.core.explain.bag_order import before, behind
from covey.core.explain.obstacles import (
    ABLE,
    AVOIDED,
    BANNED,
    ENDING,
    FILES,
    FREE,
    FULL,
    LIMITED,
    REFUSED,
    RESTING,
    SHORT,
    SILENT,
    SMALL,
    TRIED,
    Obstacle,
    judge,
    lenient,
    nearest,
)
from covey.core.explain.policy_view import (
    PolicyView,
    SampledClass,
    cases,
    here,
    is_here,
    may_have,
    values_of,
    waiting_kinds,
)
from covey.core.explain.steps import Steps
from covey.core.match import retry_hosts, site_preference
from covey.core.match.attributes import can_see
from covey.core.match.pilot_fit import need_now, weight
from covey.core.match.site_access import last_resorts
from covey.core.record.attempts import Attempt
from covey.core.record.model import BagId, BagStatus, Need, PilotStatus, SiteStatus
from covey.core.record.task_classes import classifier
from covey.core.state import Bag, Site, State
from covey.core.state.failures import Trouble
from covey.core.values.space import Scalar

MOST_TASKS = 200  # running ones that the policy is asked about
FEW = 5  # hosts or bags that are named
BY_HAND = "hand"  # the site of pilots that people start, if they name none
TROUBLE_SECONDS = 300.0  # in which an attempt that could not be made is made, or has failed


# -- the short answer --------------------------------------------------------------------------


def hindrance(state: State, bag: Bag) -> str:
    """Why a bag that could go on does not, if no pilot that is here can run it."""
    if bag.status is not BagStatus.RUNNING:
        return ""
    trouble = _trouble(state, bag)
    if trouble is not None:
        return trouble.words
    waiting_for_disk = _short_hosts(state, bag)
    if waiting_for_disk:
        return f"waits for disk space on {', '.join(waiting_for_disk[:FEW])}"
    queued = site_answers.in_queues(state, state.ticked, bag)
    if bag.places.live:
        return queued.text if queued is not None else ""
    waiting = [bag.classes[kind].need for kind in waiting_kinds(bag)]
    obvious = _nobody(state, bag, waiting)
    if obvious is not None:
        return obvious.text
    if queued is not None:
        return queued.text
    if not waiting or bag.policy.plain or not state.pilots:
        return ""
    if any(may_have(state, pilot, bag) is not False for pilot in can_see(state, bag)):
        return ""
    return f"no connected host meets its requirements; see: covey explain {bag.id}"


def _short_hosts(state: State, bag: Bag) -> list[str]:
    """The hosts, if tasks wait and every host that could take them is short of disk space."""
    if not bag.unsent():
        return []
    pilots = [pilot for pilot in can_see(state, bag) if pilot.status is PilotStatus.ACTIVE]
    if not pilots or not all(pilot.shortage for pilot in pilots):
        return []
    return list(dict.fromkeys(pilot.record.host for pilot in pilots))


def _trouble(state: State, bag: Bag) -> Trouble | None:
    """Why attempts of the bag could not be made, if that is so on all hosts that have some, and no
    attempt has ended since."""
    trouble = bag.failures.trouble
    if trouble is None or trouble.ends != bag.progress.ends:
        return None
    if state.ticked - trouble.at > TROUBLE_SECONDS:
        return None
    for attempts in islice(bag.places.live.values(), MOST_TASKS):
        tally = bag.hosts.tallies.get(state.pilots[attempts[0].pilot].record.host)
        if tally is None or not tally.failures:
            return None  # on this host attempts may be well
    return trouble


def _nobody(state: State, bag: Bag, waiting: Sequence[Need]) -> Reason | None:
    """The reason why no task can run that is known without asking any policy."""
    unknown = _unknown_site(state, bag)
    if unknown is not None:
        return unknown
    placing = [site for site in state.sites.values() if not site.record.spec.facts.by_hand]
    if not state.pilots and placing:
        failing = {site.record.spec.name: why for site in placing if (why := _failing(site))}
        if len(failing) < len(placing):
            return _never(state, placing, bag, waiting)
        name, problem = next(iter(failing.items()))
        where = "on this machine" if state.sites[name].record.spec.facts.here else f"at site {name}"
        words = f"pilots cannot start work {where}: {problem}"
        return Reason(kind="no pilot", text=words)
    if not waiting:
        return None
    records = [pilot.record for pilot in can_see(state, bag)]
    if not records:
        whose = f" that runs tasks of {bag.spec.owner}" if state.pilots and bag.spec.owner else ""
        words = f"no pilot{whose} is connected; start one with: covey pilot-command"
        return Reason(kind="no pilot", text=words)
    if any(weight(need, record) for need in waiting for record in records):
        return None
    words = f"no connected pilot has {', '.join(_wants(waiting[0]))} for a task"
    return Reason(kind="resources", text=words)


def _unknown_site(state: State, bag: Bag) -> Reason | None:
    """Whether all sites that its policy names are unknown."""
    wanted = bag.policy.spec.only_sites
    if not wanted or not bag.unsent():
        return None
    present = {name.lower() for name in (*state.sites, BY_HAND)}
    present |= {pilot.record.site.lower() for pilot in state.pilots.values()}
    if any(name.lower() in present for name in wanted):
        return None
    there = f"sites: {', '.join(state.sites)}" if state.sites else "no site is set up"
    words = f"there is no site {' or '.join(wanted)} ({there})"
    return Reason(kind="unknown site", text=words)


def _never(state: State, placing: list[Site], bag: Bag, waiting: Sequence[Need]) -> Reason | None:
    """Why none of these sites can get a pilot for the bag; None if one may."""
    if not bag.unsent() or bag.places.rescue:
        return None
    reasons, needs = [], waiting or [class_.need for class_ in bag.classes]
    for site in placing:
        spec = site.record.spec
        if site_answers.is_hidden(spec, bag.spec.owner):
            continue
        why = _failing(site) or site_answers.never(state, site, bag, needs)
        if not why:
            return None
        reasons.append(f"{spec.name}: {why}")
    named = f": {'; '.join(reasons[:FEW])}" if reasons else ": no site accepts tasks of its owner"
    return Reason(kind="no site", text=f"no site can get a pilot for it{named}")


def _failing(site: Site) -> str:
    if site.record.status is not SiteStatus.ON:
        return f"it is {site.record.status.value}"
    return site.crowded or site.unanswered or (site.problem if site.failures > 1 else "")


def _wants(need: Need) -> list[str]:
    wants = [f"{need.cores} cores"]
    wants += [f"{need.memory_mb} MB of memory"] if need.memory_mb else []
    wants += [f"{need.disk_mb} MB of disk"] if need.disk_mb else []
    wants += [f"{need.gpus} GPUs"] if need.gpus else []
    return wants


# -- a bag -------------------------------------------------------------------------------------


def of_bag(state: State, now: float, bag: Bag, task: int | None = None) -> Steps[BagAnswer]:
    """The answer about a bag. With `task`: about what keeps that task waiting."""
    view = PolicyView(state, now, bag)
    replication = yield from replica_answers.of_tasks(view)
    running = len({attempt.task for attempt in probably_running(state, bag)})
    answer = BagAnswer(
        summary="",
        total=bag.total,
        done=len(bag.places.done),
        failed=len(bag.places.failed),
        running=running,
        sent=len(bag.places.live) - running,
        waiting=bag.places.waiting() + bag.total - bag.places.next,
        doubtful=len(bag.places.doubt),
        tail=view.tail,
        reasons=[],
        replicas=bag.replicas.sent,
        replication=replication,
        order=_order(bag),
        broker=broker_answers.of_bag(state, now, bag),
    )
    if bag.status in (BagStatus.RUNNING, BagStatus.PAUSED):
        answer.reasons = list(_stops(state, bag))
        rescue = bag.places.rescue
        usual = answer.waiting > len(rescue) and (task is None or task not in rescue)
        if bag.status is BagStatus.RUNNING and usual:
            yield from _ask_pilots(state, now, view, answer, _cases(bag, task))
        if (queued := site_answers.in_queues(state, now, bag)) is not None:
            answer.reasons.append(queued)
        answer.reasons += _besides(state, now, bag)
    answer.summary = _summary(bag, answer)
    return answer


def _bags(ids: list[BagId]) -> str:
    named = ", ".join(map(str, ids[:FEW]))
    more = f" and {len(ids) - FEW} more" if len(ids) > FEW else ""
    return f"bag{'s' if len(ids) > 1 else ''} {named}{more}"


def _cases(bag: Bag, task: int | None) -> list[SampledClass]:
    values = values_of(bag, task) if task is not None else None
    if task is None or (values is None and bag.classes.classify is not None):
        return cases(bag, bag.policy)
    return [SampledClass(_class_of(bag, values), values)]


def _class_of(bag: Bag, values: list[Scalar] | None) -> int:
    """The class of a task with these values. The bag's own `classify` would add a new class for new
    values, and an explanation must not."""
    number_of = classifier(bag.spec, bag.body.names, bag.classes.numbers)
    number = number_of(values) if number_of is not None and values is not None else 0
    return bag.classes.by_number[number]


def _order(bag: Bag) -> str:
    """The order in which its tasks are sent, if not by their numbers."""
    if not bag.classes.long_first or bag.status is not BagStatus.RUNNING:
        return ""
    return "tasks with a longer declared time go first (order = 'given' keeps the given order)"


def _summary(bag: Bag, answer: BagAnswer) -> str:
    if bag.status is BagStatus.PAUSED:
        return f"it is paused: {bag.reason}" if bag.reason else "it is paused"
    if bag.status is not BagStatus.RUNNING:
        return f"it is {bag.status.value}"
    live = answer.running + answer.sent
    out = f"{_tasks(answer.running)} {'is' if answer.running == 1 else 'are'} running"
    if answer.sent:
        out += f" and {answer.sent:,} {'is' if answer.sent == 1 else 'are'} sent ahead"
    if not answer.waiting:
        if answer.reasons and (not live or answer.reasons[0].kind == "host"):
            return answer.reasons[0].text
        return f"no task waits: {out}"
    first = answer.reasons[0].text if answer.reasons else "the next free hosts get them"
    waits = f"{_tasks(answer.waiting)} {'waits' if answer.waiting == 1 else 'wait'}"
    return f"{waits}, {out if live else 'none is running'}: {first}"


def _stops(state: State, bag: Bag) -> Iterator[Reason]:
    """What keeps all tasks of the bag waiting, whichever pilots are connected."""
    if bag.quarantine.reason:
        words = f"it is {bag.quarantine.reason}. No task of it is sent any more. Use: "
        change = f"covey policy set {bag.id} …, covey resume {bag.id}, or "
        change = "" if bag.quarantine.shell else change
        yield Reason(kind="quarantined", text=f"{words}{change}covey cancel {bag.id}")
    elif bag.status is BagStatus.PAUSED:
        why = f": {bag.reason}" if bag.reason else ""
        words = f"it is paused{why}; to continue: covey resume {bag.id}"
        yield Reason(kind="paused", text=words)
    if state.draining:
        yield Reason(kind="draining", text="the server is shutting down, and sends no more tasks")
    if bag.places.not_before > state.journal.durable:
        yield Reason(kind="writing", text="the bag is still being written to the record")
    trouble = _trouble(state, bag) if bag.status is BagStatus.RUNNING else None
    if trouble is not None:
        most = state.settings.most_losses
        words = f"{trouble.words}; a task fails when this has happened {most} times"
        yield Reason(kind="host", text=words, hosts=[trouble.host])


def _besides(state: State, now: float, bag: Bag) -> Iterator[Reason]:
    """What keeps only some of its tasks waiting."""
    places, overdue = bag.places, bag.replicas.overdue
    if places.doubt:
        words = f"{_tasks(len(places.doubt))} may be running on pilots that have not called since "
        until = state.arrivals.adopt_until
        yield Reason(kind="doubt", text=words + "the server started", until=until)
    if bag.chunks.awaited and bag.places.parked:
        words = f"the rows of {_tasks(len(bag.places.parked))} are being read from a file"
        yield Reason(kind="rows", text=words)
    if bag.places.aside:
        words = f"{_tasks(len(bag.places.aside))} fitted no host for a while; other tasks go first"
        yield Reason(kind="aside", text=words)
    if bag.places.rescue:
        sites = ", ".join(last_resorts(state, bag))
        words = f"{_tasks(len(bag.places.rescue))} that failed elsewhere may only go to {sites}"
        yield Reason(kind="failover", text=words)
    for name in state.sites:
        if better := site_preference.ahead(state, now, name, bag):
            words = (
                f"{name} prefers {_bags(better)} (preference of its owners), which go first there"
            )
            yield Reason(kind="preference", text=words)
    if overdue:
        words = f"{_tasks(len(overdue))} past their deadline are sent to other hosts first"
        yield Reason(kind="deadline", text=words)
    if not bag.places.waiting() and bag.places.next >= bag.total and bag.open:
        words = f"all its tasks were sent; it is open, so more may be added (covey close {bag.id})"
        yield Reason(kind="open", text=words)


def _ask_pilots(
    state: State, now: float, view: PolicyView, answer: BagAnswer, classes: list[SampledClass]
) -> Steps[None]:
    bag = view.bag
    obvious = _nobody(state, bag, [bag.classes[case.kind].need for case in classes])
    pilots = yield from here(state, bag)
    judged = []
    for pilot in pilots:
        if view.tired():
            break
        if is_here(state, pilot):
            judged.append(judge(state, now, view, pilot, classes))
        yield
    verdicts = lenient(view, [verdict for verdict in judged if is_here(state, verdict.pilot)])
    able = [verdict for verdict in verdicts if verdict.kind in ABLE]
    answer.hosts = len({verdict.pilot.record.host for verdict in verdicts})
    answer.able = len({verdict.pilot.record.host for verdict in able})
    answer.near = nearest(view, verdicts, classes)
    if not pilots:
        answer.sites = site_answers.for_bag(state, now, bag)
    named = obvious is not None and obvious.kind == "unknown site"
    if obvious is not None and (named or pilots or not answer.sites):
        answer.reasons.append(obvious)
    elif not pilots:
        answer.reasons.append(_coming(answer.sites))
    if obvious is not None or not pilots:
        return
    if able:
        chosen = max(able, key=lambda verdict: verdict.kind == FREE).pilot
        answer.first = before(state, now, chosen, bag)[:FEW]
        answer.first_on = chosen.record.host
    for reason in _counted(verdicts, now, answer):
        yield
        answer.reasons.append(reason)
    yield
    if able:
        answer.reasons += _unserved(view, classes, verdicts)
    if view.tired() and len(judged) < len(pilots):
        words = f"only {len(verdicts):,} of {len(pilots):,} pilots were checked, to save time"
        answer.reasons.append(Reason(kind="cut", text=words))


def _coming(sites: list[Chance]) -> Reason:
    """The reason if no pilot is connected, but there are sites."""
    able = [chance for chance in sites if chance.able]
    if able or not sites:
        there = [chance for chance in able if chance.waiting]
        waiting, where = (
            sum(chance.waiting for chance in there),
            ", ".join(chance.site for chance in there),
        )
        many = "1 pilot waits" if waiting == 1 else f"{waiting:,} pilots wait"
        words = f"{many} to start at {where}" if where else "a pilot is being started"
        return Reason(kind="starting", text=words)
    reasons = "; ".join(f"{chance.site}: {chance.text}" for chance in sites[:FEW])
    return Reason(kind="no site", text=f"no site can get a pilot for it: {reasons}")


def _unserved(
    view: PolicyView, classes: list[SampledClass], verdicts: list[Obstacle]
) -> Iterator[Reason]:
    """The reason if some classes of tasks can run on a connected host, and others cannot."""
    served = {number for verdict in verdicts for number in verdict.served}
    names = view.bag.body.names
    places = view.compiled.parameters(names)
    unserved = []
    for number, case in enumerate(classes):
        if number not in served and case.values is not None and places:
            unserved.append(", ".join(f"{names[place]}={case.values[place]}" for place in places))
        elif number not in served:
            unserved.append(", ".join(_wants(view.bag.classes[case.kind].need)))
    if unserved:
        more = f" or {len(unserved) - FEW} others" if len(unserved) > FEW else ""
        words = f"no connected host can run tasks with {' or '.join(unserved[:FEW])}{more}"
        yield Reason(kind="requirements", text=words)


_WORDS = {
    SILENT: ("silent", "{hosts} {was} not heard of for a while"),
    SHORT: ("disk", "{names} wait{s} for disk space"),
    FILES: ("files", "{names} wait{s} for input files or the setup of this bag"),
    SMALL: ("resources", "{hosts} {are} too small for them"),
    ENDING: ("ending", "the time of {hosts} is too short for such a task"),
    REFUSED: ("requirements", "its requirements are not met on {hosts}"),
    BANNED: ("banned", "{hosts} {are} banned: tasks fail there, but not on other hosts"),
    RESTING: (
        "resting",
        "{hosts} get{s} no tasks of this bag for a while, because its tasks failed there",
    ),
    AVOIDED: (
        "avoided",
        "the tasks that wait have failed on {names} before, or need more time than is left there",
    ),
    TRIED: ("tried", "{hosts} {are} tested with one task first"),
    FULL: ("full", "every slot of {hosts} is in use"),
    LIMITED: ("concurrency", "{hosts} hold{s} as many tasks as its concurrency allows"),
}
_ONE = {"hosts": "1 host", "are": "is", "was": "was", "s": "s"}


def _counted(verdicts: list[Obstacle], now: float, answer: BagAnswer) -> Iterator[Reason]:
    """The reasons, each with the hosts that it counts. What concerns all hosts comes first."""
    kinds: dict[str, list[Obstacle]] = {}
    for verdict in verdicts:
        kinds.setdefault(verdict.kind, []).append(verdict)
    if kinds.keys() == {REFUSED}:
        words = "no connected host meets its requirements"
        yield Reason(kind="requirements", text=words, hosts=_hosts(verdicts))
        return
    if FREE not in kinds:
        yield from (_reason(kind, kinds[kind], now) for kind in (FULL, LIMITED) if kind in kinds)
    if answer.first:
        yield _rivals(answer)
    for kind in (SHORT, FILES, REFUSED, SMALL, ENDING, BANNED, RESTING, AVOIDED, TRIED, SILENT):
        if kind in kinds:
            yield _reason(kind, kinds[kind], now)


def _reason(kind: str, verdicts: list[Obstacle], now: float) -> Reason:
    reason, words = _WORDS[kind]
    count = len({verdict.pilot.record.host for verdict in verdicts})
    many = {"hosts": f"{count:,} hosts", "are": "are", "was": "were", "s": ""}
    names = _hosts(verdicts)
    named = ", ".join(names) + (f" and {count - len(names):,} more" if count > len(names) else "")
    text = words.format(**(_ONE if count == 1 else many), names=named)
    until = min((verdict.until for verdict in verdicts if verdict.until > now), default=0.0)
    return Reason(kind=reason, text=text, hosts=_hosts(verdicts), until=until)


def _hosts(verdicts: Iterable[Obstacle]) -> list[str]:
    return list(dict.fromkeys(verdict.pilot.record.host for verdict in verdicts))[:FEW]


def _rivals(answer: BagAnswer) -> Reason:
    named = ", ".join(f"bag {rival.bag} ({rival.why})" for rival in answer.first)
    words = f"other bags come first, for example on {answer.first_on}: {named}"
    return Reason(kind="order", text=words, hosts=[answer.first_on])


# -- a task ------------------------------------------------------------------------------------


def of_task(state: State, now: float, bag: Bag, task: int) -> TaskAnswer:
    """The answer about a task of the bag: 0 <= task < total."""
    values = values_of(bag, task)
    names = bag.body.names if values is not None else []
    answer = TaskAnswer(
        task=task,
        values={name: str(value) for name, value in zip(names, values or (), strict=False)},
        state="waiting",
        summary="",
        tries=bag.failures.tries.get(task, 0),
        losses=bag.failures.losses.get(task, 0),
    )
    if values is not None and not bag.quarantine.shell:
        answer.need = need_now(bag, task, bag.classes[_class_of(bag, values)].need)
    attempts = bag.places.live.get(task, [])
    going = {attempt.id for attempt in probably_running(state, bag)} if attempts else set()
    answer.running = [
        _running(state, now, bag, attempt, attempt.id in going) for attempt in attempts
    ]
    if task in bag.places.done or task in bag.places.failed:
        answer.state = "done" if task in bag.places.done else "failed"
        answer.summary = "it is done" if task in bag.places.done else "it failed"
        return answer
    if task in bag.places.doubt:
        answer.state = "being checked"
        answer.summary = "it may be running on a pilot that has not called since the restart"
        return answer
    if not attempts:
        answer.summary = _why_it_waits(state, now, bag, task)
        return answer
    started = any(not attempt.ahead for attempt in answer.running)
    answer.state = "running" if started else "sent"
    places = ", ".join(attempt.host for attempt in answer.running)
    again = f", {len(attempts)} attempts" if len(attempts) > 1 else ""
    there = "runs on" if started else "waits for a slot of"
    answer.summary = f"it {there} {places}{again}"
    answer.replication = replica_answers.of_task(PolicyView(state, now, bag), task)
    return answer


def _why_it_waits(state: State, now: float, bag: Bag, task: int) -> str:
    hosts, until = retry_hosts.waits_until(state, now, bag, task)
    if task in bag.places.rescue:
        sites = ", ".join(last_resorts(state, bag))
        return f"it waits for a host of {sites}: it failed elsewhere"
    if hosts:
        where = " or ".join(hosts)
        return (
            f"it waits for another host than {where}, where it failed; "
            f"for {until - now:.0f} s at most, then {where} may have it again"
        )
    if task in bag.places.parked:
        return "it waits for its row to be read from a file"
    if task in bag.places.aside:
        return "it fitted no host for a while; other tasks go first, then it is tried again"
    if task >= bag.places.next and bag.classes.classify is None:
        ahead = task - bag.places.next + sum(map(len, bag.places.ready))
        return f"it waits behind {_tasks(ahead)} of its bag" if ahead else "it is next"
    if task >= bag.chunks.mark:
        return "it waits: tasks with lower numbers come first"
    kind = next((kind for kind, ready in enumerate(bag.places.ready) if task in ready), None)
    if kind is None:
        return "it waits for a host"
    longer = 0
    if bag.classes.long_first:
        seconds = bag.classes[kind].need.limit_seconds
        classes = zip(bag.classes, bag.places.ready, strict=True)
        longer = sum(len(ready) for class_, ready in classes if class_.need.limit_seconds > seconds)
    ahead = bag.places.ready[kind].rank(task) - 1
    others = [f"{_tasks(longer)} with a longer declared time"] if longer else []
    others += [f"{_tasks(ahead)} of the same kind"] if ahead else []
    return f"it waits behind {' and '.join(others)}" if others else "it waits for a host"


def _running(state: State, now: float, bag: Bag, attempt: Attempt, started: bool) -> RunningAttempt:
    pilot = state.pilots[attempt.pilot]
    record = pilot.record
    return RunningAttempt(
        attempt=str(attempt.id),
        pilot=record.id,
        host=record.host,
        site=record.site,
        sent=attempt.sent,
        ahead=not started,
        rank=attempt.rank,
        replica=attempt.replica,
        suspected=pilot.status is PilotStatus.SUSPECTED,
        deadline=attempt.deadline,
        expired=attempt.expired,
        text=_why_there(bag, attempt),
        behind=behind(state, now, pilot, bag)[:FEW],
        inputs_version=version_in(bag, attempt.id),
    )


def _why_there(bag: Bag, attempt: Attempt) -> str:
    if attempt.replica:
        return "another attempt: the earlier ones were late, or the policy wanted one"
    texts = bag.policy.texts
    if "Rank" in texts:
        return f"its bag had rank {attempt.rank:.6g} there, the best of its owner's waiting bags"
    met = (
        "its requirements are met there, and the host" if "JobRequirements" in texts else "the host"
    )
    return f"{met} asked for work when this task was next"


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count:,} tasks"
