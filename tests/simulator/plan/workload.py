"""What a world has to do, drawn from its seed: settings, bags, how tasks behave, pilots.

What an attempt does depends only on the seed, its task and the number of the task's start: the same
task fails in the same way however covey schedules it.
"""

import math
from collections.abc import Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from covey.core.record.model import (
    BagSpec,
    Blob,
    Condition,
    Need,
    Placed,
    PolicySpec,
    Rows,
    Rule,
    Segment,
    Settings,
)
from covey.core.record.task_classes import find_needs
from covey.core.record.task_numbers import names_in, tasks_in
from covey.core.values.space import ONE_TASK, Axis, Product, Range, Scalar, Space, Values
from covey.pilot.calls.call_records import CALL
from covey.pilot.protocol.messages import FAILED, OK, TIMEOUT
from tests.simulator.plan import broker_plans, site_plans
from tests.simulator.plan.places import Place
from tests.simulator.plan.site_plans import Grounds

MOST_CORES = 3  # of one task
CALLS = 40  # in one append: more than the smallest chunk
MOST_ROWS = 2000  # in one file
DATA = Placed(path="data", blob=Blob("da7a" * 16, 1000))


class Script(Struct, frozen=True):
    """How one start goes if nobody interferes."""

    seconds: float
    outcome: str
    exit_code: int


class NewPolicy(Struct, frozen=True):
    """A policy that the owner asks for while the bag runs; it may be nonsense."""

    at: float
    policy: PolicySpec
    valid: bool = True


class BagPlan(Struct, frozen=True, kw_only=True):
    number: int
    spec: BagSpec
    more: tuple[Segment, ...]  # appended one after another, before the bag is closed
    tasks: int
    at: float  # seconds from the start of the world
    seconds: tuple[float, float]  # run times are between these
    flaky: float  # share of tasks whose first start fails
    broken: float  # share of tasks that fail several times
    stuck: float  # share of tasks that reach the time limit
    cancel_at: float = 0.0  # 0: never
    owner_retries: int = 0  # how often its owner retries failed tasks
    impatient_at: float = 0.0  # when the owner retries while the bag runs (0: never)
    submit_again_at: float = 0.0
    doomed: bool = False  # every start fails
    changes: tuple[NewPolicy, ...] = ()
    last_policy: PolicySpec | None = None  # the one under which it can finish, if it has any


class Plan(Struct, frozen=True, kw_only=True):
    seed: int
    settings: Settings
    bags: tuple[BagPlan, ...]
    hand_pilots: tuple[tuple[float, int], ...]  # when, how many slots
    calm_at: float  # from here on nothing breaks any more
    places: tuple[Place, ...] = ()  # hosts; empty: every pilot has its own
    grounds: Grounds = Grounds()

    def script(self, bag: int, task: int, start: int, limit: float) -> Script:
        """The script of start number `start` (from 0) of a task, with this time limit (0: none)."""
        plan = self.bags[bag]
        kind = Random(f"{self.seed}/{bag}/{task}")
        luck, fails = kind.random(), kind.randint(2, 4)
        seconds = Random(f"{self.seed}/{bag}/{task}/{start}").uniform(*plan.seconds)
        if plan.doomed:
            return Script(seconds, FAILED, 2)
        if luck < plan.stuck and limit and start < fails - 1:
            return Script(limit, TIMEOUT, -1)
        if luck < plan.stuck + plan.broken and start < fails:
            return Script(seconds, FAILED, 3)
        if luck > 1.0 - plan.flaky and start == 0:
            return Script(seconds, FAILED, 1)
        if limit and seconds >= limit:
            return Script(limit, TIMEOUT, -1)
        return Script(seconds, OK, 0)

    def work_seconds(self) -> float:
        """An upper bound of what everything takes on one slot, with all repeats."""
        return sum(
            bag.tasks * max(bag.seconds[1], bag.spec.need.limit_seconds) * (1 + bag.owner_retries)
            for bag in self.bags
        )


def draw(seed: int) -> Plan:
    random = Random(f"{seed}/plan")
    calm_at = random.uniform(70.0, 160.0)
    count = random.randint(2, 7)
    tasks = random.randint(170, 620)
    taste = _taste(random)
    drawn = [_bag(random, seed, n, tasks // count, calm_at, taste) for n in range(count)]
    varied = [_varied(bag) if _may_vary(seed, bag) else bag for bag in drawn]
    named = [broker_plans.named(seed, number, bag.spec) for number, bag in enumerate(varied)]
    varied = [replace(bag, spec=spec) for bag, spec in zip(varied, named, strict=True)]
    bags = tuple(_calls(bag) if _may_call(seed, bag) else bag for bag in varied)
    hand = random.randint(5, 14)
    pilots = [(random.uniform(0.0, 5.0), random.randint(1, 6)) for _ in range(hand)]
    pilots += [
        (random.uniform(5.0, calm_at), random.randint(1, 6)) for _ in range(random.randint(1, 6))
    ]
    grounds = site_plans.draw(seed, calm_at, MOST_CORES)
    return Plan(
        seed=seed,
        settings=replace(
            _settings(random),
            sites=broker_plans.weighed(seed, grounds),
            broker=broker_plans.rules(seed),
            absent_seconds=Random(f"{seed}/absent").uniform(10.0, 100.0),
        ),
        bags=bags,
        hand_pilots=() if grounds.placed else tuple(sorted(pilots)),
        calm_at=calm_at,
        grounds=grounds,
    )


def _settings(random: Random) -> Settings:
    poll = random.uniform(4.0, 10.0)
    chunk = random.choice((16, 32, 64))
    return Settings(
        poll_seconds=poll,
        lease_seconds=poll + 15.0 + random.uniform(4.0, 15.0),
        adopt_seconds=random.uniform(12.0, 30.0),
        idle_seconds=random.uniform(20.0, 60.0),
        chunk=chunk,
        largest_chunk=chunk * 4,
    )


class Taste(Struct, frozen=True, kw_only=True):
    """What the bags of one world have in common."""

    seconds: tuple[tuple[float, float], ...]
    idempotent: float
    cancelled: float
    retried: float
    impatient: float


def _taste(random: Random) -> Taste:
    lengths = ((0.02, 0.4), (0.3, 3.0), (1.0, 8.0), (2.0, 15.0))
    return Taste(
        seconds=random.choice((lengths, lengths, lengths[2:], ((1.0, 8.0), (5.0, 40.0)))),
        idempotent=random.choice((0.9, 0.9, 0.3)),
        cancelled=random.choice((0.1, 0.1, 0.5)),
        retried=random.choice((0.2, 0.8)),
        impatient=random.choice((0.1, 0.7)),
    )


def _bag(
    random: Random, seed: int, number: int, mean_tasks: int, calm_at: float, taste: Taste
) -> BagPlan:
    wanted = max(1, int(mean_tasks * random.uniform(0.5, 1.6)))
    pieces = random.randint(2, 5) if random.random() < 0.2 else 1
    rows = random.random() < 0.25
    first = _segment(random, max(1, wanted // pieces), 0, rows)
    more: list[Segment] = []
    tasks = tasks_in(first)
    for _ in range(pieces - 1):
        more.append(_like(random, first, max(1, wanted // pieces), tasks))
        tasks += tasks_in(more[-1])
    seconds = random.choice(taste.seconds)
    if tasks <= 60 and random.random() < 0.4:
        seconds = (10.0, 60.0)
    idempotent = random.random() < taste.idempotent
    limit = seconds[1] * random.choice((1.2, 2.0)) if random.random() < 0.4 else 0.0
    spec = BagSpec(
        argv=("work", str(number)),
        space=first.space,
        rows=first.rows,
        open=pieces > 1,
        name=f"bag {number}",
        owner=f"owner-{number % 3}",
        key=f"key-{seed}-{number}",
        retries=random.choice((0, 1, 2, 5)) if idempotent else random.choice((0, 0, 1)),
        need=Need(limit_seconds=limit),
        rules=_rules(random, tasks, limit) if random.random() < 0.3 else (),
        breaker=random.choice((0, 10, 30)),
        inputs=(DATA,) if random.random() < 0.2 else (),
        idempotent=idempotent,
    )
    at = random.choice((0.5, random.uniform(0.5, calm_at)))
    cancelled = random.random() < taste.cancelled
    if cancelled and random.random() < 0.5:
        seconds = (60.0, 400.0)  # it does not end by itself: it must be stopped
    return BagPlan(
        number=number,
        spec=spec,
        more=tuple(more),
        tasks=tasks,
        at=at,
        seconds=seconds,
        flaky=random.choice((0.0, 0.05, 0.3)),
        broken=random.choice((0.0, 0.02, 0.1)),
        stuck=random.choice((0.0, 0.03)),
        cancel_at=at + random.uniform(2.0, 50.0) if cancelled else 0.0,
        owner_retries=random.randint(1, 2) if random.random() < taste.retried else 0,
        impatient_at=(at + random.uniform(5.0, 80.0) if random.random() < taste.impatient else 0.0),
        submit_again_at=at + random.uniform(1.0, 90.0) if random.random() < 0.25 else 0.0,
    )


def _may_vary(seed: int, bag: BagPlan) -> bool:
    plain = bool(bag.spec.need.limit_seconds) and not bag.spec.rules
    return plain and Random(f"{seed}/{bag.number}/vary").random() < 0.4


def _varied(bag: BagPlan) -> BagPlan:
    """The same bag with a time limit that comes from a parameter of each task."""
    first = Segment(space=bag.spec.space, rows=bag.spec.rows)
    whole = math.ceil(bag.spec.need.limit_seconds)
    need_from = {"time": f"{whole}.{{{names_in(first)[-1]}}}"}
    need = Need(limit_seconds=whole + 1.0)  # no task has more
    spec = replace(bag.spec, need=need, need_from=need_from)
    more = [replace(segment, task_needs=_needs(spec, segment)) for segment in bag.more]
    return replace(bag, spec=replace(spec, task_needs=_needs(spec, first)), more=tuple(more))


def _needs(spec: BagSpec, segment: Segment) -> tuple[Need, ...]:
    rows = segment.rows
    return find_needs(spec, segment, TABLES[rows.digest][: rows.count] if rows is not None else ())


def said_seconds(spec: BagSpec, values: Sequence[object]) -> float:
    """The time limit in the parameters of a task of such a bag; 0 if they have none."""
    text = spec.need_from.get("time", "")
    return float(f"{text.partition('{')[0]}{values[-1]}") if text else 0.0


def _may_call(seed: int, bag: BagPlan) -> bool:
    plain = bag.spec.rows is None and not bag.spec.rules and not bag.spec.need_from
    return plain and Random(f"{seed}/{bag.number}/calls").random() < 0.4


def _calls(bag: BagPlan) -> BagPlan:
    """The same bag as a bag of calls, which are appended a few at a time."""
    numbers = list(map(str, range(bag.tasks)))
    pieces = [tuple(numbers[at : at + CALLS]) for at in range(0, bag.tasks, CALLS)]
    first, *more = (Axis(CALL, Values(piece)) for piece in pieces)
    spec = replace(bag.spec, calls=True, space=first, open=bool(more))
    return replace(bag, spec=spec, more=tuple(Segment(space=space) for space in more))


def _segment(random: Random, tasks: int, start: int, rows: bool) -> Segment:
    """Tasks from number `start` on. The values of a task add up to its number, as a check."""
    columns = random.randint(2, 7) if random.random() < 0.5 else 1
    count = -(-tasks // columns)
    inner: Space = Axis("c", Range("0", "1", columns)) if columns > 1 else ONE_TASK
    if rows:
        return Segment(space=inner, rows=_rows(start, columns, count))
    outer = Axis("i", Range(str(start), str(columns), count))
    return Segment(space=Product((outer, inner)) if columns > 1 else outer)


def _like(random: Random, first: Segment, tasks: int, start: int) -> Segment:
    """A segment with the same parameters."""
    while True:
        made = _segment(random, tasks, start, rows=first.rows is not None)
        if names_in(made) == names_in(first):
            return made


def _rules(random: Random, tasks: int, limit: float) -> tuple[Rule, ...]:
    """A rule by which some tasks need several slots."""
    middle = random.uniform(0.2, 0.9) * tasks
    need = Need(cores=random.randint(2, MOST_CORES), limit_seconds=limit)
    return (Rule(when=(Condition(name="i", low=middle),), need=need),)


def _rows(start: int, step: int, count: int) -> Rows:
    """The digest describes the content of the file, which exists nowhere."""
    return Rows(digest=f"{start} {step}", form="lines", names=("i",), count=count)


class DrawnTables(dict[str, list[list[Scalar]]]):
    """The rows of files that exist nowhere else, by digest."""

    def __missing__(self, digest: str) -> list[list[Scalar]]:
        start, step = map(int, digest.split())
        self[digest] = [[start + index * step] for index in range(MOST_ROWS)]
        return self[digest]


TABLES = DrawnTables()
