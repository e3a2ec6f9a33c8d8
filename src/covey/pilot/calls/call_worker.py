"""The worker that a slot keeps for a bag of calls: hired, given call after call, dismissed.

The rule: an order for a call gets exactly one outcome, as any other, whatever its worker does: see
``call_records``. Waiting is done where the slot waits, so that a worker's answer, its end, a word
from the pilot and a deadline all arrive in one place. Between two calls nothing is made, removed or
looked up: a call costs a few system calls besides its own work.
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

_LONG_SECONDS = 0.05  # of a call whose memory is looked at when it ends
_MOST_WORDS = 2000  # characters of a message
_HUNG_UP_SECONDS = 0.5  # that a worker may live without a line
_STUCK_SECONDS = 0.05  # until a worker that does not read is tried again
_TAKE_SECONDS = 1.0  # that a worker with nothing else to do may leave a call in its queue
_MANY_AHEAD = 8  # calls, with which a worker need not ring for each answer
_QUIET_SECONDS = 0.001  # until a worker that does not ring is heard
_LOOK_SECONDS = 0.001  # between looks at the pilot's line while answers ring
_NOTHING: Fields = (b"", b"", 0, 0)  # printed


class CallWorker:
    def __init__(self, slot: "Slot") -> None:
        self._slot = slot
        self.worker: Optional[Worker] = None
        self.unwanted = False  # no call for our worker will come any more
        # What our worker has been given, or will be when it is there, in this order. It does the
        # first one now, as far as we know, which is the slot's task; the others are ahead.
        self.out: Deque[GivenOrder] = deque()
        self._call = b""  # the first one, for a worker that has not said hello yet
        self._steady = False  # answers come, and nobody waits for our word
        self._rung = False  # since we last looked at the pilot's line
        self._looked_at = 0.0

    def run(self, given: GivenOrder) -> None:
        """Do the call, and those that wait behind it as far as they can be given ahead; settle
        each. One that is to be tried again with another worker is the first to wait, then."""
        slot = self._slot
        large = given.call[:1] == BY_FILE
        if large and not given.links:
            words = "this call is large, but the server sent no file for it"
            slot.settle(given, outcomes.refused(given.key, words))
            return
        try:
            call = _named(given) if large else binascii.a2b_base64(given.call)
        except ValueError:
            slot.settle(given, outcomes.refused(given.key, "the call is not base64"))
            return
        worker = self.worker
        if worker is None or not worker.suits(given):
            self.dismiss()
            hired = self._hire(given)
            if isinstance(hired, Outcome):
                slot.bench.tidy()
                slot.settle(given, hired)
                return
            worker = hired
        if large:
            self._do_large(given, call, worker)
        else:
            self._do(given, call, worker)

    def forget(self, plan: Optional[Recipe]) -> None:
        """The bag is over, or asleep."""
        if self.worker is not None and self.worker.given.plan is plan:
            self.unwanted = True

    def idle(self, number: int) -> None:
        """A slot without orders got that signal: our worker may have ended."""
        worker = self.worker
        if worker is None or number not in (slot_signals.CHILD, slot_signals.ANY):
            return
        if self._slot.reap(CurrentTask(worker.given, worker.pid, 0.0)):
            self._part(worker)

    # Hiring and dismissing

    def _hire(self, given: GivenOrder) -> Any:
        """A worker, or the outcome of the order that cannot have one."""
        slot = self._slot
        slot.board.begin(slot.index, given.number, 0)
        if given.number in slot.dropped:
            return Outcome(given.key, "returned")
        ours, theirs = socket.socketpair()
        ends = queue()
        worker = Worker(given, 0, ours, ends)
        try:
            ours.setblocking(False)
            env = dict(given.env)
            for name, end in ((CALLS, theirs), (QUEUE, ends[1] if ends else None)):
                if end is not None:
                    end.set_inheritable(True)
                    env[name] = str(end.fileno())
            begun = given._replace(argv=given.plan.calls, env=env, links=[])
            worker.pid, failure = slot.begin(begun)
        except BaseException:
            worker.hang_up()
            raise
        finally:
            theirs.close()
        if not worker.pid:
            worker.hang_up()
            return failure or Outcome(given.key, "returned")
        if ends:
            ends[1].set_inheritable(False)
        slot_signals.ring(ours.fileno())
        slot.bells.append(ours.fileno())
        self.worker = worker
        return worker

    def dismiss(self) -> None:
        """End the worker, if there is one: its line is closed, and it has the time to go that any
        task has."""
        self.unwanted = False
        worker, slot = self.worker, self._slot
        if worker is None:
            return
        self._hang_up(worker)
        task = CurrentTask(worker.given, worker.pid, 0.0)
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
        self._part(worker)

    def _hang_up(self, worker: Worker) -> None:
        self.worker = None
        self._slot.bench.disk.end()
        fd = worker.line.fileno()
        if fd >= 0:
            self._slot.bells.remove(fd)
            worker.hang_up()

    def _part(self, worker: Worker) -> None:
        """It has ended, with all of its family."""
        self._hang_up(worker)
        self.unwanted = False
        bench = self._slot.bench
        if worker.given.memory_mb:
            bench.memory.end(0, False, b"")
        for output in bench.outputs:
            output.take(0)  # its last words are nobody's, and what it did to the files is undone
        bench.tidy()

    # Calls

    def _do_large(self, given: GivenOrder, call: bytes, worker: Worker) -> None:
        """One by itself, with its file in the worker's directory as long as it lasts."""
        failure = self._slot.place(given)
        if failure is not None:
            if failure.kind != "returned":  # what has it made of its directory?
                self.dismiss()
            self._slot.settle(given, failure)
            return
        try:
            self._do(given, call, worker)
        finally:
            self._slot.bench.displace(given.links)

    def _do(self, given: GivenOrder, call: bytes, worker: Worker) -> None:
        """Until the worker has nothing to do any more, or has ended."""
        slot, out = self._slot, self.out
        task = slot.task = CurrentTask(given, worker.pid, given.limit_seconds)
        slot.board.begin(slot.index, given.number, worker.pid)
        out.append(given)
        hang_at = 0.0
        more = given.plan.ahead and not given.links
        if worker.greeted:
            worker.give(given.number, call)
        else:
            self._call = call
            task.deadline = task.started + START_SECONDS
        if given.memory_mb or given.disk_mb:
            slot.inspect_soon(task)
        while out:
            if more and worker.ahead and not task.verdict:
                self._give_ahead(worker)
            number = slot.sleep(self._patience(worker, task))
            self._rung = self._rung or number != 0  # it may have rung for more than one
            if worker.unsent:
                worker.flush()
            self._listen(worker, task)
            if self.worker is not worker:
                break  # it was ended for what it said
            ended = number in (slot_signals.CHILD, slot_signals.ANY) or task.status is not None
            if ended and slot.reap(task):
                self._lost(task, worker)
                break
            if worker.closed and not hang_at:  # most end with that
                hang_at = task.inspect_at = time.monotonic() + _HUNG_UP_SECONDS
            elif hang_at and time.monotonic() >= hang_at:
                self._stop(task, outcomes.HUNG_UP)
            self._mind(task)
        slot.task = None

    def _patience(self, worker: Worker, task: CurrentTask) -> float:
        """Seconds to wait at most. A worker that has much to do need not ring for each answer: it
        is heard once in a while, unless nothing came for so long."""
        if worker.hush(self._steady and len(self.out) >= _MANY_AHEAD):
            return 0.0  # nothing rang for what came before
        seconds = _STUCK_SECONDS if worker.unsent else self._slot.until(task)
        if worker.quiet:
            return min(seconds, _QUIET_SECONDS)
        return min(seconds, _LOOK_SECONDS) if self._rung else seconds

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
            given = waiting[0]
            if not worker.like(given) or given.number in slot.dropped or given.links:
                return
            try:
                call = binascii.a2b_base64(given.call)
            except ValueError:
                return  # it is refused when its turn comes
            if not worker.give_ahead(given.number, call):
                return
            out.append(waiting.popleft())

    def _mind(self, task: CurrentTask) -> None:
        """What else there is to do while a call is made. Raises Gone."""
        now = time.monotonic()
        if self._rung and now >= self._looked_at + _LOOK_SECONDS:
            self._looked_at = now
            self.catch_up()
        if task.deadline and now >= task.deadline and not task.verdict:
            self.hold()
        if self.out:
            self._slot.mind(task)

    def catch_up(self) -> None:
        """Look for whatever else may have rung. Raises Gone."""
        if self._rung:
            self._rung = False
            self._slot.look()
            self._slot.bench.tags.drain()

    def hold(self, number: int = 0) -> None:
        """Have back what our worker has not begun, and hear what it has done: what is out then is
        what it does. With a ``number``, if that is out."""
        worker, slot, out = self.worker, self._slot, self.out
        task = slot.task
        if worker is None or task is None or not worker.greeted:
            return
        if number and all(given.number != number for given in out):
            return
        numbers = worker.take_back()
        if numbers:
            self._put_back([given for given in out if given.number in numbers])
            now = time.monotonic()
            if not out and now >= (task.deadline or task.started + _TAKE_SECONDS):
                worker.unfit = True  # something keeps it from taking calls
            elif out and out[0] is not task.given:
                task.renew(out[0], now)
        self._listen(worker, task)
        if not out:
            slot.task = None

    def _put_back(self, back: List[GivenOrder]) -> None:
        """They are the next again."""
        numbers = {given.number for given in back}
        left = [given for given in self.out if given.number not in numbers]
        self.out.clear()
        self.out.extend(left)
        self._slot.waiting.extendleft(reversed(back))

    def _stop(self, task: CurrentTask, verdict: str) -> None:
        self.hold()
        if self.out:
            self._slot.stop(task, verdict)

    # Answers

    def _listen(self, worker: Worker, task: CurrentTask) -> None:
        """Settle what it has answered. When it is to end it is too late for that."""
        slot, out = self._slot, self.out
        answers = worker.hear() if not task.verdict else []
        self._steady = bool(answers)
        if not answers:
            return
        now = time.monotonic()
        if not worker.greeted and answers[0][:1] == HELLO:
            worker.greet(answers.pop(0)[1:])
            task.renew(task.given, now)
            worker.give(task.given.number, self._call)
        if out:
            begun = out[min(len(answers), len(out) - 1)]
            slot.board.begin(slot.index, begun.number, worker.pid)
        for answer in answers:
            if not out or worker.repeats(answer):
                worker.unfit = True  # it says more than it was asked
                continue
            slot.settle(out.popleft(), self._answered(task, worker, answer, now))
            if self.worker is not worker:
                return
            if out:
                task.renew(out[0], now)

    def _answered(self, task: CurrentTask, worker: Worker, answer: bytes, now: float) -> Fields:
        worker.served += 1
        given, kind = task.given, answer[:1]
        files: List[Any] = []
        outcome, code, message, result = "ok", 0, "", ""
        known = worker.greeted
        try:
            wall_seconds, cpu_seconds, waits, body = worker.timed(given.number, answer, now)
        except ValueError:
            known, wall_seconds, cpu_seconds, waits, body = False, -1.0, 0.0, False, b""
        if known and kind == VALUE and len(body) <= MOST_INLINE:
            result = _object("value", body)
        elif known and kind == ERROR:
            outcome, code = "failed", 1
            message = _words(body.partition(b"\0")[0]) or "the call failed"
            if len(body) <= MOST_INLINE:
                result = _object("error", body)
        elif known and kind == FILE:
            outcome, message, files = self._file(given, body)
            code = 0 if outcome == "ok" else -1
        elif kind == REFUSE and not known:
            outcome, code, message = (
                "failed",
                REFUSED,
                _words(body) or "its worker refused the call",
            )
        else:
            known = False
            outcome, code, message = (
                "failed",
                -1,
                "its worker sent an answer that covey cannot read",
            )
        started = task.started if wall_seconds < 0 else now - wall_seconds
        wall_seconds = now - started
        memory_kb = resource_limits.rss_kb(worker.pid) if wall_seconds > _LONG_SECONDS else 0
        fields = (given.key, outcome, code, 0, wall_seconds, cpu_seconds, memory_kb, started)
        printed = _NOTHING if known and worker.ahead and not waits else self._printed(given)
        tags = self._slot.bench.tags.take(not self.out)
        if not known:
            self._discharge(worker)
        elif waits:
            self._steady = False
            worker.go_on()
        return fields + printed + (message, result, tags, files, ())

    def _discharge(self, worker: Worker) -> None:
        """It does not keep to the rules. Other calls that it has go to another one."""
        self._put_back(list(self.out))
        process_tree.kill_all_children()
        self._part(worker)

    def _file(self, given: GivenOrder, name: bytes) -> Tuple[str, str, List[Any]]:
        try:
            path = name.decode("utf-8", "surrogateescape")
            return "ok", "", self._slot.bench.take_value(given, path)
        except Unfit as unfit:
            return "output", str(unfit), []
        except FileNotFoundError:
            return "output", "its worker has no file {!r}".format(path), []
        except (OSError, ValueError) as error:
            return "host", "cannot take its value: {}".format(error), []

    def _printed(self, given: GivenOrder) -> Fields:
        """Both streams since the last call."""
        outputs, most = self._slot.bench.outputs, given.plan.log_bytes
        out, out_bytes, _ = outputs[0].take(most)
        err, err_bytes, _ = outputs[1].take(most)
        return (out, err, out_bytes, err_bytes)

    def _lost(self, task: CurrentTask, worker: Worker) -> None:
        """The worker has ended, with all of its family."""
        slot, out = self._slot, self.out
        self._listen(worker, task)
        self.hold()
        if self.worker is not worker:
            return
        if task.unexecuted:
            self._put_back(list(out))
        elif not out and not worker.served and slot.waiting:
            out.append(slot.waiting.popleft())
        if out:
            given = out.popleft()
            self._put_back(list(out))
            if worker.served and worker.untaken and task.verdict in ("", outcomes.HUNG_UP):
                slot.waiting.appendleft(given)
            else:
                slot.settle(given, self._ended(given, task, worker))
                return
        self._part(worker)

    def _ended(self, given: GivenOrder, task: CurrentTask, worker: Worker) -> Fields:
        """What came of the call that it took with it."""
        bench = self._slot.bench
        wall_seconds = time.monotonic() - task.started
        verdict = outcomes.of_worker(task.status, task.verdict, given.limit_seconds)
        kind, code, number, message = verdict
        if kind == "timeout" and not worker.greeted:
            kind, message = "failed", outcomes.SILENT
        shortage = bench.space.shortage() if kind == "failed" else ""
        out, err, out_bytes, err_bytes = self._printed(given)
        memory_kb = task.usage.memory_kb
        if given.memory_mb:
            over, memory_kb = bench.memory.end(memory_kb, kind == "failed", err)
            if task.verdict == outcomes.MEMORY or (over and not task.verdict):
                kind, message = "memory", outcomes.over_memory(given.memory_mb, memory_kb)
        if task.verdict == outcomes.DISK:
            kind, message = "failed", bench.disk.words()
        elif shortage and kind == "failed":
            kind, message = "host", "{}; {}".format(message, shortage)
        if kind == "failed" and not worker.greeted and not task.verdict:
            code, message = REFUSED, outcomes.not_started(message, err)
        cpu_seconds = max(0.0, task.usage.cpu_seconds - worker.cpu_seconds)
        tags = bench.tags.take()
        self._hang_up(worker)
        bench.tidy()
        return (
            given.key, kind, code, number, wall_seconds, cpu_seconds, memory_kb, task.started,
            out, err, out_bytes, err_bytes, message, "", tags, [], (),
        )  # fmt: skip


def _named(given: GivenOrder) -> bytes:
    """How a worker is told of the file with its call."""
    return BY_FILE.encode() + str(given.links[0][1]).encode("utf-8", "surrogateescape")


def _object(name: str, body: bytes) -> str:
    return '{"%s":"%s"}' % (name, binascii.b2a_base64(body, newline=False).decode("ascii"))


def _words(data: bytes) -> str:
    return data[: 4 * _MOST_WORDS].decode("utf-8", "replace")[:_MOST_WORDS].strip()
