"""The pilot's main loop: slots below, the server above, the pilot's state in between.

Everything happens in one thread. It waits for an end from a slot, a reply from the server, a
signal, or the time at which the pilot's state wants to be called. SIGTERM drains the pilot; a
second one, or the end of the drain time, ends its tasks too. However the pilot ends, it leaves no
processes and no files.
"""

import gc
import hashlib
import os
import random
import select
import shutil
import signal
import sys
import time
from typing import Any, Dict, Iterable, List, Optional
from urllib.parse import quote

from covey import __version__
from covey.pilot.files import leftovers
from covey.pilot.files.cache_leases import claim
from covey.pilot.files.file_cache import FileCache
from covey.pilot.files.readiness import Readiness
from covey.pilot.files.setups import Setups
from covey.pilot.files.transfers import Meter, Transfers
from covey.pilot.files.uploads import Uploads
from covey.pilot.host import host_facts, machine_id
from covey.pilot.host.tags import HostTags, Now, PilotFacts
from covey.pilot.options import Options
from covey.pilot.protocol.arrival import Arrival
from covey.pilot.protocol.commands import Depart, EnrolAgain, Prepare, Recall, Send, Stop
from covey.pilot.protocol.live_output import Follower
from covey.pilot.protocol.messages import (
    JOB_HEADER,
    Answer,
    Body,
    Enrol,
    Enrolled,
    Followed,
    Held,
    Input,
    Leave,
    Need,
    Printed,
    Task,
    life_of,
)
from covey.pilot.protocol.pilot_state import OUT_OF_ORDER, PilotState
from covey.pilot.protocol.request_threads import Identity, RequestThreads, ServerReply
from covey.pilot.protocol.spool import Spool
from covey.pilot.protocol.thread_pool import started
from covey.pilot.slots import process_tree
from covey.pilot.slots.attempt_queue import AttemptQueue, PilotParts
from covey.pilot.slots.capacity import Capacity
from covey.pilot.slots.slot_pool import Slots

ENROL_SECONDS = 30.0
OLD_PILOT = 426  # the status that tells a pilot to renew itself
SLACK_SECONDS = 15.0  # added to the time for which the server parks a sync
GOODBYE_SECONDS = 3.0
ORPHAN_SECONDS = 10.0  # a pilot whose server on this machine was killed ends itself after this
UNKNOWN_MEMORY_MB = 1024  # for /tmp of tasks in sandboxes, if the host's memory is not known
GARBAGE_THRESHOLD = 20000  # our records have no cycles, so searching for them rarely helps


class Pilot:
    def __init__(self, options: Options) -> None:
        self.options = options
        # The key proves to the server that we are the pilot that enrolled before. It is on no disk
        # and in no tag. Others tell pilots apart by a name that is made from it.
        self.key = "%032x" % random.SystemRandom().getrandbits(128)
        self.name = hashlib.sha256(self.key.encode()).hexdigest()[:32]
        self.identity = Identity()
        self.state: Optional[PilotState] = None
        self.slots = Slots(options.directory, options.slots, alone=True)
        self.requests = RequestThreads(options.address, ENROL_SECONDS, self.identity)
        self.spool = Spool(os.path.join(options.directory, "undelivered"))
        self.meter = Meter()
        self.uploads = Uploads(self._transfers, self.requests.wake)
        self.follower = Follower(self.slots.printed)
        self.signals = 0
        self._end_at = _end_at(options.until)
        self.finished = False
        self.refused = False
        self.arrival = Arrival(options, options.version or __version__, self._say)
        self._unfit: Optional[str] = None  # the problem that the site's own check found
        self._outdated = False
        self._tags_refused = False
        self._lag_seconds = 0.0
        self._sent_at: Dict[Any, float] = {}
        self._retry_enrol_at: Optional[float] = None
        self._enrol_tries = 0
        self._away_since: Optional[float] = None
        self._drain_until: Optional[float] = None
        self._alive: Optional[int] = None  # held open: see `leftovers`

    def _transfers(self) -> Transfers:
        return Transfers(self.options.address, self.identity, self.meter)

    def _prepare_host(self) -> None:
        """Find out what this host has, and create everything that needs its disk. Raises
        OSError."""
        options = self.options
        os.makedirs(options.directory, 0o700, exist_ok=True)
        cache = options.cache or host_facts.cache_directory(os.environ, options.directory)
        name = host_facts.name()
        memory_mb = options.memory_mb or host_facts.memory_mb()
        if self.arrival.sandbox is not None:
            self.slots.wall_in(self.arrival.sandbox, memory_mb or UNKNOWN_MEMORY_MB)
        try:
            file_cache = self._file_cache(cache)
        except OSError as error:
            self._say("cannot use the cache in %s: %s" % (cache, error))
            cache = os.path.join(options.directory, "cache")
            file_cache = self._file_cache(cache)
        claims = os.path.join(cache, "claims-" + name)
        gpus = host_facts.gpus(options.gpus, os.environ)
        processors = [str(number) for number in host_facts.processors()]
        # Held until we end: no other pilot of this host gives these to its tasks. Processors are
        # shared if there are too few for all pilots, GPUs never.
        self._claims = claim(claims, "gpu", gpus, len(gpus))
        self._pins = claim(claims, "processor", processors, options.slots)
        pins = list(self._pins) + [pin for pin in processors if pin not in self._pins]
        self.capacity = Capacity(
            options.slots,
            memory_mb,
            options.disk_mb or host_facts.disk_mb(options.directory)[1],
            list(self._claims),
            [int(number) for number in pins[: options.slots]],
        )
        self.file_cache, self.setups = file_cache, Setups(cache, name)
        self.tags = HostTags(self._fixed(cache), os.path.join(cache, "tags-%s.json" % name))
        self.machine = machine_id.machine(options.site, cache)
        environment = host_facts.task_environment(os.environ)
        for name in ("HOME", "TMPDIR") if options.shared else ():
            environment.pop(name, None)  # each sandbox has its own
        self.readiness = Readiness(file_cache, self.setups)
        parts = PilotParts(
            self.slots,
            self.capacity,
            self.readiness,
            self.setups,
            self.uploads,
            self.spool,
            self.tags,
            environment,
            self._say,
        )
        self.work = AttemptQueue(parts)

    def _file_cache(self, cache: str) -> FileCache:
        return FileCache(
            cache,
            self.options.cache_mb << 20,
            self.name,
            self._transfers,
            self.requests.wake,
            walled=self.arrival.sandbox is not None,
            say=self._say,
        )

    def _fixed(self, cache: str) -> PilotFacts:
        options, capacity = self.options, self.capacity
        return PilotFacts(
            self.name[:12],
            options.site,
            options.slots,
            capacity.memory_mb,
            capacity.gpus,
            options.directory,
            cache,
            options.until,
        )

    # -- life ------------------------------------------------------------------------------

    def run(self) -> int:
        """Returns the exit status: 0 unless the host or the server refused this pilot."""
        process_tree.hide_memory()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)
        try:
            if not self.arrival.ready():
                return 1
        except KeyboardInterrupt:
            self.arrival.tidy()
            shutil.rmtree(self.options.directory, ignore_errors=True)
            return 1
        status = self._live()
        if self._outdated:
            self.arrival.renew(self.arrival.check())
        return status

    def _live(self) -> int:
        try:
            self._prepare_host()
            self._unfit = self.arrival.site_problem()
            process_tree.settle_memory()
            self.slots.start()
            self.slots.listen(self.requests.wake_fd)
            self._alive = leftovers.hold(self.options.directory)
            started(self._sweep_leftovers, "sweep")
            self.arrival.tidy()
            if hasattr(gc, "set_threshold"):  # PyPy has none
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
            return 1 if self.refused or self._unfit else 0
        finally:
            self.uploads.close()
            self.slots.close(kill=True)
            self.setups.close()
            self.file_cache.close()
            self.tags.close()
            self.spool.close()
            shutil.rmtree(self.options.directory, ignore_errors=True)

    def _sweep_leftovers(self) -> None:
        count = leftovers.sweep(self.options.directory)
        if count:
            self._say("removed %d directories that killed pilots had left" % count)

    def _catch_signals(self) -> None:
        def caught(_number: int, _frame: Any) -> None:
            self.signals += 1
            self.requests.wake()

        signal.signal(signal.SIGTERM, caught)
        signal.signal(signal.SIGINT, caught)

    def _wait(self) -> None:
        now = time.monotonic()
        until = now + 1.0
        if self.state is not None:
            until = min(until, self.state.wake_at(now), self.work.wake_at(now))
            until = min(until, self.follower.wake_at(now, self.state.follow))
        if self._retry_enrol_at is not None:
            until = min(until, self._retry_enrol_at)
        self.slots.wait(max(0.0, until - now))

    def _turn(self, now: float) -> None:
        if self.state is not None:
            self.work.leaving = self.signals > 0
            self.work.turn(self.state, now)
        for reply in self.requests.replies():
            self._heard(reply, now)
        if self._retry_enrol_at is not None and now >= self._retry_enrol_at:
            self._enrol()
        self._obey_signals(now)
        if self.state is not None:
            if now >= self._end_at:
                self.state.drain("its time is nearly over", now)
            self._step(self.state, now)
        elif not self.finished:
            self._check_arrival(now)

    def _step(self, state: PilotState, now: float) -> None:
        self.work.fill(state, now)  # tasks before messages: a slot may be idle
        self._publish(state, now)
        commands = state.step(now)
        for command in commands:
            if isinstance(command, Prepare):
                self.work.prepare(state, command.start, now)
            elif isinstance(command, Stop):
                self.slots.cancel(command.key)
            elif isinstance(command, Recall):
                self.slots.recall(command.keys)
        if state.draining:
            self.work.drain()
        self.work.fill(state, now)
        for command in commands:
            if isinstance(command, Send):
                self._send(command, now)
            elif isinstance(command, EnrolAgain):
                self._enrol()
            elif isinstance(command, Depart):
                self._say_goodbye(state, command.reason)
        self._check_outage(state, now)

    def _publish(self, state: PilotState, now: float) -> None:
        """Send changed tags of this host, and the output of followed tasks."""
        if self.tags.due(now):
            self.work.note_last()
            running = [pid for pid in self.slots.running().values() if pid]
            facts = Now(self.capacity.free_cores(), running, self._lag_seconds, self.meter.rate)
            tags = self.tags.changed(now, facts)
            if tags is not None:
                state.publish(tags)
        pieces = self.follower.pieces(now, state.follow, state.holding)
        if pieces:
            self.follower.waiting = True
            printed = Printed(state.pilot, pieces)
            self.requests.post(
                "printed", "/pilot/v1/printed", printed._asdict(), self.identity.credential
            )

    # -- the server ------------------------------------------------------------------------

    def _enrol(self) -> None:
        self._retry_enrol_at = None
        options = self.options
        enrol = Enrol(
            self.key,
            host_facts.name(),
            options.slots,
            options.site,
            options.job,
            self.tags.without_those_of_tasks() if self._tags_refused else self.tags.at_enrolment(),
            options.version or __version__,
            memory_mb=self.capacity.memory_mb,
            disk_mb=self.capacity.disk_mb,
            gpus=len(self.capacity.gpus),
            machine=self.machine,
            boot=machine_id.boot(),
            shared=options.shared,
        )
        job = {JOB_HEADER: quote(options.job)} if options.job else None
        self.requests.post("enrol", "/pilot/v1/enrol", enrol._asdict(), options.secret, job)

    def _send(self, send: Send, now: float) -> None:
        sync, ticket = send.sync, (send.sync.number, send.attempt)
        if sync.ends:  # a sync with ends is answered at once
            sync = sync._replace(ends=self.spool.filled(sync.ends))
            self._sent_at[ticket] = now
        self.requests.post(ticket, "/pilot/v1/sync", sync._asdict(), self.identity.credential)

    def _heard(self, reply: ServerReply, now: float) -> None:
        if reply.ticket == "enrol":
            self._enrol_answered(reply, now)
            return
        if reply.ticket == "printed":
            self.follower.waiting = False
            return
        if self.state is None or reply.ticket == "leave":
            return
        number, attempt = reply.ticket
        sent_at = self._sent_at.pop(reply.ticket, None)
        if reply.status == 200:
            if sent_at is not None:
                self._lag_seconds += 0.2 * (now - sent_at - self._lag_seconds)
            self._away_since = None
            self.state.answered(number, read_answer(reply.content), now)
            if not self.state.undelivered():
                self.spool.delivered()
        elif 400 <= reply.status < 500:
            problem = str(reply.content.get("type", ""))
            words = str(reply.content.get("detail", ""))
            if problem != OUT_OF_ORDER:
                self._say("sync %d refused: %s" % (number, words))
            for end in self.state.refused(number, attempt, problem, now, words):
                self.spool.forget(end)
                self._say("attempt %d.%d is reported as failed" % end[:2])
        else:
            self._server_away(reply, now)
            self.state.failed(number, attempt, now, reply.retry_after)

    def _server_away(self, reply: ServerReply, now: float) -> None:
        if self._away_since is None:
            self._away_since = now
            words = reply.error or "status %d" % reply.status
            if reply.status == 429 and reply.content:
                self._say("the server asks this pilot to wait: %s" % reply.content.get("detail"))
            else:
                self._say("cannot reach the server: %s" % words)

    def _enrol_answered(self, reply: ServerReply, now: float) -> None:
        if reply.status == 200:
            self._enrol_tries = 0
            fields = {name: reply.content[name] for name in Enrolled._fields}
            enrolled = Enrolled(**fields)
            self.identity.pilot = enrolled.pilot
            self.identity.credential = enrolled.credential
            self.requests.timeout_seconds = enrolled.poll_seconds + SLACK_SECONDS
            if self.state is not None:
                self.state.enrolled(enrolled.pilot, enrolled.epoch)
                return
            self.state = PilotState(
                enrolled.pilot,
                enrolled.epoch,
                self.options.slots,
                enrolled.idle_seconds,
                random.Random(),
                now,
            )
            self.state.ready_until = self.readiness.ready_until
            if self._unfit:
                self._say(self._unfit)
                self._say_goodbye(self.state, self._unfit)
            else:  # people who started a pilot by hand would see nothing
                words = "works for %s as pilot %d, with %s"
                slots = "1 slot" if self.options.slots == 1 else "%d slots" % self.options.slots
                self._say(words % (self.options.address.url(), enrolled.pilot, slots))
        elif reply.status in (400, 413) and not self._tags_refused:
            self._say("enrolment refused: %s; trying without tags" % reply.content.get("detail"))
            self._tags_refused = True
            self._enrol()
        elif 400 <= reply.status < 500 and reply.status != 429:
            self._say("the server refuses this pilot: %s" % reply.content.get("detail"))
            self.refused = self.finished = True
            self._outdated = reply.status == OLD_PILOT
        else:
            self._server_away(reply, now)
            self._enrol_tries += 1
            delay = min(0.1 * 2 ** min(self._enrol_tries, 10), 30.0) * random.uniform(0.5, 1.0)
            self._retry_enrol_at = now + max(delay, reply.retry_after)

    def _check_arrival(self, now: float) -> None:
        """Give up if the server has not accepted this pilot for too long."""
        if self._away_since is None:
            return
        away = now - self._away_since
        if now >= self._end_at:
            self._say("its time is nearly over, and it could not enrol: giving up")
        elif away > self._patience(self.options.patience_seconds):
            self._say("the server has been away for %.0f s: giving up" % away)
        else:
            return
        self.refused = self.finished = True

    def _patience(self, seconds: float) -> float:
        """How long a pilot with nothing to deliver waits. If a server of this machine was killed,
        its successor starts its own pilots."""
        return min(seconds, ORPHAN_SECONDS) if self.options.address.server_ended() else seconds

    def _check_outage(self, state: PilotState, now: float) -> None:
        """Give up if the server has been away for too long."""
        if self._away_since is None or self.work.busy() or state.queue:
            return
        away = now - self._away_since
        patience = self.options.patience_seconds
        if not state.undelivered() and not self.work.uploading():
            patience = 1.0 if self.options.address.gone() else self._patience(patience / 10)
        if away > patience:
            self._say("the server has been away for %.0f s: giving up" % away)
            self.finished = True

    def _say_goodbye(self, state: PilotState, reason: str) -> None:
        self.requests.timeout_seconds = GOODBYE_SECONDS
        leave = Leave(state.pilot, state.epoch, reason, state.every_start_confirmed())
        self.requests.post("leave", "/pilot/v1/leave", leave._asdict(), self.identity.credential)
        until = time.monotonic() + GOODBYE_SECONDS
        while time.monotonic() < until:
            select.select([self.requests.wake_fd], [], [], 0.1)
            if any(reply.ticket == "leave" for reply in self.requests.replies()):
                break
        self._say("ended: %s" % reason)
        self.finished = True

    # -- signals ---------------------------------------------------------------------------

    def _obey_signals(self, now: float) -> None:
        if not self.signals:
            return
        if self.state is None:
            self.finished = True
            return
        if self._drain_until is None:
            self._say("draining")
            self._drain_until = now + self.options.drain_seconds
            self.state.drain("asked to end", now)
        if not self.work.stopping and (self.signals > 1 or now >= self._drain_until):
            self.work.stop(self.state, "its pilot was asked to end", now)
        if self.work.stopping and now >= self._drain_until + 2 * GOODBYE_SECONDS:
            self.finished = True

    def _say(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        try:
            sys.stderr.write("%sZ pilot %s: %s\n" % (stamp, self.options.job or "", text))
            sys.stderr.flush()
        except OSError:
            pass  # a full disk must not stop a pilot: results matter more than messages


def _end_at(until: float) -> float:
    """The monotonic time at which the pilot must begin to end."""
    left = until - time.time()
    return time.monotonic() + life_of(left) if until else float("inf")


def _leave(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


def read_answer(content: Dict[str, Any]) -> Answer:
    """An answer from its JSON; fields that this pilot does not know are ignored."""
    values = {name: content[name] for name in Answer._fields if name in content}
    for name, row in (("cancels", Held), ("recalls", Held), ("follow", Followed)):
        if values.get(name):
            values[name] = _rows(row, values[name])
    values["bodies"] = [_body(fields) for fields in values.get("bodies", ())]
    values["tasks"] = [_task(fields) for fields in values.get("tasks", ())]
    return Answer(**values)


def _rows(row: Any, rows: Iterable[Any]) -> List[Any]:
    width = len(row._fields)
    return [row(*fields[:width]) for fields in rows]


def _body(fields: List[Any]) -> Body:
    body = Body(*fields[: len(Body._fields)])
    return body._replace(needs=_rows(Need, body.needs), inputs=_rows(Input, body.inputs))


_TASK_WIDTH = len(Task._fields)


def _task(fields: List[Any]) -> Task:
    task = Task._make(fields) if len(fields) == _TASK_WIDTH else Task(*fields[:_TASK_WIDTH])
    return task._replace(inputs=_rows(Input, task.inputs)) if task.inputs else task
