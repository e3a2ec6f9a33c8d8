"""The loop inside a slot process: one task at a time, from order to outcome.

The rule: this process is single-threaded, never handles a signal asynchronously
(see ``wake``), and never blocks but in one place, ``wake.wait``, where an end of the
task, a word from the pilot and a deadline all arrive. Orders are numbered 1, 2, 3, …
and taken in that order, so "stop number 7" means the same whether 7 has ended, runs,
waits here or has not arrived: no race needs an answer.

The pilot gone (its end of a socket closed) or the keeper gone (the parent process;
see ``keeper``): kill the task and everything of it, remove what is on disk, exit.

Outcomes are collected for a few milliseconds while more orders wait, so that short
tasks do not wake the pilot for each; a task that runs on holds none of them back.
"""

import errno
import os
import signal
import time
from collections import deque
from typing import Any, Deque, List, NamedTuple, Optional, Set, Tuple

from covey.pilot import spawn, tree, wake
from covey.pilot.board import Board
from covey.pilot.orders import Line, Outcome
from covey.pilot.scratch import Home, Output, Space

CANCEL, RECALL = 0, 1  # what the control line says, with the number of an order
MORE = None  # "send the rest of that order": half of it is here and nothing else to do

_PACE_SECONDS = 0.04  # between reports, while orders wait here
_LOOK_SECONDS = 0.005
_STUCK_SECONDS = 0.05  # until a pilot that does not read is tried again
_UNSENT_BYTES = 1 << 20  # with more than this unread, no further task is started
_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
_HOST_ERRORS = (
    errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY,
    errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EDQUOT, errno.EINTR,
)  # fmt: skip


class Settings(NamedTuple):
    directory: str
    output_limit: int
    grace_seconds: float
    minimum_free_bytes: int


class Given(NamedTuple):
    """An order as it crosses the line."""

    number: int
    key: str
    argv: List[str]
    env: Any
    limit_seconds: float
    chdir: str


class Task:
    """The order that runs now."""

    __slots__ = ("deadline", "given", "kill_at", "pid", "started", "status", "usage", "verdict")

    def __init__(self, given: Given, pid: int, started: float) -> None:
        self.given = given
        self.pid = pid
        self.started = started
        self.deadline = started + given.limit_seconds if given.limit_seconds > 0 else 0.0
        self.kill_at = 0.0
        self.verdict = ""
        self.status: Optional[int] = None
        self.usage = tree.Usage()


class Gone(Exception):
    """Nobody wants this slot any more."""


def paths(directory: str, index: int) -> Tuple[str, str, str]:
    """The private directory and output files of a slot."""
    base = os.path.join(directory, "slot-{}".format(index))
    return base, base + ".out", base + ".err"


class Slot:
    def __init__(
        self, index: int, settings: Settings, orders: Line, control: Line, board: Board
    ) -> None:
        self.index = index
        self.settings = settings
        self.orders = orders
        self.control = control
        self.board = board
        self.keeper = os.getppid()
        self.adopting = tree.become_subreaper()
        self.commands = spawn.Commands()
        self.space = Space(settings.directory, settings.minimum_free_bytes)
        self.waiting: Deque[Given] = deque()
        self.dropped: Set[int] = set()
        self.last = 0  # number of the last order that is over
        self.task: Optional[Task] = None
        self.done: List[Tuple[int, Tuple[Any, ...]]] = []
        self.done_since = 0.0
        self.look_at = 0.0
        self.home: Optional[Home] = None
        self.outputs: List[Output] = []

    def serve(self) -> None:
        """Run orders until Gone; then nothing of this slot is left."""
        try:
            wake.ring(self.control.fileno())
            self._look()
            self._furnish()
            while True:
                self._run(self._next())
        except Gone:
            pass
        finally:
            self._vanish()

    # Before and after tasks

    def _furnish(self) -> None:
        """Make what the slot needs on disk, however long that takes: a full disk is
        no reason to die, and cancels are answered meanwhile."""
        path, out, err = paths(self.settings.directory, self.index)
        while True:
            try:
                self.home = self.home or Home(path)
                self.outputs = [Output(out, 1), Output(err, 2)]
                return
            except OSError:
                self._pause(1.0)

    def _vanish(self) -> None:
        tree.kill_all_children()
        if self.home:
            self.home.remove()
        for output in self.outputs:
            output.remove()
        try:
            os.rmdir(self.settings.directory)  # the last one out succeeds
        except OSError:
            pass

    def _look(self) -> None:
        """Read the control line; raises Gone."""
        for verb, number in self.control.receive():
            if number <= self.last:
                continue
            if self.task is None or number != self.task.given.number:
                self._drop(number)
            elif verb == CANCEL:
                self._stop(self.task, "cancelled")
        if self.control.closed or self.orders.closed:
            raise Gone

    def _drop(self, number: int) -> None:
        """Give back an order that waits, at once; remember it if it is not here yet,
        or if it is about to start."""
        self._fetch()
        for given in self.waiting:
            if given.number == number:
                self.waiting.remove(given)
                self._report(number, Outcome(given.key, "returned"))
                return
        self.dropped.add(number)

    def _sleep(self, timeout: Optional[float]) -> int:
        """Wait for anything; the signal that came, 0 for none. Raises Gone."""
        number = wake.wait(timeout, [self.control.fileno(), self.orders.fileno()])
        if number not in (0, wake.CHILD) and (os.getppid() != self.keeper or self.board.ending()):
            raise Gone
        return number

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._flush()
            self._sleep(min(until - time.monotonic(), _STUCK_SECONDS if self.orders.unsent else 60))
            self._look()

    def _next(self) -> Given:
        while True:
            # Between short tasks only now and then: their waiting looks too.
            now = time.monotonic()
            if now >= self.look_at:
                self.look_at = now + _LOOK_SECONDS
                self._look()
            if not self.waiting:
                self._fetch()
            if self.waiting:
                given = self.waiting.popleft()
                if given.number not in self.dropped:
                    return given
                self._settle(given, Outcome(given.key, "returned"))
            else:
                self._idle()

    def _fetch(self) -> None:
        self.waiting.extend(Given(*value) for value in self.orders.receive())

    def _idle(self) -> None:
        self._flush()
        if self.orders.unread:
            self.orders.send(MORE)
        wake.ring(self.orders.fileno())
        try:
            # Nothing rang for what came before the bell was on.
            self._fetch()
            while not self.waiting:
                self._look()
                self._flush()
                if self.waiting:
                    return
                self._sleep(_STUCK_SECONDS if self.orders.unsent else None)
                self._fetch()
                if self.orders.unread and not self.waiting:
                    self.orders.send(MORE)
        finally:
            wake.ring(self.orders.fileno(), False)

    # Outcomes

    def _report(self, number: int, outcome: Outcome) -> None:
        now = time.monotonic()
        if not self.done:
            self.done_since = now
        self.done.append((number, tuple(outcome)))
        if now - self.done_since >= _PACE_SECONDS:
            self._flush()

    def _flush(self) -> None:
        if self.done:
            done, self.done = self.done, []
            self.orders.send(done)
        elif self.orders.unsent:
            self.orders.flush()

    def _settle(self, given: Given, outcome: Outcome) -> None:
        """The order whose turn it was is over."""
        self.last = given.number
        self.dropped.discard(given.number)
        self._report(given.number, outcome)

    # One task

    def _run(self, given: Given) -> None:
        pid = 0
        failure: Optional[OSError] = None
        if self._wait_for_room(given):
            self.board.begin(self.index, given.number, 0)
            try:
                pid = self._start(given)
            except OSError as error:
                failure = error
            except ValueError as error:
                failure = OSError(errno.EINVAL, str(error))
        if failure:
            self._settle(given, _unstarted(given, failure))
        elif not pid:
            self._settle(given, Outcome(given.key, "returned"))
        else:
            task = self.task = Task(given, pid, time.monotonic())
            self.board.begin(self.index, given.number, pid)
            self._wait(task)
            self.task = None
            self._finish(task)

    def _wait_for_room(self, given: Given) -> bool:
        """False when the order is no longer wanted."""
        while self.home is None or len(self.orders.unsent) > _UNSENT_BYTES or self.space.short():
            self._pause(1.0 if not self.orders.unsent else _STUCK_SECONDS)
            if given.number in self.dropped:
                return False
            if self.home is None:
                self._move_in()
        return True

    def _move_in(self) -> None:
        try:
            self.home = Home(paths(self.settings.directory, self.index)[0])
        except OSError:
            self.home = None

    def _start(self, given: Given) -> int:
        """The process id; 0 when it was dropped while the system could not fork."""
        if not given.argv:
            raise ValueError("no command")
        path = given.env.get("PATH", os.defpath)
        for seconds in (*_RETRY_SECONDS, 0.0):
            try:
                if given.chdir:
                    os.chdir(given.chdir)
                return spawn.start(self.commands.find(given.argv[0], path), given.argv, given.env)
            except OSError as error:
                if not seconds:
                    raise
                if self.commands.forget() and error.errno == errno.ENOENT:
                    continue  # it may have been where it no longer is
                if error.errno not in _HOST_ERRORS:
                    raise
                self._pause(seconds)
                if given.number in self.dropped:
                    return 0
            finally:
                if given.chdir and self.home:
                    self.home.enter()
        raise AssertionError("unreachable")

    def _wait(self, task: Task) -> None:
        """Until the task's main process has ended and nothing of it is left."""
        while True:
            number = self._sleep(self._until(task))
            if number in (wake.CHILD, wake.ANY) and self._reap(task):
                return
            if number:
                self._look()
            self._mind(task)

    def _until(self, task: Task) -> Optional[float]:
        """Seconds until there is something to do without being told."""
        due = task.kill_at or task.deadline
        if self.done:
            pace = self.done_since + _PACE_SECONDS
            due = min(due, pace) if due else pace
        if self.orders.unsent:
            return _STUCK_SECONDS
        return max(0.0, due - time.monotonic()) if due else None

    def _mind(self, task: Task) -> None:
        now = time.monotonic()
        if task.deadline and not task.verdict and now >= task.deadline:
            self._stop(task, "timeout")
        if task.kill_at and now >= task.kill_at:
            tree.signal_task(task.pid, signal.SIGKILL)
            task.kill_at = now + 0.05  # again: it may have forked meanwhile
        if self.orders.unsent or (self.done and now - self.done_since >= _PACE_SECONDS):
            self._flush()

    def _stop(self, task: Task, verdict: str) -> None:
        if not task.verdict:
            task.verdict = verdict
            task.kill_at = time.monotonic() + self.settings.grace_seconds
            tree.signal_task(task.pid, signal.SIGTERM)
            tree.signal_task(task.pid, signal.SIGCONT)  # one that is stopped cannot listen

    def _reap(self, task: Task) -> bool:
        """Collect the dead, adopted ones too. True when the task is over: then its
        remaining family is ended here, and the common case (no child at all) costs
        one call."""
        try:
            while True:
                pid, status, rusage = os.wait4(-1, os.WNOHANG)
                if pid == task.pid:
                    task.status = status
                    if not self.adopting:
                        _kill_group(pid)
                if pid:
                    task.usage = task.usage.plus(rusage)
                elif task.status is None:
                    return False
                else:
                    break
        except ChildProcessError:
            return True
        more = tree.kill_all_children()
        task.usage = tree.Usage(
            task.usage.cpu_seconds + more.cpu_seconds,
            max(task.usage.memory_kb, more.memory_kb),
        )
        return True

    def _finish(self, task: Task) -> None:
        now = time.monotonic()
        kind, code, number, message = _judge(task)
        if kind == "failed":
            shortage = self.space.shortage()  # before the task's own output is dropped
            if shortage:
                kind, message = "host", "{}; {}".format(message, shortage)
        out, out_bytes = self.outputs[0].take(self.settings.output_limit)
        err, err_bytes = self.outputs[1].take(self.settings.output_limit)
        try:
            if self.home:
                self.home.tidy()
        except OSError:
            self.home = None  # made anew before the next task
        outcome = Outcome(
            task.given.key, kind, code, number, now - task.started, task.usage.cpu_seconds,
            task.usage.memory_kb, task.started, out, err, out_bytes, err_bytes, message,
        )  # fmt: skip
        self._settle(task.given, outcome)


def _judge(task: Task) -> Tuple[str, int, int, str]:
    """(kind, exit code, signal, words) of a task that has ended."""
    status = task.status
    if status is None:
        return "host", -1, 0, "its process vanished"
    code, number = -1, 0
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        message = "killed by {}".format(_signal_name(number))
        if number == signal.SIGKILL and not task.verdict:
            message += " (not by covey; perhaps for want of memory)"
    else:
        code = os.WEXITSTATUS(status)
        message = "exit code {}".format(code) if code else ""
    if task.verdict == "timeout":
        message = "over its limit of {:g} s".format(task.given.limit_seconds)
    elif task.verdict:
        message = task.verdict
    return task.verdict or ("ok" if code == 0 else "failed"), code, number, message


def _unstarted(given: Given, error: OSError) -> Outcome:
    """The outcome of an order whose command could not be executed."""
    words = error.strerror or str(error)
    if error.errno in _HOST_ERRORS:
        return Outcome(given.key, "host", message="cannot start a process: " + words)
    name = given.argv[0] if given.argv else ""
    missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
    if missing and given.chdir and not os.path.isdir(given.chdir):
        name, missing = given.chdir, False  # as sh does when it cannot change there
    message = "{}: {}".format(name, "command not found" if missing else words)
    text = "covey: {}\n".format(message).encode("utf-8", "backslashreplace")
    now = time.monotonic()
    return Outcome(
        given.key, "failed", 127 if missing else 126, started=now,
        stderr=text, stderr_bytes=len(text), message=message,
    )  # fmt: skip


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
