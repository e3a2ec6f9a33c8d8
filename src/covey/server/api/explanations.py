"""Why a bag or a task is not running: the answer of core, together with the record's. Without a
server, the record's alone."""

from typing import NamedTuple

from msgspec.structs import replace

from covey.core.errors import NotFound
from covey.pilot.protocol.messages import LOST, OK
from covey.ports import Reader
from covey.questions.policy_questions import BagReasons
from covey.wire import BagView, Explanation, ResultRow, WasteView


class Ended(NamedTuple):
    """The ended attempts of the task in question, and the bag's waste."""

    attempts: list[ResultRow]
    waste: WasteView


def ended(reader: Reader, bag: int, task: int) -> Ended:
    attempts = reader.attempts(bag, task) if task >= 0 else []
    return Ended(_with_job_ends(reader, attempts), reader.waste(bag))


def _with_job_ends(reader: Reader, attempts: list[ResultRow]) -> list[ResultRow]:
    """The attempts; if a pilot was lost, with the reason that its site reported later."""
    lost = {row.pilot for row in attempts if row.outcome == LOST}
    ends = reader.job_ends(lost) if lost else {}
    completed = []
    for row in attempts:
        why = ends.get(row.pilot, "") if row.outcome == LOST else ""
        if why and why not in row.message:
            row = replace(row, message=f"{row.message} (its site job ended: {why})")
        completed.append(row)
    return completed


def explained(bag: int, live: BagReasons, past: Ended) -> Explanation:
    """The explanation of a bag that core holds."""
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
    """The explanation of a bag that has ended, or whose server is not running. Raises NotFound if
    the bag has no such task."""
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
    if any(attempt.counted for attempt in attempts):
        return _how_it_ended(attempts)
    if view.over:
        return f"it has no result: its bag is {view.status}"
    return "it has no result yet, and no server is running"


def _how_it_ended(attempts: list[ResultRow]) -> str:
    last = next((attempt for attempt in reversed(attempts) if attempt.counted), attempts[-1])
    others = len(attempts) - 1
    besides = f"; {others} other attempt{'s' * (others > 1)} did not count" if others else ""
    if last.outcome == OK:
        return f"it is done: attempt {last.attempt} on {last.host}{besides}"
    why = last.cause or last.message or last.outcome
    return f"it was given up: {why}, on {last.host}{besides}"
