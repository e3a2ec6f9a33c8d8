"""Views of bags, read from the live state."""

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
MOST_SHOWN_WIDTH = 100_000  # characters of a task's values in the list of stragglers
MOST_PAGE_CHARACTERS = 8 << 20  # of values in one answer
FEW_ROWS = 100  # made in one step


def bag_view(state: State, bag: Bag, now: float) -> BagView:
    """The view of a bag that core holds. Its status is running or paused: core forgets a bag when
    its end is durable, and an end that a crash might undo is not shown."""
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
    span = estimate.estimate(state, bag, now)
    return Estimate(likely=span.likely, low=span.low, high=span.high) if span else None


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
    """The bag's attempts that pilots have: at most `limit`, and fewer if its values are long."""
    most = max(0, min(limit, max(1, MOST_PAGE_CHARACTERS // bag.width)))
    started = {attempt.id for attempt in estimate.probably_running(state, bag)}
    rows: list[RunningRow] = []
    attempts = chain.from_iterable(bag.places.live[task] for task in sorted(bag.places.live))
    for number, attempt in enumerate(list(islice(attempts, most))):
        if number % FEW_ROWS == FEW_ROWS - 1:
            yield
        if attempt.pilot not in state.pilots:  # it has left since the last step
            continue
        rows.append(
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
    return rows


def _values(bag: Bag, task: int) -> list[Scalar]:
    """The values of a task's parameters. Empty for calls, whose values are not readable, and while
    the file with the task's row is not in memory."""
    if bag.spec.calls:
        return []
    try:
        return bag.values(task)
    except Exception:  # a quarantined bag may raise anything
        return []
