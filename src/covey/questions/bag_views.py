"""Bags as people see them, read from the live state."""

from itertools import chain, islice

from covey.core.bags import estimate
from covey.core.bags.input_versions import version_in
from covey.core.explain import bag_answers
from covey.core.explain.steps import Steps
from covey.core.record.input_files import summary, views_of
from covey.core.record.model import BagStatus
from covey.core.state import Bag, State
from covey.core.values.space import Scalar
from covey.wire import BagView, ClassView, Estimate, RunningRow, Straggler

MOST_STRAGGLERS = 5
MOST_SHOWN_WIDTH = 100_000  # characters of a task's values, where they are only there to read
MOST_PAGE_CHARACTERS = 8 << 20  # of values in one answer
FEW_ROWS = 100  # that are made in one step


def bag_view(state: State, bag: Bag, now: float) -> BagView:
    """A bag that core holds runs, or is paused: one whose end is durable is forgotten there, and
    nobody is told of an end that a crash might undo."""
    spec = bag.spec
    running = len({attempt.task for attempt in estimate.probably_running(state, bag)})
    paused = bag.status is BagStatus.PAUSED
    return BagView(
        id=bag.id,
        name=spec.name,
        owner=spec.owner,
        argv=list(spec.argv),
        names=[] if spec.calls else bag.body.names,
        readings=bag.numbering.readings,
        status=(BagStatus.PAUSED if paused else BagStatus.RUNNING).value,
        reason=bag.reason if paused else bag_answers.hindrance(state, bag),
        open=bag.open,
        calls=spec.calls,
        total=bag.total,
        done=len(bag.places.done),
        failed=len(bag.places.failed),
        running=running,
        sent=len(bag.places.live) - running,
        in_doubt=len(bag.places.doubt),
        created=bag.created,
        retries=spec.retries,
        overtimes=spec.overtimes,
        grow_time=spec.grow_time,
        classes=_classes(bag),
        idempotent=spec.idempotent,
        labels=spec.labels,
        notes=spec.notes,
        outputs=[*spec.outputs, *spec.optional_outputs],
        unkept=bag.outputs.summary.unkept,
        inputs=summary(spec, views_of(bag.inputs.versions)),
        estimate=_estimate(state, bag, now),
        stragglers=_stragglers(state, bag, now),
    )


def _classes(bag: Bag) -> list[ClassView]:
    all_known = bag.progress.ends >= len(bag.places.done)
    return [
        ClassView(
            cores=need.cores,
            memory_mb=need.memory_mb,
            disk_mb=need.disk_mb,
            gpus=need.gpus,
            limit_seconds=need.limit_seconds,
            ended=ended if all_known else None,
            mean_seconds=mean_seconds if ended else None,
        )
        for need, ended, mean_seconds in estimate.classes(bag)
    ]


def _estimate(state: State, bag: Bag, now: float) -> Estimate | None:
    found = estimate.estimate(state, bag, now)
    return Estimate(likely=found.likely, low=found.low, high=found.high) if found else None


def _stragglers(state: State, bag: Bag, now: float) -> list[Straggler]:
    return [
        Straggler(
            task=attempt.task,
            values=_values(bag, attempt.task) if bag.width <= MOST_SHOWN_WIDTH else [],
            host=state.pilots[attempt.pilot].record.host,
            seconds=seconds,
            typical_seconds=typical,
        )
        for attempt, seconds, typical in estimate.stragglers(state, bag, now, MOST_STRAGGLERS)
    ]


def running_rows(state: State, bag: Bag, limit: int) -> Steps[list[RunningRow]]:
    """Fewer than the limit if the bag's values are long."""
    most = max(0, min(limit, max(1, MOST_PAGE_CHARACTERS // bag.width)))
    started = {attempt.id for attempt in estimate.probably_running(state, bag)}
    found: list[RunningRow] = []
    attempts = chain.from_iterable(bag.places.live[task] for task in sorted(bag.places.live))
    for number, attempt in enumerate(list(islice(attempts, most))):
        if number % FEW_ROWS == FEW_ROWS - 1:
            yield
        if attempt.pilot not in state.pilots:  # it has gone meanwhile
            continue
        found.append(
            RunningRow(
                task=attempt.task,
                state="running" if attempt.id in started else "sent",
                values=_values(bag, attempt.task),
                attempt=str(attempt.id),
                pilot=attempt.pilot,
                host=state.pilots[attempt.pilot].record.host,
                sent=attempt.sent,
                inputs_version=version_in(bag, attempt.id),
            )
        )
    return found


def _values(bag: Bag, task: int) -> list[Scalar]:
    """None if the file with the task's row is just being read, or was let go of: the task has
    ended, and another attempt of it goes on. Nor of calls, which nobody can read."""
    if bag.spec.calls:
        return []
    try:
        return bag.values(task)
    except Exception:  # of one that is quarantined, anything
        return []
