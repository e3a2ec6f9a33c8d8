"""The keeper: the small process that forks the slots and cleans up after them.

The rule: slots are forked only here. The pilot has threads once it works, and a fork of a process
with threads may inherit a lock that nobody will ever release; but a slot that dies hours later must
be replaced. So the pilot forks one keeper (by way of ``guard``) before it has threads, and the
keeper, which never has a thread, forks slots on request. (A fresh interpreter per slot would need
the interpreter and our code on disk, read both again for each of perhaps a hundred slots, and share
no memory with the others.)

The keeper is a subreaper: the tasks of a slot that was killed become its children. Any child that
is not a slot is such an orphan, and is killed. The keeper is the parent of the slots, so only the
keeper can signal them without the risk of hitting another process.

A task outside of a sandbox can stop its slot (SIGSTOP), which then enforces no limit any more. The
kernel tells the keeper, which lets the slot go on. A slot that is stopped again and again is killed
with all that runs in it. If the keeper itself is stopped, the pilot wakes it, and so does every
slot that runs a task. A task that stops all of them at once, or kills them, has escaped: no process
can prevent what another one of the same user does. The server gives such a pilot up when its lease
ends.

When the pilot is gone, for any reason, the keeper ends the slots, removes their files, and exits.
When the keeper is killed, the slots end themselves, or the guard, its parent, ends what they ran;
and the pilot forks a new guard and keeper (see ``slot_pool``): only then from a process with
threads.
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
from covey.pilot.slots.shared_page import SharedPage
from covey.pilot.slots.slot import Slot
from covey.pilot.slots.workspace import SlotSettings, group_name, outbox, paths
from covey.pilot.walls import resource_limits

REQUEST = struct.Struct("=I")  # start the slot with this number; its two sockets are attached
REPLY = struct.Struct("=II")  # slot number, process id; 0: the former slot is cleaned up
STOPPED = 0xFFFFFFFF  # instead of a process id: the slot was stopped too often, and is killed
_FDS = struct.Struct("=2i")

_FASTEST_LIFE_SECONDS = 1.0  # a slot that dies sooner is not replaced at once
_UNKILLABLE_SECONDS = 10.0
_MOST_STOPS, _STOPS_SECONDS = 20, 10.0  # a slot may be stopped so many times in so many seconds


class Wanted(NamedTuple):
    """A slot to start, no sooner than ``at``."""

    orders: socket.socket
    control: socket.socket
    at: float


def open_standard_streams() -> None:
    """If a pilot is started with some of them closed, its sockets would get their numbers, and the
    keeper and the slots would overwrite those sockets."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            return


def prepare(kept: List[int]) -> None:
    """Prepare a process that the pilot has forked: its own session, no signals, only the ``kept``
    descriptors of the pilot; a subreaper."""
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
    """Close every descriptor except these and the standard ones."""
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
        self, settings: SlotSettings, page: SharedPage, requests: socket.socket, parent: int
    ) -> None:
        self.settings = settings
        self.page = page
        self.requests = requests
        self.parent = parent
        self.slots: Dict[int, int] = {}
        self.born: Dict[int, float] = {}
        self.wanted: Dict[int, Wanted] = {}
        self.stops: Dict[int, List[float]] = {}  # when each slot was recently found stopped
        self.open = True

    def serve(self) -> None:
        """Serve until the pilot or the guard is gone."""
        process_tree.signal_when_parent_dies(slot_signals.PARENT, self.parent)
        slot_signals.signal_input(self.requests.fileno())
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
        """Take one request; False if there is none now."""
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
        """Make sure that the former slot of this number, its tasks and its files are gone."""
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
            _try_remove(path)  # if that fails, the next slot uses another name

    def _start_wanted(self) -> None:
        now = time.monotonic()
        for index, wanted in sorted(self.wanted.items()):
            if wanted.at > now:
                continue
            try:
                pid = os.fork()
            except OSError:  # too many processes: try later
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
        """Run the slot in the forked child; never returns."""
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
                Slot(index, self.settings, orders, ValueSocket(mine.control), self.page).serve()
        except BaseException:
            import traceback  # only now: it needs half a megabyte

            orders.send(traceback.format_exc())  # the pilot puts it into its report
        finally:
            os._exit(0)

    def _reply(self, index: int, pid: int) -> None:
        try:
            self.requests.send(REPLY.pack(index, pid))
        except OSError:
            pass  # the pilot is gone; serve() notices that

    def _reap(self) -> None:
        """Collect dead slots and kill orphans. The pilot itself notices a dead slot and asks for
        another one; here only its number is kept."""
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
        """Somebody has stopped a slot: let it go on. If that happens again and again, the slot can
        never do anything: then kill it, and first what it runs."""
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
        """Let every slot clean up, then make sure that it has."""
        self.page.end()
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
        _try_remove(outbox(self.settings.directory))  # nobody will ever fetch these files
        try:
            os.rmdir(self.settings.directory)
        except OSError:
            pass  # it has other files, or the last slot has removed it


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
    """The status of a child that has ended or was stopped since the last call; else None."""
    try:
        changed, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    except ChildProcessError:
        return 0
    return status if changed == pid else None


def _wait_for(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass


def request(keeper: socket.socket, index: int, ends: List[socket.socket]) -> None:
    """Ask the keeper for a slot that has these two sockets. Raises OSError."""
    fds = _FDS.pack(*(end.fileno() for end in ends))
    keeper.sendmsg([REQUEST.pack(index)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
