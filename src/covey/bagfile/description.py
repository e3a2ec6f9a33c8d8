"""What a bag would be, without submitting it: for `--dry-run`."""

from collections import Counter

import msgspec
from msgspec import Struct

from covey.bagfile.draft.draft import Taken
from covey.bagfile.draft.points import count_tasks, values_of
from covey.bagfile.inputs.gathering import Gathered
from covey.core.errors import InvalidBag
from covey.core.explain import catalogue
from covey.core.explain.answers import ShownPolicy
from covey.core.record.model import GIVEN, Condition, Need
from covey.core.record.resource_rules import rule_finder
from covey.core.record.task_classes import needs_of
from covey.core.record.task_needs import BadNeed, need_reader, varies
from covey.core.values.placeholders import fill
from covey.core.values.space import Scalar

FIRST_TASKS = 5
MOST_COUNTED = 1_000_000  # tasks whose classes are counted


class ShownTask(Struct, kw_only=True):
    task: int
    values: dict[str, Scalar]
    command: list[str]


class ShownClass(Need, frozen=True, kw_only=True, omit_defaults=False):
    """Tasks with equal needs. `when` is empty for tasks that no condition matches, and for tasks
    whose resources come from their parameters."""

    when: str
    tasks: int


class ShownFile(Struct, kw_only=True):
    path: str
    bytes: int
    places: list[str]  # in the task's directory; empty for rows
    known: bool | None = None  # to the server; None: not asked


class Limits(Struct, kw_only=True):
    retries: int
    grow_memory: float
    grow_time: float
    overtimes: int
    breaker: int
    output_mb: int
    log_kb: int


class Description(Struct, kw_only=True):
    name: str
    tasks: int
    taken: Taken | None = None  # if only some tasks are submitted
    counted: int  # the tasks whose classes were counted
    names: list[str]
    first: list[ShownTask]
    classes: list[ShownClass]
    uploads: list[ShownFile]
    urls: list[str]
    outputs: list[str]
    optional_outputs: list[str]
    limits: Limits
    check: str
    setup: str
    policy: ShownPolicy
    broker: str  # empty: as the server says
    finish_seconds: float  # after its submission it should be done; 0: no such time
    open: bool
    order: str  # "long-first" only if that makes a difference


def describe(gathered: Gathered) -> Description:
    """Reads the file of rows, if there is one. Raises InvalidBag for a bad row."""
    draft, spec = gathered.draft, gathered.spec
    total = count_tasks(draft)
    classes = _classes(gathered, total)
    times = {row.limit_seconds for row in classes if row.tasks}
    return Description(
        name=spec.name,
        tasks=total,
        taken=draft.taken,
        counted=min(total, MOST_COUNTED) if spec.rules or spec.need_from else total,
        names=list(draft.names),
        first=_first(gathered),
        classes=classes,
        uploads=_uploads(gathered),
        urls=[placed.url for placed in gathered.urls],
        outputs=list(spec.outputs),
        optional_outputs=list(spec.optional_outputs),
        limits=Limits(**{name: getattr(spec, name) for name in Limits.__struct_fields__}),
        check=spec.check,
        setup=spec.setup,
        policy=catalogue.view(spec.policy),
        broker=spec.broker,
        finish_seconds=spec.finish_seconds,
        open=spec.open,
        order=spec.order if len(times) > 1 else GIVEN,
    )


def _first(gathered: Gathered) -> list[ShownTask]:
    shown = []
    for number, values in enumerate(values_of(gathered.draft, FIRST_TASKS)):
        named = dict(zip(gathered.draft.names, values, strict=True))
        command = [fill(word, {**named, "task": number}) for word in gathered.spec.argv]
        shown.append(ShownTask(task=number, values=named, command=command))
    return shown


def _classes(gathered: Gathered, total: int) -> list[ShownClass]:
    spec = gathered.spec
    if varies(spec):
        return _classes_by_task(gathered)
    needs = needs_of(spec)
    counts = [0] * len(needs)
    rule_of = rule_finder(spec, gathered.draft.names)
    if rule_of is None:
        counts[0] = total
    else:
        for values in values_of(gathered.draft, MOST_COUNTED):
            counts[rule_of(values)] += 1
    conditions = ["", *(" and ".join(map(_words, rule.when)) for rule in spec.rules)]
    return [
        ShownClass(when=when, tasks=count, **msgspec.structs.asdict(need))
        for when, need, count in zip(conditions, needs, counts, strict=True)
    ]


def _classes_by_task(gathered: Gathered) -> list[ShownClass]:
    """Each combination of resources that tasks have; the longest first, then the largest."""
    counts: Counter[Need] = Counter()
    need_of = need_reader(gathered.spec, gathered.draft.names)
    for number, values in enumerate(values_of(gathered.draft, MOST_COUNTED)):
        try:
            counts[need_of(values)] += 1
        except BadNeed as error:
            raise InvalidBag(f"task {number}: {error}") from None
    return [
        ShownClass(when="", tasks=counts[need], **msgspec.structs.asdict(need))
        for need in sorted(counts, key=_size, reverse=True)
    ]


def _size(need: Need) -> tuple[float, ...]:
    return (need.limit_seconds, need.cores, need.gpus, need.memory_mb, need.disk_mb)


def _words(condition: Condition) -> str:
    name, low, high = condition.name, condition.low, condition.high
    if condition.values:
        listed = ", ".join(str(value) for value in condition.values)
        return f"{name} = {listed}"
    if low is None:
        return f"{name} <= {high:g}"
    return f"{name} >= {low:g}" if high is None else f"{low:g} <= {name} <= {high:g}"


def _uploads(gathered: Gathered) -> list[ShownFile]:
    places: dict[str, list[str]] = {}
    for put in gathered.puts:
        places.setdefault(put.file.path, []).append(put.to)
    for key, file in gathered.manifest.items():
        places.setdefault(file.path, []).append(key)
    return [
        ShownFile(path=file.path, bytes=file.size, places=places.get(file.path, []))
        for file in gathered.uploads
    ]
