"""Why a bag or a task stands as it does: what core says, together with what the record knows.
Without a server the record tells alone."""

from typing import NamedTuple

from msgspec.structs import replace

from covey.core.errors import NotFound
from covey.pilot.protocol.messages import LOST, OK
from covey.ports import Reader
from covey.questions.policy_questions import BagReasons
from covey.wire import BagView, Explanation, ResultRow, WasteView


class Ended(NamedTuple):
    """What is over: attempts of the task that was asked about, and waste."""

    attempts: list[ResultRow]
    waste: WasteView


def ended(reader: Reader, bag: int, task: int) -> Ended:
    attempts = reader.attempts(bag, task) if task >= 0 else []
    return Ended(_with_job_ends(reader, attempts), reader.waste(bag))


def _with_job_ends(reader: Reader, attempts: list[ResultRow]) -> list[ResultRow]:
    """A pilot that was told to go says so sooner than its site says why."""
    lost = {row.pilot for row in attempts if row.outcome == LOST}
    ends = reader.job_ends(lost) if lost else {}
    told = []
    for row in attempts:
        why = ends.get(row.pilot, "") if row.outcome == LOST else ""
        if why and why not in row.message:
            row = replace(row, message=f"{row.message} (its site job ended: {why})")
        told.append(row)
    return told


def explained(bag: int, live: BagReasons, past: Ended) -> Explanation:
    """Of a bag that core holds."""
    summary = live.answer.summary if live.answer is not None else ""
    if live.task is not None:
        summary = live.task.summary
        if live.task.state in ("done", "failed") and past.attempts:
            summary = _how_it_ended(past.attempts)
    return Explanation(
        bag=bag,
        name=live.name,
        owner=live.owner,
        names=live.names,
        status=live.status,
        summary=summary,
        answer=live.answer,
        task=live.task,
        attempts=past.attempts,
        waste=past.waste,
    )


def recount(reader: Reader, bag: int, task: int = -1) -> Explanation | None:
    """Of a bag that nobody works on. Raises NotFound for a task that it does not have."""
    view = reader.bag(bag)
    if view is None:
        return None
    if task >= view.total:
        raise NotFound(no_task(bag, task, view.total))
    past = ended(reader, bag, task)
    return Explanation(
        bag=view.id,
        name=view.name,
        owner=view.owner,
        names=view.names,
        status=view.status,
        summary=_of_task(view, past.attempts) if task >= 0 else _of_bag(view),
        attempts=past.attempts,
        waste=past.waste,
    )


def no_task(bag: int, task: int, total: int) -> str:
    return f"bag {bag} has no task {task}: its tasks are 0 to {total - 1}"


def _of_bag(view: BagView) -> str:
    if not view.over:
        why = f" ({view.reason})" if view.reason else ""
        return f"it is {view.status}{why}, but no server is running: any covey run starts one"
    failed = f", {view.failed:,} given up" if view.failed else ""
    return f"it is {view.status}: {view.done:,} of {view.total:,} tasks done{failed}"


def _of_task(view: BagView, attempts: list[ResultRow]) -> str:
    if any(one.counted for one in attempts):
        return _how_it_ended(attempts)
    if view.over:
        return f"it has no result: its bag is {view.status}"
    return "it has no result yet, and no server is running"


def _how_it_ended(attempts: list[ResultRow]) -> str:
    last = next((one for one in reversed(attempts) if one.counted), attempts[-1])
    others = len(attempts) - 1
    besides = f"; {others} other attempt{'s' * (others > 1)} did not count" if others else ""
    if last.outcome == OK:
        return f"it is done: attempt {last.attempt} on {last.host}{besides}"
    why = last.cause or last.message or last.outcome
    return f"it was given up: {why}, on {last.host}{besides}"
