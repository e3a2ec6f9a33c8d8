"""Resources of tasks that come from their parameters: `memory = "{mem}"`.

The text with {NAME}s is filled in with the values of a task, and read as the bag file reads an
amount (`amounts`). When a bag is submitted, or tasks are appended, `find` looks at every
combination of the values that matter: at each row of a file, and at those axes of the space that
the texts and the conditions of rules name. Other axes are not enumerated, however many tasks they
make. So a bad value is reported at once, with its row, and all classes are known from the start.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from covey.core.errors import InvalidBag
from covey.core.record.model import BagSpec, Need, Segment
from covey.core.record.resource_rules import rule_finder
from covey.core.record.task_numbers import names_in, tasks_in
from covey.core.values.amounts import Amount, BadAmount, Seconds, Size, Whole, show
from covey.core.values.placeholders import filler, names_of
from covey.core.values.scalars import by_value
from covey.core.values.space import (
    Axis,
    Product,
    Scalar,
    Space,
    Values,
    Zip,
    indexer,
    names,
    shown,
    size,
)

MOST_CLASSES = 1000  # different combinations of resources, of one bag
MOST_LOOKED = 1_000_000  # combinations of values, of one segment
MOST_REPORTED = 3  # bad values that one message names
MOST_CORES, MOST_GPUS, LARGEST_SIZE = 100_000, 1024, "900 TB"
LONGEST_TEXT, LONGEST_VALUE = 100, 100  # characters
_MOST_KEPT = 10_000  # values whose need is remembered


class Resource(NamedTuple):
    """A resource that people can name: its field of `Need`, and how its amount is read."""

    field: str
    amount: Amount


RESOURCES = {
    "cores": Resource("cores", Whole(1, MOST_CORES)),
    "memory": Resource("memory_mb", Size("m", LARGEST_SIZE)),
    "disk": Resource("disk_mb", Size("m", LARGEST_SIZE)),
    "gpus": Resource("gpus", Whole(0, MOST_GPUS)),
    "time": Resource("limit_seconds", Seconds()),
}

NeedOf: TypeAlias = Callable[[Sequence[Scalar]], Need]


class BadNeed(InvalidBag):
    """Values of tasks that cannot be read as amounts of this resource. `hint`: how to mend that."""

    def __init__(self, text: str, resource: str, hint: str = "") -> None:
        super().__init__(text)
        self.resource, self.hint = resource, hint


def varies(spec: BagSpec) -> bool:
    """Whether some resource comes from parameters."""
    return bool(spec.need_from) or any(rule.need_from for rule in spec.rules)


def check(spec: BagSpec, known: Sequence[str]) -> None:
    """Raise InvalidBag for texts that cannot become amounts with any values."""
    parameters = frozenset(known)
    for need_from in (spec.need_from, *(rule.need_from for rule in spec.rules)):
        for resource, text in need_from.items():
            if resource not in RESOURCES:
                raise InvalidBag(
                    f"resources are {', '.join(RESOURCES)}; there is no {shown(resource)!r}"
                )
            if len(text) > LONGEST_TEXT or not names_of(text):
                raise InvalidBag(
                    f"{resource} = {shown(text)!r}: expected text with the name of a parameter in "
                    f"it, such as '{{{resource}}}', of at most {LONGEST_TEXT} characters"
                )
            for name in names_of(text):
                if name not in parameters:
                    raise InvalidBag(
                        f"{resource} = {shown(text)!r}: there is no parameter {shown(name)}; "
                        f"parameters: {shown(', '.join(known)) or 'none'}"
                    )
    if varies(spec) and spec.calls:
        raise InvalidBag("calls have no parameters, so their resources must be plain amounts")


def need_reader(spec: BagSpec, known: Sequence[str]) -> NeedOf:
    """A function from a task's values to its need. It raises BadNeed for a bad value."""
    rule_of = rule_finder(spec, known)
    makers = [_maker(spec.need, spec.need_from, known)]
    makers += [_maker(rule.need, rule.need_from, known) for rule in spec.rules]
    if rule_of is None:
        return makers[0]
    return lambda values: makers[rule_of(values)](values)


def _maker(need: Need, need_from: dict[str, str], known: Sequence[str]) -> NeedOf:
    if not need_from:
        return lambda values: need
    used = {name for text in need_from.values() for name in names_of(text)}
    places = [place for place, name in enumerate(known) if name in used]
    texts = [(resource, filler(text, known)) for resource, text in need_from.items()]
    kept: dict[tuple[Scalar, ...], Need] = {}

    def make(values: Sequence[Scalar]) -> Need:
        key = tuple([values[place] for place in places])
        made = kept.get(key)
        if made is None:
            amounts: dict[str, Any] = {}
            for value in key:
                if isinstance(value, str) and len(value) > LONGEST_VALUE:
                    resource = texts[0][0]
                    raise BadNeed(f"{resource}: {show(value)} is too long for an amount", resource)
            for resource, fill in texts:
                amounts[RESOURCES[resource].field] = _read(
                    resource, need_from[resource], fill(values, 0, 0)
                )
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            made = kept[key] = replace(need, **amounts)
        return made

    return make


def _read(resource: str, text: str, filled: str) -> float:
    amount = RESOURCES[resource].amount
    try:
        return amount.read_text(filled)
    except BadAmount as error:
        bare = isinstance(amount, Size) and not isinstance(by_value(filled.strip()), str)
        hint = f" (for all tasks: {resource} = '{text} MB')" if bare else ""
        raise BadNeed(f"{resource}: {error}", resource, hint) from None


def find(
    spec: BagSpec, segment: Segment, rows: Iterable[Sequence[Scalar]] = (), most: int = MOST_LOOKED
) -> tuple[Need, ...]:
    """The needs of the segment's tasks, each once. `rows` are those of its file. Looks at no more
    than `most` combinations of values. Raises BadNeed for a bad value, InvalidBag for too many."""
    if not varies(spec) or not tasks_in(segment):
        return ()
    looked = deciding_names(spec)
    known = [name for name in names_in(segment) if name in looked]
    most_looked = MOST_LOOKED // (
        1 + (len(known) + sum(len(rule.when) for rule in spec.rules)) // 10
    )
    points = _points(segment.space, looked, most_looked)
    columns = segment.rows.names if segment.rows is not None else ()
    places = [place for place, name in enumerate(columns) if name in looked]
    count = len(points) * (segment.rows.count if places and segment.rows is not None else 1)
    if count > most_looked:
        raise _too_many_values(known, count, most_looked)
    need_of = need_reader(spec, known)
    needs: dict[Need, None] = {}
    errors: list[BadNeed] = []
    for number, values in islice(_combinations(rows, places, points), most):
        try:
            needs[need_of(values)] = None
        except BadNeed as error:
            place = f"row {number}" if places else _named(known, values)
            errors.append(BadNeed(f"{place}: {error}", error.resource, error.hint))
            if len(errors) > MOST_REPORTED:
                break
        if len(needs) > MOST_CLASSES:
            raise too_many_classes(spec, "its tasks have")
    if errors:
        more = "; and more" if len(errors) > MOST_REPORTED else ""
        words = "; ".join(map(str, errors[:MOST_REPORTED])) + more + errors[0].hint
        raise BadNeed(words, errors[0].resource)
    return tuple(needs)


def _combinations(
    rows: Iterable[Sequence[Scalar]], places: Sequence[int], points: list[tuple[Scalar, ...]]
) -> Iterator[tuple[int, list[Scalar]]]:
    """Combinations of values, each with the number of its row, from 1. Without places, rows do not
    matter."""
    for number, row in enumerate(rows if places else [()], 1):
        own = [row[place] for place in places]
        for point in points:
            yield number, [*own, *point]


def too_many_classes(spec: BagSpec, what: str) -> InvalidBag:
    sources = (spec.need_from, *(rule.need_from for rule in spec.rules))
    resources = [name for name in RESOURCES if any(name in source for source in sources)]
    combined = "different combinations of " if len(resources) > 1 else "different values of "
    return InvalidBag(
        f"{what} more than {MOST_CLASSES:,} {combined}{' and '.join(resources)}, which is the most "
        "that a bag can have: round them up, for example memory to whole GB and time to whole hours"
    )


def _too_many_values(known: Sequence[str], count: int, most: int) -> InvalidBag:
    return InvalidBag(
        f"what a task needs depends on {shown(', '.join(known))}, with {count:,} combinations of "
        f"values; at most {most:,} can be looked at: let resources depend on fewer parameters, or "
        "submit several bags"
    )


def deciding_names(spec: BagSpec) -> set[str]:
    """Names of the parameters on which the need of a task depends."""
    deciding = {condition.name for rule in spec.rules for condition in rule.when}
    for need_from in (spec.need_from, *(rule.need_from for rule in spec.rules)):
        deciding.update(name for text in need_from.values() for name in names_of(text))
    return deciding


def _named(known: Sequence[str], values: Sequence[Scalar]) -> str:
    return shown(", ".join(f"{name}={value}" for name, value in zip(known, values, strict=True)))


def _points(space: Space, looked: set[str], most: int) -> list[tuple[Scalar, ...]]:
    """Every combination of values of the `looked` parameters in the space, once."""
    known = [name for name in names(space) if name in looked]
    if not known:
        return [()]
    match space:
        case Product(parts=parts):
            lists: list[list[tuple[Scalar, ...]]] = []
            count = 1
            for part in parts:
                lists.append(_points(part, looked, most))
                count *= len(lists[-1])
                if count > most:
                    raise _too_many_values(known, count, most)
            return [tuple(v for part in point for v in part) for point in product(*lists)]
        case Axis(values=Values(items)):
            return list(dict.fromkeys((item,) for item in items))
        case Axis() | Zip():
            return list(dict.fromkeys(_along(space, known, most)))


def _along(space: Space, known: Sequence[str], most: int) -> Iterator[tuple[Scalar, ...]]:
    """The combinations of an axis, or of parameters that are taken side by side."""
    if size(space) > most:
        raise _too_many_values(known, size(space), most)
    point, every = indexer(space), names(space)
    places = [every.index(name) for name in known]
    for index in range(size(space)):
        values = point(index)
        yield tuple([values[place] for place in places])
