"""From the record back to a running queue, without repeating what still runs.

After a restart, numbers at or above a bag's mark were never sent and go out at once. Unfinished
numbers below it are *in doubt*: a pilot may have them. Each pilot of the earlier epoch says what
it holds (a full sync), and that is *adopted*. When all of them have done so or left, or after
`adopt_seconds`, the numbers that are still in doubt go out again.
"""

from collections.abc import Mapping
from typing import Any

from pyroaring import BitMap

from covey.core.bags import input_versions, lookahead, quarantine
from covey.core.match import bag_policy, match_cache, replication
from covey.core.match.pilot_fit import weight
from covey.core.match.site_access import serves
from covey.core.protocol import bag_bodies, ends, host_history, tokens
from covey.core.protocol.receipts import NOTHING_GIVEN, Given
from covey.core.protocol.task_recall import recall
from covey.core.record import call_files, input_files
from covey.core.record.actions import CloseChunk, Note, SavePilotStatus
from covey.core.record.attempts import Attempt, Raised
from covey.core.record.model import (
    AS_BEFORE,
    LONG_FIRST,
    AttemptId,
    BagId,
    BagRecord,
    BagSnapshot,
    BagSpec,
    BagStatus,
    PilotId,
    PilotStatus,
    Segment,
    Settings,
    Snapshot,
    TaskNumber,
)
from covey.core.record.suspects import Suspect, suspect
from covey.core.record.task_classes import need_message, needs_of
from covey.core.record.task_numbers import Numbering, check_segment, names_in, readings_in
from covey.core.sites import job_history, site_history, site_table
from covey.core.state import Bag, Job, Pilot, State
from covey.core.state.classes import TaskClasses
from covey.core.state.files import BagInputs, BagOutputs
from covey.core.turn import Turn
from covey.core.values.placeholders import filler
from covey.pilot.protocol.messages import Body, Held

INPUT_SIZE = 100  # characters of a task's own input, when it is sent, besides its path


def rebuild(
    snapshot: Snapshot, settings: Settings, now: float, suspects: Mapping[BagId, Suspect]
) -> Turn:
    """The state that the record describes, with the first actions to take. `suspects` are bags
    that an earlier scheduler could not handle."""
    state = State(snapshot.epoch, settings, now)
    turn = Turn(state, now)
    state.counters.next_bag, state.counters.next_pilot = snapshot.next_bag, snapshot.next_pilot
    state.bag_index.keys = dict(snapshot.keys)
    state.histories.machines = dict(snapshot.hosts)
    host_history.restore(state, snapshot.histories, now)
    tokens.restore(state, snapshot.tokens, snapshot.next_token)
    site_table.restore(turn, snapshot.sites)
    state.arrivals.adopt_until = now + settings.adopt_seconds
    walls = {job.id: job.wall_seconds for job in snapshot.jobs}
    for record in snapshot.pilots:
        until = tokens.end_of(record.job, record.enrolled, walls.get(record.job, 0.0))
        pilot = Pilot(record, now, until, record.status, resync=True)
        pilot.last = pilot.recorded = record.recorded
        state.pilots[record.id] = pilot
        state.arrivals.keys[record.key] = record.id
        host_history.host_of(state, record).pilots[record.id] = None
        if record.status is not PilotStatus.LOST:
            state.arrivals.unheard[record.id] = None
    site_history.restore(state, snapshot.site_histories)
    job_history.restore(state, (*snapshot.ended_jobs, *snapshot.jobs))
    _restore_jobs(state, snapshot, now)
    for bag_snapshot in snapshot.bags:
        restore(turn, bag_snapshot, suspects.get(bag_snapshot.bag.id))
    if not state.arrivals.unheard:
        _release_doubt(turn)
    return turn


def _restore_jobs(state: State, snapshot: Snapshot, now: float) -> None:
    """Whether a job's pilot was of use, only an earlier server knew. So all jobs count as useful,
    and no job counts against its site."""
    pilots = {pilot.job: pilot for pilot in snapshot.pilots if pilot.job}
    for record in snapshot.jobs:
        job = state.jobs[record.id] = Job(record, now, useful=True, asked=True)
        pilot = pilots.get(record.id)
        if pilot is not None:
            job.pilot, job.running, job.started = pilot.id, True, pilot.enrolled
            job.voice = job.holder = pilot.key
        if record.site in state.sites:
            state.sites[record.site].jobs[record.id] = None
        else:
            job.vanished = f"site {record.site} does not exist any more"


def restore(turn: Turn, snapshot: BagSnapshot, suspected: Suspect | None = None) -> Bag:
    """Put a bag back into the state; unfinished numbers below its mark are in doubt. A bag that
    cannot be built, or that an earlier scheduler could not handle (`suspected`), is quarantined."""
    record = snapshot.bag
    if suspected is None and snapshot.broken:
        suspected = Suspect(f"the bag cannot be read from the record: {snapshot.broken}")
    if suspected is None:
        try:
            check_again(record)
            bag = _restore(turn, snapshot, new_bag(snapshot))
        except Exception as error:
            suspected = suspect("the bag cannot be restored from the record", error)
        else:
            if quarantine.is_quarantined(record):
                quarantine.put_away(bag, record.reason)
            return bag
    shell = quarantine.shell_of(snapshot)
    bag = new_bag(shell)
    bag.numbering = Numbering.unknown(record.total)
    _restore(turn, shell, bag)
    quarantine.make_shell(turn, bag, record, suspected)
    return bag


def check_again(record: BagRecord) -> None:
    """An earlier version may have accepted parameters that cannot be computed. Raises
    InvalidBag."""
    for segment in (Segment(space=record.spec.space, rows=record.spec.rows), *record.segments):
        check_segment(segment, may_be_empty=True)


def _restore(turn: Turn, snapshot: BagSnapshot, bag: Bag) -> Bag:
    record = snapshot.bag
    bag.quarantine.suspects = turn.state.suspects
    bag.status, bag.reason = record.status, record.reason
    if record.spec.calls:
        bag.progress.heard = turn.now
    bag.progress.recorded = max(1, turn.state.journal.writes)
    places, chunks, failures = bag.places, bag.chunks, bag.failures
    failures.tries = dict(snapshot.tries)
    failures.overtimes = dict(snapshot.overtimes)
    failures.short = dict(snapshot.short)
    ends.restore_last_chances(turn.state, bag)
    for reopening in snapshot.reopenings:
        if reopening.more != AS_BEFORE:
            tasks = None if reopening.tasks is None else BitMap(reopening.tasks)
            failures.raised.append(Raised(tasks, reopening.more))
    places.failed = BitMap(snapshot.failed)
    places.done = BitMap(snapshot.open_done)
    for chunk in snapshot.chunks:
        chunks.mark = max(chunks.mark, chunk.stop)
        if chunk.closed:
            places.done.add_range(chunk.first, chunk.stop)
    places.done -= places.failed
    places.next = chunks.asked_mark = chunks.mark
    settled = places.done | places.failed
    chunks.starts = sorted(chunk.first for chunk in snapshot.chunks)
    for chunk in snapshot.chunks:
        left = chunk.stop - chunk.first - settled.range_cardinality(chunk.first, chunk.stop)
        if left:
            chunks.open[chunk.first] = chunk.stop
            chunks.unfinished[chunk.first] = left
            lookahead.load_rows(turn, bag, chunk.first, chunk.stop)
            continue
        if bag.spec.calls and not places.failed.range_cardinality(chunk.first, chunk.stop):
            bag.numbering.release(chunk.first, chunk.stop)
        if not chunk.closed:
            turn.write(CloseChunk(bag.id, chunk.first))
    if bag.status in (BagStatus.RUNNING, BagStatus.PAUSED):
        places.doubt = BitMap()
        places.doubt.add_range(0, chunks.mark)
        places.doubt -= settled
    for pilot in turn.state.pilots.values():
        for attempt in pilot.attempts.values():  # of an earlier life of the bag: they are to stop
            if attempt.bag == bag.id:
                attempt.kind = _class_if_known(bag, attempt.task)  # classes may be numbered anew
                bag.places.live.setdefault(attempt.task, []).append(attempt)
    turn.state.bags[bag.id] = bag
    bag_policy.noticed(turn.state, bag)
    ends.finish_if_over(turn, bag)
    return bag


# Fields that a body and a spec have in common.
_SAME = tuple(
    name for name in Body._fields if name in BagSpec.__struct_fields__ and name != "inputs"
)


def _sent(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def new_bag(snapshot: BagSnapshot) -> Bag:
    record = snapshot.bag
    spec, earlier = record.spec, set[str]()
    if record.input_versions:
        changes = (version.changes for version in record.input_versions)
        spec, earlier = input_files.with_changes(spec, changes)
    numbering = Numbering()
    classes = TaskClasses(long_first=spec.order == LONG_FIRST)
    first = Segment(space=spec.space, rows=spec.rows)
    segments = (first, *record.segments)
    for segment in segments:
        numbering.append(segment)
    needs = needs_of(spec, record.segments)
    names = names_in(first)
    if not spec.calls:
        numbering.readings = readings_in(first)
    body = Body(
        bag=record.id,
        names=names,
        needs=[need_message(need) for need in needs],
        inputs=input_versions.sent_as(spec.inputs),
        ahead=spec.calls and spec.idempotent,
        inputs_version=1 + len(record.input_versions),
        **{name: _sent(getattr(spec, name)) for name in _SAME},
    )
    bag = Bag(
        record.id,
        spec,
        body,
        record.created,
        record.open,
        bag_policy.compiled(record.policy or spec.policy),
        numbering,
        classes,
        BagInputs(
            [
                (filler(own.source, names), filler(own.path, names), own.copy)
                for own in spec.task_inputs
            ],
            size=sum(len(own.source + own.path) + INPUT_SIZE for own in spec.task_inputs),
            large=spec.calls and any(map(call_files.has_files, segments)),
            versions=list(record.input_versions),
            earlier=frozenset(earlier),
        ),
        body_size=bag_bodies.size_of(body),
        keys=set(snapshot.keys),
        outputs=BagOutputs(record.outputs),
    )
    for need in needs:
        bag.add_need(need)
    bag_policy.split(bag)
    return bag


def adopt(turn: Turn, pilot: Pilot, held: list[Held], given: Given = NOTHING_GIVEN) -> None:
    """The pilot has listed all attempts that it holds; it has no others. `given` are the attempts
    for which it has shown receipts."""
    listed = {AttemptId(claim.epoch, claim.sequence): claim for claim in held}
    missing = [attempt for id_, attempt in pilot.attempts.items() if id_ not in listed]
    if missing:
        ends.lose(turn, pilot, "its pilot does not have it", missing)
    for id_, claim in listed.items():
        if id_ not in pilot.attempts:
            _adopt_attempt(turn, pilot, id_, claim, given)
        else:
            _signal_again(turn, pilot.attempts[id_])
    for attempt in pilot.attempts.values():
        bag = turn.state.bags.get(attempt.bag)
        if bag is not None and bag.status is BagStatus.PAUSED:
            recall(turn, attempt)
    if listed:
        turn.note(Note("adopted", pilot=pilot.record.id, detail=f"{len(listed)} attempts"))
    heard(turn, pilot.record.id)


def _signal_again(turn: Turn, attempt: Attempt) -> None:
    """Ask again to stop or to return the attempt: the first request may have been in an answer that
    the pilot did not wait for."""
    attempt.recalled = False
    if attempt.cancelled:
        attempt.cancelled = False
        ends.cancel(turn, attempt)


def _adopt_attempt(turn: Turn, pilot: Pilot, id_: AttemptId, claim: Held, given: Given) -> None:
    bag = turn.state.bags.get(BagId(claim.bag))
    attempt = Attempt(id_, BagId(claim.bag), TaskNumber(claim.task), pilot.record.id, turn.now)
    if given.get(id_) != (claim.bag, claim.task):
        _refuse_unproven(turn, pilot, bag, attempt)
        return
    if bag is not None and not _may_hold(turn, pilot, bag, attempt):
        ends.cancel(turn, attempt)
        return
    if bag is not None:
        attempt.kind = _class_if_known(bag, attempt.task)
        attempt.weight = max(1, weight(bag.classes[attempt.kind].need, pilot.record))
    pilot.add(attempt)
    if bag is None:
        ends.cancel(turn, attempt)
        return
    _watch_again(turn, pilot, bag, attempt)
    bag.places.live.setdefault(attempt.task, []).append(attempt)
    bag.places.doubt.discard(attempt.task)
    bag.hold(attempt.task)
    if attempt.task in bag.places.done:
        ends.cancel(turn, attempt)


def _refuse_unproven(turn: Turn, pilot: Pilot, bag: Bag | None, attempt: Attempt) -> None:
    """The pilot says that it holds this attempt, and shows no receipt: it has to stop the attempt.
    The claim may be true all the same. So if the bag must not be repeated, the task does not go
    out again by itself."""
    name = f"{attempt.id.epoch}.{attempt.id.sequence}"
    words = f"it shows no receipt for task {attempt.task} of bag {attempt.bag}"
    turn.note(Note("attempt not adopted", attempt=name, pilot=pilot.record.id, detail=words))
    if bag is not None and serves(pilot.record, bag) and attempt.task in bag.places.doubt:
        turn.state.arrivals.all_heard = False
    ends.cancel(turn, attempt)


def _may_hold(turn: Turn, pilot: Pilot, bag: Bag, attempt: Attempt) -> bool:
    """Whether this pilot may hold the attempt: it was sent, the pilot serves the bag, and no other
    pilot holds it."""
    sent = attempt.task < bag.places.next and attempt.id < (
        turn.state.epoch,
        turn.state.counters.next_sequence,
    )
    live = bag.places.live.get(attempt.task, ())
    return sent and serves(pilot.record, bag) and all(other.id != attempt.id for other in live)


def _watch_again(turn: Turn, pilot: Pilot, bag: Bag, attempt: Attempt) -> None:
    """Nobody remembers when the attempt was sent, so the time until its deadline begins anew."""
    if "Deadline" in bag.policy.texts and _is_read(bag, attempt.task):
        face = match_cache.face_of(turn.state, turn.now, pilot, bag.spec.owner)
        match = match_cache.match_task(turn.state, turn.now, pilot, bag, face, attempt.task)
        if match is not None and match.deadline:
            replication.watch(turn.state, attempt, match.deadline)


def _class_if_known(bag: Bag, task: TaskNumber) -> int:
    """The task's class; the first one while its values are not read yet, as after a restart."""
    return bag.class_of(task) if bag.classes.classify is not None and _is_read(bag, task) else 0


def _is_read(bag: Bag, task: TaskNumber) -> bool:
    """Whether the values of a task in an open chunk are known."""
    rows = bag.numbering.part(task).rows
    return rows is None or bag.chunks.first_of(task) in bag.numbering.loaded


def heard(turn: Turn, id_: PilotId, *, gone: bool = False) -> None:
    """This pilot of an earlier epoch has listed what it holds, or is `gone` and never will."""
    if id_ in turn.state.arrivals.unheard:
        del turn.state.arrivals.unheard[id_]
        if gone:
            turn.state.arrivals.all_heard = False
            turn.state.arrivals.departed[id_] = None
        if not turn.state.arrivals.unheard:
            _release_doubt(turn)


def save_departure(turn: Turn, change: SavePilotStatus) -> None:
    """A pilot is gone. If it went without listing what it held, its departure is recorded only when
    the doubt is resolved: a server that restarts before must know that this pilot may have run what
    is in doubt."""
    state = turn.state
    if change.pilot in state.arrivals.departed and state.arrivals.unheard:
        state.arrivals.departed[change.pilot] = change
    else:
        state.arrivals.departed.pop(change.pilot, None)
        turn.write(change)


def tick(turn: Turn) -> None:
    if turn.state.arrivals.unheard and turn.now >= turn.state.arrivals.adopt_until:
        turn.note(
            Note("adoption ends", detail=f"{len(turn.state.arrivals.unheard)} pilots unheard")
        )
        turn.state.arrivals.unheard.clear()
        turn.state.arrivals.all_heard = False
        _release_doubt(turn)


def _release_doubt(turn: Turn) -> None:
    """No pilot has the tasks in doubt, so they may go out again. If a bag must not be repeated,
    that is safe only if every pilot has said that it does not have them: then they have not run,
    since a pilot forgets an end only when it is recorded."""
    for bag in list(turn.state.bags.values()):
        if not bag.places.doubt:
            continue
        turn.note(Note("doubt resolved", bag=bag.id, detail=f"{len(bag.places.doubt)} tasks free"))
        if bag.spec.idempotent or turn.state.arrivals.all_heard:
            freed, bag.places.doubt = bag.places.doubt, BitMap()
            for task in freed:
                bag.free(task)
        else:
            for task in list(bag.places.doubt):
                ends.lose_unknown(turn, bag, TaskNumber(task))
    turn.state.queue.news += 1
    departed, turn.state.arrivals.departed = turn.state.arrivals.departed, {}
    for change in departed.values():
        if change is not None:
            turn.write(change)
