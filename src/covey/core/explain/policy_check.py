"""Mistakes in a policy: in its text, and in its values on connected hosts.

The rules:
- The text is checked first, and evaluated only if it parses. An unknown attribute is a fault,
  unless it may be known later: a tag while no host is connected, or a parameter while there is no
  bag.
- An expression that is an error on some host is a fault: only true means yes, so the bag would not
  run there, and its owner would not see why.
- JobRequirements that are true nowhere are a fault. They are split at `&&`, and the smallest sets
  of parts that are never true together are named."""

from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from typing import NamedTuple

from covey.classad import ERROR, UNDEFINED, SyntaxProblem, check, dependencies, parse, unparse
from covey.classad.nodes import Node
from covey.core.errors import InvalidBag
from covey.core.explain import catalogue
from covey.core.explain.answers import ConditionAnswer, PolicyFault, PolicyReport
from covey.core.explain.policy_view import (
    PolicyView,
    SampledClass,
    cases,
    here,
    is_here,
    may_hold,
    shown,
)
from covey.core.explain.steps import Steps
from covey.core.match import bag_policy
from covey.core.match.policies import (
    DISPATCH,
    EXPRESSIONS,
    GRID,
    KEYS,
    LONGEST,
    PRESETS,
    TAIL,
    Compiled,
    expand,
)
from covey.core.protocol import recovery
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagSnapshot,
    BagSpec,
    PolicySpec,
    Segment,
)
from covey.core.state import Bag, Pilot, State
from covey.core.values import time_spans
from covey.core.values.space import Axis, Range

MOST_RUNNING = 100  # tasks for which ReplicationRequirements is tried
MOST_FAULTS = 20
MOST_PARTS = 50
MANY = 1_000_000
# The ads that an expression cannot use, because it is not evaluated for one of these.
_UNSEEN = {
    "grid": ("host", "pilot", "job"),
    "replication": ("host", "pilot", "site"),
    "max_replicas": ("host", "pilot", "site"),
    "tail": ("host", "pilot", "site", "job"),
}
_IN_EACH = ("countmatches", "evalineachcontext")  # they evaluate in each replica, with its Host
_ASKED = {
    "grid": "is evaluated for a site, before there is a pilot",
    "replication": "is evaluated for a running task; its host is Job.Replica1.Host",
    "max_replicas": "is evaluated for a running task; its host is Job.Replica1.Host",
    "tail": "is evaluated for the whole bag",
}


class Written(NamedTuple):
    """One expression, as its author wrote it."""

    field: str
    name: str
    text: str


def examine(
    state: State | None, now: float, policy: PolicySpec, bag: Bag | None = None, owner: str = ""
) -> Steps[PolicyReport]:
    """The faults of a policy of a bag, or of a bag that this owner might submit. Without a state
    only the text is checked."""
    report = PolicyReport(faults=[], notes=[])
    try:
        catalogue.preset_of(policy)
    except InvalidBag as error:
        report.faults.append(PolicyFault(kind="invalid", name="preset", message=str(error)))
        return report
    if bag is not None:
        owner = bag.spec.owner
    yield from _read(report, state, policy, bag, owner)
    if any(one.kind in ("syntax", "invalid") for one in report.faults):
        return report
    _govern(report, policy, bag)
    if state is None or any(one.kind == "invalid" for one in report.faults):
        return report
    view = PolicyView(state, now, bag or pretended(policy, owner, now), Compiled(policy))
    yield from _try_out(report, view)
    del report.faults[MOST_FAULTS:]
    return report


def pretended(policy: PolicySpec, owner: str, now: float) -> Bag:
    """A large bag that has just begun, to check a policy that has no bag."""
    space = Axis("_", Range("0", "1", MANY))
    spec = BagSpec(argv=("true",), space=space, owner=owner, policy=policy)
    record = BagRecord(id=BagId(0), spec=spec, total=MANY, created=now)
    return recovery.new_bag(BagSnapshot(bag=record, chunks=(), open_done=(), failed=(), tries={}))


# -- words -------------------------------------------------------------------------------------


def written(policy: PolicySpec) -> Iterator[Written]:
    """The faults of each expression. Plain keys cannot be wrong."""
    preset = PRESETS[catalogue.preset_of(policy)].policy
    for field, name in EXPRESSIONS.items():
        text = getattr(policy, field) or getattr(preset, field)
        if text:
            yield Written(field, name, expand(PolicySpec(**{field: text}))[name])


def _read(
    report: PolicyReport, state: State | None, policy: PolicySpec, bag: Bag | None, owner: str
) -> Steps[None]:
    tags = catalogue.tags(state, owner) if state is not None else []
    parameters = list(bag.body.names) if bag is not None and not bag.spec.calls else []
    for one in written(policy):
        yield
        if len(one.text) > LONGEST:
            words = f"it has more than {LONGEST:,} characters"
            report.faults.append(PolicyFault(kind="invalid", name=one.name, message=words))
            continue
        if one.field == "deadline" and time_spans.is_misspelt(one.text):
            words = "expected a time (90s, 30m, 2h, 1d) or an expression"
            report.faults.append(_fault("invalid", one, words, 0))
            continue
        try:
            tree = parse(one.text).node
        except SyntaxProblem as problem:
            words = f"expected {problem.expected}"
            report.faults.append(_fault("syntax", one, words, problem.position))
            continue
        known = catalogue.known_names(tags, parameters, replicating=one.field == "replication")
        report.faults += _out_of_scope(one, tree)
        for found in check(tree, known):
            kind = "unknown" if "no attribute" in found.message else "function"
            fault = _fault(kind, one, found.message, found.position, found.near)
            if kind == "unknown" and _may_come(found.message, bool(tags), bag is not None):
                if found.near:
                    words = f"{one.field}: {found.message}, unless a host publishes it"
                    report.notes.append(f"{words}; did you mean {found.near[0]}?")
            else:
                report.faults.append(fault)


def _out_of_scope(one: Written, tree: Node) -> list[PolicyFault]:
    """Ads that are always undefined where this expression is evaluated."""
    text = one.text.lower()
    if any(function in text for function in _IN_EACH):
        return []
    used = {path.partition(".")[0] for path in dependencies(tree)}
    faults = []
    for role in _UNSEEN.get(one.field, ()):
        if role in used:
            words = f"{catalogue.TITLES[role]} is undefined here: {one.field} {_ASKED[one.field]}"
            place = max(0, text.find(f"{role}."))
            faults.append(_fault("scope", one, words, place))
    return faults


def _may_come(message: str, hosts: bool, bag: bool) -> bool:
    name = message.rpartition(" ")[2]
    tag = name.startswith("host.") or ".host." in name
    return (tag and not hosts) or (name.startswith("job.") and not tag and not bag)


def _fault(
    kind: str, one: Written, message: str, position: int, near: Sequence[str] = ()
) -> PolicyFault:
    start = one.text.rfind("\n", 0, position) + 1
    return PolicyFault(
        kind=kind,
        name=one.name,
        message=message,
        text=one.text,
        line=one.text.count("\n", 0, position) + 1,
        column=position - start + 1,
        near=list(near),
    )


def _govern(report: PolicyReport, policy: PolicySpec, bag: Bag | None) -> None:
    """The fault for which core would refuse to set the policy."""
    spec = bag.spec if bag is not None else BagSpec(argv=("true",))
    try:
        bag_policy.check(policy, spec, Segment(space=spec.space, rows=spec.rows))
    except InvalidBag as error:
        report.faults.append(PolicyFault(kind="invalid", name="policy", message=str(error)))


# -- what it comes to --------------------------------------------------------------------------


def _try_out(report: PolicyReport, view: PolicyView) -> Steps[None]:
    pilots = yield from here(view.state, view.bag)
    if not pilots:
        report.notes.append("no host is connected, so it was not tried on any")
    sources = {one.name: one for one in written(view.compiled.spec)}
    classes = cases(view.bag, view.compiled)
    if "job" not in view.compiled.at_dispatch:
        del classes[1:]  # its value for one class holds for all
    yield from _dispatch(report, view, pilots, classes, sources)
    _tail(report, view, sources)
    yield from _replication(report, view, sources)
    if GRID in view.compiled.texts:
        _grid(report, view, sources)
    if report.meeting and not view.tail and "tail" in view.compiled.at_dispatch.get("bag", ()):
        yield from _end(report, view, pilots, classes)


class _Trial:
    """The values of the expressions that are evaluated when tasks are sent, on one host after the
    other. A place is a host and the number of a class."""

    def __init__(self, report: PolicyReport, view: PolicyView, sources: dict[str, Written]) -> None:
        self.report, self.view, self.sources = report, view, sources
        self.conditions = view.conditions()[:MOST_PARTS]
        self.holding: list[set[tuple[str, int]]] = [set() for _ in self.conditions]
        self.meeting: set[tuple[str, int]] = set()
        self._asked = [name for name in DISPATCH if name in view.compiled.texts]
        self._of_job = {name for name in self._asked if view.looks_at_job(view.node(name))}
        self._wrong: set[str] = set()

    def at(self, pilot: Pilot, classes: list[SampledClass]) -> None:
        host = pilot.record.host
        for number, case in enumerate(classes):
            self.view.at(pilot, case)
            for held, one in zip(self.holding, self.conditions, strict=True):
                if number and not one.of_job:  # the same as for the first class
                    held.update([(host, number)] if (host, 0) in held else [])
                    continue
                value = self.view.value(one.node)
                if may_hold(value):
                    held.add((host, number))
                elif value is ERROR:  # also behind a part that is false
                    self._complain("JobRequirements", one.node, value, host)
            for name in self._asked:
                self._ask(name, host, number)

    def _ask(self, name: str, host: str, number: int) -> None:
        place, decides = (host, number), name == "JobRequirements"
        if decides and any(place not in held for held in self.holding):
            return
        if number and name not in self._of_job:
            if decides and (host, 0) in self.meeting:
                self.meeting.add(place)
            return
        value = self.view.named(name)
        if decides and value is True:
            self.meeting.add(place)
        if _is_wrong(name, value):
            self._complain(name, self.view.node(name), value, host)

    def _complain(self, name: str, node: Node, value: object, host: str) -> None:
        if name not in self._wrong:  # each expression is named once
            self._wrong.add(name)
            fault = _type_fault(self.view, name, node, value, self.sources, host)
            self.report.faults.append(fault)


def _dispatch(
    report: PolicyReport,
    view: PolicyView,
    pilots: list[Pilot],
    classes: list[SampledClass],
    sources: dict[str, Written],
) -> Steps[None]:
    trial = _Trial(report, view, sources)
    tried: dict[str, None] = {}
    for count, pilot in enumerate(pilots):
        yield
        if view.tired():
            report.notes.append(
                f"it was tried on {count:,} of {len(pilots):,} pilots, to save time"
            )
            break
        if is_here(view.state, pilot):
            tried[pilot.record.host] = None
            trial.at(pilot, classes)
    report.hosts = report.meeting = len(tried)
    if not trial.conditions:
        return
    report.meeting = len({host for host, _ in trial.meeting})
    report.parts = []
    for one, held in zip(trial.conditions, trial.holding, strict=True):
        yield
        hosts = len({host for host, _ in held})
        report.parts.append(ConditionAnswer(text=unparse(one.node), hosts=hosts))
    if pilots and not trial.meeting:
        apart = never_together(trial.holding)
        report.apart = [[report.parts[place].text for place in group] for group in apart]
        _say_never(report, sources.get("JobRequirements"))
    elif pilots and len(classes) > 1:
        _say_left_out(report, view, classes, {number for _, number in trial.meeting})


def _is_wrong(name: str, value: object) -> bool:
    """Whether the value has the wrong type. A condition may be undefined; a number must be one."""
    if value is ERROR:
        return True
    number = isinstance(value, bool | int | float) or value is UNDEFINED
    flag = isinstance(value, bool) or value is UNDEFINED
    flags = ("JobRequirements", "ReplicationRequirements", TAIL, GRID)
    return not (flag if name in flags else number)


def _type_fault(
    view: PolicyView, name: str, node: Node, value: object, sources: dict[str, Written], where: str
) -> PolicyFault:
    one = sources.get(name) or Written("", name, view.compiled.texts[name])
    there = f" on {where}" if where else ""
    if value is not ERROR:
        wanted = "true or false" if isinstance(value, int | float) else "of the right type"
        if name in ("Rank", "Concurrency", "Deadline", "MaxReplicas"):
            wanted = "a number"
        return _fault("type", one, f"its value is {shown(value)}{there}, not {wanted}", 0)
    guilty = view.culprit(node)
    view.value(node)
    if view.reason:
        return _fault("type", one, f"its value is an error{there}: it needs {view.reason}", 0)
    told = ", ".join(f"{name} is {found}" for name, found in view.values(guilty).items())
    words = f"{unparse(guilty)} is an error{there}" + (f": {told}" if told else "")
    whole = view.compiled.texts[name]  # plain keys may stand before it: … && (text)
    before = 0 if whole == one.text else len(whole) - len(one.text) - 1
    return _fault("type", one, words, max(0, guilty.position - before))


def _say_never(report: PolicyReport, one: Written | None) -> None:
    words = f"it is not true on any of the {report.hosts:,} hosts where it was tried"
    if report.hosts == 1:
        words = "it is not true on the only connected host"
    text = one.text if one is not None else ""
    report.faults.append(
        PolicyFault(kind="never", name="JobRequirements", message=words, text=text)
    )


def _say_left_out(
    report: PolicyReport, view: PolicyView, classes: list[SampledClass], met: set[int]
) -> None:
    """The fault that some classes of tasks cannot run on any connected host."""
    places = view.compiled.parameters(view.bag.body.names)
    names = view.bag.body.names
    for number, case in enumerate(classes):
        if number not in met and case.values is not None:
            told = ", ".join(f"{names[place]}={case.values[place]}" for place in places)
            words = f"it is true on no connected host for tasks with {told}"
            report.faults.append(PolicyFault(kind="never", name="JobRequirements", message=words))


def never_together(holding: Sequence[set[tuple[str, int]]]) -> list[list[int]]:
    """Groups of sets that have no element in common: every empty set alone; without empty sets,
    pairs; without such pairs, one group that would share an element if any of its sets left."""
    empty = [[place] for place, held in enumerate(holding) if not held]
    if empty:
        return empty
    pairs = [
        [first, second]
        for first, second in combinations(range(len(holding)), 2)
        if holding[first].isdisjoint(holding[second])
    ]
    if pairs:
        return pairs
    group = list(range(len(holding)))
    for place in list(group):
        rest = [one for one in group if one != place]
        if rest and not set.intersection(*(holding[one] for one in rest)):
            group = rest
    return [group]


def _tail(report: PolicyReport, view: PolicyView, sources: dict[str, Written]) -> None:
    value = view.named(TAIL)
    if _is_wrong(TAIL, value):
        report.faults.append(_type_fault(view, TAIL, view.node(TAIL), value, sources, ""))


def _end(
    report: PolicyReport, view: PolicyView, pilots: list[Pilot], classes: list[SampledClass]
) -> Steps[None]:
    """Note it if the bag could not run on any host once it is in its tail."""
    view.enter_tail()
    for pilot in pilots:
        yield
        for case in classes if is_here(view.state, pilot) else ():
            view.at(pilot, case)
            if view.named("JobRequirements") is True or view.tired():
                return
    report.notes.append("in the bag's tail its requirements would be met on no connected host")


def _grid(report: PolicyReport, view: PolicyView, sources: dict[str, Written]) -> None:
    """Evaluate the grid policy for every site; a site needs no host for that."""
    sites, let = view.state.sites, 0
    for name in sites:
        view.at_site(name)
        value = view.named(GRID)
        if _is_wrong(GRID, value):
            fault = _type_fault(view, GRID, view.node(GRID), value, sources, f"site {name}")
            report.faults.append(fault)
            return
        let += value is not False
    if sites and not let:
        report.notes.append(
            f"{KEYS[GRID]} is false for each of the {len(sites):,} sites, so none starts pilots "
            "for it"
        )


def _replication(
    report: PolicyReport, view: PolicyView, sources: dict[str, Written]
) -> Steps[None]:
    if not view.compiled.replicates:
        return
    wrong: set[str] = set()
    for task in list(islice(view.bag.places.live, MOST_RUNNING)):
        if view.tired():
            break
        yield
        view.of_task(task)
        for name in ("ReplicationRequirements", "MaxReplicas"):
            value = view.named(name)
            if name not in wrong and _is_wrong(name, value):
                wrong.add(name)
                fault = _type_fault(view, name, view.node(name), value, sources, "")
                fault.message += f" (task {task})"
                report.faults.append(fault)
