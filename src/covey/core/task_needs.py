"""What each task needs, where its own parameters say so: `memory = "{mem}"`.

The text with {NAME}s is filled in with the values of a task, and read as the bag file reads an
amount (`amounts`). When a bag is submitted, or tasks are appended, `find` looks at every
combination of the values that matter: at each row of a file, and at those axes of the space that
the texts and the conditions of rules name. Other axes are not enumerated, however many tasks they
make. So a bad value is told at once, with its row, and all classes are known from the start.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Any, TypeAlias

from msgspec.structs import replace

from covey.core.amounts import Amount, BadAmount, Seconds, Size, Whole
from covey.core.errors import InvalidBag
from covey.core.filling import filler, names_of
from covey.core.model import BagSpec, Need, Segment
from covey.core.numbering import names_in, tasks_in
from covey.core.rules import rule_finder
from covey.core.scalars import by_value
from covey.core.space import Axis, Product, Scalar, Space, Values, Zip, indexer, names, shown, size

MOST_CLASSES = 1000  # different combinations of resources, of one bag
MOST_LOOKED = 1_000_000  # combinations of values, of one segment
MOST_TOLD = 3  # bad values that one message names
MOST_CORES, MOST_GPUS, LARGEST_SIZE = 100_000, 1024, "900 TB"
LONGEST_TEXT = 200
_MOST_KEPT = 10_000  # values whose need is remembered

AMOUNTS: dict[str, Amount] = {
    "cores": Whole(1, MOST_CORES),
    "memory": Size("m", LARGEST_SIZE),
    "disk": Size("m", LARGEST_SIZE),
    "gpus": Whole(0, MOST_GPUS),
    "time": Seconds(),
}
FIELDS = {
    "cores": "cores",
    "memory": "memory_mb",
    "disk": "disk_mb",
    "gpus": "gpus",
    "time": "limit_seconds",
}

NeedOf: TypeAlias = Callable[[Sequence[Scalar]], Need]


class BadNeed(InvalidBag):
    """Values of tasks that are no amounts of this resource. `hint`: what would make them some."""

    def __init__(self, text: str, resource: str, hint: str = "") -> None:
        super().__init__(text)
        self.resource, self.hint = resource, hint


def varies(spec: BagSpec) -> bool:
    """Whether some resource is taken from parameters."""
    return bool(spec.need_from) or any(rule.need_from for rule in spec.rules)


def check(spec: BagSpec, known: Sequence[str]) -> None:
    """Raise InvalidBag, with words, for texts that cannot become amounts whatever the values."""
    for need_from in (spec.need_from, *(rule.need_from for rule in spec.rules)):
        for resource, text in need_from.items():
            if resource not in AMOUNTS:
                raise InvalidBag(
                    f"resources are {', '.join(AMOUNTS)}; there is no {shown(resource)!r}"
                )
            if len(text) > LONGEST_TEXT or not names_of(text):
                raise InvalidBag(
                    f"{resource} = {shown(text)!r}: expected text with the name of a parameter in "
                    f"it, such as '{{{resource}}}', of at most {LONGEST_TEXT} characters"
                )
            for name in names_of(text):
                if name not in known:
                    raise InvalidBag(
                        f"{resource} = {shown(text)!r}: there is no parameter {shown(name)}; "
                        f"parameters: {shown(', '.join(known)) or 'none'}"
                    )
    if varies(spec) and spec.calls:
        raise InvalidBag("the calls of a bag of calls have no parameters that could say resources")


def need_reader(spec: BagSpec, known: Sequence[str]) -> NeedOf:
    """From a task's values to what it needs. The function raises BadNeed for a bad value."""
    rule_of = rule_finder(spec, known)
    makers = [_maker(spec.need, spec.need_from, known)]
    makers += [_maker(rule.need, rule.need_from, known) for rule in spec.rules]
    if rule_of is None:
        return makers[0]
    return lambda values: makers[rule_of(values)](values)


def _maker(need: Need, need_from: dict[str, str], known: Sequence[str]) -> NeedOf:
    if not need_from:
        return lambda values: need
    used = dict.fromkeys(name for text in need_from.values() for name in names_of(text))
    places = [known.index(name) for name in used]
    texts = [(resource, filler(text, known)) for resource, text in need_from.items()]
    kept: dict[tuple[Scalar, ...], Need] = {}

    def make(values: Sequence[Scalar]) -> Need:
        key = tuple([values[place] for place in places])
        found = kept.get(key)
        if found is None:
            amounts: dict[str, Any] = {}
            for resource, fill in texts:
                amounts[FIELDS[resource]] = _read(resource, need_from[resource], fill(values, 0, 0))
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            found = kept[key] = replace(need, **amounts)
        return found

    return make


def _read(resource: str, text: str, filled: str) -> float:
    try:
        return AMOUNTS[resource].read_text(filled)
    except BadAmount as error:
        bare = isinstance(AMOUNTS[resource], Size) and not isinstance(by_value(filled.strip()), str)
        hint = f" (for all tasks: {resource} = '{text} MB')" if bare else ""
        raise BadNeed(f"{resource}: {error}", resource, hint) from None


def find(
    spec: BagSpec, segment: Segment, rows: Iterable[Sequence[Scalar]] = (), most: int = MOST_LOOKED
) -> tuple[Need, ...]:
    """The needs of the segment's tasks, each once. `rows` are those of its file. At most so many
    combinations of values are looked at. Raises InvalidBag: BadNeed if values are no amounts."""
    if not varies(spec) or not tasks_in(segment):
        return ()
    known, looked = names_in(segment), deciding_names(spec)
    columns = segment.rows.names if segment.rows is not None else ()
    points = _points(segment.space, looked)
    by_row = not looked.isdisjoint(columns)
    count = segment.rows.count if by_row and segment.rows is not None else 1
    effort = 1 + sum(len(rule.when) for rule in spec.rules) // 100
    if count * len(points) * effort > MOST_LOOKED:
        raise _too_many_values(known, looked, count * len(points))
    need_of = need_reader(spec, known)
    found: dict[Need, None] = {}
    told: list[BadNeed] = []
    looking = islice(rows, most // len(points)) if by_row else [("",) * len(columns)]
    for number, row in enumerate(looking, 1):
        for point in points:
            values = [*row, *point]
            try:
                found[need_of(values)] = None
            except BadNeed as error:
                place = f"row {number}" if by_row else _named(known, values, looked)
                told.append(BadNeed(f"{place}: {error}", error.resource, error.hint))
        if len(told) > MOST_TOLD:
            break
        if len(found) > MOST_CLASSES:
            raise too_many_classes(spec, "its tasks have")
    if told:
        more = "; and more" if len(told) > MOST_TOLD else ""
        words = "; ".join(map(str, told[:MOST_TOLD])) + more + told[0].hint
        raise BadNeed(words, told[0].resource)
    return tuple(found)


def too_many_classes(spec: BagSpec, what: str) -> InvalidBag:
    resources = [
        resource
        for resource in AMOUNTS
        if any(resource in one for one in (spec.need_from, *(r.need_from for r in spec.rules)))
    ]
    combined = "different combinations of " if len(resources) > 1 else "different values of "
    return InvalidBag(
        f"{what} more than {MOST_CLASSES:,} {combined}{' and '.join(resources)}, which is the most "
        "that a bag can have: round them up, for example memory to whole GB and time to whole hours"
    )


def _too_many_values(known: Sequence[str], looked: set[str], count: int) -> InvalidBag:
    named = shown(", ".join(name for name in known if name in looked))
    return InvalidBag(
        f"what a task needs depends on {named}, with {count:,} combinations of values; at most "
        f"{MOST_LOOKED:,} can be looked at: let resources depend on fewer parameters, or submit "
        "several bags"
    )


def deciding_names(spec: BagSpec) -> set[str]:
    """Names of parameters that make a difference to what a task needs."""
    found = {condition.name for rule in spec.rules for condition in rule.when}
    for need_from in (spec.need_from, *(rule.need_from for rule in spec.rules)):
        found.update(name for text in need_from.values() for name in names_of(text))
    return found


def _named(known: Sequence[str], values: Sequence[Scalar], looked: set[str]) -> str:
    pairs = zip(known, values, strict=True)
    return shown(", ".join(f"{name}={value}" for name, value in pairs if name in looked))


def _points(space: Space, looked: set[str]) -> list[tuple[Scalar, ...]]:
    """Every combination of the values that matter, once; other values are empty."""
    known = names(space)
    if looked.isdisjoint(known):
        return [("",) * len(known)]
    match space:
        case Product(parts=parts):
            lists: list[list[tuple[Scalar, ...]]] = []
            count = 1
            for part in parts:
                lists.append(_points(part, looked))
                count *= len(lists[-1])
                if count > MOST_LOOKED:
                    raise _too_many_values(known, looked, count)
            return [tuple(v for part in point for v in part) for point in product(*lists)]
        case Axis(values=Values(items)):
            return list(dict.fromkeys((item,) for item in items))
        case Axis() | Zip():
            return list(dict.fromkeys(_along(space, known, looked)))


def _along(space: Space, known: Sequence[str], looked: set[str]) -> Iterator[tuple[Scalar, ...]]:
    if size(space) > MOST_LOOKED:
        raise _too_many_values(known, looked, size(space))
    point, matters = indexer(space), [name in looked for name in known]
    for index in range(size(space)):
        pairs = zip(point(index), matters, strict=True)
        yield tuple([value if matter else "" for value, matter in pairs])
