"""A worker as its slot sees it: a long-lived process, our end of its line, and its queue.

The rule: nothing here waits, and nothing that a worker sends or does can harm the slot. The format
of frames and packets is in ``call_records``.
"""

import errno
import json
import select
import socket
import time
from typing import List, Optional, Set, Tuple

from covey.pilot.calls.call_records import (
    GO,
    HEAD,
    LABEL,
    LENGTH,
    MOST_CALL,
    MOST_PACKET,
    ON_LINE,
    PACKED,
    frame,
)
from covey.pilot.slots import slot_signals
from covey.pilot.slots.workspace import GivenOrder

_CHUNK = 1 << 16  # a larger buffer would be allocated and freed by the system at each read
_MOST_ANSWER = MOST_CALL + 1 + HEAD.size
_MOST_SECONDS = 1e12
_SCHEDULED = 2  # the number of the kernel's clock for a process's processor time

Ends = Tuple[socket.socket, socket.socket]


def queue() -> Optional[Ends]:
    """Both ends of a new queue, ours and the worker's; None if the system has no such sockets."""
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError:
        return None  # not Linux
    # The worker must not wait inside a read: if it is killed there, the next packet is lost.
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


class Worker:
    __slots__ = (
        "_answered", "_poll", "_queue", "ahead", "closed", "cpu_seconds", "greeted",
        "line", "order", "pid", "quiet", "served", "since", "unfit", "unread", "unsent", "untaken",
    )  # fmt: skip

    def __init__(
        self, order: GivenOrder, pid: int, line: socket.socket, queue: Optional[Ends] = None
    ) -> None:
        self.order = order  # the worker's first order; all its orders are alike
        self.pid = pid
        self.line = line
        self.since = time.monotonic()
        self.greeted = False
        self.ahead = False  # it takes calls from the queue
        self.served = 0
        self.cpu_seconds = 0.0  # the processor time it had used when the last call ended
        self.unfit = False  # it must not get another call
        self.closed = False
        self.untaken = False  # it ended without having read all that we wrote on the line
        self.unread = b""
        self.unsent = b""
        self.quiet = False  # it does not signal its answers
        self._answered = b""  # the number of the last answered call, packed as in answers
        self._queue = queue
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)

    def suits(self, order: GivenOrder) -> bool:
        """Whether the worker can do this order now."""
        if self.unfit or self.unread or self._poll.poll(0):
            return False  # it has ended, or sent more answers than it had calls
        return self.like(order)

    def like(self, order: GivenOrder) -> bool:
        first = self.order
        return (
            order.plan is first.plan
            and order.memory_mb == first.memory_mb
            and order.disk_mb == first.disk_mb
            and order.env == first.env
            and order.cores == first.cores
        )

    def greet(self, data: bytes) -> None:
        """Read the JSON object that the worker sent with HELLO."""
        self.greeted = True
        self.cpu_seconds = self._cpu_seconds()
        try:
            hello = json.loads(data.decode("utf-8"))
            if self._queue is not None and hello.get("ahead") == 1:
                cpu_seconds = float(hello["cpu"])
                if 0.0 <= cpu_seconds < _MOST_SECONDS:
                    self.cpu_seconds = cpu_seconds
                    self.ahead = True
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass  # this worker does not support the queue

    def set_quiet(self, quiet: bool) -> bool:
        """Let the worker signal every answer, or none. Returns whether that is a change."""
        if quiet == self.quiet:
            return False
        slot_signals.signal_input(self.line.fileno(), not quiet)
        self.quiet = quiet
        return True

    # Calls

    def give(self, number: int, call: bytes) -> None:
        """Send a call to a worker that has no other call."""
        if self.ahead:
            if self.give_ahead(number, call):
                return
            if not self._packet(LABEL.pack(ON_LINE, number)):
                self.closed = True  # the kernel has no memory even for a label
                return
        self.unsent += frame(call)
        self.flush()

    def give_ahead(self, number: int, call: bytes) -> bool:
        """Put one more call into the queue; False if there is no space."""
        return len(call) <= MOST_PACKET and self._packet(LABEL.pack(PACKED, number) + call)

    def _packet(self, data: bytes) -> bool:
        try:
            return self._queue is not None and self._queue[0].send(data) > 0
        except OSError:
            return False

    def take_back(self) -> Set[int]:
        """Empty the queue. Returns the numbers of the calls that the worker had not taken."""
        numbers: Set[int] = set()
        while self.ahead and self._queue is not None:
            try:
                # The worker shares this socket's flags and may have made it blocking.
                label = self._queue[1].recv(LABEL.size, socket.MSG_DONTWAIT)
            except OSError:
                break
            if len(label) < LABEL.size:
                break
            kind, number = LABEL.unpack(label)
            numbers.add(number)
            if kind == ON_LINE:
                self.unfit = True  # a call on the line cannot be taken back
        return numbers

    def go_on(self) -> None:
        self.unsent += frame(GO)
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

    # Answers

    def hear(self) -> List[bytes]:
        """Every whole frame that has arrived. An empty or overlong frame is an error: it becomes
        b"?", and the rest of the data is dropped."""
        self._receive()
        unread, start, frames = self.unread, 0, []
        while len(unread) - start >= LENGTH.size:
            begin = start + LENGTH.size
            end = begin + LENGTH.unpack_from(unread, start)[0]
            if not begin < end <= begin + _MOST_ANSWER:
                frames.append(b"?")
                start = len(unread)
            elif end > len(unread):
                break
            else:
                frames.append(unread[begin:end])
                start = end
        self.unread = unread[start:]
        return frames

    def _receive(self) -> None:
        while not self.closed:
            try:
                data = self.line.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError as error:
                self.untaken = error.errno == errno.ECONNRESET
                data = b""
            self.closed = not data
            self.unread += data

    def repeats(self, answer: bytes) -> bool:
        """Whether this is a second answer to the call that was answered last."""
        return self.ahead and answer[1:9] == self._answered

    def timed(self, number: int, answer: bytes, now: float) -> Tuple[float, float, bool, bytes]:
        """Split the answer to this call into its wall time (-1 if the worker does not report it),
        its processor time, whether the worker waits for GO, and the body. Raises ValueError."""
        before = self.cpu_seconds
        if not self.ahead:
            self.cpu_seconds = self._cpu_seconds()
            return -1.0, max(0.0, self.cpu_seconds - before), False, answer[1:]
        if len(answer) <= HEAD.size:
            raise ValueError("no head")
        answered, wall_seconds, cpu_seconds, waits = HEAD.unpack_from(answer, 1)
        if answered != number:
            raise ValueError("an answer to another call")
        self._answered = answer[1:9]
        if not 0.0 <= wall_seconds <= now - self.since:
            wall_seconds = -1.0
        if before <= cpu_seconds < _MOST_SECONDS:
            self.cpu_seconds = cpu_seconds
        return wall_seconds, self.cpu_seconds - before, waits, answer[1 + HEAD.size :]

    def _cpu_seconds(self) -> float:
        try:
            return time.clock_gettime((~self.pid << 3) | _SCHEDULED)
        except (OSError, ValueError, OverflowError):
            return 0.0  # not Linux

    def hang_up(self) -> None:
        self.line.close()
        for end in self._queue or ():
            end.close()
