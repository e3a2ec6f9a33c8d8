"""Bugs to plant, each one that somebody could really write; some of them we had.

A bug is a context manager: within it the code is wrong. The simulator has to find every one of
them by what covey then does, with core's own assertions switched off.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import signature
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from covey.core.after_commit import Answering, Replying, Then
from covey.core.bags import bag_requests, lookahead
from covey.core.explain import obstacles
from covey.core.match import bag_policy, blame, dispatch, match_cache, replication, retry_hosts
from covey.core.match.policies import Places
from covey.core.protocol import ends, pilots, receipts, recovery, task_recall
from covey.core.protocol.receipts import Given
from covey.core.record.actions import Change, SavePolicy
from covey.core.record.attempts import Attempt
from covey.core.record.events import RetryRequested, SegmentAppended
from covey.core.record.model import (
    AttemptId,
    BagId,
    BagSnapshot,
    BagSpec,
    BagStatus,
    EndRecord,
    Need,
    PilotStatus,
    PolicySpec,
    RequestId,
    Segment,
    Settings,
    Snapshot,
    Verdict,
)
from covey.core.record.task_numbers import Numbering
from covey.core.state import Bag, Pilot, State
from covey.core.state.hosts import Tally
from covey.core.state.match_records import Match
from covey.core.turn import Turn
from covey.engine import Engine
from covey.pilot.protocol.messages import FAILED, HOST, LOST, TIMEOUT, End, Held, Sync
from covey.pilot.protocol.pilot_state import PilotState
from tests.memory_store import memory_reading, memory_record

Bug = Callable[[], Any]
BUGS: dict[str, Bug] = {}
WORDS: dict[str, str] = {}  # of bugs that must be found by a certain checker: what it says


def planted(*patches: Callable[[], Any]) -> Bug:
    @contextmanager
    def bug() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(patch.object(State, "check", lambda _: None))
            for one in patches:
                stack.enter_context(one())
            yield

    return bug


def _check_arguments(right: Callable[..., Any], wrong: Callable[..., Any]) -> None:
    given: list[object] = [right]
    named: dict[str, object] = {}
    for parameter in signature(right).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = parameter
        elif parameter.kind is not parameter.VAR_KEYWORD:
            given.append(parameter)
    signature(wrong).bind(*given, **named)


def instead(owner: object, name: str, wrong: Callable[..., Any]) -> Callable[[], Any]:
    """`wrong` gets the right function first, then its arguments. It has to take them all: else the
    simulator would see only that it fails."""
    right = getattr(owner, name)
    _check_arguments(right, wrong)
    return lambda: patch.object(owner, name, lambda *a, **k: wrong(right, *a, **k))


def bug(
    *replaced: tuple[object, str], words: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Plant the decorated function in these places, under its own name."""

    def plant(wrong: Callable[..., Any]) -> Callable[..., Any]:
        WORDS[wrong.__name__] = words
        BUGS[wrong.__name__] = planted(*(instead(owner, name, wrong) for owner, name in replaced))
        return wrong

    return plant


@bug((obstacles, "room_is_free"), words="explain says that nothing is in the way")
def explains_without_looking_at_room(right: Callable[..., bool], *_: object) -> bool:
    return True


@bug((Turn, "write"))
def acknowledges_before_the_commit(
    right: Callable[..., int], turn: Turn, change: Change, then: Then | None = None
) -> int:
    if isinstance(then, Answering | Replying):
        turn.state.journal.then.appendleft((0, then))
        then = None
    return right(turn, change, then)


@bug((dispatch, "reserve"), (lookahead, "reserve"))
def dispatches_above_the_durable_mark(
    right: Callable[..., None], turn: Turn, bag: Bag, **searching: bool
) -> None:
    right(turn, bag, **searching)
    for first in [first for first in bag.chunks.open if first >= bag.chunks.mark]:
        if bag.numbering.part(first).rows is None:
            lookahead._open_up(turn, bag, first)


@bug((recovery, "rebuild"))
def asks_nobody_after_a_restart(
    right: Callable[..., Turn], snapshot: Snapshot, settings: Settings, *others: Any
) -> Turn:
    turn = right(snapshot, settings, *others)
    turn.state.arrivals.unheard.clear()
    recovery._release_doubt(turn)
    return turn


@bug((memory_record.MemoryRecord, "open"))
def begins_no_new_epoch(
    right: Callable[..., Snapshot], record: memory_record.MemoryRecord
) -> Snapshot:
    record._epoch = 0
    return right(record)


@bug((pilots, "sync"))
def executes_a_repeated_sync_again(
    right: Callable[..., None], turn: Turn, request: RequestId, sync: Sync
) -> None:
    pilot = next((p for p in turn.state.pilots.values() if p.record.id == sync.pilot), None)
    if pilot is not None and sync.number == pilot.last and not pilot.resync:
        pilot.last -= 1
        pilot.answers.pop(sync.number, None)
        pilot.waiting.pop(sync.number, None)
    right(turn, request, sync)


@bug((PilotState, "_reclaim"))
def delivers_recorded_ends_again(
    right: Callable[..., None], brain: PilotState, recorded: int
) -> None:
    right(brain, 0)


@bug((PilotState, "_reclaim"))
def pilot_forgets_ends_at_a_restart(
    right: Callable[..., None], brain: PilotState, recorded: int
) -> None:
    right(brain, 10**9)


@bug((ends, "lose"))
def never_requeues_what_is_lost(
    right: Callable[..., None], turn: Turn, pilot: Pilot, *_: object
) -> None:
    for id_ in list(pilot.attempts):
        pilot.drop(id_)


@bug((memory_record, "_counts"))
def late_failure_overrides_a_success(
    right: Callable[..., bool], bag: memory_reading.MemoryBag, record: EndRecord
) -> bool:
    late = record.verdict is Verdict.WASTE and record.end.outcome in (FAILED, TIMEOUT)
    return (late and record.task in bag.result) or right(bag, record)


@bug((dispatch, "recall_surplus"))
def sends_recalled_tasks_elsewhere_at_once(right: Callable[..., None], turn: Turn) -> None:
    right(turn)
    for pilot in turn.state.pilots.values():
        for attempt in [one for one in pilot.attempts.values() if one.recalled]:
            bag = turn.state.bags.get(attempt.bag)
            if bag is not None and bag.places.live.get(attempt.task) == [attempt]:
                pilot.drop(attempt.id)
                del bag.places.live[attempt.task]
                bag.free(attempt.task)


def _goes_on_after_a_failed_commit() -> Bug:
    def halt(right: Callable[..., None], engine: Engine, trouble: str) -> None:
        if engine.scheduler is None:
            right(engine, trouble)
        else:
            engine._store.open()

    def resume(right: Callable[..., None], engine: Engine, snapshot: Snapshot) -> None:
        if engine.scheduler is None:
            right(engine, snapshot)

    return planted(instead(Engine, "_halt", halt), instead(Engine, "_resume", resume))


BUGS["goes_on_after_a_failed_commit"] = _goes_on_after_a_failed_commit()


def _infrastructure_uses_up_retries() -> Bug:
    return planted(lambda: patch.object(ends, "OWN_FAILURES", (FAILED, TIMEOUT, HOST, LOST)))


BUGS["infrastructure_uses_up_retries"] = _infrastructure_uses_up_retries()


@bug((pilots, "dropped"))
def takes_a_broken_connection_for_a_dead_pilot(
    right: Callable[..., None], turn: Turn, request: RequestId, id_: int
) -> None:
    for pilot in list(turn.state.pilots.values()):
        if pilot.record.id == id_ and pilot.status is not PilotStatus.LOST:
            pilots.lost(turn, pilot, "its connection closed")


@bug((ends, "cancel"))
def tells_nobody_to_stop(right: Callable[..., None], turn: Turn, attempt: Attempt) -> None:
    attempt.cancelled = True


@bug((recovery, "_adopt_attempt"))
def adopts_without_taking_out_of_doubt(
    right: Callable[..., None], turn: Turn, pilot: Pilot, id_: AttemptId, one: Held, given: Given
) -> None:
    bag = turn.state.bags.get(one.bag)  # type: ignore[call-overload]
    doubtful = bag is not None and one.task in bag.places.doubt
    right(turn, pilot, id_, one, given)
    if doubtful:
        bag.places.doubt.add(one.task)


@bug((Turn, "write_last"))
def closes_chunks_before_their_results(
    right: Callable[..., None],
    turn: Turn,
    make: Callable[[], Change],
    then: Then | None = None,
) -> None:
    turn.write(make(), then)


@bug((PilotState, "refused"))
def gives_up_when_its_place_was_taken(
    right: Callable[..., list[End]],
    brain: PilotState,
    number: int,
    attempt: int,
    problem: str,
    *others: Any,
) -> list[End]:
    return right(brain, number, attempt, "" if problem == "unauthorized" else problem, *others)


# -- of issue 3: classes, segments, chances and pauses -------------------------------------------


@bug((task_recall, "pause"), (lookahead, "pause"))
def sends_tasks_of_a_paused_bag(
    right: Callable[..., None], turn: Turn, bag: Bag, reason: str
) -> None:
    right(turn, bag, reason)
    bag.status = BagStatus.RUNNING


@bug((dispatch, "weight_on"))
def takes_every_task_for_a_small_one(right: Callable[..., int], *_: object) -> int:
    return 1


@bug((lookahead, "rows_loaded"))
def mixes_up_the_rows_of_chunks(
    right: Callable[..., None], turn: Turn, id_: BagId, first: int, rows: list[Any]
) -> None:
    right(turn, id_, first, rows[::-1])


@bug((bag_requests, "append"))
def appends_the_same_segment_twice(
    right: Callable[..., None], turn: Turn, event: SegmentAppended
) -> None:
    right(turn, replace(event, key=""))


@bug((bag_requests, "_reopen"), words="nobody wished for it")
def tries_all_again_when_some_are_wished_for(
    right: Callable[..., None], turn: Turn, bag: Bag, event: RetryRequested
) -> None:
    wished = set(event.tasks or ())
    right(turn, bag, replace(event, tasks=tuple(sorted(wished | set(bag.places.failed)))))


@bug((recovery, "restore"))
def forgets_failures_at_a_restart(
    right: Callable[..., Bag], turn: Turn, snapshot: BagSnapshot, *others: Any
) -> Bag:
    return right(turn, replace(snapshot, tries={}, overtimes={}), *others)


@bug((ends, "finish_if_over"))
def finishes_open_bags(right: Callable[..., None], turn: Turn, bag: Bag) -> None:
    was, bag.open = bag.open, False
    right(turn, bag)
    if bag.status is BagStatus.RUNNING:
        bag.open = was


# -- of issue 4: who a pilot works for -----------------------------------------------------------


@bug((dispatch, "take"))
def sends_tasks_to_anybodys_pilot(
    right: Callable[..., list[Attempt]], turn: Turn, pilot: Pilot
) -> list[Attempt]:
    record = pilot.record
    pilot.record = replace(record, owner="")
    try:
        return right(turn, pilot)
    finally:
        pilot.record = record


# -- of issue 5: calls ---------------------------------------------------------------------------


@bug((Numbering, "release"))
def forgets_calls_that_are_still_to_go_out(
    right: Callable[..., None], numbering: Numbering, first: int, stop: int
) -> None:
    right(numbering, first, numbering.part(first).stop)


@bug((ends, "_count_down"))
def forgets_calls_that_may_be_tried_again(
    right: Callable[..., None], turn: Turn, bag: Bag, task: int
) -> None:
    first = bag.chunks.first_of(task)
    stop = bag.chunks.open.get(first)
    right(turn, bag, task)
    if stop is None or first in bag.chunks.open:
        return
    if bag.spec.calls and bag.places.failed.range_cardinality(first, stop):
        bag.numbering.release(first, stop)


# -- of issue 7: policies, replicas, blame -------------------------------------------------------


@bug((match_cache, "judged"), words="does not let it run")
def takes_every_host_for_suitable(
    right: Callable[..., Match | None], places: Places, values: tuple[object, ...]
) -> Match | None:
    return right(places, values) or Match()


@bug((dispatch, "_concurrency"), words="of them, by")
def knows_no_concurrency(
    right: Callable[..., tuple[int, bool]], candidate: Any, limit: int
) -> tuple[int, bool]:
    return limit, right(candidate, limit)[1]


@bug((match_cache, "wants_replica"), words="more than MaxReplicas")
def counts_no_replicas(
    right: Callable[..., bool], state: State, now: float, bag: Bag, task: int
) -> bool:
    live, bag.places.live = bag.places.live, {**bag.places.live, task: bag.places.live[task][:1]}
    bag.policy.most_replicas = 1000  # who takes the task counts them, too
    try:
        return right(state, now, bag, task)
    finally:
        bag.places.live = live


@bug((replication, "_may_speculate"), words="nobody wants that")
def replicates_while_tasks_may_follow(right: Callable[..., bool], turn: Turn, bag: Bag) -> bool:
    was, bag.open = bag.open, False
    try:
        return right(turn, bag)
    finally:
        bag.open = was


@bug((dispatch, "may_have"), words="it is there already")
def takes_two_pilots_for_two_hosts(
    right: Callable[..., Match | None], turn: Turn, pilot: Pilot, bag: Bag, task: int, alike: Any
) -> Match | None:
    live = bag.places.live[task]
    bag.places.live[task] = [one for one in live if one.pilot == pilot.record.id]
    try:
        return right(turn, pilot, bag, task, None)
    finally:
        bag.places.live[task] = live


@bug((replication, "_expire"), words="it is not idempotent")
def repeats_what_must_not_be(right: Callable[..., None], turn: Turn) -> None:
    specs = {id_: bag.spec for id_, bag in turn.state.bags.items()}
    for bag in turn.state.bags.values():
        bag.spec = replace(bag.spec, idempotent=True)
    right(turn)
    for id_, spec in specs.items():
        turn.state.bags[id_].spec = spec


@bug((bag_policy, "change"), words="wait: nothing of it was sent")
def goes_by_the_old_policy(
    right: Callable[..., None], state: State, bag: Bag, policy: PolicySpec
) -> None:
    bag_policy.check(policy, bag.spec, Segment(space=bag.spec.space, rows=bag.spec.rows))


@bug((blame, "_ban"), words="is banned for")
def bans_for_ever(
    right: Callable[..., None], turn: Turn, pilot: Pilot, bag: Bag, tally: Tally
) -> None:
    state = turn.state
    was = state.settings
    state.settings = replace(was, ban_seconds=was.ban_seconds * 1000)
    right(turn, pilot, bag, tally)
    state.settings = was


@bug((blame, "share"), words="went to others")
def tries_nobody_after_a_ban(
    right: Callable[..., int], turn: Turn, pilot: Pilot, bag: Bag, enough: int
) -> int:
    banned = bag.spec.owner in turn.state.hosts[pilot.record.host].history.bans
    return 0 if banned else right(turn, pilot, bag, enough)


@bug((blame, "is_tried"), words="which is tried after a ban with")
def trusts_at_once_after_a_ban(right: Callable[..., bool], *_: object) -> bool:
    return False


@bug((blame, "withheld"), words="which is banned until")
def bans_in_words_only(right: Callable[..., float], state: State, pilot: Pilot, bag: Bag) -> float:
    tally, rest = bag.hosts.tallies.get(pilot.record.host), pilot.rests.get(bag.id)
    return max((one.until for one in (tally, rest) if one is not None), default=0.0)


@bug((blame, "rate_elsewhere"), words="nobody else has done a task")
def blames_hosts_for_a_broken_bag(right: Callable[..., float], bag: Bag, tally: Tally) -> float:
    bag.hosts.tallies.setdefault("nobody", Tally()).done += tally.done + 1
    bag.hosts.well += tally.done + 1
    return 0.0


@bug((blame, "counts"), words="failures in a row")
def never_blames_a_bag(right: Callable[..., bool], *_: object) -> bool:
    return False


@bug((bag_policy, "check"), words="a policy that cannot be")
def checks_no_policy(right: Callable[..., None], *_: object) -> None:
    pass


@bug((Turn, "write"), words="but the record has another")
def keeps_a_policy_to_itself(
    right: Callable[..., int], turn: Turn, change: Change, then: Then | None = None
) -> int:
    return (
        turn.state.journal.writes if isinstance(change, SavePolicy) else right(turn, change, then)
    )


@bug((bag_requests, "SavePolicy"), words="that nobody asked for")
def saves_another_policy(
    right: Callable[..., SavePolicy], bag: BagId, policy: PolicySpec
) -> SavePolicy:
    return right(bag, replace(policy, rank="1"))


# -- of issue 15: what a pilot is believed of ------------------------------------------------------


@bug((ends, "_was_given"), words="which it was never sent")
def believes_ends_without_a_receipt(
    right: Callable[..., bool], pilot: Pilot, bag: Bag | None, end: End, given: Given
) -> bool:
    proof = {(end.epoch, end.sequence): (end.bag, end.task)}
    return right(pilot, bag, end, {**given, **proof})


@bug((recovery, "_adopt_attempt"), words="which it was never sent")
def adopts_without_a_receipt(
    right: Callable[..., None], turn: Turn, pilot: Pilot, id_: AttemptId, one: Held, given: Given
) -> None:
    right(turn, pilot, id_, one, {**given, id_: (one.bag, one.task)})


@bug((receipts, "_seal"), words="which it was never sent")
def seals_with_no_key(right: Callable[..., str], key: bytes, pilot_key: str, listed: str) -> str:
    return right(b"", pilot_key, listed)


# -- of issue 16: where a task is tried again, and how often it is out ---------------------


@bug((retry_hosts, "until"), words="where it failed at")
def tries_again_on_the_same_host(right: Callable[..., float], *_: object) -> float:
    return 0.0


@bug((replication, "offer_overdue"), words="more than MaxReplicas")
def repeats_without_a_cap(right: Callable[..., None], bag: Bag, task: int) -> None:
    bag.replicas.overdue[task] = None
    bag.policy.most_replicas = bag.policy.most_late = 1000


# -- resources that parameters of tasks say ------------------------------------------------


@bug((recovery, "needs_of"))
def forgets_what_appended_tasks_need(
    right: Callable[..., list[Need]], spec: BagSpec, more: tuple[Segment, ...]
) -> list[Need]:
    return right(spec)


@bug((bag_policy, "classifier"), words="was sent with")
def takes_every_task_for_the_first_class(right: Callable[..., Any], *args: Any) -> Any:
    number_of = right(*args)
    return number_of and (lambda values: 0)
