"""What a policy sees, for checking and explaining: nothing that core keeps is touched.

Dispatch keeps ads of what policies look at, and remembers what they said (`match_cache`). Here ads
are made for each question, so that asking never changes what is decided. Their values are those
that dispatch would use at this moment: it looks at some things only once a second (`ads_now`).
Chance is one half.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from covey.classad import ERROR, UNDEFINED, Ad, Context, dependencies, unparse
from covey.classad.ads import as_node
from covey.classad.depends import path
from covey.classad.evaluation import evaluate
from covey.classad.nodes import Node, Operation, Reference
from covey.core.explain.steps import Steps
from covey.core.match import ads_now, attributes, match_cache
from covey.core.match.attributes import TABLE, JobSubject
from covey.core.match.policies import ROLES, TAIL, Compiled
from covey.core.record.model import PilotStatus
from covey.core.state import Bag, Pilot, State
from covey.core.state.match_records import Match
from covey.core.values.space import Scalar

MOST_CASES = 20  # classes of a bag that are looked at
MOST_STEPS = 300_000  # of evaluating, for one question
FEW_PILOTS = 100  # that are looked up in one step
MOST_SAMPLED = 200  # tasks, in search of different values


class SampledClass(NamedTuple):
    """Tasks that a policy cannot tell apart."""

    kind: int
    values: list[Scalar] | None = None


class RequirementPart(NamedTuple):
    """A part of JobRequirements, and whether it depends on the task."""

    node: Node
    of_job: bool


class PolicyView:
    """One bag's policy (or another one, `compiled`) and the ads of all roles that it sees. `at`
    sets the pilot and the tasks that are looked at."""

    def __init__(
        self, state: State, now: float, bag: Bag, compiled: Compiled | None = None
    ) -> None:
        self.state, self.now, self.bag = state, now, bag
        self.compiled = compiled or Compiled(bag.policy.spec)
        self.spent = 0  # steps of evaluating, so far
        self.reason = ""  # why the last value is an error, if evaluating took too long
        self._context = Context(now=now)
        self._around = Ad()
        self._own = self.compiled.ad.within(self._around)
        self._conditions: list[RequirementPart] | None = None
        self._pilot: Pilot | None = None  # whose ads these are
        self._sites: dict[str, Ad] = {}
        self._jobs: dict[int, tuple[SampledClass, Ad]] = {}  # by the identity of what they hold
        looked = self.compiled.looks.get("bag", set())
        kept = ads_now.of_bag(state, now, bag) if self.compiled is bag.policy else {}
        for name, one in TABLE["bag"].items():
            if name in looked or "*" in looked:
                self._own[one.name] = kept[name] if name in kept else one.find(state, now, bag)
        table = self._around.table
        table.update(dict.fromkeys(map(str.lower, ROLES), Ad()))
        table["bag"] = table["bot"] = self._own
        table["user"] = self._ad("user", bag.spec.owner)
        table["queue"] = self._ad("queue", None)
        self.tail = bag.replicas.tail if kept else self._tail()
        self._own["Tail"] = self.tail

    def enter_tail(self) -> None:
        """From here on, as if the bag were in its tail."""
        self._own["Tail"] = self.tail = True

    def tired(self) -> bool:
        """Whether this question has used up its steps of evaluating."""
        return self.spent > MOST_STEPS

    def _tail(self) -> bool:
        return match_cache.is_in_tail(self.bag, self.compiled, lambda: self.named(TAIL) is True)

    def at(self, pilot: Pilot, case: SampledClass | None = None) -> None:
        table, site = self._around.table, pilot.record.site
        if pilot is not self._pilot:
            self._pilot = pilot
            table["host"], table["pilot"] = self._ad("host", pilot), self._ad("pilot", pilot)
            if site not in self._sites:
                self._sites[site] = self._ad("site", site)
            table["site"] = self._sites[site]
        if case is not None:
            table["job"] = self._job(case)

    def at_site(self, site: str, case: SampledClass | None = None) -> None:
        """Look at a site without any pilot."""
        table, self._pilot = self._around.table, None
        table["host"] = table["pilot"] = Ad()
        table["job"] = Ad() if case is None else self._job(case)
        table["site"] = self._ad("site", site)

    def of_task(self, task: int) -> None:
        """Look at a running task and its replicas; no host is seen."""
        attempts = self.bag.places.live.get(task)
        about = JobSubject(self.bag, attempts[0].kind if attempts else 0, task)
        table, self._pilot = self._around.table, None
        table["host"] = table["pilot"] = table["site"] = Ad()
        job = Ad({one.name: one.find(self.state, self.now, about) for one in TABLE["job"].values()})
        attributes.add_replicas(job, self.state, self.now, about, self.bag.spec.owner)
        values = values_of(self.bag, task)
        for name, value in attributes.parameters(self.bag, values):
            job[name] = value
        table["job"] = job

    def named(self, name: str) -> Any:
        """The value of one of the policy's own attributes; UNDEFINED if it lacks it."""
        if name not in self.compiled.texts:
            return UNDEFINED
        return self.value(as_node(self._own[name]))

    def match(self) -> Match | None:
        """What dispatch would be told of the tasks and the pilot where the view is."""
        values = tuple(map(self.named, self.compiled.asked))
        return match_cache.judged(self.compiled.places, values)

    def node(self, name: str) -> Node:
        return as_node(self._own[name])

    def value(self, node: Node) -> Any:
        context = self._context
        found = evaluate(node, self._own, None, context)
        self.reason, self.spent = context.reason, self.spent + max(1, context.spent)
        return found

    def conditions(self) -> list[RequirementPart]:
        """The conditions that JobRequirements joins with &&."""
        if self._conditions is None:
            nodes = []
            if "JobRequirements" in self.compiled.texts:
                nodes = parts(self.node("JobRequirements"))
            self._conditions = [RequirementPart(one, self.looks_at_job(one)) for one in nodes]
        return self._conditions

    def looks_at_job(self, node: Node) -> bool:
        return any(name.split(".")[0] == "job" for name in dependencies(node, self.compiled.ad))

    def refuses(self) -> bool:
        """Whether no task may run where the view is, whatever it needs."""
        fixed = (one.node for one in self.conditions() if not one.of_job)
        return not all(may_hold(self.value(node)) for node in fixed)

    def values(self, node: Node) -> dict[str, str]:
        """The attributes in it, with their values."""
        return {unparse(one): shown(self.value(one)) for one in references(node)}

    def culprit(self, node: Node) -> Node:
        """The smallest part of the expression that is an error by itself."""
        for child in node.children:
            if self.value(child) is ERROR:
                return self.culprit(child)
        return node

    def _ad(self, role: str, thing: Any) -> Ad:
        looked, owner = self.compiled.looks.get(role, set()), self.bag.spec.owner
        kept = self._kept(role, thing)
        if "*" in looked:
            whole = attributes.full_ad(self.state, self.now, role, thing, owner)
            for name in kept.keys() & TABLE[role].keys():
                whole[TABLE[role][name].name] = kept[name]
            return whole
        found, table = Ad(), TABLE[role]
        tags = _named(thing, looked) if role == "host" and looked else {}
        own, others = attributes.tags_of(tags, owner)
        for name in sorted(looked):
            if name in own:
                found[name] = own[name]
            elif name in table:
                one = table[name]
                fresh = name not in kept
                found[one.name] = one.find(self.state, self.now, thing) if fresh else kept[name]
            elif name in others:
                found[name] = others[name]
        return found

    def _kept(self, role: str, thing: Any) -> Mapping[str, object]:
        """Values that dispatch would use without looking again."""
        if role == "host":
            return ads_now.of_host(self.state, self.now, thing, self.bag.spec.owner)
        if role in ("queue", "site", "user"):
            return ads_now.of_scene(self.state, self.now, role, thing or "")
        return {}

    def _job(self, case: SampledClass) -> Ad:
        if id(case) not in self._jobs:
            about = JobSubject(self.bag, case.kind)
            job = attributes.full_ad(self.state, self.now, "job", about, self.bag.spec.owner)
            for name, value in attributes.parameters(self.bag, case.values):
                job[name] = value
            self._jobs[id(case)] = (case, job)
        return self._jobs[id(case)][1]


def _named(pilot: Pilot, names: set[str]) -> dict[str, str]:
    """The tags of these names, whoever published them."""
    tags = pilot.record.tags.items()
    return {key: text for key, text in tags if key.rpartition(":")[2].lower() in names}


def here(state: State, bag: Bag) -> Steps[list[Pilot]]:
    """Connected pilots that may run the bag's tasks. Those that the policy accepted the last time
    come first."""
    there = (PilotStatus.ACTIVE, PilotStatus.SUSPECTED)
    first: list[Pilot] = []
    others: list[Pilot] = []
    for number, pilot in enumerate(list(attributes.can_see(state, bag))):
        if pilot.status in there:
            (first if may_have(state, pilot, bag) else others).append(pilot)
        if number % FEW_PILOTS == 0:
            yield
    return first + others


def is_here(state: State, pilot: Pilot) -> bool:
    """Whether the pilot is still connected."""
    return state.pilots.get(pilot.record.id) is pilot


def may_have(state: State, pilot: Pilot, bag: Bag) -> bool | None:
    """Whether the policy let tasks run there when dispatch last asked; None: it never did."""
    face = pilot.faces.get(bag.spec.owner)
    found = match_cache.last_answer(state, face, bag) if face is not None else None
    return None if found is None else any(match is not None for match in found)


def cases(bag: Bag, compiled: Compiled) -> list[SampledClass]:
    """The classes of a bag. For another policy: the classes that it would make of tasks from all
    over the bag, as far as their values are in memory."""
    places = () if bag.spec.calls else compiled.parameters(bag.body.names)
    if not places or places == bag.policy.parameters(bag.body.names):
        waiting = waiting_kinds(bag) or range(len(bag.classes))
        return [SampledClass(kind, bag.classes[kind].sample) for kind in waiting][:MOST_CASES]
    found: dict[tuple[Scalar, ...], SampledClass] = {}
    step = max(1, bag.total // MOST_SAMPLED)
    for task in range(0, bag.total, step):
        values = values_of(bag, task)
        if values is not None and len(found) < MOST_CASES:
            key = tuple(values[place] for place in places)
            found.setdefault(key, SampledClass(0, values))
    return list(found.values()) or [SampledClass(0)]


def waiting_kinds(bag: Bag) -> list[int]:
    """Classes with tasks that could be sent."""
    if bag.classes.classify is None and bag.places.next < bag.chunks.mark:
        return list(range(len(bag.classes)))
    return [kind for kind, ready in enumerate(bag.places.ready) if ready]


def values_of(bag: Bag, task: int) -> list[Scalar] | None:
    """None if the values are in a file that is not read now, or cannot be read."""
    if bag.spec.calls:
        return None
    try:
        return bag.values(task)
    except Exception:  # a quarantined bag may raise any error
        return None


def may_hold(value: Any) -> bool:
    """Whether && may be true with this value on one side: a number may count as true there."""
    return not (value is False or value is UNDEFINED or value is ERROR)


def parts(node: Node) -> list[Node]:
    """The parts that the expression joins with &&."""
    while isinstance(node, Operation) and node.op == "()":
        node = node.operands[0]
    if isinstance(node, Operation) and node.op == "&&":
        return [part for side in node.operands for part in parts(side)]
    return [node]


def references(node: Node) -> Iterator[Reference]:
    """The attributes that the expression names, each once."""
    seen: set[str] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop(0)
        names = path(one)
        if not names:
            waiting[:0] = one.children
        elif isinstance(one, Reference) and ".".join(names) not in seen:
            seen.add(".".join(names))
            yield one


def shown(value: Any) -> str:
    """The value as an expression would spell it, but short."""
    if value.__class__ is float:
        return f"{value:.6g}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "an ad" if isinstance(value, Ad) else unparse(value)
