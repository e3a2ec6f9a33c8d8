"""The keeper: the small process that forks the slots and buries them.

The rule: slots are forked only here. The pilot has threads once it works, and a fork
of a process with threads may inherit a lock that nobody will ever release; a slot
that dies hours later must be replaced all the same. So the pilot forks one keeper
(by way of ``guard``) while it is still alone, and the keeper, which never has a thread,
forks slots on request. (A fresh interpreter per slot would do too, but it needs the interpreter and
our code on disk still, reads both again for each of perhaps a hundred slots, and
shares no memory with the others.)

The keeper is a subreaper: the tasks of a slot that was killed come to it. Whatever
child it has that is not a slot is such an orphan, and is killed. It is the parent of
the slots, so it alone can signal them without hitting a stranger.

A task without walls can stop its slot (SIGSTOP), which then holds no limit any more. The keeper is
told by the kernel, and lets the slot go on. A slot that is stopped again and again is killed with
all that runs in it. A keeper that is stopped itself is woken by the pilot, and by every slot that
runs a task. Whoever stops all of them at once, or kills them, has escaped: no process can do
anything about another one of the same user. The server gives such a pilot up when its lease ends.

When the pilot is gone, however it went, the keeper ends the slots, removes what they
left on disk, and exits. When the keeper is killed, the slots end themselves, or the guard, its
parent, ends what they ran; and the pilot forks a new guard and keeper (see ``slots``): then, and
only then, from a process with threads.
"""

import gc
import os
import signal
import socket
import struct
import time
from typing import Dict, List, NamedTuple, Optional

from covey.pilot.files.safe_paths import remove
from covey.pilot.slots import process_tree, slot_signals
from covey.pilot.slots.orders import ValueSocket
from covey.pilot.slots.shared_page import Board
from covey.pilot.slots.slot import Slot
from covey.pilot.slots.workspace import SlotSettings, group_name, outbox, paths
from covey.pilot.walls import resource_limits

REQUEST = struct.Struct("=I")  # start slot number …, with its two sockets attached
REPLY = struct.Struct("=II")  # slot number, process id; 0: the one before is buried
STOPPED = 0xFFFFFFFF  # instead of a process id: it was stopped too often, and is killed for it
_FDS = struct.Struct("=2i")

_FASTEST_LIFE_SECONDS = 1.0  # a slot that dies sooner is not replaced at once
_UNKILLABLE_SECONDS = 10.0
_MOST_STOPS, _STOPS_SECONDS = 20, 10.0  # that many times in so many seconds a slot may be stopped


class Wanted(NamedTuple):
    """A slot to start, no sooner than ``at``."""

    orders: socket.socket
    control: socket.socket
    at: float


def open_standard_streams() -> None:
    """A pilot started with some of them closed would get sockets there, which the
    keeper and the slots would then overwrite with theirs."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            return


def prepare(kept: List[int]) -> None:
    """For a process that the pilot has forked: own session, no signals, no descriptor of the
    pilot's but these; a subreaper."""
    gc.disable()  # the pilot's garbage must not close our descriptors
    slot_signals.hold_signals()
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    close_all_but(kept)
    process_tree.become_subreaper()


def close_all_but(kept: List[int]) -> None:
    """Every descriptor but these and the standard ones."""
    try:
        fds = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        fds = list(range(min(65536, os.sysconf("SC_OPEN_MAX"))))
    for fd in fds:
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:
                pass


class Keeper:
    def __init__(
        self, settings: SlotSettings, board: Board, requests: socket.socket, parent: int
    ) -> None:
        self.settings = settings
        self.board = board
        self.requests = requests
        self.parent = parent
        self.slots: Dict[int, int] = {}
        self.born: Dict[int, float] = {}
        self.wanted: Dict[int, Wanted] = {}
        self.stops: Dict[int, List[float]] = {}  # when each slot was found stopped, lately
        self.open = True

    def serve(self) -> None:
        """Until the pilot or the guard is gone."""
        process_tree.signal_when_parent_dies(slot_signals.PARENT, self.parent)
        slot_signals.ring(self.requests.fileno())
        while True:
            while self._receive():
                pass
            if not self.open or os.getppid() != self.parent:
                break
            self._start_wanted()
            self._reap()
            slot_signals.wait(self._until(), [self.requests.fileno()])
        self._end()

    def _receive(self) -> bool:
        """Take one request; False when there is none now."""
        flags = socket.MSG_DONTWAIT | getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        space = socket.CMSG_SPACE(_FDS.size)
        try:
            data, extra, _, _ = self.requests.recvmsg(REQUEST.size, space, flags)
        except BlockingIOError:
            return False
        except OSError:
            data, extra = b"", []
        if len(data) < REQUEST.size or not extra:
            self.open = False
            return False
        (index,) = REQUEST.unpack(data)
        orders, control = (_socket(fd) for fd in _FDS.unpack(extra[0][2][: _FDS.size]))
        self._bury(index)
        earliest = self.born.get(index, -_FASTEST_LIFE_SECONDS) + _FASTEST_LIFE_SECONDS
        self.wanted[index] = Wanted(orders, control, earliest)
        return True

    def _bury(self, index: int) -> None:
        """See that the former slot of that number, its tasks and its files are gone."""
        if index not in self.slots:
            return
        pid = self.slots.pop(index)
        if pid:
            process_tree.send(pid, signal.SIGKILL)
            _wait_for(pid)
        process_tree.kill_children(set(self.slots.values()), _UNKILLABLE_SECONDS)
        self._remove_files(index)
        self._reply(index, 0)

    def _remove_files(self, index: int) -> None:
        resource_limits.remove_group(group_name(self.settings, index))
        for path in paths(self.settings.directory, index):
            _try_remove(path)  # if not, the next slot takes another name

    def _start_wanted(self) -> None:
        now = time.monotonic()
        for index, wanted in sorted(self.wanted.items()):
            if wanted.at > now:
                continue
            try:
                pid = os.fork()
            except OSError:  # too many processes: later
                self.wanted[index] = wanted._replace(at=now + 1.0)
                continue
            if pid == 0:
                self._become_slot(index, wanted)
            self.slots[index] = pid
            self.born[index] = now
            del self.wanted[index]
            wanted.orders.close()
            wanted.control.close()
            self._reply(index, pid)

    def _become_slot(self, index: int, mine: Wanted) -> None:
        """In the child: never returns."""
        orders = ValueSocket(mine.orders)
        try:
            self.requests.close()
            for number, other in self.wanted.items():
                if number != index:
                    other.orders.close()
                    other.control.close()
            os.setsid()
            process_tree.name_process("covey-slot-{}".format(index))
            if process_tree.signal_when_parent_dies(slot_signals.PARENT, os.getppid()):
                Slot(index, self.settings, orders, ValueSocket(mine.control), self.board).serve()
        except BaseException:
            import traceback  # which brings half a megabyte along

            orders.send(traceback.format_exc())  # the pilot puts it into its report
        finally:
            os._exit(0)

    def _reply(self, index: int, pid: int) -> None:
        try:
            self.requests.send(REPLY.pack(index, pid))
        except OSError:
            pass  # the pilot is gone, which is noticed elsewhere

    def _reap(self) -> None:
        """Collect dead slots and kill orphans. The pilot notices a dead slot itself
        and asks for another, so its number is only remembered here."""
        for index, pid in list(self.slots.items()):
            status = _changed(pid) if pid else None
            if status is None:
                continue
            if os.WIFSTOPPED(status):
                self._stopped(index, pid)
            else:
                self.slots[index] = 0
        process_tree.kill_children(set(self.slots.values()), _UNKILLABLE_SECONDS)

    def _stopped(self, index: int, pid: int) -> None:
        """Somebody has stopped a slot: let it go on. Who does it again and again keeps it from
        ever doing anything; then the slot goes, and first what it runs."""
        now = time.monotonic()
        times = [at for at in self.stops.get(index, ()) if at > now - _STOPS_SECONDS] + [now]
        self.stops[index] = times
        if len(times) <= _MOST_STOPS:
            process_tree.send(pid, signal.SIGCONT)
            return
        self.stops[index] = []
        self._reply(index, STOPPED)
        for member in reversed(process_tree.family([pid])):
            process_tree.send(member, signal.SIGKILL)

    def _until(self) -> Optional[float]:
        times = [wanted.at for wanted in self.wanted.values()]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _end(self) -> None:
        """Let every slot clean up after itself, then see that it did."""
        self.board.end()
        pids = [pid for pid in self.slots.values() if pid]
        for pid in pids:
            process_tree.send(pid, slot_signals.PARENT)
        give_up = time.monotonic() + _UNKILLABLE_SECONDS / 2
        while pids and time.monotonic() < give_up:
            pids = [pid for pid in pids if not _reaped(pid)]
            if pids:
                slot_signals.wait(0.1, [])
        process_tree.kill_all_children()
        for index in self.slots:
            self._remove_files(index)
        _try_remove(outbox(self.settings.directory))  # nobody will ever fetch those
        try:
            os.rmdir(self.settings.directory)
        except OSError:
            pass  # somebody else's files, or the last slot has done it


def _try_remove(path: str) -> None:
    try:
        remove(path)
    except OSError:
        pass


def _socket(fd: int) -> socket.socket:
    os.set_inheritable(fd, False)
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd)


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _changed(pid: int) -> Optional[int]:
    """The status of a child that has ended or was stopped since we last asked; None if neither."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    except ChildProcessError:
        return 0
    return status if found == pid else None


def _wait_for(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass


def request(keeper: socket.socket, index: int, ends: List[socket.socket]) -> None:
    """Ask the keeper for a slot that has these two sockets. Raises OSError."""
    fds = _FDS.pack(*(end.fileno() for end in ends))
    keeper.sendmsg([REQUEST.pack(index)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
