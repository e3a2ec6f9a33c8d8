"""The loop inside a slot process: one task at a time, from order to outcome.

The rule: this process has one thread, never handles a signal asynchronously (see ``slot_signals``),
and waits in one place only, ``slot_signals.wait``, where the end of the task, a message of the
pilot and a deadline all arrive. Orders are numbered 1, 2, 3, … and taken in that order, so "stop
number 7" means the same whether 7 has ended, runs, waits here or has not arrived: no race matters.

If the pilot is gone (its end of a socket is closed) or the keeper is gone (the parent process; see
``keeper``), the slot kills the task and all its processes, removes its files, and exits.

Outcomes are collected for a few milliseconds while more orders wait, so that short tasks do not
wake the pilot each time; a task that runs longer does not delay them.

``workspace`` has what is done for a task before and after it runs, ``call_worker`` what is
different for calls.
"""

import errno
import os
import signal
import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Set, Tuple

from covey.pilot.calls.call_worker import CallWorker
from covey.pilot.files.inputs import InputRefused
from covey.pilot.files.outputs import Unfit
from covey.pilot.slots import outcomes, process_tree, slot_signals, spawn
from covey.pilot.slots.current_task import INSPECT_SECONDS, CurrentTask
from covey.pilot.slots.orders import Outcome, Plan, ValueSocket
from covey.pilot.slots.shared_page import SharedPage
from covey.pilot.slots.workspace import (
    GivenOrder,
    Recipe,
    SlotSettings,
    Unready,
    Workspace,
    attempt,
)

CANCEL, RECALL = 0, 1  # the verbs on the control socket, each with the number of an order
PLAN, FORGET = 0, -1  # instead of an order's number: this is a plan, or the end of one
MORE = None  # "send the rest of that order": only half of it is here, and the slot is idle

_PACE_SECONDS = 0.04  # between reports, while orders wait here
_MANY = 64  # so many outcomes are reported at once, because calls may be very short
_LOOK_SECONDS = 0.005
_KEEPER_SECONDS = 0.05  # between checks that the keeper lives, while other signals come
_STUCK_SECONDS = 0.05  # until we write again to a pilot that does not read
_UNSENT_BYTES = 1 << 20  # if more than this is unsent, no further task is started
_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 0.0)  # 0.0: give up
_CHECK_SECONDS = 60.0


class Gone(Exception):
    """Nobody needs this slot any more."""


class Unwanted(Exception):
    """Nobody needs this order any more."""


class Slot:
    def __init__(
        self,
        index: int,
        settings: SlotSettings,
        orders: ValueSocket,
        control: ValueSocket,
        page: SharedPage,
    ) -> None:
        self.index = index
        self.settings = settings
        self.orders = orders
        self.control = control
        self.page = page
        self.keeper = os.getppid()
        self.adopting = process_tree.become_subreaper()
        self.offspring = process_tree.Offspring()
        spawn.prepare()
        self.workspace = Workspace(settings, index)
        self.plans: Dict[int, Recipe] = {}
        self.waiting: Deque[GivenOrder] = deque()
        self.dropped: Set[int] = set()
        self.last = 0  # the largest number of an order that is over
        self.task: Optional[CurrentTask] = None
        self.started = 0.0  # when we last tried to start a process
        self.call_worker = CallWorker(self)
        self.done: List[Tuple[int, Tuple[Any, ...]]] = []
        self.done_since = 0.0
        self.look_at = self.keeper_at = 0.0
        self.watched = [control.fileno(), orders.fileno()]

    def serve(self) -> None:
        """Run orders until Gone; then nothing of this slot is left."""
        try:
            slot_signals.signal_input(self.control.fileno())
            self.look()
            # However long that takes: a full disk is not a reason to end.
            while not self.workspace.open():
                self._pause(1.0)
            self.watched += self.workspace.tags.watched()
            while True:
                self._run(self._next())
        except Gone:
            pass
        finally:
            process_tree.kill_all_children()
            self.workspace.remove(self.control.closed or self.orders.closed)

    # Messages of the pilot

    def look(self) -> None:
        """Read the control socket. Raises Gone."""
        for verb, number in self.control.receive():
            self.call_worker.take_back(number)
            if number <= self.last and not self._has(number):
                continue
            if self.task is None or number != self.task.order.number:
                self._drop(number)
            elif verb == CANCEL:
                self.stop(self.task, "cancelled")
        if self.control.closed or self.orders.closed:
            raise Gone

    def _has(self, number: int) -> bool:
        """Whether the order waits or is with the worker: numbers of calls may end out of order."""
        out = self.call_worker.out
        return any(order.number == number for order in (*out, *self.waiting))

    def _drop(self, number: int) -> None:
        """Give back a waiting order at once. Remember the number if the order has not arrived, or
        is about to start."""
        self.fetch()
        for order in self.waiting:
            if order.number == number:
                self.waiting.remove(order)
                self._report(number, Outcome(order.key, "returned"))
                return
        self.dropped.add(number)

    def sleep(self, timeout: Optional[float]) -> int:
        """Wait for anything; returns the signal that came, or 0. Raises Gone."""
        number = slot_signals.wait(timeout, self.watched)
        if number not in (0, slot_signals.CHILD) and self._left(number):
            raise Gone
        return number

    def _left(self, number: int) -> bool:
        """Whether the keeper is gone or all must end; not checked at every signal of a socket."""
        now = time.monotonic()
        if number == slot_signals.INPUT and now < self.keeper_at:
            return False
        self.keeper_at = now + _KEEPER_SECONDS
        return os.getppid() != self.keeper or self.page.ending()

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.flush()
            most = _STUCK_SECONDS if self.orders.unsent else 60
            number = self.sleep(min(until - time.monotonic(), most))
            self.call_worker.idle(number)
            self.look()

    def _next(self) -> GivenOrder:
        while True:
            if self.call_worker.unwanted:
                self.call_worker.end_worker()
            # Not after every short task: waiting for its end looks, too.
            now = time.monotonic()
            if now >= self.look_at:
                self.look_at = now + _LOOK_SECONDS
                self.look()
            if not self.waiting:
                self.fetch()
            if self.waiting:
                order = self.waiting.popleft()
                if order.number not in self.dropped:
                    return order
                self.settle(order, Outcome(order.key, "returned"))
            else:
                self._idle()

    def fetch(self) -> None:
        for value in self.orders.receive():
            number = value[0]
            if number > 0:
                self.waiting.append(GivenOrder(number, value[1], self.plans[value[2]], *value[3:]))
            elif number == PLAN:
                self.plans[value[1]] = self.workspace.recipe(Plan(*value[1:]))
            else:
                self.call_worker.forget(self.plans.pop(value[1], None))

    def _idle(self) -> None:
        self.flush()
        slot_signals.signal_input(self.orders.fileno())
        try:
            # No signal came for what arrived before signals were switched on.
            self.fetch()
            while not self.waiting and not self.call_worker.unwanted:
                self.look()
                self.flush()
                if self.waiting:
                    return
                if self.orders.unread:
                    self.orders.send(MORE)
                number = self.sleep(_STUCK_SECONDS if self.orders.unsent else None)
                self.look_at = 0.0  # one signal may stand for both sockets
                self.call_worker.idle(number)
                self.fetch()
        finally:
            slot_signals.signal_input(self.orders.fileno(), False)

    # Outcomes

    def _report(self, number: int, outcome: Tuple[Any, ...]) -> None:
        now = time.monotonic()
        if not self.done:
            self.done_since = now
        self.done.append((number, tuple(outcome)))
        if now - self.done_since >= _PACE_SECONDS or len(self.done) >= _MANY:
            self.flush()

    def flush(self) -> None:
        if self.done:
            done, self.done = self.done, []
            self.orders.send(done)
        elif self.orders.unsent:
            self.orders.flush()

    def settle(self, order: GivenOrder, outcome: Tuple[Any, ...]) -> None:
        """Report the outcome of the order whose turn it was."""
        number = order.number
        if number > self.last:
            self.last = number
        if self.dropped:
            self.dropped.discard(number)
        self._report(number, outcome)

    # One task

    def _run(self, order: GivenOrder) -> None:
        if self.cramped() and not self._wait_for_room(order):
            self.settle(order, Outcome(order.key, "returned"))
            return
        if order.plan.calls:
            self.call_worker.run(order)
            return
        if self.call_worker.worker is not None:
            self.call_worker.end_worker()
        self.call_worker.catch_up()
        self.page.begin(self.index, order.number, 0)
        pid, failure = self.begin(order)
        outcome: Tuple[Any, ...]
        if pid:
            task = self._watch(order, pid, order.limit_seconds)
            if task.unexecuted:
                self.workspace.tidy()
                self._run(order)
                return
            outcome = self._finish(task)
        else:
            outcome = failure or Outcome(order.key, "returned")
        self.workspace.tidy()
        self.settle(order, outcome)

    def begin(self, order: GivenOrder) -> Tuple[int, Optional[Outcome]]:
        """Start the order's process. Returns its process id; or 0 and the outcome, which is None
        if nobody needs the order any more."""
        chdir = order.plan.chdir
        try:
            if order.links or order.outputs or not order.plan.bare:
                self.workspace.prepare(order, lambda: self._breathe(order))
            return self._start(order, order.argv), None
        except Unwanted:
            return 0, None
        except OSError as error:
            return 0, outcomes.unstarted(order.key, order.argv, chdir, error)
        except ValueError as error:
            wrong = OSError(errno.EINVAL, str(error))
            return 0, outcomes.unstarted(order.key, order.argv, chdir, wrong)
        except InputRefused as refused:
            return 0, outcomes.refused(order.key, str(refused))
        except Unready as unready:
            return 0, Outcome(order.key, "host", message=str(unready))

    def place(self, order: GivenOrder) -> Optional[Outcome]:
        """Place the files of one order for a worker that runs already. Returns the outcome of the
        order if that is impossible."""
        try:
            self.workspace.place(order.links, lambda: self._breathe(order))
        except Unwanted:
            return Outcome(order.key, "returned")
        except InputRefused as refused:
            return outcomes.refused(order.key, str(refused))
        except Unready as unready:
            return Outcome(order.key, "host", message=str(unready))
        return None

    def _breathe(self, order: GivenOrder) -> None:
        """Called during something long. Raises Gone and Unwanted."""
        self._listen()
        if order.number in self.dropped:
            raise Unwanted

    def _listen(self) -> None:
        """Report outcomes and read messages. Raises Gone."""
        self.flush()
        self.look()

    def _wait_for_room(self, order: GivenOrder) -> bool:
        """False if the order is no longer needed."""
        while True:
            self._pause(1.0 if not self.orders.unsent else _STUCK_SECONDS)
            if order.number in self.dropped:
                return False
            if not self.workspace.ready:
                self.workspace.open()
            if not self.cramped():
                return True

    def cramped(self) -> bool:
        """Whether no task should start now."""
        workspace = self.workspace
        return (
            not workspace.ready
            or len(self.orders.unsent) > _UNSENT_BYTES
            or workspace.space.short()
        )

    def _start(self, order: GivenOrder, argv: List[str]) -> int:
        """The process id; 0 if the order was dropped while the system could not fork."""
        if not argv:
            raise ValueError("no command")
        env = order.plan.environment(order.env)
        for seconds in _RETRY_SECONDS:
            self.started = time.monotonic()
            try:
                return self.workspace.start(order, argv, env)
            except OSError as error:
                if not seconds:
                    raise
                if self.workspace.commands.forget() and error.errno == errno.ENOENT:
                    continue  # the program may have moved
                if error.errno not in outcomes.HOST_ERRORS:
                    raise
                self._pause(seconds)
                if order.number in self.dropped:
                    return 0
        raise AssertionError("unreachable")

    # Running

    def _watch(self, order: GivenOrder, pid: int, limit_seconds: float) -> CurrentTask:
        """Wait until the process has ended and nothing of it is left."""
        task = self.task = CurrentTask(order, pid, limit_seconds, self.started)
        if order.memory_mb or order.disk_mb:
            self.inspect_soon(task)
        self.page.begin(self.index, order.number, pid)
        while True:
            number = self.sleep(self.until(task))
            # Even without a signal we look for the end now and then.
            if (number != slot_signals.INPUT or task.status is not None) and self.reap(task):
                break
            if number:
                self.look()
                self.workspace.tags.drain()
            self.keep_limits(task)
        self.task = None
        return task

    def inspect_soon(self, task: CurrentTask) -> None:
        """Plan the first look at a task that has just begun, if it has limits that we check."""
        workspace, order = self.workspace, task.order
        if order.memory_mb:
            task.inspect_at = task.started + workspace.memory.pause()
        if order.disk_mb:
            task.inspect_at = min(task.inspect_at, task.started + workspace.disk.pause())

    def until(self, task: CurrentTask) -> float:
        """Seconds until there is something to do even without a signal."""
        if self.orders.unsent:
            return _STUCK_SECONDS
        due = task.inspect_at
        end = task.kill_at or task.deadline
        if end and end < due:
            due = end
        if self.done and self.done_since + _PACE_SECONDS < due:
            due = self.done_since + _PACE_SECONDS
        return max(0.0, due - time.monotonic())

    def keep_limits(self, task: CurrentTask) -> None:
        now = time.monotonic()
        if now >= task.inspect_at:
            self._inspect(task, now)
            if self.task is not task:
                return  # it was a call that has just ended
        if task.deadline and not task.verdict and now >= task.deadline:
            self.stop(task, "timeout")
        if task.kill_at and now >= task.kill_at and task.status is None:
            process_tree.signal_task(task.pid, signal.SIGKILL)
            task.kill_at = now + 0.05  # once more: it may have forked meanwhile
        if self.orders.unsent or (self.done and now - self.done_since >= _PACE_SECONDS):
            self.flush()

    def _inspect(self, task: CurrentTask, now: float) -> None:
        """Check how much memory and disk the task uses, and how much it has printed."""
        workspace, order = self.workspace, task.order
        process_tree.resume(self.keeper)  # a task may have stopped it: see ``keeper``
        for output in workspace.outputs:
            output.relieve(order.plan.log_bytes)
        pause, over = INSPECT_SECONDS, ""
        if order.memory_mb:
            pause = workspace.memory.pause()
            if workspace.memory.over():
                over = outcomes.MEMORY
        if order.disk_mb and not over:
            if workspace.disk.over():
                over = outcomes.DISK
            pause = min(pause, workspace.disk.pause())
        if over and not task.kill_at:
            self.call_worker.take_back()
            if self.task is not task:
                return
            task.verdict = task.verdict or over
            task.kill_at = now  # without grace: other tasks need the space
        task.inspect_at = now + pause

    def stop(self, task: CurrentTask, verdict: str) -> None:
        if not task.verdict and task.status is None:
            task.verdict = verdict
            task.kill_at = time.monotonic() + self.settings.grace_seconds
            walled = self.settings.sandbox is not None
            process_tree.signal_task(task.pid, signal.SIGTERM, walled)
            # A stopped process cannot react.
            process_tree.signal_task(task.pid, signal.SIGCONT, walled)

    def reap(self, task: CurrentTask) -> bool:
        """Collect dead processes, including adopted ones. True if the task is over: then its
        remaining processes are ended here. In the common case (no child is left) that costs one
        call. After a task was asked to end, they get the same grace time as the task."""
        try:
            while True:
                pid, status, rusage = os.wait4(-1, os.WNOHANG)
                if pid == task.pid:
                    task.status = status
                    if status == spawn.UNEXECUTED and not task.verdict:
                        task.unexecuted = spawn.never_began()
                    if not self.adopting:
                        attempt(os.killpg, pid, signal.SIGKILL)
                if pid:
                    task.usage.count(rusage)
                    if task.status is not None and self.offspring.none():
                        return True
                elif task.status is None:
                    return False
                else:
                    break
        except ChildProcessError:
            return True
        if time.monotonic() < task.kill_at:
            return False
        if not process_tree.kill_all_children(task.usage, self._listen):
            self.workspace.has_survivors = True
        return True

    # Ending

    def _finish(self, task: CurrentTask) -> Tuple[Any, ...]:
        """The fields of the task's outcome."""
        wall_seconds = time.monotonic() - task.started
        order, usage, workspace = task.order, task.usage, self.workspace
        plan = order.plan
        kind, code, number, message = outcomes.judge(
            task.status, task.verdict, order.limit_seconds, plan.ok_codes
        )
        shortage = workspace.space.shortage() if kind == "failed" else ""
        out, out_bytes, end = workspace.outputs[0].take(plan.log_bytes)
        err, err_bytes, _ = workspace.outputs[1].take(plan.log_bytes)
        memory_kb = usage.memory_kb
        if order.memory_mb:
            over, memory_kb = workspace.memory.end(memory_kb, kind == "failed", err)
            if task.verdict == outcomes.MEMORY or (over and not task.verdict):
                kind, message = "memory", outcomes.over_memory(order.memory_mb, memory_kb)
        if order.disk_mb:
            workspace.disk.end()
        if task.verdict == outcomes.DISK:
            kind, message = "failed", workspace.disk.words()
        elif shortage and kind == "failed":
            kind, message = "host", "{}; {}".format(message, shortage)
        files: List[Any] = []
        if order.outputs or not plan.bare:
            kind, message, files = self._collect(order, kind, message)
        result, remark = workspace.take_result(end)
        if remark:
            message = "{}; {}".format(message, remark) if message else remark
        unkept = workspace.unkept(order, self._listen) if kind == "ok" else ()
        return (
            order.key, kind, code, number, wall_seconds, usage.cpu_seconds, memory_kb,
            task.started, out, err, out_bytes, err_bytes, message, result, workspace.tags.take(),
            files, unkept,
        )  # fmt: skip

    def _collect(self, order: GivenOrder, kind: str, message: str) -> Tuple[str, str, List[Any]]:
        """Check the task's files and take those to return. A task that failed returns only its
        optional outputs, to help people find the reason."""
        workspace = self.workspace
        if kind == "ok":
            try:
                if order.plan.check:
                    workspace.find(order, self._listen)  # a missing file is reported first
                    kind, message = self._check(order)
                if kind == "ok":
                    # The check may have changed everything, so search again.
                    return kind, message, workspace.take(order, True, self._listen)
            except (Unfit, OSError) as error:
                kind, message = _untaken(error)
        try:
            return kind, message, workspace.take(order, False, self._listen)
        except (Unfit, OSError) as error:
            if _untaken(error) != (kind, message):
                words = "{}; its optional outputs were not returned: {}"
                message = words.format(message or kind, error)
            return kind, message, []

    def _check(self, order: GivenOrder) -> Tuple[str, str]:
        """Run the plan's check; returns (kind, message) of the checked task."""
        try:
            pid = self._start(order, ["/bin/sh", "-c", order.plan.check])
        except (OSError, Unready) as error:
            return "host", "cannot start the check: {}".format(error)
        if not pid:
            return "cancelled", "cancelled"
        task = self._watch(order, pid, _CHECK_SECONDS)
        if task.unexecuted:
            return self._check(order)
        printed = b"".join(
            output.take(order.plan.log_bytes)[0] for output in self.workspace.outputs
        )
        if order.memory_mb:
            self.workspace.memory.end(0, False, b"")
        verdict = outcomes.judge(task.status, task.verdict, _CHECK_SECONDS, (0,))
        if verdict.kind in ("ok", "cancelled", "host"):
            return verdict.kind, verdict.message
        return "output", outcomes.check_failed(verdict, printed)


def _untaken(error: Exception) -> Tuple[str, str]:
    """(kind, message) of a task whose files are wrong or cannot be taken."""
    if isinstance(error, Unfit):
        return "output", str(error)
    return "host", "cannot take its outputs: {}".format(error)
