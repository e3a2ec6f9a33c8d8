"""The pilot's main loop: slots below, the server above, the brain in between.

Everything happens in one thread, which waits for whatever comes first: an end from a slot, a
reply from the server, a signal, or the time the brain asked to be woken at. SIGTERM drains the
pilot; a second one, or the end of the drain time, ends its tasks too. Whatever way it ends, it
leaves no processes and no files.
"""

import gc
import os
import random
import select
import shutil
import signal
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional

from covey.pilot import host
from covey.pilot.brain import Brain, Depart, EnrolAgain, Recall, Send, Start, Stop
from covey.pilot.lines import Address, Lines, Reply
from covey.pilot.messages import (
    CANCELLED,
    HOST,
    Answer,
    Body,
    End,
    Enrol,
    Enrolled,
    Held,
    Leave,
    Task,
)
from covey.pilot.orders import Order, Outcome
from covey.pilot.slots import Slots
from covey.pilot.spool import Spool
from covey.pilot.template import Template

ENROL_SECONDS = 30.0
SLACK_SECONDS = 15.0  # beyond the time that the server parks a sync
GOODBYE_SECONDS = 3.0
GARBAGE_THRESHOLD = 20000  # our records have no cycles: looking for them is mostly in vain


class Options(NamedTuple):
    """`patience_seconds`: how long to stay when the server is away and ends are undelivered;
    with nothing to deliver a tenth of it will do."""

    address: Address
    secret: str
    directory: str
    slots: int
    site: str = "hand"
    job: str = ""
    version: str = ""
    drain_seconds: float = 20.0
    patience_seconds: float = 3600.0


class Pilot:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.key = "%032x" % random.SystemRandom().getrandbits(128)
        self.credential = ""
        self.brain: Optional[Brain] = None
        self.slots = Slots(options.directory, options.slots)
        self.lines = Lines(options.address, ENROL_SECONDS)
        self.spool = Spool(os.path.join(options.directory, "undelivered"))
        self.templates: Dict[int, Template] = {}
        self.environment = host.task_environment(os.environ)
        self.signals = 0
        self.stopping = ""
        self.finished = False
        self.refused = False
        self._retry_enrol_at: Optional[float] = None
        self._enrol_tries = 0
        self._away_since: Optional[float] = None
        self._drain_until: Optional[float] = None

    # -- life ------------------------------------------------------------------------------

    def run(self) -> int:
        """The exit status: 0 unless the host or the server would not have this pilot."""
        try:
            os.makedirs(self.options.directory, 0o700, exist_ok=True)
            self.slots.start()
            if hasattr(gc, "set_threshold"):  # PyPy has its own ways
                gc.set_threshold(GARBAGE_THRESHOLD)
        except OSError as error:
            self._say("cannot work in %s: %s" % (self.options.directory, error))
            return 1
        try:
            self._catch_signals()
            self._enrol()
            while not self.finished:
                self._wait()
                self._turn(time.monotonic())
            return 1 if self.refused else 0
        finally:
            self.slots.close(kill=True)
            self.spool.close()
            shutil.rmtree(self.options.directory, ignore_errors=True)

    def _catch_signals(self) -> None:
        def caught(_number: int, _frame: Any) -> None:
            self.signals += 1
            self.lines.wake()

        signal.signal(signal.SIGTERM, caught)
        signal.signal(signal.SIGINT, caught)

    def _wait(self) -> None:
        now = time.monotonic()
        until = now + 1.0
        if self.brain is not None:
            until = min(until, self.brain.wake_at(now))
        if self._retry_enrol_at is not None:
            until = min(until, self._retry_enrol_at)
        fds = [self.lines.wake_fd] + self.slots.filenos()
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, until - now) * 1000)

    def _turn(self, now: float) -> None:
        if self.brain is not None:
            for outcome in self.slots.read():
                self._ended(self.brain, outcome, now)
            self._fill_slots(self.brain, now)
        for reply in self.lines.replies():
            self._heard(reply, now)
        if self._retry_enrol_at is not None and now >= self._retry_enrol_at:
            self._enrol()
        self._obey_signals(now)
        if self.brain is not None:
            self._step(self.brain, now)

    def _step(self, brain: Brain, now: float) -> None:
        for command in brain.step(now):
            if isinstance(command, Send):
                self._send(command)
            elif isinstance(command, Stop):
                self.slots.cancel(command.key)
            elif isinstance(command, Recall):
                self.slots.recall(command.keys)
            elif isinstance(command, EnrolAgain):
                self._enrol()
            elif isinstance(command, Depart):
                self._say_goodbye(brain, command.reason)
        self._fill_slots(brain, now)
        self._mind_outage(brain, now)

    # -- the server ------------------------------------------------------------------------

    def _enrol(self) -> None:
        self._retry_enrol_at = None
        options = self.options
        enrol = Enrol(
            self.key,
            host.name(),
            options.slots,
            options.site,
            options.job,
            host.tags(),
            options.version,
        )
        self.lines.post("enrol", "/pilot/v1/enrol", enrol._asdict(), options.secret)

    def _send(self, send: Send) -> None:
        sync = send.sync._replace(ends=[self.spool.fill(end) for end in send.sync.ends])
        self.lines.post(
            (sync.number, send.attempt), "/pilot/v1/sync", sync._asdict(), self.credential
        )

    def _heard(self, reply: Reply, now: float) -> None:
        if reply.ticket == "enrol":
            self._enrol_answered(reply, now)
            return
        if self.brain is None or reply.ticket == "leave":
            return
        number, attempt = reply.ticket
        if reply.status == 200:
            self._away_since = None
            self.brain.answered(number, read_answer(reply.content), now)
            if not self.brain.undelivered():
                self.spool.delivered()
        elif 400 <= reply.status < 500:
            problem = str(reply.content.get("type", ""))
            self._say("sync %d refused: %s" % (number, reply.content.get("detail", "")))
            self.brain.refused(number, attempt, problem, now)
        else:
            self._server_away(reply, now)
            self.brain.failed(number, attempt, now, reply.retry_after)

    def _server_away(self, reply: Reply, now: float) -> None:
        if self._away_since is None:
            self._away_since = now
            self._say("the server is away: %s" % (reply.error or "status %d" % reply.status))

    def _enrol_answered(self, reply: Reply, now: float) -> None:
        if reply.status == 200:
            self._enrol_tries = 0
            enrolled = Enrolled(**reply.content)
            self.credential = enrolled.credential
            self.lines.timeout_seconds = enrolled.poll_seconds + SLACK_SECONDS
            if self.brain is not None:
                self.brain.enrolled(enrolled.pilot, enrolled.epoch)
                return
            self.brain = Brain(
                enrolled.pilot,
                enrolled.epoch,
                self.options.slots,
                enrolled.idle_seconds,
                random.Random(),
                now,
            )
        elif 400 <= reply.status < 500 and reply.status != 429:
            self._say("the server will not have this pilot: %s" % reply.content.get("detail"))
            self.refused = self.finished = True
        else:
            self._server_away(reply, now)
            self._enrol_tries += 1
            delay = min(0.1 * 2 ** min(self._enrol_tries, 10), 30.0) * random.uniform(0.5, 1.0)
            self._retry_enrol_at = now + max(delay, reply.retry_after)

    def _mind_outage(self, brain: Brain, now: float) -> None:
        """Nobody waits for ever for a server that does not come back."""
        if self._away_since is None or brain.holding:
            return
        away = now - self._away_since
        patience = self.options.patience_seconds
        if not brain.undelivered():
            patience = 1.0 if self.options.address.gone() else patience / 10
        if away > patience:
            self._say("the server has been away for %.0f s: giving up" % away)
            self.finished = True

    def _say_goodbye(self, brain: Brain, reason: str) -> None:
        self.lines.timeout_seconds = GOODBYE_SECONDS
        leave = Leave(brain.pilot, brain.epoch, reason)
        self.lines.post("leave", "/pilot/v1/leave", leave._asdict(), self.credential)
        until = time.monotonic() + GOODBYE_SECONDS
        while time.monotonic() < until:
            select.select([self.lines.wake_fd], [], [], 0.1)
            if any(reply.ticket == "leave" for reply in self.lines.replies()):
                break
        self._say("ended: %s" % reason)
        self.finished = True

    # -- the slots -------------------------------------------------------------------------

    def _fill_slots(self, brain: Brain, now: float) -> None:
        for _ in range(self.slots.free()):
            start = brain.next_start()
            if start is None:
                return
            self.slots.offer(self._order(start))

    def _order(self, start: Start) -> Order:
        body = start.body
        template = self.templates.get(body.bag)
        if template is None or template.body is not body:
            template = self.templates[body.bag] = Template(body, self.environment)
        return Order(
            start.key,
            template.argv(start.task),
            template.environment(start.task, start.key),
            body.limit_seconds,
            body.chdir,
        )

    def _ended(self, brain: Brain, outcome: Outcome, now: float) -> None:
        holding = brain.holding[outcome.key]
        kind, message = outcome.kind, outcome.message
        if kind == CANCELLED and self.stopping:
            kind, message = HOST, self.stopping
        end = End(
            holding.epoch,
            holding.task.sequence,
            holding.task.bag,
            holding.task.task,
            kind,
            outcome.exit_code,
            outcome.signal,
            0.0,
            round(outcome.wall_seconds, 6),
            round(outcome.cpu_seconds, 6),
            outcome.memory_kb,
            0.0,
            outcome.stdout.decode("utf-8", "replace"),
            outcome.stderr.decode("utf-8", "replace"),
            outcome.stdout_bytes,
            outcome.stderr_bytes,
            message,
        )
        brain.ended(outcome.key, self.spool.put(end) if brain.away() else end, now)

    # -- signals ---------------------------------------------------------------------------

    def _obey_signals(self, now: float) -> None:
        if not self.signals:
            return
        if self.brain is None:
            self.finished = True
            return
        if self._drain_until is None:
            self._say("draining")
            self._drain_until = now + self.options.drain_seconds
            self.brain.drain("asked to end", now)
        if not self.stopping and (self.signals > 1 or now >= self._drain_until):
            self.stopping = "its pilot was asked to end"
            for key in list(self.brain.holding):
                self.slots.cancel(key)
        if self.stopping and now >= self._drain_until + 2 * GOODBYE_SECONDS:
            self.finished = True

    def _say(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        try:
            sys.stderr.write("%sZ pilot %s: %s\n" % (stamp, self.options.job or "", text))
            sys.stderr.flush()
        except OSError:
            pass  # a full disk must not stop a pilot: its results are worth more than its words


def read_answer(content: Dict[str, Any]) -> Answer:
    """An answer from its JSON; fields that this pilot does not know are ignored."""
    known = {name: content[name] for name in Answer._fields if name in content}
    for name, row in (("bodies", Body), ("tasks", Task), ("cancels", Held), ("recalls", Held)):
        if name in known:
            known[name] = read_rows(row, known[name])
    return Answer(**known)


def read_rows(row: Any, rows: List[List[Any]]) -> List[Any]:
    width = len(row._fields)
    return [row(*fields[:width]) for fields in rows]
