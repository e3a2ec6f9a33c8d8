"""A pilot of the lab. It is as simple as possible, so that a day of a thousand hosts takes seconds.

It keeps the rules of `covey.pilot.protocol.messages`, on a network that loses nothing and keeps the
order: it enrols, reports ends at once, and has a sync parked while it has a free slot. With
`connected` in the world file, it has a sync parked while it is busy, too, if any bag's policy may
stop a task or send some ahead: else nothing is said to busy pilots. Without `connected`, it hears
of cancellations only with its next report, as BOINC's clients do. Tasks are long here, so it
prefetches nothing.

The pilot of a site job goes home when the server says so, when it was idle for long, and when its
time at the site is nearly over.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from msgspec import Struct

from covey.core.record.events import PilotEnrolled, PilotLeft, RequestDropped, SyncReceived
from covey.core.record.model import PilotId, RequestId
from covey.lab.server import LabServer
from covey.lab.world_parts import SitePart
from covey.pilot.protocol.messages import (
    CANCELLED,
    FAILED,
    OK,
    RETURNED,
    Answer,
    End,
    Enrol,
    Enrolled,
    Held,
    Leave,
    Sync,
    Task,
)


class Machine(Struct, frozen=True, kw_only=True):
    name: str
    speed: float
    rate: float  # of preemption, per second
    failed: float  # share of its tasks that fail
    black_hole: bool
    latency: float


class LabPilot:
    """`job`: of the site job that became this pilot; then `gone` is called when it goes home."""

    def __init__(
        self,
        server: LabServer,
        site: SitePart,
        machine: Machine,
        key: str,
        random: Random,
        *,
        slots: int = 0,
        job: str = "",
        gone: Callable[[], None] = lambda: None,
    ) -> None:
        self.machine = machine
        self.alive = True
        self.slots = slots or site.slots
        self._server = server
        self._clock = server.clock
        self._site = site
        self._random = random
        self._gone = gone
        self._id = 0
        self._epoch = 0
        self._number = 0
        self._received = 0
        self._open: dict[RequestId, None] = {}  # requests without an answer
        self._waiting: deque[Task] = deque()
        self._running: dict[int, tuple[Task, float]] = {}  # by sequence: the task, and its start
        self._used = 0  # slots, by tasks that run
        self._fetched: set[int] = set()  # bags whose common files are here
        self._idle_seconds = 0.0  # after which it goes home; 0: it stays
        self._idle_since = 0.0
        self._minds_idleness = False
        self._leaves = False  # when its tasks have ended
        enrol = Enrol(key, machine.name, self.slots, site.name, job)
        self._clock.after(machine.latency, partial(self._enrol, enrol))

    # -- messages ------------------------------------------------------------------------------

    def _enrol(self, enrol: Enrol) -> None:
        if self.alive:
            request = self._server.request(self)
            self._open[request] = None
            self._server.handle(PilotEnrolled(request, enrol, "word", "digest"))

    def heard(self, request: RequestId, message: object) -> None:
        """The answer to one of its requests."""
        if not self.alive:
            return  # the message is lost with the pilot
        del self._open[request]
        if isinstance(message, Enrolled):
            self._id, self._epoch = message.pilot, message.epoch
            self._server.census.pilot_came(self.slots)
            if self._site.queue is not None:
                self._idle_seconds = message.idle_seconds
        elif isinstance(message, Answer):
            self._received = message.number
            self._leaves = self._leaves or message.leave
            self._take(message)
        self._ask()

    def _ask(self) -> None:
        """Park a sync if there is a free slot, or if the server may call busy pilots. Or go
        home."""
        tasks = len(self._running) + len(self._waiting)
        calls = self._server.calls_busy
        if not tasks and self._leaves:
            self.leave("it was sent home, or its time is nearly over")
        elif not self._open and (calls or self._used + len(self._waiting) < self.slots):
            self._send([])
            if not tasks and self._idle_seconds:
                self._mind_idleness()

    def _send(self, ends: list[End]) -> None:
        self._number += 1
        request = self._server.request(self)
        self._open[request] = None
        sync = Sync(self._id, self._epoch, self._number, self._received, self.slots, ends)
        self._clock.after(self.machine.latency, partial(self._arrive, SyncReceived(request, sync)))

    def _arrive(self, event: SyncReceived) -> None:
        if self.alive:
            self._server.handle(event)

    # -- tasks ---------------------------------------------------------------------------------

    def _take(self, answer: Answer) -> None:
        for held in answer.recalls:
            self._give_back(held)
        for held in answer.cancels:
            if held.sequence in self._running:
                task, since = self._stop_running(held.sequence)
                self._report(task, CANCELLED, max(0.0, self._clock.time - since))
            else:
                self._give_back(held)
        self._waiting.extend(answer.tasks)
        self._fill()

    def _give_back(self, held: Held) -> None:
        for task in self._waiting:
            if task.sequence == held.sequence:
                self._waiting.remove(task)
                self._report(task, RETURNED, 0.0)
                return

    def _fill(self) -> None:
        bags = self._server.bags
        while self._waiting:
            cores = bags[self._waiting[0].bag].cores
            if self._used + cores > self.slots:
                return
            task = self._waiting.popleft()
            self._used += cores
            staging, seconds, outcome = self._fate(task)
            self._running[task.sequence] = (task, self._clock.time + staging)
            self._server.census.task_began(cores)
            self._clock.after(staging + seconds, partial(self._end, task, outcome, seconds))

    def _fate(self, task: Task) -> tuple[float, float, str]:
        """Seconds before it runs, seconds that it runs, and how it ends."""
        machine, site, random = self.machine, self._site, self._random
        staging = site.overhead.draw(random) + self._transfer_seconds(task.bag)
        if machine.black_hole:
            return staging, site.black_hole_time.draw(random), FAILED
        seconds = self._server.task_seconds(task.bag, task.task) / machine.speed
        if site.stragglers and random.random() < site.stragglers:
            seconds *= site.slowdown.draw(random)
        if machine.failed and random.random() < machine.failed:
            return staging, seconds * random.random(), FAILED
        return staging, seconds, OK

    def _transfer_seconds(self, bag: int) -> float:
        rate = self._site.mb_per_second
        if not rate:
            return 0.0
        part = self._server.bags[bag]
        size = part.input_mb + part.output_mb
        if bag not in self._fetched:
            self._fetched.add(bag)
            size += part.common_mb
        return size / rate

    def _end(self, task: Task, outcome: str, seconds: float) -> None:
        if self.alive and task.sequence in self._running:
            self._stop_running(task.sequence)
            self._report(task, outcome, seconds)
            self._fill()

    def _stop_running(self, sequence: int) -> tuple[Task, float]:
        task, since = self._running.pop(sequence)
        cores = self._server.bags[task.bag].cores
        self._used -= cores
        self._server.census.task_ended(cores)
        return task, since

    def _report(self, task: Task, outcome: str, seconds: float) -> None:
        code = {OK: 0, FAILED: 1}.get(outcome, -1)
        end = End(self._epoch, task.sequence, task.bag, task.task, outcome, code)
        self._send([end._replace(wall_seconds=seconds, cpu_seconds=seconds)])

    # -- the end -------------------------------------------------------------------------------

    def _mind_idleness(self) -> None:
        self._idle_since = self._clock.time
        if not self._minds_idleness:
            self._minds_idleness = True
            self._clock.after(self._idle_seconds, self._look_at_idleness)

    def _look_at_idleness(self) -> None:
        self._minds_idleness = False
        if not self.alive or self._running or self._waiting:
            return
        left = self._idle_since + self._idle_seconds - self._clock.time
        if left <= 1e-6:
            self.leave("it was idle")
        else:
            self._minds_idleness = True
            self._clock.after(left, self._look_at_idleness)

    def retire(self) -> None:
        """Its time at the site is nearly over."""
        self._leaves = True
        if self.alive and self._id and not self._running and not self._waiting:
            self.leave("its time is nearly over")

    def leave(self, reason: str) -> None:
        """Say goodbye. What the server has just sent is not started."""
        self._stop()
        leave = Leave(self._id, self._epoch, reason, holds_nothing=True)
        self._server.handle(PilotLeft(self._server.request(self), leave))
        self._gone()

    def vanish(self) -> None:
        """The pilot is killed, and its connections close. The server gives it up when its lease is
        over. Here the lab reports that; a real server notices that the pilot is silent."""
        self._stop()
        if self._id:
            for request in self._open:
                self._server.handle(RequestDropped(request, PilotId(self._id)))
            self._clock.after(self._server.part.lease, self._give_up)

    def _stop(self) -> None:
        self.alive = False
        if self._id:
            self._server.census.pilot_went(self.slots, self._used)

    def _give_up(self) -> None:
        leave = Leave(self._id, self._epoch, "not heard for too long")
        self._server.handle(PilotLeft(self._server.request(self), leave))
