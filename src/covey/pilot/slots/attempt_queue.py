"""Attempts on their way from the pilot's state to a slot, when they are ready and fit, and back.

The rule: every attempt that the state has handed out comes back as exactly one end: when its slot
has finished and its files are at the server, or when it is impossible here.

There is one exception. A site ends a job by a signal to all of its processes, including tasks, and
a task may get it before the pilot does. So an attempt that fails after the pilot was asked to end
is not to blame: it is abandoned, and lost when the pilot leaves. If a task ends by such a signal
first, its outcome is held back for a moment.
"""

import signal
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from covey.pilot.files.readiness import Readiness
from covey.pilot.files.setups import Setups
from covey.pilot.files.uploads import Sent, Uploads
from covey.pilot.host.tags import HostTags
from covey.pilot.protocol.commands import Start
from covey.pilot.protocol.ended_attempts import size_of
from covey.pilot.protocol.held_attempts import Holding
from covey.pilot.protocol.message_limits import allowed_end
from covey.pilot.protocol.messages import (
    CANCELLED,
    FAILED,
    HOST,
    OUTPUT,
    RETURNED,
    Body,
    End,
    OutputFile,
    Task,
    Unkept,
)
from covey.pilot.protocol.pilot_state import PilotState
from covey.pilot.protocol.spool import Spool
from covey.pilot.protocol.thread_pool import started
from covey.pilot.slots.capacity import Ask, Capacity
from covey.pilot.slots.order_template import Template
from covey.pilot.slots.orders import Outcome
from covey.pilot.slots.slot_pool import Slots

SWEEP_SECONDS = 5.0
PLAN_SECONDS = 60.0  # a plan is kept for so long after its bag's last attempt
TIDY_SECONDS = 3600.0
DOUBT_SECONDS = 1.0  # a signal to all processes of a job reaches all of them within this time
ENDING = (signal.SIGTERM, signal.SIGINT)
SETUP_ASK = Ask()


class PilotParts(NamedTuple):
    """The parts of a pilot that attempts pass through. `environment` is what tasks inherit."""

    slots: Slots
    capacity: Capacity
    readiness: Readiness
    setups: Setups
    uploads: Uploads
    spool: Spool
    tags: HostTags
    environment: Dict[str, str]
    say: Callable[[str], None]


class Uploading(NamedTuple):
    end: End
    at: float


class AttemptQueue:
    def __init__(self, parts: PilotParts) -> None:
        self._parts = parts
        self._templates: Dict[int, Template] = {}
        self._used: Dict[int, float] = {}  # bag -> when it last had an attempt here
        self._stale: List[Tuple[int, int]] = []  # (bag, number) of plans that were replaced
        self._plans = 0
        self._setup_plans: Dict[str, Tuple[int, Body]] = {}
        self._uploading: Dict[str, Uploading] = {}
        self._chosen: Optional[Tuple[Template, Ask, str]] = None
        self._last: Optional[Tuple[Body, Task, List[OutputFile]]] = None
        self._sweep_at = self._tidy_at = 0.0
        self._doubtful: List[Tuple[float, Outcome]] = []  # outcomes held back, and until when
        self._draining = False
        self.leaving = False  # somebody has asked the pilot to end
        self.stopping = ""

    # -- what happens ----------------------------------------------------------------------

    def prepare(self, state: PilotState, start: Start, now: float) -> None:
        if start.key in state.unprepared:
            self._parts.readiness.prepare(start, now)
            self._sort(state, now)

    def turn(self, state: PilotState, now: float) -> None:
        """Take in what slots and threads have done, and fill the slots again."""
        for outcome in self._parts.slots.read():
            if outcome.kind == FAILED and not self.leaving and _told_to_end(outcome):
                self._doubtful.append((now + DOUBT_SECONDS, outcome))
            else:
                self._settle(state, outcome, now)
        if self._doubtful:
            self._clear_up(state, now)
        for sent in self._parts.uploads.sent():
            self._sent(state, sent, now)
        self._parts.readiness.turn(now)
        self._sort(state, now)
        self._check_disk(state, now)
        self.fill(state, now)
        if now >= self._sweep_at:
            self._sweep(state, now)

    def _check_disk(self, state: PilotState, now: float) -> None:
        """A host short of disk space takes no work, and gives back what cannot start."""
        shortage = self._parts.slots.shortage()
        if shortage or state.shortage:
            if bool(shortage) != bool(state.shortage):
                self._parts.say(shortage or "there is disk space again")
            state.short_of(shortage, now)

    def _clear_up(self, state: PilotState, now: float) -> None:
        doubtful, self._doubtful = self._doubtful, []
        for until, outcome in doubtful:
            if self.leaving or now >= until:
                self._settle(state, outcome, now)
            else:
                self._doubtful.append((until, outcome))

    def _settle(self, state: PilotState, outcome: Outcome, now: float) -> None:
        if outcome.key in self._setup_plans:
            self._setup_over(outcome, now)
        else:
            self._over(state, outcome, now)

    def wake_at(self, now: float) -> float:
        due = self._parts.readiness.wake_at(now)
        return min([due] + [until for until, _ in self._doubtful])

    def drain(self) -> None:
        """Nothing new may begin, so setups are not needed any more."""
        self._parts.readiness.to_run.clear()
        if not self._draining:
            self._draining = True
            for key in self._setup_plans:
                self._parts.slots.cancel(key)

    def stop(self, state: PilotState, reason: str, now: float) -> None:
        """End everything at once."""
        self.stopping = reason
        for key in list(state.holding):
            self._parts.slots.cancel(key)
        for key in self._parts.uploads.close():
            uploading = self._uploading.pop(key)
            words = "not all of its files reached the server: " + reason
            end = uploading.end._replace(outcome=HOST, message=words, files=[])
            self._finish(state, key, end, now, uploading.at)

    def busy(self) -> bool:
        """Whether something runs, or is about to."""
        return self._parts.capacity.count() > 0

    def uploading(self) -> bool:
        return bool(self._uploading)

    def note_last(self) -> None:
        """Update the tags about what the last task used and made."""
        if self._last is not None:
            body, task, files = self._last
            template = self._templates.get(task.bag)
            if template is not None:
                inputs = list(body.inputs) + list(task.inputs)
                argv = template.order("", task).argv or template.plan.calls
                self._parts.tags.ran(body.owner, argv, inputs, files)

    # -- to the slots ----------------------------------------------------------------------

    def fill(self, state: PilotState, now: float) -> None:
        parts = self._parts
        free = parts.slots.free() if not state.shortage else 0
        while free > 0 and parts.readiness.to_run:
            if not parts.capacity.admits(SETUP_ASK):
                return
            self._run_setup(parts.readiness.to_run.popleft())
            free -= 1
        while free > 0:
            start = state.next_start(self._fits)
            if start is None or self._chosen is None:
                return
            template, ask, problem = self._chosen
            if problem:
                self._refuse(state, start.key, HOST, problem, now)
                continue
            grant = parts.capacity.take(start.key, ask)
            task = start.task
            links = parts.readiness.links(start.body, task.inputs) if task.inputs else ()
            parts.slots.offer(template.order(start.key, task, grant, links))
            free -= 1

    def _fits(self, start: Start) -> bool:
        template = self._templates.get(start.body.bag)
        if template is None or template.body is not start.body:
            template = self._plan(start.body)
        ask = template.ask(start.task)
        if self._parts.capacity.admits(ask):
            self._chosen = (template, ask, "")
            return True
        problem = self._parts.capacity.never(ask)
        self._chosen = (template, ask, problem)
        return bool(problem)

    def _plan(self, body: Body) -> Template:
        parts, template_before = self._parts, self._templates.get(body.bag)
        if template_before is not None:
            if template_before.body == body:  # a new epoch sent it again
                template_before.body = body
                return template_before
            self._stale.append((body.bag, template_before.plan.number))
        self._plans += 1
        links = parts.readiness.links(body, body.inputs)
        setup = parts.setups.tree(body)
        template = Template(body, parts.environment, self._plans, links, setup)
        self._templates[body.bag] = template
        parts.slots.plan(template.plan)
        return template

    def _run_setup(self, body: Body) -> None:
        parts = self._parts
        self._plans += 1
        links = parts.readiness.links(body, body.inputs)
        parts.slots.plan(parts.setups.plan(body, self._plans, parts.environment, links))
        order = parts.setups.order(body, self._plans)
        parts.capacity.take(order.key, SETUP_ASK)
        self._setup_plans[order.key] = (self._plans, body)
        parts.slots.offer(order)

    # -- and back --------------------------------------------------------------------------

    def _sort(self, state: PilotState, now: float) -> None:
        """Take over what readiness has found out."""
        readiness = self._parts.readiness
        ready, readiness.ready = readiness.ready, []
        for key in ready:
            state.prepared(key)
        unable, readiness.unable = readiness.unable, []
        for attempt in unable:
            if attempt.key in state.holding:
                self._refuse(state, attempt.key, attempt.outcome, attempt.words, now)

    def _refuse(self, state: PilotState, key: str, outcome: str, words: str, now: float) -> None:
        holding = state.holding[key]
        task = holding.task
        self._parts.readiness.forget(key, holding.body)
        end = End(holding.epoch, task.sequence, task.bag, task.task, outcome, message=words)
        self._finish(state, key, end, now, now)

    def _setup_over(self, outcome: Outcome, now: float) -> None:
        number, body = self._setup_plans.pop(outcome.key)
        self._parts.capacity.give(outcome.key)
        self._parts.slots.forget(number)
        if self.leaving and outcome.kind == FAILED:
            outcome = outcome._replace(kind=CANCELLED)
        self._parts.readiness.setup_over(body, outcome, now)
        if outcome.kind != "ok":
            self._parts.say("the setup of bag %d: %s" % (body.bag, outcome.message or outcome.kind))

    def _over(self, state: PilotState, outcome: Outcome, now: float) -> None:
        parts, key = self._parts, outcome.key
        holding = state.holding[key]
        task = holding.task
        parts.capacity.give(key)
        if not holding.bare:
            parts.readiness.forget(key, holding.body)
        if (self.leaving or self.stopping) and self._is_cut(outcome):
            parts.say("attempt %s is abandoned: %s" % (key, outcome.message or outcome.kind))
            state.abandon(key)
            return
        # Slots and the pilot have the same clock, so the slot's times are exact.
        at = min(now, outcome.started + outcome.wall_seconds) if outcome.started else now
        end = _end(holding, outcome)
        if outcome.tags:
            words = parts.tags.wrote(holding.body.owner, outcome.tags)
            if words:
                message = "%s; %s" % (end.message, words) if end.message else words
                end = end._replace(message=message)
        if outcome.files:
            files = parts.uploads.put(key, outcome.files)
            if files is None:
                self._uploading[key] = Uploading(end, at)
                return
            end = end._replace(files=files)
        self._last = (holding.body, task, end.files)
        self._finish(state, key, end, now, at)

    def _is_cut(self, outcome: Outcome) -> bool:
        if outcome.kind == CANCELLED:
            return bool(self.stopping)
        return self.leaving and outcome.kind in (FAILED, OUTPUT)

    def _sent(self, state: PilotState, sent: Sent, now: float) -> None:
        uploading = self._uploading.pop(sent.key, None)
        if uploading is None:
            return  # the attempt was given up
        end = uploading.end
        if sent.problem:
            end = end._replace(outcome=OUTPUT, message=sent.problem)
        else:
            end = end._replace(files=sent.files)
        holding = state.holding[sent.key]
        self._last = (holding.body, holding.task, end.files)
        self._finish(state, sent.key, end, now, uploading.at)

    def _finish(self, state: PilotState, key: str, end: End, now: float, at: float) -> None:
        end = allowed_end(end)
        if state.away() and end.outcome != RETURNED:
            state.ended(key, self._parts.spool.put(end), now, at, size_of(end))
        else:
            state.ended(key, end, now, at)

    # -- tidying up ------------------------------------------------------------------------

    def _sweep(self, state: PilotState, now: float) -> None:
        self._sweep_at = now + SWEEP_SECONDS
        self._parts.readiness.sweep(state.holding)
        for holding in state.holding.values():
            self._used[holding.task.bag] = now
        self._stale = [plan for plan in self._stale if not self._forgotten(*plan, now=now)]
        for bag, template in list(self._templates.items()):
            if self._forgotten(bag, template.plan.number, now):
                del self._templates[bag]
        self._used = {bag: at for bag, at in self._used.items() if now - at < PLAN_SECONDS}
        if now >= self._tidy_at:
            begun = started(self._parts.setups.sweep, "tidy")
            self._tidy_at = now + (TIDY_SECONDS if begun else SWEEP_SECONDS)

    def _forgotten(self, bag: int, number: int, now: float) -> bool:
        """Let the slots forget a plan whose bag has had no attempt here for a while."""
        if now - self._used.setdefault(bag, now) < PLAN_SECONDS:
            return False
        self._parts.slots.forget(number)
        return True


def _end(holding: Holding, outcome: Outcome) -> End:
    """The attempt's end, without its files and the times that only the state knows."""
    sequence, bag, task = holding.task[:3]
    (
        _, kind, exit_code, signal, wall, cpu, memory_kb, _,
        stdout, stderr, stdout_bytes, stderr_bytes, message, result, _, _, unkept,
    ) = outcome  # fmt: skip
    return End(
        holding.epoch, sequence, bag, task, kind, exit_code, signal,
        0.0, round(wall, 6), round(cpu, 6), memory_kb, 0.0,
        stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"),
        stdout_bytes, stderr_bytes, message, result, [],
        Unkept(*unkept) if unkept else None,
    )  # fmt: skip


def _told_to_end(outcome: Outcome) -> bool:
    """Whether a signal that pilots obey, too, ended the task; shells report it as exit status."""
    return outcome.signal in ENDING or outcome.exit_code - 128 in ENDING
