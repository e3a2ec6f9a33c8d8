"""The worker that a slot keeps for a bag of calls: start it, give it call after call, end it.

The rule: an order for a call gets exactly one outcome, as any other order does, whatever its worker
does (see ``call_records``). The slot waits in one place for the worker's answers, the worker's end,
messages of the pilot and deadlines. Between two calls nothing is created, removed or looked up, so
a call costs only a few system calls besides its own work.
"""

import binascii
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, List, Optional, Tuple

from covey.pilot.calls.call_records import (
    BY_FILE,
    CALLS,
    ERROR,
    FILE,
    HELLO,
    MOST_AHEAD,
    MOST_INLINE,
    QUEUE,
    REFUSE,
    REFUSED,
    START_SECONDS,
    VALUE,
)
from covey.pilot.calls.worker_process import Worker, queue
from covey.pilot.files.outputs import Unfit
from covey.pilot.slots import outcomes, process_tree, slot_signals
from covey.pilot.slots.current_task import CurrentTask
from covey.pilot.slots.orders import Outcome
from covey.pilot.slots.workspace import GivenOrder, Recipe
from covey.pilot.walls import resource_limits

if TYPE_CHECKING:
    from covey.pilot.slots.slot import Slot

Fields = Tuple[Any, ...]

_LONG_SECONDS = 0.05  # the memory of a call that took longer is measured when it ends
_MOST_WORDS = 2000  # characters of a message
_HUNG_UP_SECONDS = 0.5  # how long a worker may live after it closed its line
_STUCK_SECONDS = 0.05  # until we write again to a worker that does not read
_TAKE_SECONDS = 1.0  # how long an otherwise idle worker may leave a call in its queue
_MANY_AHEAD = 8  # with so many queued calls a worker need not signal each answer
_QUIET_SECONDS = 0.001  # how often we read the answers of a worker that does not signal
_LOOK_SECONDS = 0.001  # between looks at the pilot's socket while answers are signalled
_NOTHING: Fields = (b"", b"", 0, 0)  # no output


class CallWorker:
    def __init__(self, slot: "Slot") -> None:
        self._slot = slot
        self.worker: Optional[Worker] = None
        self.unwanted = False  # no more calls will come for our worker
        # The orders that our worker has, or gets when it has started. As far as we know it does the
        # first one now, which is the slot's task; the others wait in the queue.
        self.out: Deque[GivenOrder] = deque()
        self._call = b""  # the first call, until the worker has said hello
        self._steady = False  # answers keep coming, and the worker does not wait for us
        self._signalled = False  # a signal came since we last looked at the pilot's socket
        self._looked_at = 0.0

    def run(self, order: GivenOrder) -> None:
        """Do the call, and the calls behind it that fit into the queue; settle each. A call that
        must be tried again with another worker becomes the first of the waiting ones."""
        slot = self._slot
        large = order.call[:1] == BY_FILE
        if large and not order.links:
            words = "this call is large, but the server sent no file for it"
            slot.settle(order, outcomes.refused(order.key, words))
            return
        try:
            call = _named(order) if large else binascii.a2b_base64(order.call)
        except ValueError:
            slot.settle(order, outcomes.refused(order.key, "the call is not base64"))
            return
        worker = self.worker
        if worker is None or not worker.suits(order):
            self.end_worker()
            started = self._start_worker(order)
            if isinstance(started, Outcome):
                slot.workspace.tidy()
                slot.settle(order, started)
                return
            worker = started
        if large:
            self._do_large(order, call, worker)
        else:
            self._do(order, call, worker)

    def forget(self, plan: Optional[Recipe]) -> None:
        """The bag is over or paused: its worker is not needed any more."""
        if self.worker is not None and self.worker.order.plan is plan:
            self.unwanted = True

    def idle(self, number: int) -> None:
        """A slot without orders got this signal: our worker may have ended."""
        worker = self.worker
        if worker is None or number not in (slot_signals.CHILD, slot_signals.ANY):
            return
        if self._slot.reap(CurrentTask(worker.order, worker.pid, 0.0)):
            self._clean_up(worker)

    # Start and end of the worker

    def _start_worker(self, order: GivenOrder) -> Any:
        """Start a worker. Returns it, or the outcome of the order if it cannot start."""
        slot = self._slot
        slot.page.begin(slot.index, order.number, 0)
        if order.number in slot.dropped:
            return Outcome(order.key, "returned")
        ours, theirs = socket.socketpair()
        ends = queue()
        worker = Worker(order, 0, ours, ends)
        try:
            ours.setblocking(False)
            env = dict(order.env)
            for name, end in ((CALLS, theirs), (QUEUE, ends[1] if ends else None)):
                if end is not None:
                    end.set_inheritable(True)
                    env[name] = str(end.fileno())
            begun = order._replace(argv=order.plan.calls, env=env, links=[])
            worker.pid, failure = slot.begin(begun)
        except BaseException:
            worker.hang_up()
            raise
        finally:
            theirs.close()
        if not worker.pid:
            worker.hang_up()
            return failure or Outcome(order.key, "returned")
        if ends:
            ends[1].set_inheritable(False)
        slot_signals.signal_input(ours.fileno())
        slot.watched.append(ours.fileno())
        self.worker = worker
        return worker

    def end_worker(self) -> None:
        """End the worker, if there is one: its line is closed, and it gets the same grace time as
        any task."""
        self.unwanted = False
        worker, slot = self.worker, self._slot
        if worker is None:
            return
        self._hang_up(worker)
        task = CurrentTask(worker.order, worker.pid, 0.0)
        until = task.started + slot.settings.grace_seconds
        gone = False
        while not gone:
            left = until - time.monotonic()
            if left <= 0:
                break
            slot.flush()
            number = slot.sleep(min(left, _STUCK_SECONDS))
            gone = slot.reap(task)
            if number:
                slot.look()
        process_tree.kill_all_children()
        self._clean_up(worker)

    def _hang_up(self, worker: Worker) -> None:
        self.worker = None
        self._slot.workspace.disk.end()
        fd = worker.line.fileno()
        if fd >= 0:
            self._slot.watched.remove(fd)
            worker.hang_up()

    def _clean_up(self, worker: Worker) -> None:
        """Clean up after a worker that has ended with all of its child processes."""
        self._hang_up(worker)
        self.unwanted = False
        workspace = self._slot.workspace
        if worker.order.memory_mb:
            workspace.memory.end(0, False, b"")
        for output in workspace.outputs:
            output.take(0)  # its last output belongs to no call, and changed files are reset
        workspace.tidy()

    # Calls

    def _do_large(self, order: GivenOrder, call: bytes, worker: Worker) -> None:
        """Do one call by itself. Its file is in the worker's directory until the call is over."""
        failure = self._slot.place(order)
        if failure is not None:
            if failure.kind != "returned":  # the worker may have changed its directory
                self.end_worker()
            self._slot.settle(order, failure)
            return
        try:
            self._do(order, call, worker)
        finally:
            self._slot.workspace.displace(order.links)

    def _do(self, order: GivenOrder, call: bytes, worker: Worker) -> None:
        """Run until the worker has nothing to do any more, or has ended."""
        slot, out = self._slot, self.out
        task = slot.task = CurrentTask(order, worker.pid, order.limit_seconds)
        slot.page.begin(slot.index, order.number, worker.pid)
        out.append(order)
        hang_at = 0.0
        more = order.plan.ahead and not order.links
        if worker.greeted:
            worker.give(order.number, call)
        else:
            self._call = call
            task.deadline = task.started + START_SECONDS
        if order.memory_mb or order.disk_mb:
            slot.inspect_soon(task)
        while out:
            if more and worker.ahead and not task.verdict:
                self._give_ahead(worker)
            number = slot.sleep(self._patience(worker, task))
            # One signal may stand for several events.
            self._signalled = self._signalled or number != 0
            if worker.unsent:
                worker.flush()
            self._listen(worker, task)
            if self.worker is not worker:
                break  # it was ended because of its answer
            ended = number in (slot_signals.CHILD, slot_signals.ANY) or task.status is not None
            if ended and slot.reap(task):
                self._lost(task, worker)
                break
            if worker.closed and not hang_at:  # most workers close the line because they end
                hang_at = task.inspect_at = time.monotonic() + _HUNG_UP_SECONDS
            elif hang_at and time.monotonic() >= hang_at:
                self._stop(task, outcomes.HUNG_UP)
            self._keep_limits(task)
        slot.task = None

    def _patience(self, worker: Worker, task: CurrentTask) -> float:
        """How many seconds to wait at most. A worker with many queued calls need not signal each
        answer: we read its answers every millisecond, as long as some come."""
        if worker.set_quiet(self._steady and len(self.out) >= _MANY_AHEAD):
            return 0.0  # earlier answers were not signalled
        seconds = _STUCK_SECONDS if worker.unsent else self._slot.until(task)
        if worker.quiet:
            return min(seconds, _QUIET_SECONDS)
        return min(seconds, _LOOK_SECONDS) if self._signalled else seconds

    def _give_ahead(self, worker: Worker) -> None:
        slot, out = self._slot, self.out
        waiting = slot.waiting
        if len(out) + len(waiting) < MOST_AHEAD:
            slot.fetch()
        if not waiting or len(out) >= MOST_AHEAD or worker.closed or worker.unfit:
            return
        if slot.cramped():
            return
        while waiting and len(out) < MOST_AHEAD:
            order = waiting[0]
            if not worker.like(order) or order.number in slot.dropped or order.links:
                return
            try:
                call = binascii.a2b_base64(order.call)
            except ValueError:
                return  # the call is refused when its turn comes
            if not worker.give_ahead(order.number, call):
                return
            out.append(waiting.popleft())

    def _keep_limits(self, task: CurrentTask) -> None:
        """Check the pilot's messages, limits and deadlines during a call. Raises Gone."""
        now = time.monotonic()
        if self._signalled and now >= self._looked_at + _LOOK_SECONDS:
            self._looked_at = now
            self.catch_up()
        if task.deadline and now >= task.deadline and not task.verdict:
            self.take_back()
        if self.out:
            self._slot.keep_limits(task)

    def catch_up(self) -> None:
        """Handle everything else that may have sent a signal. Raises Gone."""
        if self._signalled:
            self._signalled = False
            self._slot.look()
            self._slot.workspace.tags.drain()

    def take_back(self, number: int = 0) -> None:
        """Take back the calls that our worker has not begun, and read its answers. Afterwards
        ``out`` has only the running call. With a ``number``: only if that call is in ``out``."""
        worker, slot, out = self.worker, self._slot, self.out
        task = slot.task
        if worker is None or task is None or not worker.greeted:
            return
        if number and all(order.number != number for order in out):
            return
        numbers = worker.take_back()
        if numbers:
            self._put_back([order for order in out if order.number in numbers])
            now = time.monotonic()
            if not out and now >= (task.deadline or task.started + _TAKE_SECONDS):
                worker.unfit = True  # something keeps it from taking calls
            elif out and out[0] is not task.order:
                task.renew(out[0], now)
        self._listen(worker, task)
        if not out:
            slot.task = None

    def _put_back(self, back: List[GivenOrder]) -> None:
        """These orders are the first of the waiting ones again."""
        numbers = {order.number for order in back}
        left = [order for order in self.out if order.number not in numbers]
        self.out.clear()
        self.out.extend(left)
        self._slot.waiting.extendleft(reversed(back))

    def _stop(self, task: CurrentTask, verdict: str) -> None:
        self.take_back()
        if self.out:
            self._slot.stop(task, verdict)

    # Answers

    def _listen(self, worker: Worker, task: CurrentTask) -> None:
        """Settle the calls that the worker has answered. A worker that is being stopped is not
        heard."""
        slot, out = self._slot, self.out
        answers = worker.hear() if not task.verdict else []
        self._steady = bool(answers)
        if not answers:
            return
        now = time.monotonic()
        if not worker.greeted and answers[0][:1] == HELLO:
            worker.greet(answers.pop(0)[1:])
            task.renew(task.order, now)
            worker.give(task.order.number, self._call)
        if out:
            begun = out[min(len(answers), len(out) - 1)]
            slot.page.begin(slot.index, begun.number, worker.pid)
        for answer in answers:
            if not out or worker.repeats(answer):
                worker.unfit = True  # it sent more answers than it had calls
                continue
            slot.settle(out.popleft(), self._answered(task, worker, answer, now))
            if self.worker is not worker:
                return
            if out:
                task.renew(out[0], now)

    def _answered(self, task: CurrentTask, worker: Worker, answer: bytes, now: float) -> Fields:
        worker.served += 1
        order, kind = task.order, answer[:1]
        files: List[Any] = []
        outcome, code, message, result = "ok", 0, "", ""
        understood = worker.greeted
        try:
            wall_seconds, cpu_seconds, waits, body = worker.timed(order.number, answer, now)
        except ValueError:
            understood, wall_seconds, cpu_seconds, waits, body = False, -1.0, 0.0, False, b""
        if understood and kind == VALUE and len(body) <= MOST_INLINE:
            result = _object("value", body)
        elif understood and kind == ERROR:
            outcome, code = "failed", 1
            message = _words(body.partition(b"\0")[0]) or "the call failed"
            if len(body) <= MOST_INLINE:
                result = _object("error", body)
        elif understood and kind == FILE:
            outcome, message, files = self._file(order, body)
            code = 0 if outcome == "ok" else -1
        elif kind == REFUSE and not understood:
            outcome, code = "failed", REFUSED
            message = _words(body) or "its worker refused the call"
        else:
            understood, outcome, code = False, "failed", -1
            message = "its worker sent an answer that covey cannot read"
        started = task.started if wall_seconds < 0 else now - wall_seconds
        wall_seconds = now - started
        memory_kb = resource_limits.rss_kb(worker.pid) if wall_seconds > _LONG_SECONDS else 0
        fields = (order.key, outcome, code, 0, wall_seconds, cpu_seconds, memory_kb, started)
        printed = _NOTHING if understood and worker.ahead and not waits else self._printed(order)
        tags = self._slot.workspace.tags.take(not self.out)
        if not understood:
            self._kill_worker(worker)
        elif waits:
            self._steady = False
            worker.go_on()
        return fields + printed + (message, result, tags, files, ())

    def _kill_worker(self, worker: Worker) -> None:
        """End a worker that breaks the rules. Its other calls go to the next worker."""
        self._put_back(list(self.out))
        process_tree.kill_all_children()
        self._clean_up(worker)

    def _file(self, order: GivenOrder, name: bytes) -> Tuple[str, str, List[Any]]:
        try:
            path = name.decode("utf-8", "surrogateescape")
            return "ok", "", self._slot.workspace.take_value(order, path)
        except Unfit as unfit:
            return "output", str(unfit), []
        except FileNotFoundError:
            return "output", "its worker has no file {!r}".format(path), []
        except (OSError, ValueError) as error:
            return "host", "cannot take its value: {}".format(error), []

    def _printed(self, order: GivenOrder) -> Fields:
        """What both streams got since the last call."""
        outputs, most = self._slot.workspace.outputs, order.plan.log_bytes
        out, out_bytes, _ = outputs[0].take(most)
        err, err_bytes, _ = outputs[1].take(most)
        return (out, err, out_bytes, err_bytes)

    def _lost(self, task: CurrentTask, worker: Worker) -> None:
        """Handle the end of the worker and of all its child processes."""
        slot, out = self._slot, self.out
        self._listen(worker, task)
        self.take_back()
        if self.worker is not worker:
            return
        if task.unexecuted:
            self._put_back(list(out))
        elif not out and not worker.served and slot.waiting:
            out.append(slot.waiting.popleft())
        if out:
            order = out.popleft()
            self._put_back(list(out))
            if worker.served and worker.untaken and task.verdict in ("", outcomes.HUNG_UP):
                slot.waiting.appendleft(order)
            else:
                slot.settle(order, self._ended(order, task, worker))
                return
        self._clean_up(worker)

    def _ended(self, order: GivenOrder, task: CurrentTask, worker: Worker) -> Fields:
        """The outcome of the call that the worker was doing when it ended."""
        workspace = self._slot.workspace
        wall_seconds = time.monotonic() - task.started
        verdict = outcomes.of_worker(task.status, task.verdict, order.limit_seconds)
        kind, code, number, message = verdict
        if kind == "timeout" and not worker.greeted:
            kind, message = "failed", outcomes.SILENT
        shortage = workspace.space.shortage() if kind == "failed" else ""
        out, err, out_bytes, err_bytes = self._printed(order)
        memory_kb = task.usage.memory_kb
        if order.memory_mb:
            over, memory_kb = workspace.memory.end(memory_kb, kind == "failed", err)
            if task.verdict == outcomes.MEMORY or (over and not task.verdict):
                kind, message = "memory", outcomes.over_memory(order.memory_mb, memory_kb)
        if task.verdict == outcomes.DISK:
            kind, message = "failed", workspace.disk.words()
        elif shortage and kind == "failed":
            kind, message = "host", "{}; {}".format(message, shortage)
        if kind == "failed" and not worker.greeted and not task.verdict:
            code, message = REFUSED, outcomes.not_started(message, err)
        cpu_seconds = max(0.0, task.usage.cpu_seconds - worker.cpu_seconds)
        tags = workspace.tags.take()
        self._hang_up(worker)
        workspace.tidy()
        return (
            order.key, kind, code, number, wall_seconds, cpu_seconds, memory_kb, task.started,
            out, err, out_bytes, err_bytes, message, "", tags, [], (),
        )  # fmt: skip


def _named(order: GivenOrder) -> bytes:
    """The message that names the file with the call to the worker."""
    return BY_FILE.encode() + str(order.links[0][1]).encode("utf-8", "surrogateescape")


def _object(name: str, body: bytes) -> str:
    return '{"%s":"%s"}' % (name, binascii.b2a_base64(body, newline=False).decode("ascii"))


def _words(data: bytes) -> str:
    return data[: 4 * _MOST_WORDS].decode("utf-8", "replace")[:_MOST_WORDS].strip()
