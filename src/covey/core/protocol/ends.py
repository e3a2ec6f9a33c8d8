"""What the end of an attempt means for its task.

The rules, in order:
- A success counts if its task has none yet, however late it comes. It takes the place of a
  failure that was counted before. Whoever else runs the task is told to stop.
- A failure of an attempt that core gave up before (lost, recalled for good) is only recorded.
- A task's own failure (exit status, memory, output) uses up a retry; without retries left it
  counts, unless another attempt may still end well, and in time: that one is waited for. A task
  that ran into its time limit is given more time a few times, whatever its retries.
- A task without chances left has one more on the bag's fail-over sites, if it has any.
- Many own failures in a row, without a success, pause the bag: it fails everywhere (`blame`).
- A loss of infrastructure uses up no retry. Only a bag that is not idempotent is not repeated.
- An attempt that never started leaves no trace.
- A pilot may end only attempts that it was given. For an attempt that core does not know as this
  pilot's it must show a receipt (`receipts`); without a receipt its end is ignored.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from pyroaring import BitMap

from covey.core.after_commit import Forgetting
from covey.core.bags import output_summary
from covey.core.match import blame, replication, retry_hosts
from covey.core.match.site_access import bar_for_owner, last_resorts, serves
from covey.core.protocol import host_history, task_recall
from covey.core.protocol.receipts import NOTHING_GIVEN, Given
from covey.core.record.actions import CloseChunk, Note, RecordEnds, SaveBagStatus
from covey.core.record.attempts import Attempt
from covey.core.record.model import (
    BagId,
    BagStatus,
    EndRecord,
    PilotId,
    SiteStatus,
    TaskNumber,
    Verdict,
)
from covey.core.record.transitions import step
from covey.core.sites import allowed_sites, site_history
from covey.core.state import Bag, Pilot, State
from covey.core.state.failures import Trouble
from covey.core.turn import Turn
from covey.core.values.causes import cause_of, ignored_result
from covey.pilot.protocol.messages import (
    CANCELLED,
    FAILED,
    HOST,
    LOST,
    MEMORY,
    OK,
    OWN_FAILURES,
    RETURNED,
    TIMEOUT,
    End,
)

LONGEST_TROUBLE = 300
_EXPECTED = (OK, CANCELLED)  # no failures
_COUNTS = Verdict.COUNTS  # looking it up in its class is slow


def settle(
    turn: Turn,
    pilot: Pilot,
    ends: Iterable[End],
    given: Given = NOTHING_GIVEN,
    at: float | None = None,
) -> tuple[EndRecord, ...]:
    """Take in the ends of attempts at this pilot. Returns their records, except those of attempts
    that never started. `given` are the attempts for which the pilot has shown receipts; `at` is
    when it sent the ends, if that is known."""
    noted: list[host_history.Ended] = []
    at = turn.now if at is None else at
    records = [_settle(turn, pilot, end, noted, given, at) for end in ends]
    host_history.note(turn, pilot.record, noted)
    return tuple(record for record in records if record is not None)


def _settle(
    turn: Turn, pilot: Pilot, end: End, noted: list[host_history.Ended], given: Given, at: float
) -> EndRecord | None:
    state = turn.state
    attempt = pilot.drop((end.epoch, end.sequence))
    bag = state.bags.get(BagId(end.bag))
    if attempt is not None and (attempt.bag != end.bag or attempt.task != end.task):
        turn.note(Note("end names another task", attempt=str(attempt.id), pilot=pilot.record.id))
        end = end._replace(bag=attempt.bag, task=attempt.task)
        bag = state.bags.get(attempt.bag)
    elif attempt is None and not _was_given(pilot, bag, end, given):
        name = f"{end.epoch}.{end.sequence}"
        words = f"it shows no receipt for task {end.task} of bag {end.bag}"
        turn.note(Note("end not counted", attempt=name, pilot=pilot.record.id, detail=words))
        return None
    outcome = end.outcome
    if bag is None:
        verdict = Verdict.LATE if outcome == OK else Verdict.WASTE
        if end.bag in state.bag_index.loading:
            state.bag_index.loading[BagId(end.bag)] = True
    else:
        bag.cache.dirty = True
        if attempt is not None:
            _forget_attempt(bag, attempt)
            blame.note(turn, pilot, bag, outcome)
        verdict = _judge(turn, pilot, bag, end, attempt)
    if attempt is not None:
        if not (attempt.expired and outcome == LOST):
            times = bag.classes[attempt.kind].times if bag is not None else None
            noted.append((end, attempt.sent, times))
        if outcome == OK:
            pilot.proven.add(attempt.bag)
            if bag is not None:
                known = bag.classes[attempt.kind]
                site_history.note_success(state, known, pilot.record.site, end.wall_seconds)
                limit = known.need.limit_seconds
                if limit and len(bag.classes) > 1:
                    bag.classes.pace.add(end.wall_seconds / limit)
    ended = state.counters.ended
    ended[outcome] = ended.get(outcome, 0) + 1
    if outcome == RETURNED:
        return None
    if outcome not in _EXPECTED:
        turn.note(_failure_note(pilot, end))
    only_of = pilot.record.owner if bag is None and attempt is None else ""
    return _record(pilot, end, attempt, verdict, turn.now, at, only_of, bag)


def _was_given(pilot: Pilot, bag: Bag | None, end: End, given: Given) -> bool:
    """Whether an attempt that core does not know as this pilot's was: it was given up, or sent by
    an earlier server."""
    proven = given.get((end.epoch, end.sequence)) == (end.bag, end.task)
    return proven and (bag is None or serves(pilot.record, bag))


def lose(turn: Turn, pilot: Pilot, reason: str, attempts: list[Attempt] | None = None) -> None:
    """Give up attempts (by default all) of a pilot, and let their tasks go elsewhere."""
    chosen = list(pilot.attempts.values()) if attempts is None else attempts
    lost = [End(*sent.id, sent.bag, sent.task, LOST, message=reason) for sent in chosen]
    records = settle(turn, pilot, lost)
    if records:
        turn.write(RecordEnds(pilot.record.id, 0, records))


def any_ran(ended: Sequence[End]) -> bool:
    """Whether any of these attempts was more than given back."""
    return any(end.outcome != RETURNED for end in ended)


def take_back(turn: Turn, pilot: Pilot) -> None:
    """The pilot says that it has started none of the attempts that it was sent: they were in an
    answer that it did not wait for. Their tasks go elsewhere, as if they had never been sent."""
    attempts = list(pilot.attempts.values())
    settle(turn, pilot, [End(*sent.id, sent.bag, sent.task, RETURNED) for sent in attempts])


def lose_unknown(turn: Turn, bag: Bag, task: TaskNumber) -> None:
    """A task that may or may not have run, of a bag that must not be repeated."""
    bag.places.doubt.remove(task)
    _give_up(turn, bag, task)
    message = (
        "the server restarted and no pilot came back with this task; "
        "the bag is not idempotent, so it is not run again by itself"
    )
    _record_failure(turn, End(0, 0, bag.id, task, LOST, message=message))


def give_up_unsent(turn: Turn, bag: Bag, attempt: Attempt, message: str) -> None:
    """No pilot could make this attempt: its task has failed."""
    turn.state.pilots[attempt.pilot].drop(attempt.id)
    _forget_attempt(bag, attempt)
    _give_up(turn, bag, attempt.task)
    end = End(
        *attempt.id,
        attempt.bag,
        attempt.task,
        FAILED,
        stderr=message,
        stderr_bytes=len(message),
        message=message,
    )
    _record_failure(turn, end)


def _record_failure(turn: Turn, end: End) -> None:
    """Record an end that no pilot has reported, as the result of its task."""
    record = EndRecord(
        end,
        Verdict.COUNTS,
        pilot=PilotId(0),
        host="",
        delivered=turn.now,
        cause=cause_of(end),
    )
    turn.write(RecordEnds(PilotId(0), 0, (record,)))


def take_back_unsent(turn: Turn, bag: Bag, attempt: Attempt) -> None:
    """An attempt was about to be sent and is not: undo it."""
    pilot = turn.state.pilots[attempt.pilot]
    pilot.drop(attempt.id)
    pilot.recalls = [recalled for recalled in pilot.recalls if recalled is not attempt]
    _forget_attempt(bag, attempt)
    if attempt.task not in bag.places.live:
        bag.free(attempt.task)


def finish_if_over(turn: Turn, bag: Bag) -> None:
    if bag.status in (BagStatus.RUNNING, BagStatus.PAUSED) and bag.over():
        bag.status = step(bag.status, BagStatus.FINISHED)
        turn.write_last(partial(_finished, turn, bag), Forgetting(bag.id))


def _finished(turn: Turn, bag: Bag) -> SaveBagStatus:
    done, failed = len(bag.places.done), len(bag.places.failed)
    turn.note(Note("bag finished", bag=bag.id, detail=f"{done} done, {failed} failed"))
    return SaveBagStatus(bag.id, BagStatus.FINISHED, turn.now, done, failed)


def _judge(turn: Turn, pilot: Pilot, bag: Bag, end: End, attempt: Attempt | None) -> Verdict:
    """`attempt`: None if core does not know it any more."""
    task, places = TaskNumber(end.task), bag.places
    if not 0 <= task < places.next or task in places.done:
        return Verdict.WASTE
    if end.outcome == OK:
        return _succeed(turn, bag, task, end, attempt)
    if (attempt is None and task not in places.doubt) or task in places.failed:
        return Verdict.WASTE
    if bag.status not in (BagStatus.RUNNING, BagStatus.PAUSED):
        return Verdict.WASTE
    kinds = [attempt.kind] if attempt is not None else list(range(len(bag.classes)))
    turn.state.queue.news += 1
    if end.outcome == HOST and end.message:
        words, host = end.message[:LONGEST_TROUBLE], pilot.record.host
        bag.failures.trouble = Trouble(words, host, turn.now, bag.progress.ends)
    final = _is_final(turn, bag, task, end.outcome)
    retry_hosts.note(turn, bag, task, pilot.record.host, end.outcome)
    verdict = Verdict.WASTE
    if _is_awaited(bag, task):
        if final:
            bag.replicas.offers.pop(task, None)
    elif final and _has_last_chance(turn.state, bag, task, end.outcome, kinds):
        bag.replicas.overdue.pop(task, None)
        if task not in places.live:  # else when the one past its deadline has ended, too
            places.rescued.add(task)
            _free(turn.state, bag, task, end)
    elif final:
        places.doubt.discard(task)
        bag.hold(task)
        _give_up(turn, bag, task)
        verdict = Verdict.COUNTS
    elif task in places.live:  # past their deadline, all of them
        replication.offer_overdue(bag, task)
    else:
        _free(turn.state, bag, task, end)
    if end.outcome in OWN_FAILURES and blame.counts(turn.state, pilot, bag):
        bag.failures.streak += 1
        if 0 < bag.spec.breaker <= bag.failures.streak:
            cause = cause_of(end, () if bag.spec.calls else bag.spec.argv)
            words = f"{bag.failures.streak} failures in a row, and no success; the last: {cause}"
            task_recall.pause(turn, bag, words)
    return verdict


def _free(state: State, bag: Bag, task: TaskNumber, end: End) -> None:
    """The task goes out again, at once. If its attempt was sent before the server restarted, it
    waits until all pilots have been heard: one of them may have a newer attempt."""
    if end.epoch < state.epoch and state.arrivals.unheard:
        bag.places.doubt.add(task)
    elif task not in bag.places.doubt:
        bag.free(task)


def _is_awaited(bag: Bag, task: TaskNumber) -> bool:
    """Whether another attempt may still end in time. If the bag must not be repeated, late attempts
    are waited for, too."""
    attempts = bag.places.live.get(task, ())
    return any(not attempt.expired or not bag.spec.idempotent for attempt in attempts)


def _has_last_chance(
    state: State, bag: Bag, task: TaskNumber, outcome: str, kinds: list[int]
) -> bool:
    """On a fail-over site, once: one that is known must be on and well, let the owner in, and have
    pilots for such a task."""
    if outcome not in OWN_FAILURES or not bag.spec.idempotent or task in bag.places.rescued:
        return False
    needs, owner = [bag.classes[kind].need for kind in kinds], bag.spec.owner
    for name in last_resorts(state, bag):
        site = state.sites.get(name)
        if site is None:
            return True
        spec, ill = site.record.spec, bool(site.failures or site.unanswered)
        well = site.record.status is SiteStatus.ON and not ill
        lets_in = bar_for_owner(spec, owner) is None
        if well and lets_in and any(allowed_sites.holds(need, spec) for need in needs):
            return True
    return False


def restore_last_chances(state: State, bag: Bag) -> None:
    """Tasks that had failed too often before the server started have used their last chance, or
    have it now."""
    if bag.spec.idempotent and last_resorts(state, bag):
        failures = bag.failures
        failed = (*failures.tries, *failures.overtimes)
        bag.places.rescued |= BitMap(task for task in failed if failures.spent(task, bag.spec))


def _is_final(turn: Turn, bag: Bag, task: TaskNumber, outcome: str) -> bool:
    """Count the failure; whether it was the task's last chance."""
    spec, failures = bag.spec, bag.failures
    if outcome == TIMEOUT:
        most = spec.overtimes if spec.idempotent else 0
        return _count(failures.overtimes, task) > most
    if outcome in OWN_FAILURES:
        if outcome == MEMORY:
            _count(failures.short, task)
        return _count(failures.tries, task) > spec.retries
    if outcome in (HOST, LOST):
        losses = _count(failures.losses, task)
        return not spec.idempotent or losses >= turn.state.settings.most_losses
    return False


def _count(counts: dict[int, int], task: TaskNumber) -> int:
    counts[task] = count = counts.get(task, 0) + 1
    return count


def _succeed(turn: Turn, bag: Bag, task: TaskNumber, end: End, attempt: Attempt | None) -> Verdict:
    places, progress = bag.places, bag.progress
    replaces = task in places.failed
    if end.unkept is not None or not bag.outputs.summary.something:
        output_summary.add(turn, bag, end)
    if replaces:
        places.failed.discard(task)
    if attempt is None or task in places.live:  # else it was nowhere but with this pilot
        bag.hold(task)
        places.doubt.discard(task)
    places.done.add(task)
    bag.failures.streak = 0
    progress.ends += 1
    progress.first_end = progress.first_end or turn.now
    bag.failures.forget(task)
    for loser in places.live.get(task, ()):
        cancel(turn, loser)
    if replaces:
        return Verdict.REPLACES
    _count_down(turn, bag, task)
    return _COUNTS


def _give_up(turn: Turn, bag: Bag, task: TaskNumber) -> None:
    bag.failures.forget_hosts(task)
    bag.places.failed.add(task)
    _count_down(turn, bag, task)


def _count_down(turn: Turn, bag: Bag, task: TaskNumber) -> None:
    """The task has its result. The last task of a chunk closes the chunk, and may end the bag."""
    closed = bag.chunks.count_down(task)
    if closed is not None:
        first, stop = closed
        bag.numbering.loaded.pop(first, None)
        if bag.spec.calls and not bag.places.failed.range_cardinality(first, stop):
            bag.numbering.release(first, stop)
        turn.write_last(partial(CloseChunk, bag.id, first))
        finish_if_over(turn, bag)


def cancel(turn: Turn, attempt: Attempt) -> None:
    """Tell the attempt's pilot to stop it; its end will follow, or the pilot's."""
    if not attempt.cancelled:
        attempt.cancelled = True
        turn.state.pilots[attempt.pilot].cancels.append(attempt)
        turn.state.queue.signalled[attempt.pilot] = None


def _forget_attempt(bag: Bag, attempt: Attempt) -> None:
    task, live, replicas = attempt.task, bag.places.live, bag.replicas
    rest = live.get(task, [])
    if attempt in rest:
        rest.remove(attempt)
    if not rest:
        live.pop(task, None)
        if replicas.overdue or replicas.offers:
            replicas.forget(task)


def _record(
    pilot: Pilot,
    end: End,
    attempt: Attempt | None,
    verdict: Verdict,
    now: float,
    at: float,
    only_of: str,
    bag: Bag | None,
) -> EndRecord:
    age, wall, queued = end.age_seconds, end.wall_seconds, end.queued_seconds
    ended = at - age if age > 0.0 else at
    started = ended - wall if wall > 0.0 else ended
    fetched = started - queued if queued > 0.0 else started
    return EndRecord(
        end,
        verdict,
        pilot.record.id,
        pilot.record.host,
        sent=attempt.sent if attempt is not None else fetched,
        fetched=fetched,
        started=started,
        ended=ended,
        delivered=now,
        cause=_cause(end, bag) if end.message or end.outcome not in _EXPECTED else "",
        only_of=only_of,
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


def _cause(end: End, bag: Bag | None) -> str:
    if end.outcome == OK:
        return ignored_result(end)
    argv = bag.spec.argv if bag is not None and not bag.spec.calls else ()
    return "" if end.outcome in _EXPECTED else cause_of(end, argv)
