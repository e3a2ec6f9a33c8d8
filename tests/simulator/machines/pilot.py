"""A virtual pilot: the real pilot state between virtual slots and the virtual network.

It does what `covey.pilot.main` does, and notes in the ledger what its host really ran. Its slots
hold two orders each; an order that waits in one while another is idle moves there, so one shared
queue models them.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from msgspec import Struct, field

from covey.core.record.actions import Problem, Refuse
from covey.core.record.events import PilotEnrolled, PilotLeft, SyncReceived
from covey.core.record.model import PilotId, RequestId
from covey.lab.clock import Timeline
from covey.pilot.protocol.commands import Depart, EnrolAgain, Prepare, Recall, Send, Start, Stop
from covey.pilot.protocol.messages import (
    CANCELLED,
    HOST,
    RETURNED,
    Answer,
    End,
    Enrol,
    Enrolled,
    Leave,
    Sync,
)
from covey.pilot.protocol.pilot_state import PilotState
from tests.simulator.checkers.ledger import HostLife, Ledger, Run, Violation
from tests.simulator.checkers.promises import Judge
from tests.simulator.machines.network import Call, Failure, Network, Outcome
from tests.simulator.machines.server import digest
from tests.simulator.plan.faults import Misfortunes
from tests.simulator.plan.places import Place
from tests.simulator.plan.workload import Plan
from tests.simulator.trace import Trace

DEPTH = 2
ENROL_SECONDS = 30.0
WAIT_SECONDS = 2.0  # for which the server tells a pilot to wait if it has no room
SLACK_SECONDS = 15.0
GOODBYE_SECONDS = 3.0
DRAIN_SECONDS = 20.0
UNAVAILABLE = 0.02  # the share of attempts whose files cannot be fetched


class VirtualRun(Struct, eq=False):
    start: Start
    run: Run


class Surroundings(Struct, frozen=True):
    """What every pilot of a world shares."""

    clock: Timeline
    trace: Trace
    network: Network
    ledger: Ledger
    judge: Judge
    plan: Plan
    misfortunes: Misfortunes = field(default_factory=Misfortunes)


class SimPilot:
    """`over` is called once, when the process has ended. A pilot that does not work (its site's
    check fails) enrols and leaves."""

    def __init__(
        self,
        around: Surroundings,
        name: str,
        slots: int,
        job: str,
        over: Callable[[], None],
        owner: str = "",
        place: Place | None = None,
        works: bool = True,
    ) -> None:
        self.name = name
        self.place = place or Place(name)  # its host
        self.owner = owner  # whose tasks it runs; empty: anybody's
        self.slots = slots
        self.works = works
        self.job = job
        self.alive = True
        self.draining = False
        self.life = HostLife(name, self.place, slots, owner, job)
        self.running: dict[str, VirtualRun] = {}
        self.state: PilotState | None = None
        self._around = around
        self._over = over
        self._random = Random(f"{around.plan.seed}/{name}")
        self._waiting: deque[Start] = deque()
        self._unwanted: dict[str, None] = {}
        self._credential = ""
        self._credentials = 0
        self._timeout = ENROL_SECONDS
        self._tries = 0
        self._sent: dict[tuple[int, int], list[End]] = {}  # (pilot, sync number) -> its ends
        self._wake_at = 0.0
        self._killing = False
        self._leaving = False
        self.key = f"key of {name}"
        around.ledger.hosts[name] = around.ledger.by_key[self.key] = self.life
        self._enrol()

    # -- what happens to it ----------------------------------------------------------------

    def kill(self, *, requeued: bool = False) -> None:
        """kill -9: the pilot and all that it runs. Its site may start its job again."""
        if self.alive:
            self.alive = False
            self.life.died = self._around.clock.time
            self._around.trace.add(f"{self.name} is dead")
            if not requeued:
                self._over()

    def drain(self) -> None:
        """SIGTERM; after some time its tasks are ended too."""
        if self.state is None:
            self.kill()
        elif not self.draining:
            self.draining = True
            self.state.drain("asked to end", self._around.clock.time)
            self._around.clock.after(DRAIN_SECONDS, self._stop_all)
            self._around.clock.after(DRAIN_SECONDS + 2 * GOODBYE_SECONDS, self.kill)
            self._turn()

    def lose_slot(self) -> None:
        """The process of one slot dies with its task."""
        if self.alive and self.running:
            self._finish(self._random.choice(list(self.running)), HOST, -1)

    def idle(self) -> bool:
        state = self.state
        return state is None or not (state.holding or state.undelivered())

    # -- the loop --------------------------------------------------------------------------

    def _turn(self) -> None:
        state, clock = self.state, self._around.clock
        if not self.alive or state is None:
            return
        self._fill(state)
        for command in state.step(clock.time):
            match command:
                case Send():
                    self._sync(command)
                case Prepare(start):
                    clock.after(self._random.uniform(0.0, 2.0), partial(self._prepared, start))
                case Stop(key):
                    seconds = self._random.uniform(0.0, 0.3)  # a waiting order ends at once
                    seconds = seconds if key in self.running else 0.0
                    clock.after(seconds, partial(self._stop, key))
                case Recall(keys):
                    for key in keys:
                        clock.after(self._random.uniform(0.0, 0.1), partial(self._recall, key))
                case EnrolAgain():
                    self._enrol()
                case Depart(reason):
                    self._depart(state, reason)
        self._fill(state)
        self._sleep(state.wake_at(clock.time))

    def _sleep(self, until: float) -> None:
        now = self._around.clock.time
        if not now < self._wake_at <= until:
            self._wake_at = max(until, now + 0.001)
            self._around.clock.at(self._wake_at, self._wake)

    def _wake(self) -> None:
        if self._around.clock.time >= self._wake_at:
            self._turn()

    # -- the server ------------------------------------------------------------------------

    def _call(self, call: Call, timeout: float) -> None:
        self._around.network.call(call, timeout)

    def _enrol(self) -> None:
        if not self.alive:
            return
        place = self.place
        # Every simulated pilot has sandboxes; whether it is shared is its site's choice.
        tags, shared = place.tags, True
        enrol = Enrol(self.key, place.host, self.slots, place.site, self.job, tags, shared=shared)

        def make(request: RequestId) -> PilotEnrolled:
            self._credentials += 1
            credential = f"{self.name}/{self._credentials}"
            return PilotEnrolled(request, enrol, credential, digest(credential), self.owner)

        self._call(Call(self.name, "enrol", make, self._enrol_heard), ENROL_SECONDS)

    def _enrol_heard(self, outcome: Outcome) -> None:
        clock = self._around.clock
        if not self.alive:
            return
        match outcome:
            case Enrolled(pilot, credential, epoch, poll_seconds, _, idle_seconds):
                self._tries = 0
                self._credential = credential
                self._around.ledger.lives[pilot] = self.life
                self._timeout = poll_seconds + SLACK_SECONDS
                if self.state is None:
                    random = Random(f"{self._around.plan.seed}/{self.name}/brain")
                    self.state = PilotState(
                        pilot, epoch, self.slots, idle_seconds, random, clock.time
                    )
                else:
                    self.state.enrolled(pilot, epoch)
                if self.works:
                    self._turn()
                else:
                    self._depart(self.state, "the site's check failed")
            case Failure(_, delay):
                self._enrol_again(delay)
            case Refuse(_, Problem.TOO_MANY, _):  # its job was started again; nobody knows yet
                self._enrol_again(WAIT_SECONDS)
            case Refuse(_, Problem.SUPERSEDED | Problem.NOT_FOUND, _):
                self.kill()
            case _:
                raise AssertionError(f"{self.name} enrolled and heard {outcome}")

    def _enrol_again(self, delay: float) -> None:
        self._tries += 1
        backoff = min(0.1 * 2 ** min(self._tries, 10), 30.0)
        seconds = max(backoff * self._random.uniform(0.5, 1.0), delay)
        self._around.clock.after(seconds, self._enrol)

    def _sync(self, send: Send) -> None:
        sync = send.sync
        self._sent[sync.pilot, sync.number] = sync.ends
        call = Call(
            self.name,
            "sync",
            lambda request: SyncReceived(request, sync),
            lambda outcome: self._sync_heard(sync, send.attempt, outcome),
            PilotId(sync.pilot),
            self._credential,
        )
        self._call(call, self._timeout)

    def _sync_heard(self, sync: Sync, attempt: int, outcome: Outcome) -> None:
        state, now = self.state, self._around.clock.time
        if not self.alive or self._leaving or state is None:
            return
        match outcome:
            case Answer():
                self._note_acknowledged(sync, outcome)
                state.answered(sync.number, outcome, now)
            case Refuse(_, problem, _):
                if problem.value == "unknown-pilot":
                    self._around.judge.forgotten(self.life)
                state.refused(sync.number, attempt, problem.value, now)
            case Failure("unauthorized"):
                state.refused(sync.number, attempt, "unauthorized", now)
            case Failure(_, delay):
                state.failed(sync.number, attempt, now, delay)
            case _:
                raise AssertionError(f"{self.name} sent a sync and heard {outcome}")
        self._turn()

    def _note_acknowledged(self, sync: Sync, answer: Answer) -> None:
        judge = self._around.judge
        if not answer.resync:
            judge.acknowledged(sync.ends)
            return
        for (pilot, number), ends in self._sent.items():
            if pilot == sync.pilot and number <= answer.recorded:
                judge.acknowledged(ends)

    def _depart(self, state: PilotState, reason: str) -> None:
        self._leaving = True
        self._around.judge.departs(self.life)
        leave = Leave(state.pilot, state.epoch, reason, state.every_start_confirmed())
        call = Call(
            self.name,
            "leave",
            lambda request: self._left(request, leave),
            lambda _: self.kill(),
            PilotId(state.pilot),
            self._credential,
        )
        self._call(call, GOODBYE_SECONDS)

    def _left(self, request: RequestId, leave: Leave) -> PilotLeft:
        """The server hears it now. Attempts on their way to this pilot are never started."""
        if leave.holds_nothing:
            now, ledger = self._around.clock.time, self._around.ledger
            self.life.left_empty = now
            for key in [key for key, sent in ledger.live.items() if sent.life is self.life]:
                ledger.ended(key, RETURNED, now)
        return PilotLeft(request, leave)

    def _prepared(self, start: Start) -> None:
        """The attempt's files are here; now and then they cannot be fetched."""
        state = self.state
        if not self.alive or state is None or start.key not in state.unprepared:
            return
        if self._random.random() < UNAVAILABLE:
            self._report(state, start, HOST)
        else:
            state.prepared(start.key)
        self._turn()

    # -- the slots -------------------------------------------------------------------------

    def _fill(self, state: PilotState) -> None:
        while len(self.running) + len(self._waiting) < DEPTH * self.slots:
            start = state.next_start()
            if start is None:
                break
            self._waiting.append(start)
        while self._waiting and self._free() >= cores(self._waiting[0]):
            self._begin(self._waiting.popleft())

    def _free(self) -> int:
        return self.slots - sum(cores(running.start) for running in self.running.values())

    def _begin(self, start: Start) -> None:
        around, task = self._around, start.task
        epoch, _, sequence = start.key.partition(".")
        bag = int(start.body.argv[1])
        nth = around.ledger.started_count((task.bag, task.task))
        run = around.judge.started(
            self.life,
            (int(epoch), int(sequence)),
            (task.bag, task.task),
            list(task.values),
            around.clock.time,
        )
        if cores(start) > self.slots:
            raise Violation(f"{self.name} has {self.slots} slots, but got {start}")
        if self.owner not in ("", start.body.owner):
            raise Violation(f"{self.name} is {self.owner}'s, but got {start}")
        limit = task.limit_seconds or start.body.needs[task.need].limit_seconds
        script = around.plan.script(bag, task.task, nth, limit)
        script = around.misfortunes.bend(self.place.host, script, limit, around.clock.time)
        around.trace.add(f"{self.name} starts {start.key} = {task.bag}/{task.task}")
        self.running[start.key] = VirtualRun(start, run)
        finish = partial(self._finish_run, run, start.key, script.outcome, script.exit_code)
        around.clock.after(script.seconds, finish)

    def _finish_run(self, run: Run, key: str, outcome: str, exit_code: int) -> None:
        running = self.running.get(key)
        if running is not None and running.run is run:
            self._finish(key, outcome, exit_code)

    def _finish(self, key: str, outcome: str, exit_code: int) -> None:
        state, now = self.state, self._around.clock.time
        if not self.alive or state is None:
            return
        running = self.running.pop(key)
        running.run.ended, running.run.outcome = now, outcome
        self._around.trace.add(f"{self.name} ended {key}: {outcome}")
        self._report(state, running.start, outcome, exit_code, now - running.run.started)
        self._turn()

    def _report(
        self, state: PilotState, start: Start, outcome: str, exit_code: int = -1, wall: float = 0.0
    ) -> None:
        epoch, _, sequence = start.key.partition(".")
        end = End(
            int(epoch),
            int(sequence),
            start.task.bag,
            start.task.task,
            outcome,
            exit_code,
            wall_seconds=wall,
        )
        state.ended(start.key, end, self._around.clock.time)

    def _stop(self, key: str) -> None:
        if key in self.running:
            self._finish(key, HOST if self._killing else CANCELLED, -1)
        else:
            self._recall(key)

    def _recall(self, key: str) -> None:
        for start in self._waiting:
            if start.key == key and self.alive and self.state is not None:
                self._waiting.remove(start)
                self._report(self.state, start, RETURNED)
                self._turn()
                return

    def _stop_all(self) -> None:
        self._killing = True
        for start in list(self._waiting):
            self._recall(start.key)
        for key in list(self.running):
            self._stop(key)


def cores(start: Start) -> int:
    return start.body.needs[start.task.need].cores
