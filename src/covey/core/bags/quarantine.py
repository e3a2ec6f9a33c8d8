"""Quarantine: bags that core cannot handle are paused, and their expressions not evaluated any
more.

docs/decisions/0018-quarantine.md has the rules. `bag.quarantine` has the reason, and the bag's
policy, which is put away: the default policy takes its place, and reads nothing. A bag that could
not even be built is a *shell*: it has all its task numbers, but no values.
"""

from msgspec.structs import replace

from covey.core.match import bag_policy
from covey.core.protocol.task_recall import pause, recall
from covey.core.record.actions import Note, SaveBagStatus
from covey.core.record.model import BagRecord, BagSnapshot, BagStatus, Need, PolicySpec
from covey.core.record.suspects import MARK, Suspect
from covey.core.state import Bag
from covey.core.turn import Turn
from covey.core.values.space import ONE_TASK

_ALIVE = (BagStatus.RUNNING, BagStatus.PAUSED)


def settle(turn: Turn) -> None:
    """Quarantine every bag that has become a suspect in this turn."""
    suspects = turn.state.suspects
    while suspects:
        id_ = next(iter(suspects))
        suspected = suspects.pop(id_)
        bag = turn.state.bags.get(id_)
        if bag is not None and bag.status in _ALIVE and not bag.quarantine.reason:
            impose(turn, bag, suspected)


def impose(turn: Turn, bag: Bag, suspected: Suspect) -> None:
    bag_policy.noticed(turn.state, bag)
    put_away(bag, MARK + suspected.reason)
    bag_policy.noticed(turn.state, bag)
    _note(turn, bag, suspected)
    if bag.status is BagStatus.RUNNING:
        pause(turn, bag, bag.quarantine.reason)
        return
    _save(turn, bag)
    for attempts in bag.places.live.values():
        for attempt in attempts:
            recall(turn, attempt)


def put_away(bag: Bag, reason: str) -> None:
    """From now on neither the policy nor the classes of the bag are evaluated."""
    if bag.quarantine.held is None:
        bag.quarantine.held = bag.policy.spec
    bag.quarantine.reason = reason
    bag.cache.suits = None
    bag_policy.replace(bag, bag_policy.DEFAULT)
    if bag.classes.classify is not None:
        bag.classes.classify = None
        bag.places.merge_classes()


def release(turn: Turn, bag: Bag) -> None:
    """Evaluate the bag again, as its owner wants. If building its policy raises, nothing
    changes."""
    policy = bag_policy.compiled(bag.quarantine.held or PolicySpec())
    bag_policy.noticed(turn.state, bag)
    bag.quarantine.held, bag.quarantine.reason = None, ""
    bag_policy.replace(bag, policy)
    bag_policy.sort_anew(bag)
    bag_policy.noticed(turn.state, bag)


def shell_of(snapshot: BagSnapshot) -> BagSnapshot:
    """The part that is left of a bag that cannot be built, without the values of its tasks."""
    record = snapshot.bag
    plain = replace(
        record.spec,
        space=ONE_TASK,
        rows=None,
        rules=(),
        need=Need(),
        need_from={},
        task_needs=(),
        policy=PolicySpec(),
        task_inputs=(),
    )
    return replace(snapshot, bag=replace(record, spec=plain, segments=(), policy=None))


def make_shell(turn: Turn, bag: Bag, record: BagRecord, suspected: Suspect) -> None:
    """Quarantine a bag that was made from `shell_of`, also in the record."""
    bag.quarantine.shell = True
    bag.quarantine.held = record.policy or record.spec.policy
    put_away(bag, MARK + suspected.reason)
    _note(turn, bag, suspected)
    saved = bag.status is BagStatus.PAUSED and bag.reason == bag.quarantine.reason
    if bag.status in _ALIVE and not saved:
        bag.status = BagStatus.PAUSED
        _save(turn, bag)


def _note(turn: Turn, bag: Bag, suspected: Suspect) -> None:
    turn.state.counters.quarantines += 1
    detail = suspected.trace or suspected.reason
    turn.note(Note("bag quarantined", bag=bag.id, detail=detail))


def _save(turn: Turn, bag: Bag) -> None:
    bag.reason = bag.quarantine.reason
    done, failed = len(bag.places.done), len(bag.places.failed)
    turn.write(SaveBagStatus(bag.id, bag.status, turn.now, done, failed, bag.reason))


def is_quarantined(record: BagRecord) -> bool:
    """Whether this bag was quarantined before the server was restarted."""
    return record.status is BagStatus.PAUSED and record.reason.startswith(MARK)
