"""Requests about bags: submit, append, close, cancel, pause, resume, retry, purge, set a policy."""

import math

from msgspec.structs import replace
from pyroaring import BitMap

from covey.core.after_commit import Forgetting, Replying
from covey.core.bags import bag_check, input_versions, lookahead, output_summary, quarantine
from covey.core.errors import InvalidBag
from covey.core.match import bag_policy
from covey.core.protocol import bag_bodies, ends, recovery, task_recall
from covey.core.record import call_files, task_classes, task_needs
from covey.core.record.actions import (
    AppendSegment,
    CloseBag,
    Done,
    LoadBag,
    Note,
    Problem,
    PurgeBag,
    ReopenFailed,
    SaveBag,
    SaveBagStatus,
    SavePolicy,
    Submitted,
)
from covey.core.record.attempts import Raised
from covey.core.record.events import (
    PolicyRequested,
    PurgeRequested,
    RetryRequested,
    SegmentAppended,
)
from covey.core.record.model import (
    AS_BEFORE,
    BagId,
    BagRecord,
    BagSnapshot,
    BagSpec,
    BagStatus,
    RequestId,
    Segment,
)
from covey.core.record.suspects import brief, trace
from covey.core.record.task_numbers import check_segment, names_in, tasks_in
from covey.core.record.transitions import step
from covey.core.sites import site_history
from covey.core.state import Bag
from covey.core.turn import Turn
from covey.core.values.space import shown
from covey.pilot.protocol.messages import LARGEST

_ALIVE = (BagStatus.RUNNING, BagStatus.PAUSED)


def submit(turn: Turn, request: RequestId, spec: BagSpec) -> None:
    """Check and build all of the bag before anything changes."""
    state = turn.state
    id_ = BagId(state.counters.next_bag)
    try:
        bag_check.check_spec(spec)
        bag_check.check_broker(spec, state.settings.broker)
        total = tasks_in(Segment(space=spec.space, rows=spec.rows))
        if spec.key and spec.key in state.bag_index.keys:
            known = state.bag_index.keys[spec.key]
            turn.when_durable(Replying(request, Submitted(known, total, True)))
            return
        record = BagRecord(id=id_, spec=spec, total=total, created=turn.now, open=spec.open)
        snapshot = BagSnapshot(bag=record, chunks=(), open_done=(), failed=(), tries={})
        bag = recovery.new_bag(snapshot)
    except Exception as error:
        _refuse(turn, request, "this bag", error)
        return
    state.counters.next_bag += 1
    bag.quarantine.suspects = state.suspects
    if spec.calls:
        bag.progress.heard = turn.now
    state.bags[id_] = bag
    bag_policy.noticed(state, bag)
    if spec.key:
        state.bag_index.keys[spec.key] = id_
    turn.write(SaveBag(record))
    turn.note(Note("bag submitted", bag=id_, detail=f"{record.total} tasks"))
    lookahead.reserve(turn, bag)
    turn.when_durable(Replying(request, Submitted(id_, record.total, False)))


def _refuse(turn: Turn, request: RequestId, what: str, error: Exception) -> None:
    """Refuse a request that raised an error before anything changed. Any error but InvalidBag is a
    bug of covey: its traceback goes to the log."""
    if isinstance(error, InvalidBag):
        turn.refuse(request, Problem.INVALID, str(error))
        return
    turn.note(Note("internal error in a check", detail=trace(error)))
    words = f"{what} cannot be handled: {brief(error)}; please report this bug of covey"
    turn.refuse(request, Problem.INVALID, words)


def append(turn: Turn, event: SegmentAppended) -> None:
    bag = _open_bag(turn, event.request, event.bag)
    if bag is None:
        return
    if event.key and event.key in bag.keys:
        turn.when_durable(Replying(event.request, Submitted(bag.id, bag.total, True)))
        return
    if bag.quarantine.shell:
        turn.refuse(event.request, Problem.INVALID, _unusable(bag))
        return
    segment = event.segment
    try:
        if bag.spec.calls:
            bag_check.check_call_segment(segment, bag.spec.chdir)
        check_segment(segment, before=bag.total)
        if names_in(segment) != bag.body.names:
            raise InvalidBag(
                f"bag {bag.id} has the parameters {shown(', '.join(bag.body.names)) or '(none)'}; "
                f"these tasks have {shown(', '.join(names_in(segment))) or 'none'}"
            )
        if len(event.key) > bag_check.MOST_SHORT_TEXT:
            raise InvalidBag(f"a key has at most {bag_check.MOST_SHORT_TEXT:,} characters")
        task_classes.check_task_needs(bag.spec, segment, segment.task_needs, bag.classes.numbers)
        large = bag.inputs.large or (bag.spec.calls and call_files.has_files(segment))
        bag.numbering.append(segment)  # all of it, or nothing
    except Exception as error:
        _refuse(turn, event.request, "this segment", error)
        return
    bag.inputs.large = large
    _add_needs(bag, segment)
    if event.key:
        bag.keys.add(event.key)
    turn.write(AppendSegment(bag.id, segment, bag.total, event.key))
    lookahead.reserve(turn, bag)
    turn.when_durable(Replying(event.request, Submitted(bag.id, bag.total, False)))


def _add_needs(bag: Bag, segment: Segment) -> None:
    """Add the needs that only tasks of this segment have. Pilots get them with their next task."""
    if not task_needs.varies(bag.spec):
        return
    new = [need for need in dict.fromkeys(segment.task_needs) if need not in bag.classes.numbers]
    for need in new:
        bag.add_need(need)
    if new:
        more = [task_classes.need_message(need) for need in new]
        bag_bodies.change(bag, bag.body._replace(needs=[*bag.body.needs, *more]))


def close(turn: Turn, request: RequestId, id_: BagId) -> None:
    """Closing a closed bag changes nothing, and is no error."""
    bag = turn.state.bags.get(id_)
    if bag is not None and bag.open:
        bag.open = False
        turn.write(CloseBag(id_))
        ends.finish_if_over(turn, bag)
        turn.when_durable(Replying(request, Done(1)))
    else:
        _done_or_unknown(turn, request, id_)


def _open_bag(turn: Turn, request: RequestId, id_: BagId) -> Bag | None:
    bag = turn.state.bags.get(id_)
    if bag is not None and bag.open and bag.status in _ALIVE:
        return bag
    if 0 < id_ < turn.state.counters.next_bag:
        detail = f"bag {id_} is closed: submit a bag with 'open' to append to it later"
        turn.refuse(request, Problem.INVALID, detail)
    else:
        turn.refuse(request, Problem.NOT_FOUND, f"there is no bag {id_}")
    return None


def _done_or_unknown(turn: Turn, request: RequestId, id_: BagId) -> None:
    """Answer a request that changes nothing: Done if the bag exists or existed, else NOT_FOUND."""
    if 0 < id_ < turn.state.counters.next_bag:
        turn.when_durable(Replying(request, Done(0)))
    else:
        turn.refuse(request, Problem.NOT_FOUND, f"there is no bag {id_}")


def cancel(turn: Turn, request: RequestId, id_: BagId) -> None:
    """Cancelling a bag that is over changes nothing, and is no error."""
    bag = turn.state.bags.get(id_)
    if bag is None:
        _done_or_unknown(turn, request, id_)
        return
    count = 0
    if bag.status in _ALIVE:
        count = bag.total - len(bag.places.done) - len(bag.places.failed)
        bag.status = step(bag.status, BagStatus.CANCELLED)
        bag.hold_all()
        bag.places.doubt.clear()
        done, failed = len(bag.places.done), len(bag.places.failed)
        change = SaveBagStatus(id_, bag.status, turn.now, done, failed)
        turn.write(change, Forgetting(id_))
        turn.note(Note("bag cancelled", bag=id_, detail=f"{count} tasks unfinished"))
    turn.when_durable(Replying(request, Done(count)))


def pause(turn: Turn, request: RequestId, id_: BagId, reason: str) -> None:
    bag = turn.state.bags.get(id_)
    if bag is None or bag.status is not BagStatus.RUNNING:
        _done_or_unknown(turn, request, id_)
        return
    task_recall.pause(turn, bag, reason or "by its owner")
    turn.when_durable(Replying(request, Done(1)))


def resume(turn: Turn, request: RequestId, id_: BagId) -> None:
    """Run the bag again, with a fresh count of failures, and read rows again that could not be
    read."""
    bag = turn.state.bags.get(id_)
    if bag is None or bag.status is not BagStatus.PAUSED:
        _done_or_unknown(turn, request, id_)
        return
    if bag.quarantine.reason and not _release(turn, request, bag):
        return
    go_on(turn, bag)
    bag.progress.heard = math.inf  # a person wants it: no program has to wait
    turn.when_durable(Replying(request, Done(1)))


def _release(turn: Turn, request: RequestId, bag: Bag) -> bool:
    """Take a bag out of quarantine. Returns False, with the request refused, if that fails."""
    if bag.quarantine.shell:
        turn.refuse(request, Problem.INVALID, _unusable(bag))
        return False
    try:
        quarantine.release(turn, bag)
    except Exception as error:
        _refuse(turn, request, "the policy of this bag", error)
        return False
    return True


def _unusable(bag: Bag) -> str:
    return (
        f"bag {bag.id} is {bag.quarantine.reason}. This server cannot run its tasks. Cancel it "
        f"(covey cancel {bag.id}) and submit it again"
    )


def go_on(turn: Turn, bag: Bag) -> None:
    _run_again(turn, bag)
    done, failed = len(bag.places.done), len(bag.places.failed)
    bag.places.not_before = turn.write(SaveBagStatus(bag.id, bag.status, turn.now, done, failed))
    turn.note(Note("bag resumed", bag=bag.id))


def _run_again(turn: Turn, bag: Bag) -> None:
    bag.status = step(bag.status, BagStatus.RUNNING)
    bag.reason = ""
    bag.failures.streak = 0
    for first, stop in list(bag.chunks.awaited.items()):
        lookahead.load_rows(turn, bag, first, stop)


def set_policy(turn: Turn, event: PolicyRequested) -> None:
    """Change the policy of a bag. For a bag that is over nothing changes."""
    bag = turn.state.bags.get(event.bag)
    if bag is None or bag.status not in _ALIVE:
        _done_or_unknown(turn, event.request, event.bag)
        return
    try:
        if bag.quarantine.reason:  # it takes effect with covey resume
            bag_policy.check(event.policy, bag.spec, bag_policy.first_segment(bag))
            bag.quarantine.held = event.policy
        else:
            bag_policy.change(turn.state, bag, event.policy)
    except Exception as error:
        _refuse(turn, event.request, "this policy", error)
        return
    turn.write(SavePolicy(bag.id, event.policy))
    turn.note(Note("policy changed", bag=bag.id))
    turn.when_durable(Replying(event.request, Done(1)))


def purge(turn: Turn, event: PurgeRequested) -> None:
    """Remove parts of a bag that is over. A running bag needs all its parts."""
    state, id_ = turn.state, event.bag
    if not 0 < id_ < state.counters.next_bag:
        turn.refuse(event.request, Problem.NOT_FOUND, f"there is no bag {id_}")
        return
    bag = state.bags.get(id_)
    if (bag is not None and bag.status in _ALIVE) or id_ in state.bag_index.loading:
        detail = f"bag {id_} is not finished: cancel it first"
        turn.refuse(event.request, Problem.INVALID, detail)
        return
    if event.what == "all":
        for key in [key for key, known in state.bag_index.keys.items() if known == id_]:
            del state.bag_index.keys[key]
    turn.write(PurgeBag(id_, event.what))
    turn.note(Note("bag purged", bag=id_, detail=event.what))
    turn.when_durable(Replying(event.request, Done(1)))


def forget(turn: Turn, id_: BagId) -> None:
    """The bag's end is durable: stop its attempts and forget it. (If attempts were stopped sooner,
    a crash could leave a running bag with killed tasks.)"""
    bag = turn.state.bags.get(id_)
    if bag is not None and bag.status not in _ALIVE:
        for attempts in bag.places.live.values():
            for attempt in attempts:
                ends.cancel(turn, attempt)
        del turn.state.bags[id_]
        site_history.remember(turn.state, bag)
        for pilot in turn.state.pilots.values():
            pilot.forget_bag(id_)
        bag_policy.gone(turn.state)


def retry(turn: Turn, event: RetryRequested) -> None:
    """Run tasks again that have ended, while the bag runs or after its end."""
    more = event.more
    if not (0.0 < more.memory <= 1000.0 and 0.0 < more.time <= 1000.0):
        words = "the factors for memory and time must be above 0, and at most 1000"
        turn.refuse(event.request, Problem.INVALID, words)
        return
    if not (0 <= more.memory_mb <= LARGEST and 0.0 <= more.limit_seconds <= LARGEST):
        turn.refuse(event.request, Problem.INVALID, "memory_mb or limit_seconds is out of range")
        return
    bag = turn.state.bags.get(event.bag)
    if bag is not None:
        _retry(turn, event, bag)
    elif 0 < event.bag < turn.state.counters.next_bag:
        turn.state.bag_index.retrying[event.request] = event
        if event.bag not in turn.state.bag_index.loading:
            _load(turn, event.request, event.bag)
    else:
        turn.refuse(event.request, Problem.NOT_FOUND, f"there is no bag {event.bag}")


def _load(turn: Turn, request: RequestId, id_: BagId) -> None:
    turn.state.bag_index.loading[id_] = False
    turn.actions.append(LoadBag(request, id_))


def loaded(turn: Turn, request: RequestId, id_: BagId, snapshot: BagSnapshot | None) -> None:
    """A bag that is over was read from the record, for all requests that want its tasks run again.
    If a late end was written meanwhile, it is read again: that end may be the success of a task
    that would be repeated."""
    state = turn.state
    if state.bag_index.loading.pop(id_):
        _load(turn, request, id_)
        return
    events = [event for event in state.bag_index.retrying.values() if event.bag == id_]
    for event in events:
        del state.bag_index.retrying[event.request]
        if snapshot is None:
            turn.refuse(event.request, Problem.NOT_FOUND, f"there is no bag {id_}")
    if snapshot is None:
        return
    bag = recovery.restore(turn, snapshot)
    for event in events:
        _retry(turn, event, bag)
    if bag.status not in _ALIVE:
        turn.when_durable(Forgetting(bag.id))


def _retry(turn: Turn, event: RetryRequested, bag: Bag) -> None:
    if bag.status is BagStatus.CANCELLED:
        detail = f"bag {bag.id} was cancelled; submit it again instead"
        turn.refuse(event.request, Problem.INVALID, detail)
        return
    if bag.quarantine.shell:
        turn.refuse(event.request, Problem.INVALID, _unusable(bag))
        return
    if event.done and bag.spec.calls:
        detail = f"calls that are done cannot run again (bag {bag.id}): call the function again"
        turn.refuse(event.request, Problem.INVALID, detail)
        return
    ended = bag.places.failed | bag.places.done if event.done else bag.places.failed
    chosen = ended if event.tasks is None else ended & _valid(event.tasks)
    count = len(chosen)
    try:
        changes = input_versions.wanted(bag, event.changes)
    except InvalidBag as error:
        _refuse(turn, event.request, "these files", error)
        return
    if count and bag.quarantine.reason and not _release(turn, event.request, bag):
        return
    if count and changes is not None:
        input_versions.begin(turn, bag, changes)
    if count:
        _reopen(turn, bag, replace(event, tasks=tuple(chosen)))
        turn.note(Note("tasks run again", bag=bag.id, detail=f"{count} tasks"))
    turn.when_durable(Replying(event.request, Done(count)))


def _valid(tasks: tuple[int, ...]) -> BitMap:
    return BitMap(task for task in tasks if 0 <= task < 2**32)


def _reopen(turn: Turn, bag: Bag, event: RetryRequested) -> None:
    """Let these tasks run again. Their chunks are opened again, here as in the record."""
    chosen = BitMap(event.tasks or ())
    again = chosen & bag.places.done
    raised = event.more != AS_BEFORE
    tasks = None if chosen == bag.places.failed and not raised else event.tasks
    change = ReopenFailed(bag.id, turn.now, tasks, event.more, bool(again))
    bag.places.not_before = turn.write(change)
    bag.progress.heard = math.inf  # a person wants it
    _run_again(turn, bag)
    if again:
        output_summary.forget_unkept(turn, bag)
    bag.places.failed -= chosen
    bag.places.done -= chosen
    bag.places.rescued -= chosen
    for first, stop in bag.chunks.reopen(chosen):
        lookahead.load_rows(turn, bag, first, stop)
    if raised:
        bag.failures.raised.append(Raised(chosen, event.more))
    for task in chosen:
        bag.failures.forget(task)
        if task not in bag.places.live:
            bag.free(task)
