"""Bags: submitted, cancelled, tried again."""

from covey.core import dispatch, ends, recovery
from covey.core.actions import (
    Done,
    LoadBag,
    Note,
    Problem,
    ReopenFailed,
    SaveBag,
    SaveBagStatus,
    Submitted,
)
from covey.core.errors import InvalidBag
from covey.core.model import (
    BagId,
    BagRecord,
    BagSnapshot,
    BagSpec,
    BagStatus,
    RequestId,
    TaskNumber,
)
from covey.core.space import check, size
from covey.core.state import Bag, Forgetting, Replying
from covey.core.transitions import step
from covey.core.turn import Turn

MOST_RETRIES = 1000


def submit(turn: Turn, request: RequestId, spec: BagSpec) -> None:
    state = turn.state
    try:
        check_spec(spec)
    except InvalidBag as error:
        turn.refuse(request, Problem.INVALID, str(error))
        return
    if spec.key and spec.key in state.keys:
        known = state.keys[spec.key]
        turn.when_durable(Replying(request, Submitted(known, size(spec.space), True)))
        return
    id_ = BagId(state.next_bag)
    state.next_bag += 1
    record = BagRecord(id=id_, spec=spec, total=size(spec.space), created=turn.now)
    snapshot = BagSnapshot(bag=record, chunks=(), open_done=(), failed=(), tries={})
    bag = recovery.new_bag(snapshot)
    state.bags[id_] = bag
    if spec.key:
        state.keys[spec.key] = id_
    turn.write(SaveBag(record))
    turn.note(Note("bag submitted", bag=id_, detail=f"{record.total} tasks"))
    dispatch.reserve(turn, bag)
    turn.when_durable(Replying(request, Submitted(id_, record.total, False)))


def check_spec(spec: BagSpec) -> None:
    """Raise InvalidBag with words for the author."""
    if not spec.argv or not spec.argv[0]:
        raise InvalidBag("a bag needs a command")
    if any("\0" in word for word in spec.argv):
        raise InvalidBag("a command cannot contain NUL characters")
    if not 0 <= spec.retries <= MOST_RETRIES:
        raise InvalidBag(f"retries must be between 0 and {MOST_RETRIES}, not {spec.retries}")
    if not 0 <= spec.limit_seconds < 10**9:
        raise InvalidBag(f"a time limit of {spec.limit_seconds} s makes no sense")
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidBag(f"environment variable {name!r} is malformed")
    check(spec.space)


def cancel(turn: Turn, request: RequestId, id_: BagId) -> None:
    """Cancelling what is over changes nothing, and is no error."""
    bag = turn.state.bags.get(id_)
    if bag is None:
        if 0 < id_ < turn.state.next_bag:
            turn.when_durable(Replying(request, Done(0)))
        else:
            turn.refuse(request, Problem.NOT_FOUND, f"there is no bag {id_}")
        return
    count = 0
    if bag.status is BagStatus.RUNNING:
        count = bag.total - len(bag.done) - len(bag.failed)
        bag.status = step(bag.status, BagStatus.CANCELLED)
        bag.ready.clear()
        bag.doubt.clear()
        done, failed = len(bag.done), len(bag.failed)
        change = SaveBagStatus(id_, bag.status, turn.now, done, failed)
        turn.write(change, Forgetting(id_))
        turn.note(Note("bag cancelled", bag=id_, detail=f"{count} tasks unfinished"))
    turn.when_durable(Replying(request, Done(count)))


def forget(turn: Turn, id_: BagId) -> None:
    """It is durably over: whatever of it still runs is stopped now (no sooner, or a crash would
    leave a running bag with killed tasks), and the record has the rest."""
    bag = turn.state.bags.get(id_)
    if bag is not None and bag.status is not BagStatus.RUNNING:
        for attempts in bag.live.values():
            for attempt in attempts:
                ends.cancel(turn, attempt)
        del turn.state.bags[id_]


def retry(turn: Turn, request: RequestId, id_: BagId) -> None:
    """Try the given-up tasks again, while the rest still runs or after the bag's end."""
    bag = turn.state.bags.get(id_)
    if bag is not None:
        _retry(turn, request, bag)
    elif 0 < id_ < turn.state.next_bag:
        _load(turn, request, id_)
    else:
        turn.refuse(request, Problem.NOT_FOUND, f"there is no bag {id_}")


def _load(turn: Turn, request: RequestId, id_: BagId) -> None:
    turn.state.loading.setdefault(id_, False)
    turn.actions.append(LoadBag(request, id_))


def loaded(turn: Turn, request: RequestId, id_: BagId, snapshot: BagSnapshot | None) -> None:
    """The record's copy of a bag that is over. If a late end was written while it was read, it
    is read again: that end may be the success of a task we would otherwise repeat."""
    bag = turn.state.bags.get(id_)
    if bag is None and turn.state.loading.pop(id_, False):
        _load(turn, request, id_)
        return
    if snapshot is None:
        turn.refuse(request, Problem.NOT_FOUND, f"there is no bag {id_}")
        return
    if bag is None:
        bag = recovery.restore(turn, snapshot)
    _retry(turn, request, bag)
    if bag.status is not BagStatus.RUNNING:
        turn.when_durable(Forgetting(bag.id))


def _retry(turn: Turn, request: RequestId, bag: Bag) -> None:
    if bag.status is BagStatus.CANCELLED:
        detail = f"bag {bag.id} was cancelled; submit it again instead"
        turn.refuse(request, Problem.INVALID, detail)
        return
    failed = list(bag.failed)
    if failed:
        bag.status = step(bag.status, BagStatus.RUNNING)
        _reopen(turn, bag, failed)
        turn.note(Note("failed tasks again", bag=bag.id, detail=f"{len(failed)} tasks"))
    turn.when_durable(Replying(request, Done(len(failed))))


def _reopen(turn: Turn, bag: Bag, failed: list[int]) -> None:
    """The record reopens the chunks with given-up tasks in them; so do we."""
    bag.not_before = turn.write(ReopenFailed(bag.id, turn.now))
    for first, stop in bag.marred.items():
        if bag.failed.range_cardinality(first, stop):  # else a late success has made up for it
            bag.chunks[first] = stop
    bag.marred.clear()
    for first, stop in bag.chunks.items():
        bag.unfinished[first] = stop - first - bag.done.range_cardinality(first, stop)
    bag.failed.clear()
    for task in failed:
        bag.tries.pop(task, None)
        bag.losses.pop(task, None)
        if task not in bag.live:
            bag.ready.add(TaskNumber(task))
