"""Which policy a bag has: checked, set, changed.

A policy that looks at parameters splits the bag's classes by their values, whenever a task with
new values is met. When the policy changes, waiting tasks are sorted into classes again; running
tasks keep the class under which they were sent.
"""

from collections.abc import Sequence

from pyroaring import BitMap

from covey.classad import UNDEFINED, dependencies, parse
from covey.classad.evaluation import evaluate
from covey.classad.nodes import Reference
from covey.core.errors import InvalidBag
from covey.core.match.attributes import TABLE
from covey.core.match.policies import Compiled
from covey.core.match.site_access import last_resorts
from covey.core.record.model import BagSpec, PolicySpec, Segment
from covey.core.record.task_classes import classifier
from covey.core.record.task_needs import MOST_CLASSES
from covey.core.record.task_numbers import names_in
from covey.core.state import Bag, State
from covey.core.values.space import LARGEST_BAG, Axis, Scalar, Space, Values, Zip, shown, size

MOST_NAMES = 10_000  # of sites and hosts in one policy
PART_GONE = 4  # bags are counted again when a quarter of them has gone
FEW_DEPARTURES = 32  # bags; counting fewer costs nothing
RECOUNT_SECONDS = 10.0
CROWDED = (
    f"its policy uses parameters that have more than {MOST_CLASSES:,} different values: "
    "change it with covey policy set, then covey resume"
)

DEFAULT = Compiled(PolicySpec())  # of bags without a policy; nothing is ever written into its ad


def compiled(policy: PolicySpec) -> Compiled:
    """Bags without a policy share one."""
    if policy == PolicySpec():
        return DEFAULT
    found = Compiled(policy)
    found.prepare()
    return found


def check(policy: PolicySpec, spec: BagSpec, segment: Segment) -> None:
    """Raises InvalidBag if such a bag cannot have this policy."""
    if policy == PolicySpec():
        return
    lists = (policy.only_sites, policy.avoid_sites, policy.only_hosts, policy.avoid_hosts)
    if sum(map(len, lists)) + len(policy.failover_sites) > MOST_NAMES:
        raise InvalidBag(f"a policy names at most {MOST_NAMES:,} sites and hosts")
    new = Compiled(policy)
    check_deadline(policy.deadline, new.texts.get("Deadline", ""))
    if new.replicates and not spec.idempotent:
        raise InvalidBag(
            "tasks must not run twice (idempotent = false), so a policy cannot ask for replicas"
        )
    names = names_in(segment)
    looked = {names[place] for place in new.parameters(names)}
    if looked and spec.calls:
        raise InvalidBag("the tasks of a bag of calls have no parameters that a policy could use")
    count = _combinations(segment.space, looked)
    if count > MOST_CLASSES:
        parameters = shown(", ".join(sorted(looked)))
        raise InvalidBag(
            f"the policy uses {parameters}, with {count:,} different values; "
            f"at most {MOST_CLASSES:,} are allowed: use rules for resources, or several bags"
        )


def _combinations(space: Space, looked: set[str]) -> int:
    if isinstance(space, Axis):
        if space.name not in looked:
            return 1
        return len(set(space.values.items)) if isinstance(space.values, Values) else size(space)
    if isinstance(space, Zip):
        return max((_combinations(part, looked) for part in space.parts), default=1)
    count = 1
    for part in space.parts:
        count = min(count * _combinations(part, looked), LARGEST_BAG)
    return count


def split(bag: Bag) -> None:
    """From now on the bag's tasks are told apart by what its policy looks at. Present classes stay,
    since running tasks have been sent under their numbers."""
    names, classes = bag.body.names, bag.classes
    number_of = classifier(bag.spec, names, classes.numbers)
    places = () if bag.spec.calls else bag.policy.parameters(names)
    kinds = classes.by_number
    if not places:
        classes.classify = number_of and (lambda values: kinds[number_of(values)])
        return
    known: dict[tuple[Scalar, ...], int] = {}

    def classify(values: Sequence[Scalar]) -> int:
        number = number_of(values) if number_of is not None else 0
        key = (number, *(values[place] for place in places))
        kind = known.get(key)
        if kind is None:
            classes.crowded = len(known) >= MOST_CLASSES
            kind = kinds[number] if classes.crowded else bag.add_class(number, list(values))
            known[key] = kind
        return kind

    classes.classify = classify


def check_deadline(written: str, text: str) -> None:
    """Raises InvalidBag for what cannot be a deadline on any host: a negative number, text, or the
    name of an unknown attribute. `text`: the expression that was made of what was written."""
    if not written:
        return
    node = parse(text).node
    value = UNDEFINED if dependencies(node) else evaluate(node)
    good = value is UNDEFINED
    if isinstance(value, int | float) and not isinstance(value, bool):
        good = value >= 0
    if isinstance(node, Reference) and node.scope is None:
        good = node.key in TABLE["bag"]
    if not good:
        expected = "expected a time (90s, 30m, 2h, 1d), or an expression that gives seconds"
        raise InvalidBag(f"deadline: {expected}; not {shown(written)!r}")


def first_segment(bag: Bag) -> Segment:
    return Segment(space=bag.spec.space, rows=bag.spec.rows)


def change(state: State, bag: Bag, policy: PolicySpec) -> None:
    """Raises InvalidBag, and then nothing has changed."""
    check(policy, bag.spec, first_segment(bag))
    new = compiled(policy)
    noticed(state, bag)
    before = bag.policy.parameters(bag.body.names)
    replace(bag, new)
    if before != bag.policy.parameters(bag.body.names):
        sort_anew(bag)
    if not last_resorts(state, bag):
        bag.fail_over_no_more()
    noticed(state, bag)


def replace(bag: Bag, policy: Compiled) -> None:
    """Set this policy, and forget the answers of the one before it."""
    bag.policy = policy
    bag.cache.renew()
    bag.replicas.offers.clear()
    bag.replicas.tail = bag.classes.crowded = False


def sort_anew(bag: Bag) -> None:
    """Sort the waiting tasks into classes again, by what the policy and the rules look at."""
    was_plain, places = bag.classes.classify is None, bag.places
    split(bag)
    waiting = BitMap().union(*places.ready)
    for ready in places.ready:
        ready.clear()
    if was_plain and bag.classes.classify is not None:
        waiting.add_range(places.next, bag.chunks.mark)  # until now they went out by their numbers
        places.next = bag.chunks.mark
    for task in waiting:
        bag.free(task)


def gone(state: State) -> None:
    """A bag is over. Pilots that have an order of bags skip it. The remaining bags are counted
    again only when many have gone, or after a while (`tick`): with a thousand bags in the queue,
    counting costs more than all tasks of a small bag."""
    state.changes.departures += 1
    if FEW_DEPARTURES <= len(state.bags) <= PART_GONE * state.changes.departures or not state.bags:
        _count_anew(state)


def tick(state: State, now: float) -> None:
    if not state.changes.departures:
        state.changes.counted_at = now
    elif len(state.bags) < FEW_DEPARTURES or now - state.changes.counted_at >= RECOUNT_SECONDS:
        _count_anew(state)
        state.changes.counted_at = now


def _count_anew(state: State) -> None:
    state.changes.departures = 0
    state.changes.comings += 1
    state.changes.policies += 1


def noticed(state: State, bag: Bag) -> None:
    """A bag has come, gone or changed. If it has a policy, core finds out again at which attributes
    policies look."""
    state.changes.comings += 1
    if not bag.policy.plain or bag.policy.replicates or not bag.policy.anywhere:
        state.changes.policies += 1
