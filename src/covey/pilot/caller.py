"""The worker that a slot keeps for a bag of calls: hired, given call after call, dismissed.

The rule: an order for a call gets exactly one outcome, as any other, whatever its worker does: see
``calling``. Waiting is done where the slot waits, so that a worker's answer, its end, a word from
the pilot and a deadline all arrive in one place. Between two calls nothing is made, removed or
looked up: a call costs a few system calls besides its own work.
"""

import binascii
import os
import select
import socket
import time
from typing import TYPE_CHECKING, Any, List, Optional, Tuple

from covey.pilot import confine, judge, tree, wake
from covey.pilot.bench import Given, Recipe, attempt
from covey.pilot.calling import (
    BY_FILE,
    CALLS,
    ERROR,
    FILE,
    HELLO,
    LENGTH,
    MOST_CALL,
    MOST_INLINE,
    REFUSE,
    START_SECONDS,
    VALUE,
)
from covey.pilot.harvest import Unfit
from covey.pilot.orders import Outcome
from covey.pilot.running import Task

if TYPE_CHECKING:
    from covey.pilot.slot import Slot

Fields = Tuple[Any, ...]

_CHUNK = 1 << 18
_MOST_ANSWER = MOST_CALL + 1
_LONG_SECONDS = 0.05  # of a call whose memory is looked at when it ends
_MOST_WORDS = 2000  # characters of a message
_HUNG_UP_SECONDS = 0.5  # that a worker may live without a line
_STUCK_SECONDS = 0.05  # until a worker that does not read is tried again
_SCHEDULED = 2  # the clock that counts the processor's time of a process


class Worker:
    """The process that stays, and our end of the line to it."""

    __slots__ = (
        "_poll", "clock", "closed", "given", "greeted", "line", "pid", "served", "unread", "unsent",
        "untaken",
    )  # fmt: skip

    def __init__(self, given: Given, pid: int, line: socket.socket) -> None:
        self.given = given  # its first order: the others are like it
        self.pid = pid
        self.line = line
        self.clock = (~pid << 3) | _SCHEDULED
        self.greeted = False
        self.served = 0
        self.closed = False
        self.untaken = False  # it ended without having read all that we wrote
        self.unread = b""
        self.unsent = b""
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)

    def suits(self, given: Given) -> bool:
        first = self.given
        return (
            given.plan is first.plan
            and given.memory_mb == first.memory_mb
            and given.env == first.env
            and given.cores == first.cores
            and not self.unread
            and not self._poll.poll(0)  # it has gone, or said more than it was asked
        )

    def cpu_seconds(self) -> float:
        try:
            return time.clock_gettime(self.clock)
        except (OSError, ValueError, OverflowError):
            return 0.0  # not Linux

    def give(self, call: bytes) -> None:
        self.unsent = LENGTH.pack(len(call)) + call
        self.flush()

    def flush(self) -> None:
        try:
            sent = self.line.send(self.unsent)
        except BlockingIOError:
            return
        except OSError:
            self.untaken = self.closed = True
            sent = len(self.unsent)
        self.unsent = self.unsent[sent:]

    def hear(self) -> bytes:
        """The next whole frame; b"" when there is none yet. An empty one is nothing that a worker
        says: it is taken for a mistake, as one that is too long."""
        while True:
            unread = self.unread
            if len(unread) >= LENGTH.size:
                end = LENGTH.unpack_from(unread)[0] + LENGTH.size
                if not LENGTH.size < end <= _MOST_ANSWER + LENGTH.size:
                    self.unread = b""
                    return b"?"
                if len(unread) >= end:
                    self.unread = unread[end:]
                    return unread[LENGTH.size : end]
            if self.closed:
                return b""
            try:
                data = self.line.recv(_CHUNK)
            except BlockingIOError:
                return b""
            except ConnectionResetError:
                self.untaken, data = True, b""
            except OSError:
                data = b""
            if not data:
                self.closed = True
            self.unread = unread + data


class Caller:
    def __init__(self, slot: "Slot") -> None:
        self._slot = slot
        self.worker: Optional[Worker] = None
        self.unwanted = False  # no call for our worker will come any more

    def run(self, given: Given) -> Fields:
        """Do the call; the fields of its outcome."""
        large = given.call[:1] == BY_FILE
        if large and not given.links:
            return judge.refused(
                given.key, "this call is too large for its server: it sent no file"
            )
        try:
            call = _named(given) if large else binascii.a2b_base64(given.call)
        except ValueError:
            return judge.refused(given.key, "the call is not base64")
        do = self._do_large if large else self._do
        worker = self.worker
        if worker is None or not worker.suits(given):
            self.dismiss()
            worker = None
        fields = None if worker is None else do(given, call, worker)
        if fields is None:
            hired = self._hire(given)
            if isinstance(hired, Outcome):
                self._slot.bench.tidy()
                return hired
            fields = do(given, call, hired)
        return fields or Outcome(given.key, "host", message="its worker vanished")

    def forget(self, plan: Optional[Recipe]) -> None:
        """The bag is over, or asleep."""
        if self.worker is not None and self.worker.given.plan is plan:
            self.unwanted = True

    def idle(self, number: int) -> None:
        """A slot without orders got that signal: our worker may have ended."""
        worker = self.worker
        if worker is None or number not in (wake.CHILD, wake.ANY):
            return
        if self._slot.reap(Task(worker.given, worker.pid, 0.0)):
            self._part(worker)

    # Hiring and dismissing

    def _hire(self, given: Given) -> Any:
        """A worker, or the outcome of the order that cannot have one."""
        slot = self._slot
        slot.board.begin(slot.index, given.number, 0)
        if given.number in slot.dropped:
            return Outcome(given.key, "returned")
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            theirs.set_inheritable(True)
            env = dict(given.env)
            env[CALLS] = str(theirs.fileno())
            pid, failure = slot.begin(given._replace(argv=given.plan.calls, env=env, links=[]))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        if not pid:
            ours.close()
            return failure or Outcome(given.key, "returned")
        wake.ring(ours.fileno())
        slot.bells.append(ours.fileno())
        self.worker = Worker(given, pid, ours)
        return self.worker

    def dismiss(self) -> None:
        """End the worker, if there is one: its line is closed, and it has the time to go that any
        task has."""
        self.unwanted = False
        worker, slot = self.worker, self._slot
        if worker is None:
            return
        self._hang_up(worker)
        task = Task(worker.given, worker.pid, 0.0)
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
        tree.kill_all_children()
        self._part(worker)

    def _hang_up(self, worker: Worker) -> None:
        self.worker = None
        fd = worker.line.fileno()
        if fd >= 0:
            self._slot.bells.remove(fd)
            worker.line.close()

    def _part(self, worker: Worker) -> None:
        """It has ended, with all of its family."""
        self._hang_up(worker)
        self.unwanted = False
        if worker.given.memory_mb:
            self._slot.bench.memory.end(0, False, b"")
        self._slot.bench.tidy()

    # One call

    def _do_large(self, given: Given, call: bytes, worker: Worker) -> Optional[Fields]:
        """The same with its file in the worker's directory, as long as it lasts."""
        failure = self._slot.place(given)
        if failure is None:
            try:
                return self._do(given, call, worker)
            finally:
                for link in given.links:
                    attempt(os.unlink, link[1])
        if failure.kind != "returned":  # what has it made of its directory?
            self.dismiss()
        return failure

    def _do(self, given: Given, call: bytes, worker: Worker) -> Optional[Fields]:
        """The fields of its outcome; none when the worker had gone before it could begin."""
        slot = self._slot
        task = slot.task = Task(given, worker.pid, given.limit_seconds)
        slot.board.begin(slot.index, given.number, worker.pid)
        cpu_before = worker.cpu_seconds()
        hang_at = 0.0
        if worker.greeted:
            worker.give(call)
        else:
            task.deadline = task.started + START_SECONDS
        if given.memory_mb:
            task.inspect_at = task.started + slot.bench.memory.pause()
        while True:
            number = slot.sleep(_STUCK_SECONDS if worker.unsent else slot.until(task))
            if worker.unsent:
                worker.flush()
            answer = worker.hear() if not task.verdict else b""
            if answer and answer[:1] == HELLO and not worker.greeted:
                worker.greeted = True
                self._begin_again(task)
                cpu_before = worker.cpu_seconds()
                worker.give(call)
            elif answer:
                slot.task = None
                return self._answered(task, worker, answer, cpu_before)
            elif number in (wake.CHILD, wake.ANY) and slot.reap(task):
                slot.task = None
                return self._lost(task, worker, cpu_before)
            elif worker.closed and not hang_at:  # most end with that
                hang_at = task.inspect_at = time.monotonic() + _HUNG_UP_SECONDS
            elif hang_at and time.monotonic() >= hang_at:
                slot.stop(task, judge.HUNG_UP)
            if number:
                slot.look()
                slot.bench.tags.drain()
            slot.mind(task)

    def _begin_again(self, task: Task) -> None:
        task.started = now = time.monotonic()
        limit_seconds = task.given.limit_seconds
        task.deadline = now + limit_seconds if limit_seconds > 0 else 0.0

    def _answered(self, task: Task, worker: Worker, answer: bytes, cpu_before: float) -> Fields:
        wall_seconds = time.monotonic() - task.started
        worker.served += 1
        self._slot.look_at = 0.0  # one signal may have rung for the pilot's line too
        given = task.given
        kind, body = answer[:1], answer[1:]
        files: List[Any] = []
        outcome, code, message, result = "ok", 0, "", ""
        known = worker.greeted
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
            outcome, code, message = "failed", 126, _words(body) or "its worker refused"
        else:
            known = False
            outcome, code, message = "failed", -1, "its worker answered what nobody understands"
        cpu_seconds = max(0.0, worker.cpu_seconds() - cpu_before)
        memory_kb = confine.rss_kb(worker.pid) if wall_seconds > _LONG_SECONDS else 0
        fields = (given.key, outcome, code, 0, wall_seconds, cpu_seconds, memory_kb, task.started)
        ending = self._printed(given) + (message, result, self._slot.bench.tags.take(), files)
        if not known:
            tree.kill_all_children()
            self._part(worker)
        return fields + ending

    def _file(self, given: Given, name: bytes) -> Tuple[str, str, List[Any]]:
        try:
            path = name.decode("utf-8", "surrogateescape")
            return "ok", "", self._slot.bench.take_value(given, path)
        except Unfit as unfit:
            return "output", str(unfit), []
        except FileNotFoundError:
            return "output", "its worker has no file {!r}".format(path), []
        except (OSError, ValueError) as error:
            return "host", "cannot take its value: {}".format(error), []

    def _printed(self, given: Given) -> Fields:
        """Both streams since the last call."""
        outputs, most = self._slot.bench.outputs, given.plan.log_bytes
        out, out_bytes, _ = outputs[0].take(most)
        err, err_bytes, _ = outputs[1].take(most)
        return (out, err, out_bytes, err_bytes)

    def _lost(self, task: Task, worker: Worker, cpu_before: float) -> Optional[Fields]:
        """The worker has ended, with all of its family."""
        given, bench = task.given, self._slot.bench
        answer = worker.hear() if not task.verdict else b""
        if answer and worker.greeted and answer[:1] in (VALUE, ERROR, FILE):
            fields = self._answered(task, worker, answer, cpu_before)
            self._part(worker)
            return fields
        if answer[:1] == REFUSE and not worker.greeted:
            return self._answered(task, worker, answer, cpu_before)
        if worker.served and worker.untaken and task.verdict in ("", judge.HUNG_UP):
            self._part(worker)
            return None
        wall_seconds = time.monotonic() - task.started
        verdict = judge.of_worker(task.status, task.verdict, given.limit_seconds)
        kind, code, number, message = verdict
        if kind == "timeout" and not worker.greeted:
            kind, message = "failed", judge.SILENT
        shortage = bench.space.shortage() if kind == "failed" else ""
        out, err, out_bytes, err_bytes = self._printed(given)
        memory_kb = task.usage.memory_kb
        if given.memory_mb:
            over, memory_kb = bench.memory.end(memory_kb, kind == "failed", err)
            if task.verdict == "memory" or (over and not task.verdict):
                kind, message = "memory", judge.over_memory(given.memory_mb, memory_kb)
        if shortage and kind == "failed":
            kind, message = "host", "{}; {}".format(message, shortage)
        cpu_seconds = max(0.0, task.usage.cpu_seconds - cpu_before)
        tags = bench.tags.take()
        self._hang_up(worker)
        bench.tidy()
        return (
            given.key, kind, code, number, wall_seconds, cpu_seconds, memory_kb, task.started,
            out, err, out_bytes, err_bytes, message, "", tags, [],
        )  # fmt: skip


def _named(given: Given) -> bytes:
    """How a worker is told of the file with its call."""
    return BY_FILE.encode() + str(given.links[0][1]).encode("utf-8", "surrogateescape")


def _object(name: str, body: bytes) -> str:
    return '{"%s":"%s"}' % (name, binascii.b2a_base64(body, newline=False).decode("ascii"))


def _words(data: bytes) -> str:
    return data[: 4 * _MOST_WORDS].decode("utf-8", "replace")[:_MOST_WORDS].strip()
