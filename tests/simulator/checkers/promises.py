"""Does covey keep its promises? Judged from outside: by hosts, messages and the record, not core.

- What is acknowledged is durable: submissions, ends, cancellations, pilots.
- An attempt id stands for one sending of one task, is started at most once, and has one row, which
  comes from the pilot that it was sent to.
- A task is started again only for a reason: every earlier start failed, or died with its host, or
  its host had been out of reach for the time of a lease (after a restart: of adoption), or its
  bag's policy wants it: its deadline has passed, or it has replicas. So a restart of the server
  repeats no running task. If the bag is not idempotent, only the task's own failure or its owner's
  wish is a reason.
- A task fails for good only after all its tries, and is not tried more often than allowed.
- Nothing is sent while a bag is paused, and no task is sent where it does not fit.
- One result counts per task, exactly one in a finished bag, and a success really happened.
- What is cancelled stops; what is not cancelled finishes once faults stop.
- Policies are kept, and what follows from them: see `policy_checks`.
- Sites are used as allowed and as needed: see `site_checks`.
"""

from covey.core.record.actions import Change, Note, RecordEnds, ReopenFailed
from covey.core.record.model import BagSpec, EndRecord, PolicySpec, Settings, Verdict
from covey.core.record.task_classes import needs_of
from covey.pilot.protocol.messages import (
    CANCELLED,
    FAILED,
    HOST,
    LOST,
    OK,
    RETURNED,
    TIMEOUT,
    Answer,
    End,
)
from covey.ports import Reader
from covey.wire import ResultQuery, ResultRow
from tests.simulator.checkers.ledger import HostLife, Ledger, Run, Sending, TaskKey, Violation
from tests.simulator.checkers.policy_checks import Police
from tests.simulator.checkers.site_checks import Supervisor
from tests.simulator.plan.workload import said_seconds

OWN_FAILURES = (FAILED, TIMEOUT)
FAILURES = (FAILED, TIMEOUT, CANCELLED, HOST)
LIAR = "liar"  # the pilot that claims attempts which it was never sent (`liar`)
NOBODYS = (0, 0)  # the attempt id of a task that may or may not have run
STOP_SECONDS = 90.0  # a cancelled bag must be quiet within this time, once nothing breaks


class Judge:
    def __init__(
        self, ledger: Ledger, settings: Settings, reader: Reader, supervisor: Supervisor
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._reader = reader
        self._police = Police(ledger, settings, reader, supervisor)
        self._supervisor = supervisor
        # Recorded since the last fresh start, by attempt.
        self._own_failures: dict[TaskKey, dict[str, str]] = {}
        self._given_up: dict[TaskKey, None] = {}

    # -- as it happens ---------------------------------------------------------------------

    def departs(self, life: HostLife) -> None:
        """A pilot takes leave: its job does not count against its site's limits any more."""
        self._supervisor.departs(life.job)

    def sent(self, pilot: int, answer: Answer, now: float, sender: str) -> None:
        """A server sends these attempts to a pilot (perhaps again)."""
        life = self._ledger.lives[pilot] = self._ledger.hosts[sender]
        decided = self._ledger.decided(pilot, answer.number, now)
        for task in answer.tasks:
            key, named = (answer.epoch, task.sequence), (task.bag, task.task)
            sending = Sending(key, named, pilot, answer.number, now, life, decided)
            first = self._ledger.sendings.setdefault(key, sending)
            same = (first.task, first.pilot, first.number)
            if same != (sending.task, pilot, answer.number):
                raise Violation(f"attempt {key} was sent as {same} and as {sending}")
            if first is sending and task.bag in self._ledger.cancelled:
                raise Violation(f"attempt {key} of cancelled bag {task.bag} was sent")
            notes = self._ledger.bags.get(task.bag)
            if first is sending and notes is not None and notes.status == "paused":
                raise Violation(f"attempt {key} of paused bag {task.bag} was sent")
            if first is sending and notes is not None:
                self._police.sent(sending, task.values)
                need = needs_of(notes.spec, notes.more)[task.need]
                expected = said_seconds(notes.spec, task.values)
                if expected and expected != need.limit_seconds:
                    raise Violation(f"attempt {key} was sent with {need}, not with {expected} s")
                self._supervisor.sent(sending, task.limit_seconds or need.limit_seconds)
                self._ledger.sent.setdefault(named, []).append(sending)

    def restarted(self) -> None:
        self._police.restarted()

    def noted(self, note: Note, now: float) -> None:
        self._police.noted(note, now)

    def calm(self, now: float, since: float) -> None:
        self._police.calm(now, since)

    def started(
        self, host: HostLife, key: tuple[int, int], task: TaskKey, values: list[object], now: float
    ) -> Run:
        ledger = self._ledger
        sending = ledger.sendings.get(key)
        if sending is None or sending.task != task or sum(map(_number, values)) != task[1]:
            raise Violation(f"{host.name} starts {key} for {task} {values}, sent was {sending}")
        if task[0] not in ledger.bags:
            raise Violation(f"{host.name} starts {key} of bag {task[0]}, which is not durable")
        if key in ledger.by_attempt:
            raise Violation(f"attempt {key} is started twice")
        run = Run(sending, host, now)
        earlier = ledger.runs.setdefault(task, [])
        for other in earlier:
            pair = (other, run) if other.sending.at <= sending.at else (run, other)
            self._check_repeat(*pair)
        self._check_tries(run, earlier)
        ledger.repeats += bool(earlier)
        earlier.append(run)
        ledger.by_attempt[key] = run
        return run

    def acknowledged(self, ends: list[End]) -> None:
        """A pilot got the acknowledgement of these ends."""
        for end in ends:
            self._ledger.acknowledged[end.epoch, end.sequence] = end
            self._check_recorded(end)

    def submission_acknowledged(self, spec: BagSpec, bag: int, total: int) -> None:
        acknowledged = self._ledger.submitted.setdefault(spec.key, bag)
        notes = self._ledger.bags.get(bag)
        if acknowledged != bag:
            raise Violation(f"{spec.key} was acknowledged as bag {acknowledged} and as bag {bag}")
        if notes is None or notes.spec != spec or notes.total < total:
            raise Violation(f"bag {bag} was acknowledged, but the record has {notes}")

    def append_acknowledged(self, bag: int, total: int) -> None:
        notes = self._ledger.bags[bag]
        if notes.total < total:
            raise Violation(f"bag {bag} was said to have {total} tasks, but has {notes.total}")

    def cancellation_acknowledged(self, bag: int, count: int, now: float) -> None:
        """`count` 0: there was nothing left to cancel (the owner may then retry failed tasks)."""
        status = self._ledger.bags[bag].status
        if count and status != "cancelled":
            raise Violation(f"bag {bag} was acknowledged as cancelled, but is {status}")
        if status == "cancelled":
            self._ledger.cancelled.setdefault(bag, now)

    def policy_acknowledged(self, bag: int, policy: PolicySpec, count: int, asked: float) -> None:
        """`count` 0: the bag is over and does not need a policy."""
        notes = self._ledger.bags[bag]
        if count and policy in self._ledger.nonsense.get(bag, ()):
            raise Violation(f"bag {bag} has taken {policy}, which is nonsense")
        durable = any(
            ruling.durable and ruling.policy == policy and ruling.until >= asked
            for ruling in notes.rulings
        )
        if count and not durable:
            raise Violation(f"{policy} of bag {bag} was acknowledged, but the record has another")

    def forgotten(self, host: HostLife) -> None:
        raise Violation(f"{host.name} had been enrolled, and is not known any more")

    def applied(self, change: Change, now: float) -> None:
        """This change has become durable."""
        match change:
            case RecordEnds(_, _, ends):
                for record in ends:
                    self._note_end(record, now)
            case ReopenFailed(bag, _, tasks):
                for task in [task for task in self._given_up if task[0] == bag]:
                    if tasks is None or task[1] in tasks:
                        if not self._ledger.is_wished_for(*task):
                            words = f"task {task[1]} of bag {bag} is tried again"
                            raise Violation(f"{words}, and nobody wished for it")
                        del self._given_up[task]
                        self._own_failures.pop(task, None)
            case _:
                pass
        self._police.applied(change, now)
        self._ledger.applied(change, now)

    def _note_end(self, record: EndRecord, now: float) -> None:
        task = (record.bag, record.task)
        key = (record.attempt.epoch, record.attempt.sequence)
        run = self._ledger.by_attempt.get(key)
        before = self._ledger.recorded.get(key, [])
        self._check_sender(record, key)
        if key != NOBODYS and any(outcome != LOST for outcome in before):  # a lost one may return
            raise Violation(f"{record} is recorded again, after {before}")
        if record.end.outcome in OWN_FAILURES:
            self._own_failures.setdefault(task, {})[str(record.attempt)] = record.end.outcome
        if record.verdict is Verdict.COUNTS and record.end.outcome != OK:
            self._given_up[task] = None
        if record.verdict is Verdict.REPLACES:
            self._given_up.pop(task, None)
        if key == NOBODYS and self._all_have_spoken(record.delivered):
            raise Violation(f"{record}, but every pilot has said that it does not have it")
        if record.end.outcome == LOST and run is not None and not self._excused(run, now):
            raise Violation(f"{_text(run)} is recorded as lost, but its pilot was there")

    def _all_have_spoken(self, at: float) -> bool:
        """Certainly every pilot that this server waited for has spoken to it, or has left without
        holding anything. With a pilot that lies about what it holds, nothing is certain."""
        if LIAR in self._ledger.hosts:
            return False
        restart = self._ledger.restarts[-1]
        return all(
            0.0 < life.gone <= restart
            or (restart < life.left_empty <= at and not self._was_silent(life, life.left_empty))
            or (not life.died and any(restart < sync < at for sync in life.full_syncs))
            for life in self._ledger.hosts.values()
            if life.contacts
        )

    def _was_silent(self, life: HostLife, until: float) -> bool:
        """Was it silent since the restart for so long that it may have been given up?"""
        return life.silent_for(self._settings.lease_seconds, self._ledger.restarts[-1], until)

    def _check_sender(self, record: EndRecord, key: tuple[int, int]) -> None:
        """Whoever reports the end of an attempt must have been sent it. Pilot 0 is the server. An
        attempt that is lost may have been decided on without ever being sent."""
        sending, life = self._ledger.sendings.get(key), self._ledger.lives.get(record.pilot)
        if not record.pilot or (sending is None and record.end.outcome == LOST):
            return
        if sending is None or sending.task != (record.bag, record.task) or sending.life is not life:
            who = life.name if life is not None else f"pilot {record.pilot}"
            raise Violation(f"{who} is believed of {key}, which it was never sent: {sending}")

    # -- repeats ---------------------------------------------------------------------------

    def _check_repeat(self, first: Run, second: Run) -> None:
        bag, at = first.sending.task[0], second.sending.at
        notes = self._ledger.bags[bag]
        if notes.spec.idempotent:
            if not self._excused(first, at) and not self._is_wanted(first, second):
                raise Violation(f"{_text(second)} repeats {_text(first)}")
            return
        wished = any(first.started < wish <= at for wish in self._ledger.retries.get(bag, ()))
        failed = first.outcome in OWN_FAILURES and first.ended <= at
        if not wished and not failed:
            raise Violation(f"{_text(second)} repeats {_text(first)}, which is not idempotent")

    def _is_wanted(self, first: Run, second: Run) -> bool:
        """Was the second attempt sent because of the first one's deadline, or beside it? True if
        that was allowed then (`policing`), or came from a server that is gone."""
        key = first.sending.key
        if key in second.sending.beside or first.sending.deadline <= second.sending.at:
            return True
        recorded = self._ledger.recorded_at.get(key, float("inf")) <= second.sending.at
        return second.sending.may_repeat and not recorded

    def _excused(self, run: Run, at: float) -> bool:
        """Was there a reason, at this time, to believe that this run would not succeed?"""
        host = run.host
        if run.outcome in FAILURES and run.ended <= at:
            return True
        return (0.0 < host.died <= at) or self._out_of_reach(run.sending, host, at)

    def _out_of_reach(self, sending: Sending, host: HostLife, at: float) -> bool:
        adopt = self._settings.adopt_seconds
        for restart in self._ledger.restarts:
            over = restart + adopt
            if sending.at < over <= at and host.unheard_between(restart, over):
                return True
        return host.silent_for(self._settings.lease_seconds, sending.at, at)

    def _check_tries(self, run: Run, earlier: list[Run]) -> None:
        bag = run.sending.task[0]
        spec = self._ledger.bags[bag].spec
        times = 1 + len(self._ledger.retries.get(bag, ()))
        failures = [
            other.outcome
            for other in earlier
            if other.outcome in OWN_FAILURES
            and other.ended <= run.sending.at
            and self._told_in_time(other)
            and not self._had_company(other.sending)
            and not self._out_of_reach(other.sending, other.host, run.sending.at)
        ]
        last = any(ruling.policy.failover_sites for ruling in self._ledger.bags[bag].rulings)
        last |= self._supervisor.has_reserves()
        overtimes = failures.count(TIMEOUT)
        others = len(failures) - overtimes
        most, most_overtimes = spec.retries + 1 + last, _overtimes(spec) + 1 + last
        if others >= most * times or overtimes >= most_overtimes * times:
            raise Violation(f"{_text(run)} after {failures}, of which so many are not allowed")

    def _had_company(self, failed: Sending) -> bool:
        """Did it end while another attempt of the task was out or decided on? Then it used up no
        chance."""
        known = self._ledger.known_at(failed.key)
        return any(
            other is not failed and other.decided < known <= self._ledger.known_at(other.key)
            for other in self._ledger.sent.get(failed.task, ())
        )

    def _told_in_time(self, run: Run) -> bool:
        """Is this failure in the record, not given up before, and did no server die before it was
        recorded? Otherwise the next server may have seen a newer attempt and given this one up."""
        key = run.sending.key
        if self._ledger.recorded.get(key, [LOST])[0] == LOST:
            return False
        recorded = self._ledger.recorded_at[key]
        return not any(run.ended <= restart <= recorded for restart in self._ledger.restarts)

    # -- in the end ------------------------------------------------------------------------

    def final(self, quiet_from: float) -> None:
        """`quiet_from`: the time of the last fault."""
        for end in self._ledger.acknowledged.values():
            self._check_recorded(end)
        for bag in self._ledger.submitted.values():
            self._check_bag(bag)
        for bag, at in self._ledger.cancelled.items():
            self._check_stopped(bag, max(at, quiet_from) + STOP_SECONDS)

    def _check_recorded(self, end: End) -> None:
        key = (end.epoch, end.sequence)
        if end.outcome != RETURNED and end.outcome not in self._ledger.recorded.get(key, ()):
            raise Violation(f"{end} was acknowledged, but is not in the record")

    def _check_bag(self, bag: int) -> None:
        view = self._reader.bag(bag)
        if view is None:
            raise Violation(f"acknowledged bag {bag} is not in the record")
        results = self._reader.results(bag, ResultQuery(limit=view.total + 1))
        tasks = [row.task for row in results]
        if len(tasks) != len(dict.fromkeys(tasks)) or any(not 0 <= t < view.total for t in tasks):
            raise Violation(f"bag {bag}: these results count: {tasks}")
        if view.status == "finished" and len(tasks) != view.total:
            raise Violation(f"bag {bag} is finished with {len(tasks)} of {view.total} results")
        good = sum(row.outcome == OK for row in results)
        if (view.done, view.failed) != (good, len(results) - good):
            raise Violation(f"bag {bag} shows {view}, but has {good} good of {len(results)}")
        for row in results:
            self._check_result(bag, row)

    def _check_result(self, bag: int, row: ResultRow) -> None:
        rows = self._reader.attempts(bag, row.task)
        if sum(row.counted for row in rows) != 1:
            raise Violation(f"not one result of task {row.task} of bag {bag} counts: {rows}")
        epoch, _, sequence = row.attempt.partition(".")
        key = (int(epoch), int(sequence))
        run = self._ledger.by_attempt.get(key)
        lost = LOST in self._ledger.recorded.get(key, ())
        unstarted = run is None and row.outcome == HOST  # its files could not be fetched
        if row.outcome != LOST and not unstarted and (run is None or run.outcome != row.outcome):
            raise Violation(f"{row} counts; what happened was {run and _text(run)}")
        if row.outcome == OK:
            return
        if any(other.outcome == OK for other in rows):
            raise Violation(f"task {row.task} of bag {bag} counts as failed, and succeeded: {rows}")
        spec = self._ledger.bags[bag].spec
        failures = list(self._own_failures.get((bag, row.task), {}).values())
        overtimes = failures.count(TIMEOUT)
        if row.outcome == TIMEOUT and not lost and overtimes <= _overtimes(spec):
            raise Violation(f"{row} is final after {overtimes} time limits")
        if row.outcome == FAILED and not lost and len(failures) - overtimes <= spec.retries:
            raise Violation(f"{row} is final after {failures}, of {spec.retries + 1} tries")
        if row.outcome in (LOST, HOST) and spec.idempotent:
            losses = sum(other.outcome in (LOST, HOST) for other in rows)
            if losses < self._settings.most_losses:
                raise Violation(f"{row} is final after {losses} losses of infrastructure")

    def _check_stopped(self, bag: int, deadline: float) -> None:
        for runs in self._ledger.runs.values():
            for run in runs:
                ended = run.ended or run.host.died or float("inf")
                if run.sending.task[0] == bag and ended > deadline:
                    raise Violation(f"{_text(run)} of cancelled bag {bag} did not stop")


def _overtimes(spec: BagSpec) -> int:
    return spec.overtimes if spec.idempotent else 0


def _number(value: object) -> int:
    assert isinstance(value, int | str)  # a call is text
    return int(value)


def _text(run: Run) -> str:
    epoch, sequence = run.sending.key
    bag, task = run.sending.task
    end = f"{run.outcome} at {run.ended:.2f}" if run.outcome else "running"
    return (
        f"attempt {epoch}.{sequence} of task {bag}/{task} on {run.host.name} "
        f"(sent {run.sending.at:.2f}, started {run.started:.2f}, {end})"
    )
