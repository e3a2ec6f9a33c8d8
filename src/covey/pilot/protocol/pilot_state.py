"""The pilot's half of the protocol, without any I/O: `messages.py` states its rules.

Events go in through `answered`, `failed`, `refused`, `prepared`, `ended`, `abandon` and `drain`.
`step(now)` returns the commands to carry out, and `next_start` hands out work as slots become free.
The simulator runs this same class.

How it behaves:
- One sync is always open at the server, parked. Ends go out in a second one: at most every
  PACE_SECONDS while slots have work queued (nobody waits for the answer then), else at once.
- An attempt that needs files or its bag's setup waits until it is `prepared`. It takes no slot from
  others: the server is told which bags wait (`waiting_bags`), and sends other work.
- A host that is `short_of` disk space asks for no work, and gives back what has not started.
- A pilot prefetches enough to keep its slots busy for HORIZON_SECONDS, by measured run times, so
  that short tasks never wait for the network. If long tasks come after short ones, so that nothing
  ends for LONG_SECONDS, it gives back what has not started: other pilots could run those attempts,
  and better tasks could overtake them. But it keeps everything while the server is away, and
  always what the server sent beyond what was asked for.
- While the server is away, a pilot goes on, keeps every end, and asks again with exponential
  back-off and jitter, always with the same numbers and the same ends. If the server says when to
  come again, the pilot comes then.
- A sync that the server refuses as invalid is never sent again unchanged, since it would be refused
  for ever. Its content is sent in smaller parts; a single end that is refused is replaced by a
  failure that says so, and tags that are refused are dropped.
- A draining pilot gives back what it has not started, finishes and delivers the rest, then leaves.
  Attempts that it had to `abandon` are lost with it.
"""

from collections import OrderedDict, deque
from random import Random
from typing import Callable, Deque, Dict, List, Optional, Set

from covey.pilot.protocol.commands import (
    BodyKey,
    Command,
    Depart,
    EnrolAgain,
    Prepare,
    Recall,
    Send,
    Start,
    Stop,
    body_key,
)
from covey.pilot.protocol.ended_attempts import Ended, Open, batch, dated, size_of
from covey.pilot.protocol.held_attempts import Holding
from covey.pilot.protocol.message_limits import refused_end
from covey.pilot.protocol.messages import (
    HOST,
    INVALID,
    MOST_SHORTAGE,
    MOST_WANT,
    RETURNED,
    SETUP,
    TOO_LARGE,
    Answer,
    Body,
    End,
    Followed,
    Held,
    Sync,
    Task,
    WaitingBag,
)
from covey.pilot.protocol.waiting_bags import LOOK_SECONDS, surplus, waiting_bags

PACE_SECONDS = 0.2
HORIZON_SECONDS = 0.3
LONG_SECONDS = 1.0  # tasks that take longer are not prefetched
MOST_PREFETCH = 512  # attempts for each slot
MOST_ENDS = 1000  # in a sync
MOST_OUTPUT = 1 << 20  # characters of output and files in a sync, unless one end has more
FIRST_BACKOFF = 0.1
LAST_BACKOFF = 30.0
LONGEST_DELAY = 120.0  # the longest wait that a server or a proxy may ask for
OVERTAKEN_SECONDS = 0.5
AHEAD_SECONDS = 0.001  # first pause before a sync that overtook another is sent again

OUT_OF_ORDER = "out-of-order"  # the server's problem type for a sync that overtook another

_NOT_RUN = (RETURNED, HOST, SETUP)  # outcomes that say nothing about the duration of tasks


def key_of(epoch: int, sequence: int) -> str:
    return "%d.%d" % (epoch, sequence)


class PilotState:
    def __init__(
        self, pilot: int, epoch: int, slots: int, idle_seconds: float, random: Random, now: float
    ) -> None:
        self.pilot = pilot
        self.epoch = epoch
        self.slots = slots
        self.idle_seconds = idle_seconds
        self.holding: Dict[str, Holding] = {}
        self._abandoned = False
        self.weight = 0  # slots that all held attempts take
        self.queue: Deque[str] = deque()
        self.unprepared: "OrderedDict[str, float]" = OrderedDict()  # key -> waiting since
        self.shortage = ""  # why this host can start nothing now
        self._waiting: List[WaitingBag] = []  # as last sent to the server, or about to be sent
        self._waiting_at = now  # when to compute that again
        self._news_due = False
        self._forgettable: Set[int] = set()  # bags whose bodies the server may send again
        self.follow: List[Followed] = []
        self.bodies: Dict[int, Body] = {}
        self.ready_until: Dict[BodyKey, float] = {}  # that of `readiness`, which fills it
        self.draining = ""  # the reason, if this pilot drains
        self.failures = 0  # to reach the server, in a row
        self._random = random
        self._number = 0
        self._received = 0
        self._full = False
        self._enrolling = False
        self._departed = False
        self._open: "OrderedDict[int, Open]" = OrderedDict()
        self._ends: List[Ended] = []
        self._ends_sent = now - 1.0  # long ago
        self._busy = now
        self._mean_seconds: Optional[float] = None
        self._asked = 0  # the most we asked for; a policy may make the server send more
        self._tags: Optional[Dict[str, str]] = None
        self._tags_due = False
        self._most_ends = MOST_ENDS  # in a sync; fewer after a refusal
        self._commands: List[Command] = []

    # -- news ------------------------------------------------------------------------------

    def answered(self, number: int, answer: Answer, now: float) -> None:
        self.failures = 0
        if answer.epoch < self.epoch:
            self._again(number, now, FIRST_BACKOFF)
            return
        if answer.resync:
            if number in self._open or answer.epoch > self.epoch:
                self._start_over(answer.epoch, answer.recorded)
            return
        opened = self._open.get(number)
        if opened is None or answer.epoch != self.epoch:
            return
        opened.answer = answer
        while self._open:
            number, first = next(iter(self._open.items()))
            if first.answer is None:
                # The server released it before it answered a later one: the answer was lost.
                self._repeat_before(opened.sync.number, now)
                break
            del self._open[number]
            if first.ends:
                self._most_ends = min(2 * self._most_ends, MOST_ENDS)
            self._process(number, first.answer, now)

    def failed(self, number: int, attempt: int, now: float, delay: float = 0.0) -> None:
        """No answer came, or one that says to come back after `delay`. A busy server keeps a place
        in its line for us, so we come back at that time and not later."""
        opened = self._open.get(number)
        if opened is None or opened.tries != attempt:
            return
        if delay > 0.0:
            self.failures = max(self.failures, 1)
            self._again(number, now, min(delay, LONGEST_DELAY))
            return
        self.failures += 1
        backoff = min(FIRST_BACKOFF * 2 ** min(self.failures - 1, 20), LAST_BACKOFF)
        self._again(number, now, backoff * (0.5 + self._random.random() / 2))

    def refused(
        self, number: int, attempt: int, problem: str, now: float, words: str = ""
    ) -> List[End]:
        """The server refused a sync for this reason. Returns the ends that were replaced: their
        content must not be sent."""
        opened = self._open.get(number)
        if opened is None or opened.tries != attempt:
            return []
        if problem in ("unknown-pilot", "unauthorized"):  # or a later enrolment replaced ours
            if not self._enrolling:
                self._enrolling = True
                self._commands.append(EnrolAgain())
        elif problem == "stale":
            self._start_over(self.epoch, 0)
        elif problem == OUT_OF_ORDER:  # usually the sync before it is about to arrive
            self._repeat_before(number, now)
            delay = AHEAD_SECONDS * 4.0 ** min(opened.tries - 1, 20)
            self._again(number, now, min(delay, OVERTAKEN_SECONDS))
        elif problem in (INVALID, TOO_LARGE) and (opened.ends or opened.sync.tags is not None):
            return self._send_otherwise(opened, words)
        else:
            self.failed(number, attempt, now)
        return []

    def _send_otherwise(self, opened: Open, words: str) -> List[End]:
        """The server will never accept this sync. Send its content again, in smaller parts."""
        ends = opened.ends
        replaced: List[End] = []
        if len(ends) > 1 or (ends and opened.sync.tags is not None):
            self._most_ends = max(1, len(ends) // 2)
        elif ends:
            replaced = [ends[0].end]
            end = refused_end(ends[0].end, words)
            opened.ends = [ends[0]._replace(end=end, size=size_of(end))]
        else:
            self._tags = None
        self._start_over(self.epoch, 0)
        return replaced

    def enrolled(self, pilot: int, epoch: int) -> None:
        self._enrolling = False
        if pilot != self.pilot:
            self.pilot = pilot
            self._start_over(epoch, 0)
        else:  # the server knows us after all, and will say which ends it has
            for opened in self._open.values():
                opened.retry_at = 0.0

    def prepared(self, key: str) -> None:
        """The attempt has all it needs. Ignored if it was given back meanwhile."""
        if key in self.unprepared:
            del self.unprepared[key]
            self.queue.append(key)

    def ended(
        self,
        key: str,
        end: End,
        now: float,
        at: Optional[float] = None,
        size: Optional[int] = None,
    ) -> None:
        """The attempt is over, or its slot gives it back unstarted. `at`: when it ended, if that
        was before `now`. `size`: of its original content, if that was moved to the spool."""
        holding = self._let_go(key)
        if key in self.unprepared:
            del self.unprepared[key]
        self._busy = now
        at = now if at is None else at
        queued, outcome, wall = 0.0, end.outcome, end.wall_seconds
        if outcome != RETURNED:
            queued = max(0.0, at - wall - holding.fetched)
        if outcome not in _NOT_RUN:
            wall = max(wall, 0.0002)
            mean = self._mean_seconds
            self._mean_seconds = wall if mean is None else 0.8 * mean + 0.2 * wall
        size = size_of(end) if size is None else size
        self._ends.append(Ended(end, at, queued, size, holding.receipt))

    def publish(self, tags: Dict[str, str]) -> None:
        """Publish these tags of the host in the next sync."""
        self._tags, self._tags_due = tags, True

    def short_of(self, words: str, now: float) -> None:
        """This host can start nothing now, for this reason; "": it can again."""
        if words and not self.shortage:
            self._give_back_all_unstarted(now)
        self._news_due = self._news_due or bool(words) != bool(self.shortage)
        self.shortage = words

    def abandon(self, key: str) -> None:
        """The attempt ends with this pilot. The server gives it up when the pilot leaves."""
        self._let_go(key)
        self._abandoned = True

    def drain(self, reason: str, now: float) -> None:
        if not self.draining:
            self.draining = reason
            self._give_back_all_unstarted(now)

    # -- what to do ------------------------------------------------------------------------

    def next_start(self, fits: Optional[Callable[[Start], bool]] = None) -> Optional[Start]:
        """The next attempt for a free slot. Only the first of the queue is considered: if it does
        not fit, the result is None, so that small attempts never delay a large one for ever."""
        if not self.queue:
            return None
        key = self.queue[0]
        holding = self.holding[key]
        start = Start(key, holding.body, holding.task)
        if fits is not None and not fits(start):
            return None
        self.queue.popleft()
        holding.started = True
        return start

    def step(self, now: float) -> List[Command]:
        if min(self.weight, self._asked) > self.slots and now - self._busy > LONG_SECONDS:
            self._share(now)
        if self._waiting or (self.unprepared and now >= self._waiting_at):
            self._check_waiting(now)
        self._send_what_is_due(now)
        self._depart_if_done(now)
        commands, self._commands = self._commands, []
        return commands

    def wake_at(self, now: float) -> float:
        """When `step` must be called again at the latest."""
        due = now + 1.0
        for opened in self._open.values():
            if opened.retry_at is not None:
                due = min(due, opened.retry_at)
        if self._ends and not self._ends_open():
            due = min(due, self._ends_sent + PACE_SECONDS)
        return due

    def away(self) -> bool:
        return self.failures > 0

    def undelivered(self) -> bool:
        return bool(self._ends) or self._ends_open()

    def holds_nothing(self) -> bool:
        """Nothing runs or waits here, and the server has confirmed every end."""
        return not self.holding and not self.undelivered()

    def every_start_confirmed(self) -> bool:
        """Whether the server has confirmed an end of every attempt that was started here."""
        return self.holds_nothing() and not self._abandoned

    def idle_since(self, now: float) -> float:
        """Seconds without anything to run or deliver."""
        if not self.holds_nothing():
            return 0.0
        return now - self._busy

    # -- inside ----------------------------------------------------------------------------

    def _process(self, number: int, answer: Answer, now: float) -> None:
        self._received = number
        self._forgettable.update(answer.forget)
        for body in answer.bodies:
            self._forgettable.discard(body.bag)
            self.bodies[body.bag] = body
            self.ready_until.pop(body_key(body), None)  # it may have other files now
        for task in answer.tasks:
            self._take(answer.epoch, task, answer.receipt, now)
        for held in answer.cancels:
            self._cancel(key_of(held.epoch, held.sequence), now)
        recalled = [key_of(held.epoch, held.sequence) for held in answer.recalls]
        if recalled:
            self._recall(recalled, now)
        if answer.leave:
            self.drain("the server shuts its pilots down", now)
        elif self.draining or self.shortage:
            self._give_back_unstarted(now)
        if self._forgettable:
            self._forget_bodies()
        if answer.follow is not None:
            self.follow = answer.follow

    def _forget_bodies(self) -> None:
        used = {holding.task.bag for holding in self.holding.values()}
        for bag in self._forgettable - used:
            self.bodies.pop(bag, None)
        self._forgettable &= used

    def _take(self, epoch: int, task: Task, receipt: str, now: float) -> None:
        key = key_of(epoch, task.sequence)
        body = self.bodies[task.bag]
        weight = max(1, body.needs[task.need].cores) if task.need < len(body.needs) else 1
        bare = not task.inputs and (
            now < self.ready_until.get(body_key(body), 0.0) or not (body.inputs or body.setup)
        )
        self.holding[key] = Holding(epoch, body, task, now, weight, bare, receipt)
        self.weight += weight
        self._busy = now
        if bare:
            self.queue.append(key)
        else:
            self.unprepared[key] = now
            self._commands.append(Prepare(Start(key, body, task)))

    def _let_go(self, key: str) -> Holding:
        holding = self.holding.pop(key)
        self.weight -= holding.weight
        return holding

    def _cancel(self, key: str, now: float) -> None:
        holding = self.holding.get(key)
        if holding is None:
            return
        if holding.started:
            self._commands.append(Stop(key))
        else:
            self._give_back(key, now)

    def _recall(self, keys: List[str], now: float) -> None:
        started = []
        for key in keys:
            holding = self.holding.get(key)
            if holding is not None and holding.started:
                started.append(key)
            elif holding is not None:
                self._give_back(key, now)
        if started:
            self._commands.append(Recall(started))

    def _share(self, now: float) -> None:
        """The running tasks are longer than those before: give back what has not started."""
        started = [key for key, holding in self.holding.items() if holding.started]
        if self.away() or self.draining or not (self.queue or len(started) > self.slots):
            return
        self._asked = 0
        self._mean_seconds = max(self._mean_seconds or 0.0, now - self._busy)
        for key in list(self.queue):
            self._give_back(key, now)
        self._commands.append(Recall(started))
        self._busy = now  # look again after the same time

    def _give_back_all_unstarted(self, now: float) -> None:
        """Also those that wait in a slot."""
        self._give_back_unstarted(now)
        started = [key for key, holding in self.holding.items() if holding.started]
        if started:
            self._commands.append(Recall(started))

    def _check_waiting(self, now: float) -> None:
        """Find out which bags wait for files. For each, keep only as many attempts as we have
        slots."""
        self._waiting_at = now + LOOK_SECONDS
        waiting = waiting_bags(self.unprepared, self.holding, now)
        over = surplus(waiting, self.unprepared, self.holding, self.slots)
        for key in over:
            self._give_back(key, now)
        if over:
            waiting = waiting_bags(self.unprepared, self.holding, now)
        self._news_due = self._news_due or waiting != self._waiting
        self._waiting = waiting

    def _give_back_unstarted(self, now: float) -> None:
        for key in list(self.queue) + list(self.unprepared):
            self._give_back(key, now)

    def _give_back(self, key: str, now: float) -> None:
        if key in self.unprepared:
            del self.unprepared[key]
        else:
            self.queue.remove(key)
        holding = self._let_go(key)
        task = holding.task
        end = End(holding.epoch, task.sequence, task.bag, task.task, RETURNED)
        self._ends.append(Ended(end, now, 0.0, 0, holding.receipt))

    def _ends_open(self) -> bool:
        return any(opened.ends for opened in self._open.values())

    def _send_what_is_due(self, now: float) -> None:
        if self._enrolling or self._departed:
            return
        for opened in self._open.values():
            if opened.retry_at is not None and now >= opened.retry_at:
                opened.retry_at = None
                self._send(opened)
        due = self._ends_due(now)
        # News about our host does not wait for the answer to a parked sync.
        news = (self._news_due or (self._tags_due and not self.holding)) and not self.away()
        if not self._open or ((due or news) and len(self._open) == 1):
            self._sync(now, batch(self._ends, self._most_ends, MOST_OUTPUT) if due else 0)

    def _ends_due(self, now: float) -> bool:
        if not self._ends or self._ends_open():
            return False
        # Also before we run out of work: short tasks are over before the next answer comes.
        paced = now - self._ends_sent >= PACE_SECONDS or self.weight < len(self._ends)
        return paced or self._full or self.weight <= self.slots

    def _sync(self, now: float, count: int) -> None:
        """Send a new sync, with the first `count` ends."""
        ends, self._ends = self._ends[:count], self._ends[count:]
        self._number += 1
        held: Optional[List[Held]] = None
        receipts: List[str] = []
        if self._full:
            self._full = False
            self._received = self._number - 1
            held = [
                Held(h.epoch, h.task.sequence, h.task.bag, h.task.task)
                for h in self.holding.values()
            ]
            # An end that does not fit into this sync must not look like a lost attempt.
            held += [Held(*ended.end[:4]) for ended in self._ends]
            receipts = self._receipts(ends)
        rows = [dated(ended, now) for ended in ends]
        want = self._want()
        self._asked = max(self._asked, want)
        # After a refusal, tags are sent alone: else we would not know what was refused.
        tags_too = self._tags_due and not (ends and self._most_ends < MOST_ENDS)
        sync = Sync(
            self.pilot,
            self.epoch,
            self._number,
            self._received,
            want,
            rows,
            held,
            self._tags if tags_too else None,
            receipts,
            self._waiting,
            self.shortage[:MOST_SHORTAGE],
            now,
        )
        self._news_due = False
        self._tags_due = self._tags_due and not tags_too
        if ends:
            self._ends_sent = now
        self._open[self._number] = opened = Open(sync, ends)
        self._send(opened)

    def _receipts(self, ends: List[Ended]) -> List[str]:
        """The receipts of all held attempts, of these ends, and of ends still to be sent."""
        receipts: "OrderedDict[str, None]" = OrderedDict()
        for holding in self.holding.values():
            receipts[holding.receipt] = None
        for ended in ends + self._ends:
            receipts[ended.receipt] = None
        receipts.pop("", None)
        return list(receipts)

    def _send(self, opened: Open) -> None:
        opened.tries += 1
        self._commands.append(Send(opened.sync, opened.tries))

    def _again(self, number: int, now: float, delay: float) -> None:
        opened = self._open.get(number)
        if opened is not None:
            opened.retry_at = now + delay

    def _repeat_before(self, number: int, now: float) -> None:
        """A later sync overtook these: they or their answers were lost."""
        for earlier, opened in self._open.items():
            if earlier < number and opened.answer is None and opened.retry_at is None:
                opened.retry_at = now + OVERTAKEN_SECONDS

    def _want(self) -> int:
        if self.draining or self.shortage:
            return 0
        mean = self._mean_seconds
        if mean is None or mean > LONG_SECONDS:
            return self.slots
        ahead = min(int(HORIZON_SECONDS / mean) + 1, MOST_PREFETCH)
        return min(self.slots * (1 + ahead) if ahead > 1 else self.slots + 1, MOST_WANT)

    def _start_over(self, epoch: int, recorded: int) -> None:
        """A new epoch, or the server had given this pilot up: no open sync will be answered."""
        self.epoch = epoch
        self._reclaim(recorded)
        self._full = True
        self._forgettable.update(self.bodies)  # the server sends again what is still needed
        self._tags_due = self._tags is not None
        self.follow = []

    def _reclaim(self, recorded: int) -> None:
        """Send the ends of unanswered syncs again, except those that the server has recorded."""
        again: List[Ended] = []
        for number, opened in self._open.items():
            if number > recorded:
                again.extend(opened.ends)
        self._ends = again + self._ends
        self._open.clear()

    def _depart_if_done(self, now: float) -> None:
        if self._departed or not self.holds_nothing():
            return
        reason = self.draining
        if not reason and not self.away() and self.idle_since(now) >= self.idle_seconds:
            reason = "idle for %.0f s" % self.idle_since(now)
        if reason:
            self._departed = True
            self._commands.append(Depart(reason))
