"""Which policy a bag has: checked, set, changed.

A policy that looks at parameters splits the bag's classes by their values, as tasks with new ones
are met. When it changes, tasks that wait are sorted anew; those that are out keep the class they
were sent as.
"""

from collections.abc import Sequence
from math import prod

from pyroaring import BitMap

from covey.core.classes import classifier, needs_of
from covey.core.errors import InvalidBag
from covey.core.fitting import last_resorts
from covey.core.model import BagSpec, PolicySpec, Segment
from covey.core.numbering import names_in
from covey.core.policies import Compiled
from covey.core.space import Axis, Scalar, Space, Values, Zip, size
from covey.core.state import Bag, State

MOST_CLASSES = 1000  # by the values of parameters
MOST_NAMES = 10_000  # of sites and hosts in one policy
CROWDED = (
    f"its policy looks at parameters that have more than {MOST_CLASSES:,} different values: "
    "change it with covey policy set, then covey resume"
)

_default = Compiled(PolicySpec())


def compiled(policy: PolicySpec) -> Compiled:
    """Bags without a policy share one: nothing is ever written into its ad."""
    return _default if policy == PolicySpec() else Compiled(policy)


def check(policy: PolicySpec, spec: BagSpec, segment: Segment) -> None:
    """Raises InvalidBag unless this can decide for such a bag."""
    if policy == PolicySpec():
        return
    lists = (policy.only_sites, policy.avoid_sites, policy.only_hosts, policy.avoid_hosts)
    if sum(map(len, lists)) + len(policy.failover_sites) > MOST_NAMES:
        raise InvalidBag(f"a policy names at most {MOST_NAMES:,} sites and hosts")
    found = Compiled(policy)
    if found.replicates and not spec.idempotent:
        raise InvalidBag("tasks of a bag that is not idempotent cannot be replicated")
    names = names_in(segment)
    looked = {names[place] for place in found.parameters(names)}
    if looked and spec.calls:
        raise InvalidBag("calls have no parameters that a policy could look at")
    count = _combinations(segment.space, looked)
    if count > MOST_CLASSES:
        raise InvalidBag(
            f"the policy looks at {', '.join(sorted(looked))}, with {count:,} different values; "
            f"at most {MOST_CLASSES:,} can be told apart: use rules for resources, or several bags"
        )


def _combinations(space: Space, looked: set[str]) -> int:
    if isinstance(space, Axis):
        if space.name not in looked:
            return 1
        return len(set(space.values.items)) if isinstance(space.values, Values) else size(space)
    if isinstance(space, Zip):
        return max((_combinations(part, looked) for part in space.parts), default=1)
    return prod(_combinations(part, looked) for part in space.parts)


def split(bag: Bag) -> None:
    """Tell the bag's tasks apart by what its policy looks at, from now on. Classes that there are
    stay: their tasks that are out have been sent under these numbers."""
    names = bag.body.names
    rule = classifier(bag.spec, names)
    places = () if bag.spec.calls else bag.policy.parameters(names)
    if not places:
        bag.classify = rule
        return
    needs = needs_of(bag.spec)
    known: dict[tuple[Scalar, ...], int] = {}

    def classify(values: Sequence[Scalar]) -> int:
        number = rule(values) if rule is not None else 0
        key = (number, *(values[place] for place in places))
        kind = known.get(key)
        if kind is None:
            bag.crowded = len(known) >= MOST_CLASSES
            kind = number if bag.crowded else bag.add_class(number, needs[number], list(values))
            known[key] = kind
        return kind

    bag.classify = classify


def change(state: State, bag: Bag, policy: PolicySpec) -> None:
    """Raises InvalidBag, and then nothing has changed."""
    segment = Segment(space=bag.spec.space, rows=bag.spec.rows)
    check(policy, bag.spec, segment)
    noticed(state, bag)
    before = bag.policy.parameters(bag.body.names)
    bag.policy = compiled(policy)
    bag.jobs.clear()
    bag.offers.clear()
    bag.tail, bag.dirty, bag.crowded = False, True, False
    bag.stamp += 1
    if before != bag.policy.parameters(bag.body.names):
        _sort_anew(bag)
    if not last_resorts(state, bag):
        bag.fail_over_no_more()
    noticed(state, bag)


def _sort_anew(bag: Bag) -> None:
    was_plain = bag.classify is None
    split(bag)
    waiting = BitMap().union(*bag.ready)
    for ready in bag.ready:
        ready.clear()
    if was_plain and bag.classify is not None:  # until now numbers went out one after the other
        waiting.add_range(bag.next, bag.mark)
        bag.next = bag.mark
    for task in waiting:
        bag.free(task)


def noticed(state: State, bag: Bag) -> None:
    """A bag has come, gone or changed. Where it has a policy, what these look at is found anew."""
    state.comings += 1
    if not bag.policy.plain or bag.policy.replicates or not bag.policy.anywhere:
        state.policies += 1
