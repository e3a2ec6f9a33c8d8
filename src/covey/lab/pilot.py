"""A pilot of the lab. It is as simple as possible, so that a day of a thousand hosts takes seconds.

It keeps the rules of `covey.pilot.protocol.messages`, on a network that loses nothing and keeps the
order: it enrols, reports ends at once, and has a sync parked while it has a free slot. With
`connected` in the world file, it has a sync parked while it is busy, too. Without, it hears of
cancellations only with its next report, as BOINC's clients do. Tasks are long here, so it
prefetches nothing.
"""

from collections import deque
from functools import partial
from random import Random

from msgspec import Struct

from covey.core.record.events import PilotEnrolled, PilotLeft, RequestDropped, SyncReceived
from covey.core.record.model import PilotId, RequestId
from covey.lab.server import LabServer
from covey.lab.worldfile import SitePart
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
    def __init__(
        self, server: LabServer, site: SitePart, machine: Machine, key: str, random: Random
    ) -> None:
        self.machine = machine
        self.alive = True
        self._server = server
        self._clock = server.clock
        self._site = site
        self._random = random
        self._id = 0
        self._epoch = 0
        self._number = 0
        self._received = 0
        self._open: dict[RequestId, None] = {}  # requests without an answer
        self._waiting: deque[Task] = deque()
        self._running: dict[int, tuple[Task, float]] = {}  # by sequence: the task, and its start
        enrol = Enrol(key, machine.name, site.slots, site.name)
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
        elif isinstance(message, Answer):
            self._received = message.number
            self._take(message)
        self._ask()

    def _ask(self) -> None:
        """Park a sync if there is a free slot, or if busy pilots stay connected."""
        busy = len(self._running) + len(self._waiting) >= self._site.slots
        if not self._open and (self._server.part.connected or not busy):
            self._send([])

    def _send(self, ends: list[End]) -> None:
        self._number += 1
        request = self._server.request(self)
        self._open[request] = None
        received = self._received
        sync = Sync(self._id, self._epoch, self._number, received, self._site.slots, ends)
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
                task, since = self._running.pop(held.sequence)
                self._report(task, CANCELLED, self._clock.time - since)
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
        while self._waiting and len(self._running) < self._site.slots:
            task = self._waiting.popleft()
            self._running[task.sequence] = (task, self._clock.time)
            seconds, outcome = self._fate(task)
            self._clock.after(seconds, partial(self._end, task, outcome, seconds))

    def _fate(self, task: Task) -> tuple[float, str]:
        machine, site, random = self.machine, self._site, self._random
        if machine.black_hole:
            return site.black_hole_time.draw(random), FAILED
        seconds = self._server.task_seconds(task.bag, task.task) / machine.speed
        if site.stragglers and random.random() < site.stragglers:
            seconds *= site.slowdown.draw(random)
        if machine.failed and random.random() < machine.failed:
            return seconds * random.random(), FAILED
        return seconds, OK

    def _end(self, task: Task, outcome: str, seconds: float) -> None:
        if self.alive and task.sequence in self._running:
            del self._running[task.sequence]
            self._report(task, outcome, seconds)
            self._fill()

    def _report(self, task: Task, outcome: str, seconds: float) -> None:
        code = {OK: 0, FAILED: 1}.get(outcome, -1)
        end = End(self._epoch, task.sequence, task.bag, task.task, outcome, code)
        self._send([end._replace(wall_seconds=seconds, cpu_seconds=seconds)])

    # -- the end -------------------------------------------------------------------------------

    def vanish(self) -> None:
        """The pilot is killed, and its connections close. The server gives it up when its lease is
        over. Here the lab reports that; a real server notices that the pilot is silent."""
        self.alive = False
        if self._id:
            for request in self._open:
                self._server.handle(RequestDropped(request, PilotId(self._id)))
            self._clock.after(self._server.part.lease, self._give_up)

    def _give_up(self) -> None:
        leave = Leave(self._id, self._epoch, "not heard for too long")
        self._server.handle(PilotLeft(self._server.request(self), leave))
