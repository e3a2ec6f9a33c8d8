"""What people see of the live state: read from core, never changed here."""

from collections.abc import Iterator
from itertools import islice

from covey.core.model import BagStatus
from covey.core.state import Bag, Pilot, State
from covey.wire import BagView, PilotView, RunningRow


def bag_view(bag: Bag) -> BagView:
    """A bag that core holds runs: one whose end is durable is forgotten there, and nobody is told
    of an end that a crash might undo."""
    spec = bag.spec
    return BagView(
        id=bag.id,
        name=spec.name,
        owner=spec.owner,
        argv=list(spec.argv),
        names=bag.body.names,
        status=BagStatus.RUNNING.value,
        total=bag.total,
        done=len(bag.done),
        failed=len(bag.failed),
        running=len(bag.live),
        in_doubt=len(bag.doubt),
        created=bag.created,
        retries=spec.retries,
        limit_seconds=spec.limit_seconds,
        idempotent=spec.idempotent,
    )


def running_rows(state: State, bag: Bag, limit: int) -> list[RunningRow]:
    return list(islice(_running(state, bag), limit))


def _running(state: State, bag: Bag) -> Iterator[RunningRow]:
    for task in sorted(bag.live):
        for attempt in bag.live[task]:
            yield RunningRow(
                task=task,
                values=bag.point(task),
                attempt=str(attempt.id),
                pilot=attempt.pilot,
                host=state.pilots[attempt.pilot].record.host,
                sent=attempt.sent,
            )


def pilot_view(pilot: Pilot) -> PilotView:
    record = pilot.record
    return PilotView(
        id=record.id,
        host=record.host,
        site=record.site,
        job=record.job,
        slots=record.slots,
        status=pilot.status.value,
        running=len(pilot.attempts),
        enrolled=record.enrolled,
        heard=pilot.heard,
        tags=record.tags,
        version=record.version,
    )
