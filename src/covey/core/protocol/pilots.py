"""The server's half of the protocol with pilots; its rules stand in
`covey.pilot.protocol.messages`.

A pilot has at most a few syncs open: one parked, and short ones that carry ends. A newer sync
releases an older parked one, with an empty answer. Every answer is kept until the pilot says that
it has processed it, so that a repeated number gets the same answer.
"""

from msgspec.structs import replace

from covey.core.after_commit import Answering, Replying
from covey.core.bags import quarantine
from covey.core.match import dispatch
from covey.core.match.pilot_fit import limits
from covey.core.protocol import (
    ends,
    enrolment,
    host_history,
    hosts,
    job_secrets,
    receipts,
    recovery,
    report_check,
)
from covey.core.protocol.bag_bodies import make_room
from covey.core.protocol.tokens import end_of, read_hand_job
from covey.core.record.actions import (
    Done,
    Note,
    Problem,
    RecordEnds,
    SaveHost,
    SavePilot,
    SavePilotStatus,
)
from covey.core.record.attempts import Attempt
from covey.core.record.events import PilotEnrolled
from covey.core.record.model import (
    BagId,
    JobId,
    PilotId,
    PilotRecord,
    PilotStatus,
    RequestId,
)
from covey.core.record.suspects import suspect
from covey.core.record.transitions import step
from covey.core.sites import job_history, site_fit, site_table
from covey.core.state import Bag, Pilot, State, Waiting
from covey.core.turn import Turn
from covey.pilot.calls.call_records import CALL_FILE
from covey.pilot.protocol.messages import (
    Answer,
    Body,
    Enrol,
    Enrolled,
    Followed,
    Held,
    Input,
    Leave,
    Left,
    Sync,
    Task,
)

MOST_OPEN = 2  # syncs of one pilot that wait for durability
MOST_FENCED = 10_000  # keys of replaced pilots that are remembered
FOLLOW_SECONDS = 30.0  # that output is followed after the last time somebody asked for it
FORGET_SECONDS = 24 * 3600.0


def enrol(turn: Turn, event: PilotEnrolled) -> None:
    state, request, enrol_ = turn.state, event.request, event.enrol
    known = state.arrivals.keys.get(enrol_.key)
    owner = event.owner or _owner_of(state, enrol_)
    problem, words = enrolment.refusal(turn, enrol_, known, owner)
    if words:
        turn.refuse(request, problem, words)
        return
    id_ = known if known is not None else PilotId(state.counters.next_pilot)
    if known is None:
        state.counters.next_pilot += 1
    before = state.pilots[known].record if known is not None else None
    owner = event.owner or (before.owner if before else _owner_of(state, enrol_))
    site = hosts.proven_site(state, enrol_, before)
    machine = hosts.machine_of(turn, enrol_, id_, before, hosts.scope_of(enrol_, site, owner))
    record = PilotRecord(
        id=id_,
        key=enrol_.key,
        credential=event.digest,
        host=hosts.name(turn, machine, enrol_.host),
        slots=enrol_.slots,
        site=site,
        job=JobId(enrol_.job),
        tags=enrol_.tags,
        version=enrol_.version,
        enrolled=turn.now,
        memory_mb=enrol_.memory_mb,
        disk_mb=enrol_.disk_mb,
        gpus=enrol_.gpus,
        machine=machine,
        boot=enrol_.boot,
        owner=owner,
    )
    if known is None:
        job = state.jobs.get(record.job)
        wall = job.record.wall_seconds if job is not None else 0.0
        began = job.started if job is not None and job.started else turn.now
        state.pilots[id_] = Pilot(record, turn.now, end_of(record.job, began, wall))
        state.arrivals.keys[enrol_.key] = id_
        turn.note(Note("pilot enrolled", pilot=id_, job=enrol_.job, detail=enrol_.host))
    else:  # its first answer was lost, or somebody took its place: it must say what it holds
        pilot = state.pilots[id_]
        host_history.host_of(state, pilot.record).pilots.pop(id_, None)
        pilot.record, pilot.resync, pilot.heard = record, True, turn.now
    host_history.host_of(state, record).pilots[id_] = None
    job = state.jobs.get(record.job)
    if job is not None and job.pilot not in state.pilots:
        job.pilot, job.left_at = id_, 0.0
    job_secrets.used(state, record)
    if known is None:
        site_table.enrolled(turn, record.job)
        job_history.enrolled(turn, record)
        if site in state.sites:
            site_fit.shown(state.sites[site], record, turn.now)
    settings = state.settings
    enrolled = Enrolled(
        id_,
        event.credential,
        state.epoch,
        settings.poll_seconds,
        settings.lease_seconds,
        _idle_seconds(turn, state.pilots[id_]),
    )
    turn.write(_host(record, turn.now))
    turn.write(SavePilot(record), Replying(request, enrolled))


def _owner_of(state: State, enrol_: Enrol) -> str:
    return site_table.owner_of(state, JobId(enrol_.job), enrol_.shared)


def _idle_seconds(turn: Turn, pilot: Pilot) -> float:
    """How long the pilot stays without work. A pilot that a person started stays for as long as it
    may: no site would start it again."""
    if not by_hand(pilot):
        site = turn.state.sites.get(pilot.record.site)
        own = site.record.spec.idle_seconds if site is not None else 0.0
        return own or turn.state.settings.idle_seconds
    return max(0.0, pilot.until - turn.now)


def by_hand(pilot: Pilot) -> bool:
    """Whether a person started this pilot."""
    return read_hand_job(pilot.record.job) is not None


def _stays(turn: Turn, pilot: Pilot) -> bool:
    """Whether the pilot waits for the next server when this one ends. It does if no site would
    start it again, or if it has work that would be lost. An idle pilot of a site would only hold
    what others could use."""
    site = turn.state.sites.get(pilot.record.site)
    placed = site is not None and not site.record.spec.facts.here
    return by_hand(pilot) or (placed and bool(pilot.attempts))


def _host(record: PilotRecord, now: float) -> SaveHost:
    return SaveHost(record.host, record.site, record.slots, now, record.tags, record.machine)


def _take_place(turn: Turn, pilot: Pilot) -> None:
    """A site job that was requeued has a new pilot. Earlier pilots of the job are gone: their tasks
    go elsewhere. This is certain only when the new pilot syncs: an enrolment may be a late message
    of a pilot that is dead."""
    record, fenced = pilot.record, turn.state.arrivals.fenced
    if not record.job:
        return
    job = turn.state.jobs.get(record.job)
    if job is not None:
        job.pilot, job.left_at = record.id, 0.0
        if job.voice not in ("", record.key):
            job.succeeded, job.started = True, record.enrolled
            if pilot.until > turn.now:  # that was reckoned from the job's earlier start
                pilot.until = end_of(record.job, job.started, job.record.wall_seconds)
        job.voice = record.key
    for other in list(turn.state.pilots.values()):
        if other.record.job == record.job and other.record.key != record.key:
            fenced[other.record.key] = None
            ends.lose(turn, other, "its site job was started again")
            remove(turn, other, PilotStatus.LEFT, "its site job was started again")
    while len(fenced) > MOST_FENCED:
        del fenced[next(iter(fenced))]


def sync(turn: Turn, request: RequestId, sync_: Sync) -> None:
    pilot = turn.state.pilots.get(PilotId(sync_.pilot))
    if pilot is None or sync_.epoch > turn.state.epoch:
        words = f"this server has no pilot {sync_.pilot}: enrol again"
        turn.refuse(request, Problem.UNKNOWN_PILOT, words)
        return
    problem = report_check.sync_problem(sync_, turn.state.settings.most_ends)
    if problem:
        turn.refuse(request, Problem.INVALID, problem)
        return
    full = sync_.held is not None
    pilot.heard = turn.now  # its sync may be refused, but it lives
    starts_over = full and sync_.number > pilot.last
    if sync_.epoch != turn.state.epoch or (pilot.resync and not starts_over):
        answer_ = Answer(turn.state.epoch, sync_.number, resync=True, recorded=pilot.recorded)
        turn.when_durable(Replying(request, answer_))
    elif sync_.number <= pilot.last:
        _repeat(turn, request, pilot, sync_.number)
    elif not full and sync_.number != pilot.last + 1:
        detail = f"sync {sync_.number} came, {pilot.last + 1} was expected"
        turn.refuse(request, Problem.OUT_OF_ORDER, detail)
    elif not full and len(pilot.waiting) >= MOST_OPEN and _open_syncs(pilot) >= MOST_OPEN:
        turn.refuse(request, Problem.TOO_MANY, "wait for the answers to earlier syncs")
    else:
        _accept(turn, request, pilot, sync_)


def _open_syncs(pilot: Pilot) -> int:
    """How many of its syncs wait until the ends in them are durable."""
    return sum(1 for waiting in pilot.waiting.values() if waiting.after)


def _repeat(turn: Turn, request: RequestId, pilot: Pilot, number: int) -> None:
    """The same number again: the same answer, now or when there is one."""
    if number in pilot.answers:
        turn.reply(request, pilot.answers[number])
    elif number in pilot.waiting:
        waiting = pilot.waiting[number]
        if waiting.request is not None:
            turn.refuse(waiting.request, Problem.SUPERSEDED, f"sync {number} was sent again")
        waiting.request = request
        _reinstate(turn, pilot)
        _answer_or_park(turn, pilot, waiting)
    else:
        turn.refuse(request, Problem.STALE, f"sync {number} was answered and acknowledged before")


def _accept(turn: Turn, request: RequestId, pilot: Pilot, sync_: Sync) -> None:
    settings = turn.state.settings
    if not pilot.last:
        _take_place(turn, pilot)
    again = _start_over(turn, pilot) if sync_.held is not None else ()
    was_lost = pilot.status is PilotStatus.LOST
    _reinstate(turn, pilot)
    pilot.last = sync_.number
    pilot.want = sync_.want
    for number in [n for n in pilot.answers if n <= sync_.received]:
        del pilot.answers[number]
        pilot.taken.pop(number, None)
    parked = [w for w in pilot.waiting.values() if not w.after] if pilot.waiting else ()
    fresh = sync_.ends
    if again:
        fresh = [end for end in fresh if (end.epoch, end.sequence) not in again]
    given = receipts.NOTHING_GIVEN
    if sync_.receipts:
        given = receipts.read(settings.receipt_key, pilot.record.key, sync_.receipts)
    rows = ends.settle(turn, pilot, fresh, given, pilot.clock.time_of(sync_.clock, turn.now))
    if sync_.held is not None:
        recovery.adopt(turn, pilot, sync_.held, given)
    if sync_.waiting or pilot.waits:
        pilot.set_aside({BagId(bag): slots for bag, slots in sync_.waiting})
    pilot.shortage = sync_.shortage
    for waiting in parked:
        _release(turn, pilot, waiting, ends.any_ran(sync_.ends))
    after = 0
    if sync_.ends:
        then = Answering(pilot.record.id, sync_.number)
        after = turn.write(RecordEnds(pilot.record.id, sync_.number, rows), then)
        site_table.did_good(turn.state, pilot.record.job)
        pilot.taken[sync_.number] = sync_.ends
    elif was_lost:  # a restarted server must know that it has to wait for this pilot
        turn.when_durable(Answering(pilot.record.id, sync_.number))
        after = turn.state.journal.writes
    if sync_.tags is not None and sync_.tags != pilot.record.tags:
        pilot.record = replace(pilot.record, tags=sync_.tags)
        turn.write(_host(pilot.record, turn.now))
    waiting = Waiting(request, sync_.number, turn.now, after)
    pilot.waiting[sync_.number] = waiting
    if not after:
        _answer_or_park(turn, pilot, waiting)


def _release(turn: Turn, pilot: Pilot, waiting: Waiting, ended: bool) -> None:
    """A later sync has come, so the parked one is answered. If tasks have ended, the pilot has room
    for others: they go out with this answer, since that to the later sync must wait until the ends
    are durable. Tasks that were given back are offered to idle pilots first."""
    if ended and waiting.request is not None:
        _send_answer(turn, pilot, waiting, _compose(turn, pilot, waiting.number))
    else:
        _send_answer(turn, pilot, waiting, Answer(turn.state.epoch, waiting.number))


def _start_over(turn: Turn, pilot: Pilot) -> set[tuple[int, int]]:
    """A full sync: earlier syncs are not waited for any more. Returns the attempts whose ends have
    been taken in from them: the full sync may bring these ends again, since the pilot may not have
    got our acknowledgement."""
    again = {(end.epoch, end.sequence) for ends_ in pilot.taken.values() for end in ends_}
    for waiting in pilot.waiting.values():
        if waiting.request is not None:
            turn.refuse(waiting.request, Problem.SUPERSEDED, "the pilot has started over")
    pilot.waiting.clear()
    pilot.answers.clear()
    pilot.taken.clear()
    pilot.bodies.clear()
    pilot.unneeded.clear()
    pilot.cancels.clear()
    pilot.recalls.clear()
    pilot.resync = False
    pilot.following = ()
    return again


def _reinstate(turn: Turn, pilot: Pilot) -> None:
    if pilot.status is PilotStatus.LOST:
        turn.state.arrivals.departed.pop(pilot.record.id, None)
        turn.write(SavePilotStatus(pilot.record.id, PilotStatus.ACTIVE, turn.now, "it is back"))
        turn.note(Note("lost pilot is back", pilot=pilot.record.id))
    pilot.status = step(pilot.status, PilotStatus.ACTIVE)


def answer_durable(turn: Turn, pilot: Pilot, number: int) -> None:
    """The ends of this sync are durable: acknowledge them."""
    pilot.recorded = max(pilot.recorded, number)
    waiting = pilot.waiting.get(number)
    if waiting is not None:
        waiting.after = 0
        _send_answer(turn, pilot, waiting, _compose(turn, pilot, number))


def answer_parked(turn: Turn, pilot: Pilot) -> None:
    """Something may have changed for this pilot: answer its parked sync if so."""
    for waiting in list(pilot.waiting.values()):
        if not waiting.after and waiting.request is not None:
            _answer_or_park(turn, pilot, waiting)


def _answer_or_park(turn: Turn, pilot: Pilot, waiting: Waiting) -> None:
    if waiting.after:
        return
    answer_ = _compose(turn, pilot, waiting.number)
    timed_out = turn.now - waiting.since >= turn.state.settings.poll_seconds
    news = answer_.tasks or answer_.cancels or answer_.recalls or answer_.follow is not None
    if news or answer_.leave or timed_out:
        _send_answer(turn, pilot, waiting, answer_)
    elif dispatch.hungry(pilot):
        turn.state.queue.hungry[pilot.record.id] = None


def _compose(turn: Turn, pilot: Pilot, number: int) -> Answer:
    state, over = turn.state, turn.now >= pilot.until
    attempts = dispatch.take(turn, pilot) if not over else []
    bodies: list[Body] = []
    forgotten: list[int] = [*pilot.unneeded]
    tasks: list[Task] = []
    sent: list[Attempt] = []
    for attempt in attempts:
        bag = state.bags[attempt.bag]
        needs = len(bag.body.needs)
        try:
            task = _task(turn, pilot, bag, attempt)
        except Exception as error:  # it must not stop the tasks of other bags
            if not bag.quarantine.reason:
                quarantine.impose(turn, bag, suspect("its tasks cannot be sent", error))
            ends.take_back_unsent(turn, bag, attempt)
            continue
        if task is None:
            continue
        if pilot.bodies.get(attempt.bag) != needs:  # the body is new to it, or has grown since
            forgotten += make_room(pilot)
            pilot.bodies[attempt.bag] = needs
            bodies.append(bag.body)
        tasks.append(task)
        sent.append(attempt)
    cancels, pilot.cancels = pilot.cancels, []
    recalls, pilot.recalls = pilot.recalls, []
    return Answer(  # by place: with names it would take a microsecond more
        state.epoch,
        number,
        bodies,
        tasks,
        [held(attempt) for attempt in cancels] if cancels else [],
        [held(attempt) for attempt in recalls] if recalls else [],
        False,
        0,
        over or (state.draining and not _stays(turn, pilot)),
        _follow(turn, pilot),
        receipts.write(state.settings.receipt_key, pilot.record.key, sent),
        forgotten,
    )


def _task(turn: Turn, pilot: Pilot, bag: Bag, attempt: Attempt) -> Task | None:
    """The attempt as it is sent; None if one of the task's own input files does not exist."""
    values, class_ = bag.values(attempt.task), bag.classes[attempt.kind]
    failures, own = bag.failures, bag.inputs
    if not (failures.raised or failures.short or failures.overtimes or own.filled or own.large):
        return Task(attempt.id.sequence, attempt.bag, attempt.task, values, class_.number)
    inputs: list[Input] = []
    for source, path, copy in own.filled:
        key = source(values, attempt.task, attempt.bag)
        blob = bag.spec.manifest.get(key)
        if blob is None:
            message = f"its input {key} did not exist when the bag was submitted"
            ends.give_up_unsent(turn, bag, attempt, message)
            return None
        name = path(values, attempt.task, attempt.bag)
        inputs.append(Input(name, blob.digest, blob.size, blob.executable, copy))
    call = bag.call_file(attempt.task)
    if call is not None:
        inputs.append(Input(CALL_FILE, call.digest, call.size))
    memory_mb, seconds = limits(bag, attempt.task, class_.need, pilot.record)
    if seconds:  # more than usual, but no more than the pilot has left
        seconds = min(seconds, max(class_.need.limit_seconds, pilot.until - turn.now))
    return Task(
        attempt.id.sequence,
        attempt.bag,
        attempt.task,
        values,
        class_.number,
        memory_mb,
        seconds,
        inputs,
    )


def _follow(turn: Turn, pilot: Pilot) -> list[Followed] | None:
    """The tasks that the pilot is to follow from now on; None if they have not changed."""
    if not turn.state.queue.followed and not pilot.following:
        return None
    bags = {attempt.bag for attempt in pilot.attempts.values()}
    wanted = tuple(followed for followed in turn.state.queue.followed if followed.bag in bags)
    if wanted == pilot.following:
        return None
    pilot.following = wanted
    return list(wanted)


def follow(turn: Turn, id_: BagId, task: int) -> None:
    """Somebody watches: tell the pilots that have tasks of this bag."""
    followed = Followed(id_, task)
    known = followed in turn.state.queue.followed
    turn.state.queue.followed[followed] = turn.now + FOLLOW_SECONDS
    if not known:
        _tell_followers(turn, id_)


def _tell_followers(turn: Turn, id_: BagId) -> None:
    bag = turn.state.bags.get(id_)
    for attempts in bag.places.live.values() if bag is not None else ():
        for attempt in attempts:
            turn.state.queue.signalled[attempt.pilot] = None


def _send_answer(turn: Turn, pilot: Pilot, waiting: Waiting, answer_: Answer) -> None:
    pilot.waiting.pop(waiting.number)
    pilot.answers[waiting.number] = answer_
    pilot.unneeded.clear()  # the answer names these bags
    if not pilot.waiting:
        turn.state.queue.hungry.pop(pilot.record.id, None)
    if waiting.request is not None:
        turn.reply(waiting.request, answer_)


def held(attempt: Attempt) -> Held:
    return Held(attempt.id.epoch, attempt.id.sequence, attempt.bag, attempt.task)


def dismiss(turn: Turn, request: RequestId, id_: PilotId) -> None:
    """The pilot gets no more tasks, and leaves when those that it runs have ended."""
    pilot = turn.state.pilots.get(id_)
    if pilot is None:
        turn.refuse(
            request, Problem.NOT_FOUND, f"there is no pilot {id_}; 'covey pilots' shows them"
        )
        return
    pilot.until = turn.now
    turn.note(Note("pilot dismissed", pilot=id_))
    turn.state.queue.signalled[id_] = None
    turn.when_durable(Replying(request, Done(1)))


def leave(turn: Turn, request: RequestId, leave_: Leave) -> None:
    pilot = turn.state.pilots.get(PilotId(leave_.pilot))
    if pilot is None:
        turn.refuse(request, Problem.UNKNOWN_PILOT, f"this server has no pilot {leave_.pilot}")
        return
    reason = leave_.reason[: site_table.MOST_WORDS]  # it is recorded with each lost attempt
    if leave_.holds_nothing:
        ends.take_back(turn, pilot)
        recovery.heard(turn, pilot.record.id)
    ends.lose(turn, pilot, f"its pilot left: {reason}")
    remove(turn, pilot, PilotStatus.LEFT, reason)
    site_table.left(turn, pilot.record, pilot.last > 0, reason)
    turn.when_durable(Replying(request, Left(turn.state.epoch)))


def remove(turn: Turn, pilot: Pilot, status: PilotStatus, reason: str) -> None:
    """Forget a pilot that will not be heard again. Its attempts must have been settled before."""
    state, id_ = turn.state, pilot.record.id
    pilot.status = step(pilot.status, status)
    turn.note(Note(f"pilot {status}", pilot=id_, detail=reason))
    for waiting in pilot.waiting.values():
        if waiting.request is not None:
            turn.refuse(waiting.request, Problem.UNKNOWN_PILOT, reason)
    state.pilots.pop(id_)
    job_secrets.left(state, pilot.record, turn.now)
    host_history.host_of(state, pilot.record).pilots.pop(id_, None)
    state.arrivals.keys.pop(pilot.record.key, None)
    _forget_in_queues(turn, id_)
    recovery.save_departure(turn, SavePilotStatus(id_, status, turn.now, reason))


def lost(turn: Turn, pilot: Pilot, reason: str) -> None:
    """The pilot was silent for too long. Its tasks go elsewhere; it may still come back."""
    ends.lose(turn, pilot, reason)
    pilot.status = step(pilot.status, PilotStatus.LOST)
    pilot.resync = True
    turn.note(Note("pilot lost", pilot=pilot.record.id, detail=reason))
    for waiting in pilot.waiting.values():
        waiting.request = None
    _forget_in_queues(turn, pilot.record.id)
    change = SavePilotStatus(pilot.record.id, PilotStatus.LOST, turn.now, reason)
    recovery.save_departure(turn, change)


def _forget_in_queues(turn: Turn, id_: PilotId) -> None:
    turn.state.queue.remove(id_)
    recovery.heard(turn, id_, gone=True)


def dropped(turn: Turn, request: RequestId, id_: PilotId) -> None:
    """The connection of a waiting sync was closed: the pilot is only suspected."""
    pilot = turn.state.pilots.get(id_)
    if pilot is None:
        return
    for waiting in pilot.waiting.values():
        if waiting.request == request:
            waiting.request = None
            turn.state.queue.hungry.pop(id_, None)
            if pilot.status is PilotStatus.ACTIVE:
                pilot.status = step(pilot.status, PilotStatus.SUSPECTED)


def tick(turn: Turn) -> None:
    """End parked syncs and leases that have timed out. Time during which the server itself stood
    still does not count: it could not hear any pilot."""
    state = turn.state
    gap = turn.now - state.ticked
    state.ticked = turn.now
    settings = state.settings
    for unwatched in [task for task, until in state.queue.followed.items() if turn.now > until]:
        del state.queue.followed[unwatched]
        _tell_followers(turn, BagId(unwatched.bag))
    if gap > 5.0:
        for pilot in state.pilots.values():
            pilot.heard = min(pilot.heard + gap, turn.now)
        for bag in state.bags.values():
            bag.progress.heard += gap
    if turn.now < state.queue.look_at:
        return
    # One pass over all pilots: there may be thousands, and for most of them nothing is due. What
    # comes later is due later, so no pass is needed before the first that was seen.
    overdue, quiet = turn.now - settings.poll_seconds, turn.now - settings.lease_seconds
    late: list[tuple[Pilot, Waiting]] = []
    silent: list[Pilot] = []
    parked = heard = turn.now  # the earliest
    for pilot in state.pilots.values():
        for waiting in pilot.waiting.values():
            if waiting.since <= overdue and not waiting.after:
                late.append((pilot, waiting))
            elif waiting.since < parked:
                parked = waiting.since
        if pilot.heard < quiet:
            silent.append(pilot)
        elif pilot.heard < heard:
            heard = pilot.heard
    state.queue.look_at = min(parked + settings.poll_seconds, heard + settings.lease_seconds)
    for pilot, waiting in late:
        _answer_or_park(turn, pilot, waiting)
    for pilot in silent:
        _end_silence(turn, pilot)


def _end_silence(turn: Turn, pilot: Pilot) -> None:
    seconds = turn.now - pilot.heard
    if pilot.status is not PilotStatus.LOST:
        lost(turn, pilot, f"not heard for {seconds:.0f} s")
    elif seconds > FORGET_SECONDS:
        remove(turn, pilot, PilotStatus.LEFT, "lost, and never came back")
