"""What the end of an attempt means for its task.

The rules, in order:
- A success counts if its task has none yet, however late it comes. It takes the place of a
  failure that was counted before. Whoever else runs the task is told to stop.
- A failure of an attempt that core gave up before (lost, recalled for good) is only recorded.
- A task's own failure (exit status, time limit) uses up a retry; without retries left it counts.
- A loss of infrastructure uses up no retry. Only a bag that is not idempotent is not repeated.
- An attempt that never started is as if it had never been.
"""

from functools import partial

from covey.core.actions import CloseChunk, Note, RecordEnds, SaveBagStatus
from covey.core.model import (
    AttemptId,
    BagId,
    BagStatus,
    EndRecord,
    PilotId,
    TaskNumber,
    Verdict,
)
from covey.core.state import Attempt, Bag, Forgetting, Pilot
from covey.core.transitions import step
from covey.core.turn import Turn
from covey.pilot.messages import CANCELLED, FAILED, HOST, LOST, OK, RETURNED, TIMEOUT, End

_OWN_FAILURES = (FAILED, TIMEOUT)
_RUN = (OK, FAILED, TIMEOUT)


def settle(turn: Turn, pilot: Pilot, end: End) -> EndRecord | None:
    """Take in one end; the row to record, or nothing if the attempt never started."""
    state = turn.state
    id_ = AttemptId(end.epoch, end.sequence)
    attempt = pilot.attempts.pop(id_, None)
    bag = state.bags.get(BagId(end.bag))
    if attempt is not None and (attempt.bag, attempt.task) != (end.bag, end.task):
        turn.note(Note("end names another task", attempt=str(id_), pilot=pilot.record.id))
        end = end._replace(bag=attempt.bag, task=attempt.task)
        bag = state.bags.get(attempt.bag)
    if bag is None:
        verdict = Verdict.LATE if end.outcome == OK else Verdict.WASTE
        if end.bag in state.loading:
            state.loading[BagId(end.bag)] = True
    else:
        expected = attempt is not None or end.task in bag.doubt  # of which we forgot
        if attempt is not None:
            _forget_attempt(bag, attempt)
        verdict = _judge(turn, bag, end, expected)
    if attempt is not None and end.outcome in _RUN:
        pilot.proven.add(attempt.bag)
    state.ended[end.outcome] = state.ended.get(end.outcome, 0) + 1
    if end.outcome == RETURNED:
        return None
    if end.outcome not in (OK, CANCELLED):
        turn.note(_failure_note(pilot, end))
    return _record(pilot, end, attempt, verdict, turn.now)


def lose(turn: Turn, pilot: Pilot, reason: str, attempts: list[Attempt] | None = None) -> None:
    """Give up attempts (by default all) of a pilot, and let their tasks go elsewhere."""
    chosen = list(pilot.attempts.values()) if attempts is None else attempts
    records = []
    for attempt in chosen:
        end = End(*attempt.id, attempt.bag, attempt.task, LOST, message=reason)
        record = settle(turn, pilot, end)
        if record is not None:
            records.append(record)
    if records:
        turn.write(RecordEnds(pilot.record.id, 0, tuple(records)))


def lose_unknown(turn: Turn, bag: Bag, task: TaskNumber) -> None:
    """A task that may or may not have run, of a bag that must not be repeated."""
    bag.doubt.remove(task)
    _give_up(turn, bag, task)
    record = EndRecord(
        bag=bag.id,
        task=task,
        attempt=AttemptId(0, 0),
        pilot=PilotId(0),
        host="",
        outcome=LOST,
        verdict=Verdict.COUNTS,
        delivered=turn.now,
        message="the server restarted and no pilot came back with this task; "
        "the bag is not idempotent, so it is not run again by itself",
    )
    turn.write(RecordEnds(PilotId(0), 0, (record,)))


def finish_if_over(turn: Turn, bag: Bag) -> None:
    if bag.status is BagStatus.RUNNING and bag.over():
        bag.status = step(bag.status, BagStatus.FINISHED)
        turn.write_last(partial(_finished, turn, bag), Forgetting(bag.id))


def _finished(turn: Turn, bag: Bag) -> SaveBagStatus:
    done, failed = len(bag.done), len(bag.failed)
    turn.note(Note("bag finished", bag=bag.id, detail=f"{done} done, {failed} failed"))
    return SaveBagStatus(bag.id, BagStatus.FINISHED, turn.now, done, failed)


def _judge(turn: Turn, bag: Bag, end: End, expected: bool) -> Verdict:
    task = TaskNumber(end.task)
    if not 0 <= task < bag.next or task in bag.done:
        return Verdict.WASTE
    if end.outcome == OK:
        return _succeed(turn, bag, task)
    if not expected or task in bag.failed or task in bag.live:
        return Verdict.WASTE
    if bag.status is not BagStatus.RUNNING:
        return Verdict.WASTE
    if end.outcome in _OWN_FAILURES:
        bag.tries[task] = bag.tries.get(task, 0) + 1
        give_up = bag.tries[task] > bag.spec.retries
    elif end.outcome in (HOST, LOST):
        bag.losses[task] = bag.losses.get(task, 0) + 1
        give_up = not bag.spec.idempotent or bag.losses[task] >= turn.state.settings.most_losses
    else:
        give_up = False
    if give_up:
        bag.doubt.discard(task)
        _give_up(turn, bag, task)
        return Verdict.COUNTS
    if task not in bag.doubt:  # else another pilot may have a newer attempt
        bag.ready.add(task)
    return Verdict.WASTE


def _succeed(turn: Turn, bag: Bag, task: TaskNumber) -> Verdict:
    replaces = task in bag.failed
    bag.failed.discard(task)
    bag.ready.discard(task)
    bag.doubt.discard(task)
    bag.done.add(task)
    bag.tries.pop(task, None)
    bag.losses.pop(task, None)
    for loser in bag.live.get(task, ()):
        cancel(turn, loser)
    if not replaces:
        _count_down(turn, bag, task)
    finish_if_over(turn, bag)
    return Verdict.REPLACES if replaces else Verdict.COUNTS


def _give_up(turn: Turn, bag: Bag, task: TaskNumber) -> None:
    bag.failed.add(task)
    _count_down(turn, bag, task)
    finish_if_over(turn, bag)


def _count_down(turn: Turn, bag: Bag, task: TaskNumber) -> None:
    """One task fewer to go in its chunk; the last one closes it."""
    for first, stop in bag.chunks.items():
        if first <= task < stop:
            bag.unfinished[first] -= 1
            if bag.unfinished[first] == 0:
                del bag.chunks[first], bag.unfinished[first]
                if bag.failed.range_cardinality(first, stop):
                    bag.marred[first] = stop
                turn.write_last(partial(CloseChunk, bag.id, first))
            return


def cancel(turn: Turn, attempt: Attempt) -> None:
    """Tell the attempt's pilot to stop it; its end will follow, or the pilot's."""
    if not attempt.cancelled:
        attempt.cancelled = True
        turn.state.pilots[attempt.pilot].cancels.append(attempt)
        turn.state.signalled[attempt.pilot] = None


def _forget_attempt(bag: Bag, attempt: Attempt) -> None:
    rest = bag.live.get(attempt.task, [])
    if attempt in rest:
        rest.remove(attempt)
    if not rest:
        bag.live.pop(attempt.task, None)


def _record(
    pilot: Pilot, end: End, attempt: Attempt | None, verdict: Verdict, now: float
) -> EndRecord:
    ended = now - max(end.age_seconds, 0.0)
    started = ended - max(end.wall_seconds, 0.0)
    fetched = started - max(end.queued_seconds, 0.0)
    return EndRecord(
        bag=BagId(end.bag),
        task=TaskNumber(end.task),
        attempt=AttemptId(end.epoch, end.sequence),
        pilot=pilot.record.id,
        host=pilot.record.host,
        outcome=end.outcome,
        verdict=verdict,
        exit_code=end.exit_code,
        signal=end.signal,
        sent=attempt.sent if attempt is not None else fetched,
        fetched=fetched,
        started=started,
        ended=ended,
        delivered=now,
        cpu_seconds=end.cpu_seconds,
        memory_kb=end.memory_kb,
        stdout=end.stdout,
        stderr=end.stderr,
        stdout_bytes=end.stdout_bytes,
        stderr_bytes=end.stderr_bytes,
        message=end.message,
    )


def _failure_note(pilot: Pilot, end: End) -> Note:
    return Note(
        f"attempt {end.outcome}",
        bag=end.bag,
        task=end.task,
        attempt=f"{end.epoch}.{end.sequence}",
        pilot=pilot.record.id,
        detail=end.message or f"exit status {end.exit_code}",
    )
