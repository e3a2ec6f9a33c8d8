"""The pilot's side of its slots: orders in, outcomes out, nothing left behind.

The rule: every order that ``offer`` took comes back from ``read`` or ``close`` as exactly one
outcome, whichever process dies. None of these calls waits for a task.

Each slot holds a few orders beyond the one that runs, so that it never waits for the pilot: two in
all if tasks are long, more if they take milliseconds. An order that waits in one slot while another
is idle is moved there.

What many orders share is a plan: call ``plan`` once, name its number in each order, and call
``forget`` when no more will come. Each slot gets the plan before the first order that needs it.

    pilot ── guard ── keeper ── slot ── task
      └─ sockets ────────────────┘

Call ``start`` before the pilot has threads. An object is not thread-safe. No other code in this
process may call ``os.waitpid(-1)``.
"""

import os
import select
import socket
import time
import warnings
import zlib
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, Dict, Iterable, List, Optional, Set, Tuple, Union

from covey.pilot.slots import process_tree
from covey.pilot.slots.guard import fork_guard
from covey.pilot.slots.keeper import REPLY, STOPPED, request
from covey.pilot.slots.orders import Order, Outcome, Plan, Returned, ValueSocket
from covey.pilot.slots.shared_page import SharedPage
from covey.pilot.slots.slot import CANCEL, FORGET, PLAN, RECALL
from covey.pilot.slots.slot_files import MINIMUM_FREE_BYTES, Space
from covey.pilot.slots.workspace import SlotSettings, outbox, paths

if TYPE_CHECKING:
    from covey.pilot.walls.sandbox import Sandbox

_SHALLOW, _DEEPEST = 2, 256
_PLENTY = 8
_AHEAD_SECONDS = 0.2  # about how much work a slot holds: longer than outcomes are collected
_REST_SECONDS = 0.05  # reports may wait so long for others while all slots have plenty to do
_START_SECONDS = 60.0
_CLOSE_SECONDS = 10.0
_KEEPER_SECONDS = 1.0  # between checks whether the keeper was stopped


_STOPPED_WORDS = "a process stopped it repeatedly (SIGSTOP)"


class _Seat:
    """What the pilot knows about one slot."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.orders: Optional[ValueSocket] = None
        self.control: Optional[ValueSocket] = None
        self.pid = 0
        self.inside: Dict[int, Order] = {}
        self.plans: Set[int] = set()  # that its process has
        self.number = 0  # of the last order given; continues when the slot is replaced
        self.mean_seconds = 1.0
        self.latest_seconds = 1.0  # mean duration of the tasks in its last report
        self.depth = _SHALLOW
        self.last_words = ""
        self.dying: Deque[List[Tuple[Order, Outcome]]] = deque()

    def room(self) -> int:
        """How many more orders it may hold now."""
        return max(0, self.depth - len(self.inside)) if self.orders is not None else 0

    def ease(self) -> float:
        """Seconds for which it certainly needs nothing: a third of its work, because some of its
        orders may be over already, and tasks may have become shorter than the mean."""
        count = len(self.inside)
        seconds = min(self.mean_seconds, self.latest_seconds)
        return count * seconds / 3 if count > _PLENTY else 0.0

    def learn(self, outcomes: List[Outcome]) -> None:
        """Estimate how long its tasks take, and so how many it should hold."""
        mean = self.mean_seconds
        latest = [outcome.wall_seconds for outcome in outcomes if outcome.started]
        for seconds in latest:
            mean += 0.2 * (seconds - mean)
        self.mean_seconds = mean
        if latest:
            self.latest_seconds = sum(latest) / len(latest)
        ahead = int(_AHEAD_SECONDS / max(mean, 1e-4))
        self.depth = min(_DEEPEST, _SHALLOW + ahead)


class Slots:
    """``count`` slots that work in ``directory``, which is created, and removed at the end if it
    has nothing else. Files that tasks return are in its outbox until somebody takes them away.
    Without ``control_groups`` memory limits are enforced by sampling. ``alone``: the process starts
    no other children, so that every other child of it is an orphan of a task."""

    def __init__(
        self,
        directory: str,
        count: int,
        grace_seconds: float = 2.0,
        minimum_free_bytes: int = MINIMUM_FREE_BYTES,
        control_groups: bool = True,
        alone: bool = False,
    ) -> None:
        directory = os.path.abspath(directory)
        mark = zlib.crc32(directory.encode("utf-8", "surrogateescape"))
        group = "covey-{}-{:08x}".format(os.getpid(), mark) if control_groups else ""
        self._settings = SlotSettings(directory, grace_seconds, minimum_free_bytes, group)
        self._alone = alone
        self._space = Space(directory, minimum_free_bytes)
        self._seats = [_Seat(index) for index in range(count)]
        self._next_seat = 0
        self._least = 0  # no seat has fewer orders
        self._free: Optional[int] = None  # the result of ``free``, while it is known
        self._warm: Optional[_Seat] = None  # it took the last call, so it has a worker
        self._plans: Dict[int, Plan] = {}
        self._forgotten: Set[int] = set()  # plans that are forgotten but still in use
        self._by_fd: Dict[int, _Seat] = {}
        self._where: Dict[str, Tuple[_Seat, int]] = {}
        self._moving: Set[str] = set()
        self._unwanted: Set[str] = set()
        self._ready: List[Outcome] = []
        self._poll = select.poll()
        self._listened: List[int] = []
        self._elsewhere = select.poll()  # only for those
        self._rung: Optional[List[Tuple[int, int]]] = None  # the events that ended the last wait
        self._guard_pid = self._keeper_pid = 0
        self._keeper_at = 0.0
        self._keeper: Optional[socket.socket] = None
        self._closing = False

    # Starting

    def start(self) -> None:
        """Start the slots. Raises OSError if this host cannot. Call it again only after close."""
        os.makedirs(self._settings.directory, 0o700, exist_ok=True)
        process_tree.become_subreaper()  # in case even the keeper is killed
        self._page = SharedPage(len(self._seats))
        self._closing = False
        self._start_keeper()
        give_up = time.monotonic() + _START_SECONDS
        while any(not seat.pid for seat in self._seats):
            if self._keeper is None or time.monotonic() > give_up:
                self.close()
                raise OSError("the slots did not start")
            self._poll.poll(100)
            self._hear_keeper()

    def wall_in(self, sandbox: "Sandbox", memory_mb: int) -> None:
        """Run every task in this sandbox. Call it before ``start``, so that the first task is in it
        too. ``memory_mb`` is for all tasks together."""
        share = max(1, memory_mb // max(1, len(self._seats)))
        self._settings = self._settings._replace(sandbox=sandbox, memory_mb=share)

    def _start_keeper(self) -> None:
        self._guard_pid, self._keeper_pid, self._keeper = fork_guard(self._settings, self._page)
        self._poll.register(self._keeper, select.POLLIN)
        for seat in self._seats:
            self._connect(seat)
            self._hear_keeper()  # with a thousand slots either socket could fill up

    def _connect(self, seat: _Seat) -> None:
        """Ask the keeper to start a slot for this seat."""
        if self._keeper is None:
            return
        pairs = [socket.socketpair(), socket.socketpair()]
        try:
            request(self._keeper, seat.index, [pairs[0][1], pairs[1][1]])
        except OSError:  # the keeper died: _hear_keeper will handle it
            for pair in pairs:
                pair[0].close()
            return
        finally:
            for pair in pairs:
                pair[1].close()
        seat.pid = 0
        seat.orders, seat.control = ValueSocket(pairs[0][0]), ValueSocket(pairs[1][0])
        self._by_fd[seat.orders.fileno()] = seat
        self._least, self._free = 0, None
        self._poll.register(seat.orders, select.POLLIN)

    # Orders in

    def plan(self, plan: Plan) -> None:
        """Let orders use this plan from now on, by its number, which is never reused."""
        if plan.number in self._plans:
            raise ValueError("plan {} is known already".format(plan.number))
        self._plans[plan.number] = plan

    def forget(self, number: int) -> None:
        """No more orders will use this plan. Those inside still do."""
        if number in self._plans:
            self._forgotten.add(number)
            self._drop_plans()

    def _drop_plans(self) -> None:
        used = {order.plan for seat in self._seats for order in seat.inside.values()}
        for seat in self._seats:
            used.update(order.plan for dying in seat.dying for order, _ in dying)
        for number in sorted(self._forgotten - used):
            self._forgotten.discard(number)
            calls = self._plans.pop(number).calls
            for seat in self._seats:
                if seat.orders and number in seat.plans:
                    seat.plans.discard(number)
                    # A worker that waits for more calls of this plan must end now.
                    seat.orders.send((FORGET, number), later=not calls)

    def free(self) -> int:
        """How many more orders can be offered now."""
        if self._free is None:
            self._free = sum(seat.room() for seat in self._seats)
        return self._free

    def shortage(self) -> str:
        """Why no task can start now: too little disk space. "" if there is enough."""
        return self._space.shortage() if self._space.short() else ""

    def running(self) -> Dict[str, int]:
        """Every order inside, with its process id if it runs, else 0."""
        pids = {}
        for seat in self._seats:
            number, pid = self._page.begun(seat.index) if seat.inside else (0, 0)
            for inside, order in seat.inside.items():
                pids[order.key] = pid if inside == number else 0
        return pids

    def printed(self, key: str, stream: int, start: int, most: int) -> bytes:
        """What the order has printed from byte ``start`` on, up to ``most`` bytes: on standard
        output (1) or error (2). Empty if the order does not run. Zeros stand where the middle of a
        large output was dropped."""
        seat, number = self._where.get(key, (None, 0))
        if seat is None or self._page.begun(seat.index)[0] != number:
            return b""
        try:
            path = paths(self._settings.directory, seat.index)[stream]
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return b""
        try:
            data = os.pread(fd, most, start)
        finally:
            os.close(fd)
        # The next task uses the same file, but prints nothing before the shared page has its
        # number. (A queued call may, until the slot has the answer to the call before it.)
        return data if self._page.begun(seat.index)[0] == number else b""

    def offer(self, order: Order) -> bool:
        """Put the order into the least loaded slot; False if all are full.

        Its key must not be inside already, and its plan must be known.
        """
        if order.key in self._where:
            raise ValueError("{} is inside already".format(order.key))
        if order.plan not in self._plans:
            raise ValueError("{} names the unknown plan {}".format(order.key, order.plan))
        seat = self._warm if order.call else None
        if seat is None or seat.orders is None or seat.inside or order.plan not in seat.plans:
            seat = self._warm = self._emptiest()
        if seat is None or len(seat.inside) >= seat.depth:
            return False
        self._give(seat, order)
        if self._free is not None:
            self._free -= 1
        return True

    def _emptiest(self) -> Optional[_Seat]:
        """The slot with the fewest orders among those that have room, else among all.

        The search continues where the last one ended and stops at the first slot that has no more
        than the known minimum: so filling a thousand slots does not look at each for each order.
        """
        best: Optional[_Seat] = None
        best_load = 1 << 30
        seats, count = self._seats, len(self._seats)
        for turn in range(count):
            seat = seats[(self._next_seat + turn) % count]
            if seat.orders is None:
                continue
            load = len(seat.inside)
            if load >= seat.depth:
                load += _DEEPEST
            if load < best_load:
                best, best_load = seat, load
                if load <= self._least:
                    break
        if best is not None:
            self._next_seat = (best.index + 1) % count
            self._least = best_load
        return best

    def _give(self, seat: _Seat, order: Order) -> None:
        seat.number += 1
        seat.inside[seat.number] = order
        self._where[order.key] = (seat, seat.number)
        if seat.orders:
            if order.plan not in seat.plans:
                seat.plans.add(order.plan)
                seat.orders.send(_plain(PLAN, self._plans[order.plan]), later=True)
            # A slot with plenty to do does not need this order before the next ``wait``: then
            # several are sent in one call.
            seat.orders.send(_plain(seat.number, order), len(seat.inside) > _PLENTY)

    def cancel(self, key: str) -> None:
        """End the order: it is killed if it runs (``cancelled``), else ``returned``. One that has
        just ended comes back as it ended. Unknown keys are ignored."""
        self._tell(key, CANCEL)

    def recall(self, keys: Iterable[str]) -> None:
        """Take back as ``returned`` the orders that have not started; the others go on."""
        for key in keys:
            self._tell(key, RECALL)

    def _tell(self, key: str, verb: int) -> None:
        seat, number = self._where.get(key, (None, 0))
        if seat is None:
            return
        self._unwanted.add(key)
        self._control(seat, verb, number)

    def _control(self, seat: _Seat, verb: int, number: int) -> None:
        if seat.orders and seat.control:
            seat.orders.flush()  # it must have the order that we speak of
            seat.control.send((verb, number))

    # Outcomes out

    def listen(self, fd: int) -> None:
        """Let this descriptor end a ``wait``, too, if it is readable; until ``close``."""
        self._listened.append(fd)
        self._poll.register(fd, select.POLLIN)
        self._elsewhere.register(fd, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Wait until a ``read`` finds something, or a descriptor of ``listen`` is readable.

        Waking up for each of many short reports would cost too much. So while all slots have plenty
        to do, their reports are not read at once, and then all together. Orders that were left for
        later are sent first, so that the slots have them.
        """
        for seat in self._seats:
            if seat.orders is not None and seat.orders.gathered:
                seat.orders.flush()
        rest = min(seconds, self._ease())
        if rest >= 0.001 and not self._elsewhere.poll(int(rest * 1000)):
            seconds -= rest
        self._rung = self._poll.poll(max(0.0, seconds) * 1000)

    def _ease(self) -> float:
        ease = _REST_SECONDS
        for seat in self._seats:
            ease = min(ease, seat.ease())
            if not ease:
                break
        return ease

    def read(self, timeout: float = 0) -> List[Outcome]:
        """All outcomes that are there now; waits up to ``timeout`` seconds for one."""
        until = time.monotonic() + timeout
        while True:
            left = max(0.0, until - time.monotonic())
            rung, self._rung = self._rung, None
            if rung is None:
                rung = self._poll.poll(0 if self._ready else int(left * 1000 + 0.999))
            for fd, _ in rung:
                seat = self._by_fd.get(fd)
                if seat is None:
                    self._hear_keeper()
                elif not self._hear(seat):
                    self._disconnect(seat)
                    self._connect(seat)
            self._balance()
            self._wake_keeper()
            if self._forgotten:
                self._drop_plans()
            if self._ready or not left:
                ready, self._ready = self._ready, []
                return ready

    def _hear(self, seat: _Seat) -> bool:
        """Take in what the slot sent; False if it is dead."""
        if seat.orders is None or seat.control is None:
            return False
        for value in seat.orders.receive():
            if isinstance(value, str):
                seat.last_words = value
            elif value:
                self._take(seat, value)
        seat.control.flush()
        seat.orders.flush()  # the rest of a long order, if the slot asked for MORE
        return not seat.orders.closed

    def _take(self, seat: _Seat, report: List[Tuple[int, Tuple[Any, ...]]]) -> None:
        outcomes = [Outcome._make(fields) for _, fields in report]
        for (number, _), outcome in zip(report, outcomes):
            if outcome.files:
                outcome = outcome._replace(files=[Returned(*row) for row in outcome.files])
            self._over(seat.inside.pop(number), outcome)
        seat.learn(outcomes)
        self._free = None
        if len(seat.inside) <= self._least:
            self._least, self._next_seat = len(seat.inside), seat.index

    def _over(self, order: Order, outcome: Outcome) -> None:
        key = order.key
        del self._where[key]
        if key in self._moving:
            self._moving.discard(key)
            if outcome.kind == "returned" and key not in self._unwanted:
                target = self._emptiest()
                if target is not None:
                    self._give(target, order)
                    self._free = None
                    return
        self._unwanted.discard(key)
        self._ready.append(outcome)

    def _balance(self) -> None:
        """Take back an order that waits in one slot while another slot is idle."""
        if self._least > 0:
            return
        idle = sum(1 for seat in self._seats if seat.orders and not seat.inside)
        for seat in self._seats if idle else ():
            if len(seat.inside) < 2 or not idle:
                continue
            number = max(seat.inside)
            key = seat.inside[number].key
            if key not in self._moving and key not in self._unwanted:
                self._moving.add(key)
                self._control(seat, RECALL, number)
                idle -= 1

    # When something dies

    def _disconnect(self, seat: _Seat) -> None:
        """The slot's process is dead, but perhaps not yet what it ran. Its orders are written off
        when the keeper has cleaned up. Whether they had begun is known now."""
        if seat.orders is None or seat.control is None:
            return
        self._poll.unregister(seat.orders)
        del self._by_fd[seat.orders.fileno()]
        seat.orders.close()
        seat.control.close()
        seat.orders = seat.control = None
        begun, _ = self._page.begun(seat.index)
        words = "its slot died"
        if seat.last_words:
            words += ": " + seat.last_words.strip().splitlines()[-1]
            seat.last_words = ""
        seat.dying.append(
            [
                (order, Outcome(order.key, "host" if n <= begun else "returned", message=words))
                for n, order in seat.inside.items()
            ]
        )
        seat.inside.clear()
        seat.plans.clear()
        self._least, self._free = 0, None

    def _write_off(self, seat: _Seat) -> None:
        """Nothing of a dead slot is left: report the orders that it had."""
        for order, outcome in seat.dying.popleft() if seat.dying else ():
            self._clear_outbox(order.key)
            self._over(order, outcome)

    def _clear_outbox(self, key: str) -> None:
        """Remove files that a slot took from a task but did not report before it died."""
        away = outbox(self._settings.directory)
        try:
            for name in os.listdir(away):
                if name.rpartition("-")[0] == key.replace("/", "_"):
                    os.unlink(os.path.join(away, name))
        except OSError:
            pass

    def _hear_keeper(self) -> None:
        while self._keeper is not None:
            try:
                data = self._keeper.recv(REPLY.size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if len(data) < REPLY.size:
                self._replace_keeper(self._keeper)
                return
            index, pid = REPLY.unpack(data)
            if pid == STOPPED:
                self._seats[index].last_words = _STOPPED_WORDS
            elif pid:
                self._seats[index].pid = pid
            else:
                self._write_off(self._seats[index])

    def _wake_keeper(self) -> None:
        """Wake the keeper and the guard: a task outside of a sandbox may have stopped them."""
        now = time.monotonic()
        if now >= self._keeper_at and self._keeper is not None:
            self._keeper_at = now + _KEEPER_SECONDS
            process_tree.resume(self._keeper_pid)
            process_tree.resume(self._guard_pid)

    def _replace_keeper(self, keeper: socket.socket) -> None:
        """The keeper or the guard was killed. The guard ends all that is left and then itself; if
        it was killed, keeper and slots do that. Wait for it (milliseconds), then start again."""
        self._poll.unregister(keeper)
        keeper.close()
        self._keeper = None
        _wait_reaped([self._guard_pid, self._keeper_pid], _CLOSE_SECONDS)
        for seat in self._seats:
            self._hear(seat)  # what they had finished is not lost
            self._disconnect(seat)
        pids = [seat.pid for seat in self._seats if seat.pid]
        _wait_reaped(pids, _CLOSE_SECONDS)
        # The task of a slot that was killed with the keeper is now our child.
        others = () if self._alone else process_tree.Strangers(pids, self._settings.directory)
        process_tree.kill_children(others, _CLOSE_SECONDS)
        for seat in self._seats:
            while seat.dying:
                self._write_off(seat)
        if not self._closing:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a fork with threads: see keeper.py
                self._start_keeper()

    def close(self, kill: bool = True) -> List[Outcome]:
        """End everything and remove the directory; returns the remaining outcomes.

        With ``kill`` running tasks are cancelled, else waited for. In both cases orders that have
        not started are returned.
        """
        outcomes: List[Outcome] = []
        while self._listened:
            fd = self._listened.pop()
            self._poll.unregister(fd)
            self._elsewhere.unregister(fd)
        for key in list(self._where):
            self._tell(key, CANCEL if kill else RECALL)
        give_up = time.monotonic() + self._settings.grace_seconds + _CLOSE_SECONDS
        while self._where and self._keeper and (not kill or time.monotonic() < give_up):
            outcomes += self.read(0.1)
        self._closing = True
        for seat in self._seats:
            self._disconnect(seat)
            while seat.dying:
                self._write_off(seat)
        if self._keeper is not None:
            self._poll.unregister(self._keeper)
            self._keeper.close()
            self._keeper = None
            _wait_reaped([self._guard_pid], _CLOSE_SECONDS + 2)
        outcomes += self._ready
        self._ready = []
        return outcomes


def _plain(number: int, row: Union[Plan, Order]) -> Tuple[Any, ...]:
    """A row as it can cross a socket, after its number: plain tuples all the way down."""
    if not row.links:
        return (number,) + row
    links = [tuple(link) for link in row.links]
    return (number,) + tuple(links if value is row.links else value for value in row)


def _wait_reaped(pids: List[int], seconds: float) -> None:
    """Wait until these children are gone; a process that is not our child counts as gone."""
    give_up = time.monotonic() + seconds
    pause = 0.0005
    for pid in pids:
        try:
            while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < give_up:
                time.sleep(pause)
                pause = min(0.02, pause * 1.5)
        except ChildProcessError:
            continue
