"""A worker as its slot sees it: the process that stays, our end of its line, and its queue.

The rule: nothing here waits, and nothing that a worker says or does can harm the slot. Frames and
packets are as ``call_records`` says.
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

_CHUNK = 1 << 16  # more would be fetched from the system, and given back, each time
_MOST_ANSWER = MOST_CALL + 1 + HEAD.size
_MOST_SECONDS = 1e12
_SCHEDULED = 2  # the clock that counts the processor's time of a process

Ends = Tuple[socket.socket, socket.socket]


def queue() -> Optional[Ends]:
    """Both ends of one: ours, and the worker's; none where there are no such sockets."""
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError:
        return None  # not Linux
    # Nor may the worker wait in a read: one that is killed there takes with it what comes then.
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


class Worker:
    __slots__ = (
        "_answered", "_poll", "_queue", "ahead", "closed", "cpu_seconds", "given", "greeted",
        "line", "pid", "quiet", "served", "since", "unfit", "unread", "unsent", "untaken",
    )  # fmt: skip

    def __init__(
        self, given: GivenOrder, pid: int, line: socket.socket, queue: Optional[Ends] = None
    ) -> None:
        self.given = given  # its first order: the others are like it
        self.pid = pid
        self.line = line
        self.since = time.monotonic()
        self.greeted = False
        self.ahead = False  # it takes calls from the queue
        self.served = 0
        self.cpu_seconds = 0.0  # that it had used when the last call ended
        self.unfit = False  # no other call is to be given to it
        self.closed = False
        self.untaken = False  # it ended without having read all that we wrote on the line
        self.unread = b""
        self.unsent = b""
        self.quiet = False  # it does not ring
        self._answered = b""  # the number of the last call, as it is in answers
        self._queue = queue
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)

    def suits(self, given: GivenOrder) -> bool:
        """Whether it is there for that, and has nothing else to do."""
        if self.unfit or self.unread or self._poll.poll(0):
            return False  # it has gone, or said more than it was asked
        return self.like(given)

    def like(self, given: GivenOrder) -> bool:
        first = self.given
        return (
            given.plan is first.plan
            and given.memory_mb == first.memory_mb
            and given.disk_mb == first.disk_mb
            and given.env == first.env
            and given.cores == first.cores
        )

    def greet(self, data: bytes) -> None:
        """It has said hello, and this of itself."""
        self.greeted = True
        self.cpu_seconds = self._cpu_seconds()
        try:
            told = json.loads(data.decode("utf-8"))
            if self._queue is not None and told.get("ahead") == 1:
                cpu_seconds = float(told["cpu"])
                if 0.0 <= cpu_seconds < _MOST_SECONDS:
                    self.cpu_seconds = cpu_seconds
                    self.ahead = True
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass  # one of those that say nothing

    def hush(self, quiet: bool) -> bool:
        """Have it ring for every answer, or for none; whether that is a change."""
        if quiet == self.quiet:
            return False
        slot_signals.ring(self.line.fileno(), not quiet)
        self.quiet = quiet
        return True

    # Calls

    def give(self, number: int, call: bytes) -> None:
        """The only one that it has."""
        if self.ahead:
            if self.give_ahead(number, call):
                return
            if not self._packet(LABEL.pack(ON_LINE, number)):
                self.closed = True  # there is no memory for even that
                return
        self.unsent += frame(call)
        self.flush()

    def give_ahead(self, number: int, call: bytes) -> bool:
        """One more; False when it does not go in."""
        return len(call) <= MOST_PACKET and self._packet(LABEL.pack(PACKED, number) + call)

    def _packet(self, data: bytes) -> bool:
        try:
            return self._queue is not None and self._queue[0].send(data) > 0
        except OSError:
            return False

    def take_back(self) -> Set[int]:
        """The numbers of those that it had not taken. They will not be done."""
        numbers: Set[int] = set()
        while self.ahead and self._queue is not None:
            try:
                # The flag is the worker's too: it might have changed it.
                label = self._queue[1].recv(LABEL.size, socket.MSG_DONTWAIT)
            except OSError:
                break
            if len(label) < LABEL.size:
                break
            kind, number = LABEL.unpack(label)
            numbers.add(number)
            if kind == ON_LINE:
                self.unfit = True  # what is on the line cannot be had back
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
        """Every whole frame that has come. An empty one is nothing that a worker says: it is taken
        for a mistake (b"?"), as one that is too long, and the rest is thrown away."""
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
        """Whether it is another answer to the call that was answered last."""
        return self.ahead and answer[1:9] == self._answered

    def timed(self, number: int, answer: bytes, now: float) -> Tuple[float, float, bool, bytes]:
        """Of the answer to that call: how long it took (-1: it does not say), and of the
        processor's time; whether the worker waits to be told to go on; and what it says. Raises
        ValueError."""
        before = self.cpu_seconds
        if not self.ahead:
            self.cpu_seconds = self._cpu_seconds()
            return -1.0, max(0.0, self.cpu_seconds - before), False, answer[1:]
        if len(answer) <= HEAD.size:
            raise ValueError("no head")
        answered, wall_seconds, cpu_seconds, waits = HEAD.unpack_from(answer, 1)
        if answered != number:
            raise ValueError("not that call")
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
