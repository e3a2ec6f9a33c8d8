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
from covey.pilot.slots.shared_page import Board
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
        board: Board,
    ) -> None:
        self.index = index
        self.settings = settings
        self.orders = orders
        self.control = control
        self.board = board
        self.keeper = os.getppid()
        self.adopting = process_tree.become_subreaper()
        self.offspring = process_tree.Offspring()
        spawn.prepare()
        self.bench = Workspace(settings, index)
        self.plans: Dict[int, Recipe] = {}
        self.waiting: Deque[GivenOrder] = deque()
        self.dropped: Set[int] = set()
        self.last = 0  # the largest number of an order that is over
        self.task: Optional[CurrentTask] = None
        self.started = 0.0  # when we last tried to start a process
        self.caller = CallWorker(self)
        self.done: List[Tuple[int, Tuple[Any, ...]]] = []
        self.done_since = 0.0
        self.look_at = self.keeper_at = 0.0
        self.bells = [control.fileno(), orders.fileno()]

    def serve(self) -> None:
        """Run orders until Gone; then nothing of this slot is left."""
        try:
            slot_signals.ring(self.control.fileno())
            self.look()
            # However long that takes: a full disk is not a reason to end.
            while not self.bench.open():
                self._pause(1.0)
            self.bells += self.bench.tags.bells()
            while True:
                self._run(self._next())
        except Gone:
            pass
        finally:
            process_tree.kill_all_children()
            self.bench.remove(self.control.closed or self.orders.closed)

    # Messages of the pilot

    def look(self) -> None:
        """Read the control socket. Raises Gone."""
        for verb, number in self.control.receive():
            self.caller.hold(number)
            if number <= self.last and not self._has(number):
                continue
            if self.task is None or number != self.task.given.number:
                self._drop(number)
            elif verb == CANCEL:
                self.stop(self.task, "cancelled")
        if self.control.closed or self.orders.closed:
            raise Gone

    def _has(self, number: int) -> bool:
        """Whether the order waits or is with the worker: numbers of calls may end out of order."""
        out = self.caller.out
        return any(given.number == number for given in (*out, *self.waiting))

    def _drop(self, number: int) -> None:
        """Give back a waiting order at once. Remember the number if the order has not arrived, or
        is about to start."""
        self.fetch()
        for given in self.waiting:
            if given.number == number:
                self.waiting.remove(given)
                self._report(number, Outcome(given.key, "returned"))
                return
        self.dropped.add(number)

    def sleep(self, timeout: Optional[float]) -> int:
        """Wait for anything; returns the signal that came, or 0. Raises Gone."""
        number = slot_signals.wait(timeout, self.bells)
        if number not in (0, slot_signals.CHILD) and self._left(number):
            raise Gone
        return number

    def _left(self, number: int) -> bool:
        """Whether the keeper is gone or all must end; not checked at every signal of a socket."""
        now = time.monotonic()
        if number == slot_signals.RING and now < self.keeper_at:
            return False
        self.keeper_at = now + _KEEPER_SECONDS
        return os.getppid() != self.keeper or self.board.ending()

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.flush()
            most = _STUCK_SECONDS if self.orders.unsent else 60
            number = self.sleep(min(until - time.monotonic(), most))
            self.caller.idle(number)
            self.look()

    def _next(self) -> GivenOrder:
        while True:
            if self.caller.unwanted:
                self.caller.dismiss()
            # Not after every short task: waiting for its end looks, too.
            now = time.monotonic()
            if now >= self.look_at:
                self.look_at = now + _LOOK_SECONDS
                self.look()
            if not self.waiting:
                self.fetch()
            if self.waiting:
                given = self.waiting.popleft()
                if given.number not in self.dropped:
                    return given
                self.settle(given, Outcome(given.key, "returned"))
            else:
                self._idle()

    def fetch(self) -> None:
        for value in self.orders.receive():
            number = value[0]
            if number > 0:
                self.waiting.append(GivenOrder(number, value[1], self.plans[value[2]], *value[3:]))
            elif number == PLAN:
                self.plans[value[1]] = self.bench.recipe(Plan(*value[1:]))
            else:
                self.caller.forget(self.plans.pop(value[1], None))

    def _idle(self) -> None:
        self.flush()
        slot_signals.ring(self.orders.fileno())
        try:
            # No signal came for what arrived before signals were switched on.
            self.fetch()
            while not self.waiting and not self.caller.unwanted:
                self.look()
                self.flush()
                if self.waiting:
                    return
                if self.orders.unread:
                    self.orders.send(MORE)
                number = self.sleep(_STUCK_SECONDS if self.orders.unsent else None)
                self.look_at = 0.0  # one signal may stand for both sockets
                self.caller.idle(number)
                self.fetch()
        finally:
            slot_signals.ring(self.orders.fileno(), False)

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

    def settle(self, given: GivenOrder, outcome: Tuple[Any, ...]) -> None:
        """Report the outcome of the order whose turn it was."""
        number = given.number
        if number > self.last:
            self.last = number
        if self.dropped:
            self.dropped.discard(number)
        self._report(number, outcome)

    # One task

    def _run(self, given: GivenOrder) -> None:
        if self.cramped() and not self._wait_for_room(given):
            self.settle(given, Outcome(given.key, "returned"))
            return
        if given.plan.calls:
            self.caller.run(given)
            return
        if self.caller.worker is not None:
            self.caller.dismiss()
        self.caller.catch_up()
        self.board.begin(self.index, given.number, 0)
        pid, failure = self.begin(given)
        outcome: Tuple[Any, ...]
        if pid:
            task = self._watch(given, pid, given.limit_seconds)
            if task.unexecuted:
                self.bench.tidy()
                self._run(given)
                return
            outcome = self._finish(task)
        else:
            outcome = failure or Outcome(given.key, "returned")
        self.bench.tidy()
        self.settle(given, outcome)

    def begin(self, given: GivenOrder) -> Tuple[int, Optional[Outcome]]:
        """Start the order's process. Returns its process id; or 0 and the outcome, which is None
        if nobody needs the order any more."""
        chdir = given.plan.chdir
        try:
            if given.links or given.outputs or not given.plan.bare:
                self.bench.prepare(given, lambda: self._breathe(given))
            return self._start(given, given.argv), None
        except Unwanted:
            return 0, None
        except OSError as error:
            return 0, outcomes.unstarted(given.key, given.argv, chdir, error)
        except ValueError as error:
            wrong = OSError(errno.EINVAL, str(error))
            return 0, outcomes.unstarted(given.key, given.argv, chdir, wrong)
        except InputRefused as refused:
            return 0, outcomes.refused(given.key, str(refused))
        except Unready as unready:
            return 0, Outcome(given.key, "host", message=str(unready))

    def place(self, given: GivenOrder) -> Optional[Outcome]:
        """Place the files of one order for a worker that runs already. Returns the outcome of the
        order if that is impossible."""
        try:
            self.bench.place(given.links, lambda: self._breathe(given))
        except Unwanted:
            return Outcome(given.key, "returned")
        except InputRefused as refused:
            return outcomes.refused(given.key, str(refused))
        except Unready as unready:
            return Outcome(given.key, "host", message=str(unready))
        return None

    def _breathe(self, given: GivenOrder) -> None:
        """Called during something long. Raises Gone and Unwanted."""
        self._listen()
        if given.number in self.dropped:
            raise Unwanted

    def _listen(self) -> None:
        """Report outcomes and read messages. Raises Gone."""
        self.flush()
        self.look()

    def _wait_for_room(self, given: GivenOrder) -> bool:
        """False if the order is no longer needed."""
        while True:
            self._pause(1.0 if not self.orders.unsent else _STUCK_SECONDS)
            if given.number in self.dropped:
                return False
            if not self.bench.ready:
                self.bench.open()
            if not self.cramped():
                return True

    def cramped(self) -> bool:
        """Whether no task should start now."""
        bench = self.bench
        return not bench.ready or len(self.orders.unsent) > _UNSENT_BYTES or bench.space.short()

    def _start(self, given: GivenOrder, argv: List[str]) -> int:
        """The process id; 0 if the order was dropped while the system could not fork."""
        if not argv:
            raise ValueError("no command")
        env = given.plan.environment(given.env)
        for seconds in _RETRY_SECONDS:
            self.started = time.monotonic()
            try:
                return self.bench.start(given, argv, env)
            except OSError as error:
                if not seconds:
                    raise
                if self.bench.commands.forget() and error.errno == errno.ENOENT:
                    continue  # the program may have moved
                if error.errno not in outcomes.HOST_ERRORS:
                    raise
                self._pause(seconds)
                if given.number in self.dropped:
                    return 0
        raise AssertionError("unreachable")

    # Running

    def _watch(self, given: GivenOrder, pid: int, limit_seconds: float) -> CurrentTask:
        """Wait until the process has ended and nothing of it is left."""
        task = self.task = CurrentTask(given, pid, limit_seconds, self.started)
        if given.memory_mb or given.disk_mb:
            self.inspect_soon(task)
        self.board.begin(self.index, given.number, pid)
        while True:
            number = self.sleep(self.until(task))
            # Even without a signal we look for the end now and then.
            if (number != slot_signals.RING or task.status is not None) and self.reap(task):
                break
            if number:
                self.look()
                self.bench.tags.drain()
            self.mind(task)
        self.task = None
        return task

    def inspect_soon(self, task: CurrentTask) -> None:
        """Plan the first look at a task that has just begun, if it has limits that we check."""
        bench, given = self.bench, task.given
        if given.memory_mb:
            task.inspect_at = task.started + bench.memory.pause()
        if given.disk_mb:
            task.inspect_at = min(task.inspect_at, task.started + bench.disk.pause())

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

    def mind(self, task: CurrentTask) -> None:
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
        bench, given = self.bench, task.given
        process_tree.resume(self.keeper)  # a task may have stopped it: see ``keeper``
        for output in bench.outputs:
            output.relieve(given.plan.log_bytes)
        pause, over = INSPECT_SECONDS, ""
        if given.memory_mb:
            pause = bench.memory.pause()
            if bench.memory.over():
                over = outcomes.MEMORY
        if given.disk_mb and not over:
            if bench.disk.over():
                over = outcomes.DISK
            pause = min(pause, bench.disk.pause())
        if over and not task.kill_at:
            self.caller.hold()
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
            self.bench.haunted = True
        return True

    # Ending

    def _finish(self, task: CurrentTask) -> Tuple[Any, ...]:
        """The fields of the task's outcome."""
        wall_seconds = time.monotonic() - task.started
        given, usage, bench = task.given, task.usage, self.bench
        plan = given.plan
        kind, code, number, message = outcomes.judge(
            task.status, task.verdict, given.limit_seconds, plan.ok_codes
        )
        shortage = bench.space.shortage() if kind == "failed" else ""
        out, out_bytes, end = bench.outputs[0].take(plan.log_bytes)
        err, err_bytes, _ = bench.outputs[1].take(plan.log_bytes)
        memory_kb = usage.memory_kb
        if given.memory_mb:
            over, memory_kb = bench.memory.end(memory_kb, kind == "failed", err)
            if task.verdict == outcomes.MEMORY or (over and not task.verdict):
                kind, message = "memory", outcomes.over_memory(given.memory_mb, memory_kb)
        if given.disk_mb:
            bench.disk.end()
        if task.verdict == outcomes.DISK:
            kind, message = "failed", bench.disk.words()
        elif shortage and kind == "failed":
            kind, message = "host", "{}; {}".format(message, shortage)
        files: List[Any] = []
        if given.outputs or not plan.bare:
            kind, message, files = self._collect(given, kind, message)
        result, remark = bench.told(end)
        if remark:
            message = "{}; {}".format(message, remark) if message else remark
        unkept = bench.unkept(given, self._listen) if kind == "ok" else ()
        return (
            given.key, kind, code, number, wall_seconds, usage.cpu_seconds, memory_kb,
            task.started, out, err, out_bytes, err_bytes, message, result, bench.tags.take(), files,
            unkept,
        )  # fmt: skip

    def _collect(self, given: GivenOrder, kind: str, message: str) -> Tuple[str, str, List[Any]]:
        """Check the task's files and take those to return. A task that failed returns only its
        optional outputs, to help people find the reason."""
        bench = self.bench
        if kind == "ok":
            try:
                if given.plan.check:
                    bench.find(given, self._listen)  # a missing file is reported first
                    kind, message = self._check(given)
                if kind == "ok":
                    # The check may have changed everything, so search again.
                    return kind, message, bench.take(given, True, self._listen)
            except (Unfit, OSError) as error:
                kind, message = _untaken(error)
        try:
            return kind, message, bench.take(given, False, self._listen)
        except (Unfit, OSError) as error:
            if _untaken(error) != (kind, message):
                words = "{}; its optional outputs were not returned: {}"
                message = words.format(message or kind, error)
            return kind, message, []

    def _check(self, given: GivenOrder) -> Tuple[str, str]:
        """Run the plan's check; returns (kind, message) of the checked task."""
        try:
            pid = self._start(given, ["/bin/sh", "-c", given.plan.check])
        except (OSError, Unready) as error:
            return "host", "cannot start the check: {}".format(error)
        if not pid:
            return "cancelled", "cancelled"
        task = self._watch(given, pid, _CHECK_SECONDS)
        if task.unexecuted:
            return self._check(given)
        printed = b"".join(output.take(given.plan.log_bytes)[0] for output in self.bench.outputs)
        if given.memory_mb:
            self.bench.memory.end(0, False, b"")
        verdict = outcomes.judge(task.status, task.verdict, _CHECK_SECONDS, (0,))
        if verdict.kind in ("ok", "cancelled", "host"):
            return verdict.kind, verdict.message
        return "output", outcomes.check_failed(verdict, printed)


def _untaken(error: Exception) -> Tuple[str, str]:
    """(kind, message) of a task whose files are wrong or cannot be taken."""
    if isinstance(error, Unfit):
        return "output", str(error)
    return "host", "cannot take its outputs: {}".format(error)
