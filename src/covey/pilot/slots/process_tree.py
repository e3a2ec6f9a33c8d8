"""Families of processes: adopt them, find them, end them.

The rule: no process that a task started outlives the task. A task may double-fork, call setsid and
leave its group, so a process group is not enough. But a *subreaper* becomes the parent of every
orphan below it, and a process without children has no descendants at all.

Killing goes from the top: a child of ours keeps its process id until we reap it, so SIGKILL cannot
hit another process; its own children then become ours and are next. Only for families that grow
faster than that (a fork storm) is the whole tree read from /proc and killed at once.

We cannot kill a process that has changed its user (``sudo x &``): it is waited for, but not for
ever.

Other systems than Linux have no subreaper and perhaps no /proc: there only a task's process group
is found.
"""

import gc
import os
import signal
import time
from typing import Any, Callable, Container, Iterable, List, Optional, Set

_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_SET_NAME = 15
_SET_CHILD_SUBREAPER = 36

_FROM_THE_TOP = 4  # passes before the whole tree is read
_BLIND_SECONDS = 1.0
_FOREIGN_SECONDS = 5.0  # to wait for processes of another user


class Usage:
    """The resources that reaped processes used, as counted by ``wait4``."""

    __slots__ = ("cpu_seconds", "memory_kb")

    def __init__(self) -> None:
        self.cpu_seconds = 0.0
        self.memory_kb = 0

    def count(self, rusage: Any) -> None:
        """Add one more process."""
        self.cpu_seconds += rusage.ru_utime + rusage.ru_stime
        memory = rusage.ru_maxrss if _RSS_IN_KB else rusage.ru_maxrss // 1024
        if memory > self.memory_kb:
            self.memory_kb = memory


_RSS_IN_KB = os.uname().sysname != "Darwin"


def _prctl(option: int, argument: Any) -> bool:
    try:
        import ctypes

        function = ctypes.CDLL(None, use_errno=True).prctl
        if isinstance(argument, int):
            argument = ctypes.c_ulong(argument)
        return int(function(option, argument, 0, 0, 0)) == 0
    except (ImportError, AttributeError, OSError):
        return False  # not Linux, or a Python without ctypes


def become_subreaper(yes: bool = True) -> bool:
    """Make orphaned descendants children of this process, or stop that; False if the system cannot
    do it."""
    return _prctl(_SET_CHILD_SUBREAPER, int(yes))


def hide_memory() -> bool:
    """Let no other process of this user read our memory or environment, or trace us. Forked
    processes inherit that, executed programs do not. Root can do it anyway."""
    return _prctl(_SET_DUMPABLE, 0)


def settle_memory() -> None:
    """Call it before forking. Compiling the pilot file leaves megabytes of free memory, which goes
    back to the system. The rest stays until the end: a search for garbage in it would only copy
    pages that parent and children share."""
    gc.collect()
    if hasattr(gc, "freeze"):  # Python 3.7
        gc.freeze()  # novm
    try:
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    except (ImportError, AttributeError, OSError):
        pass  # another C library, or a Python without ctypes


def signal_when_parent_dies(number: int, parent: int) -> bool:
    """Ask for a signal at the parent's death; False if it is dead already."""
    _prctl(_SET_PDEATHSIG, number)
    return os.getppid() == parent


def name_process(name: str) -> None:
    """Set the name that ``top`` and ``ps`` show (15 characters). It has no blanks: Slurm's
    linuxproc does not see processes with blanks in their names, nor their descendants."""
    _prctl(_SET_NAME, name.encode("ascii", "replace")[:15])


def children(pid: int) -> List[int]:
    """Process ids of the children of pid, including dead ones that are not reaped.

    The kernel may leave some out while they come and go: call it until there are none.
    """
    if not _HAS_CHILDREN_FILE:
        return _children_by_scan(pid)
    pids: List[int] = []
    folder = "/proc/{}/task".format(pid)
    try:
        threads = os.listdir(folder)
    except OSError:
        return []
    for thread in threads:
        try:
            with open("{}/{}/children".format(folder, thread), "rb", 0) as file:
                pids.extend(map(int, file.read().split()))
        except OSError:
            continue  # this thread has ended
    return pids


class Offspring:
    """Whether this process has children. ``wait4`` knows it, too, but reports that there are none
    by an exception, which costs more than all else that a slot does after a short task."""

    def __init__(self) -> None:
        self._file = -1
        if _HAS_CHILDREN_FILE:
            path = "/proc/self/task/{}/children".format(os.getpid())
            self._file = os.open(path, os.O_RDONLY)

    def none(self) -> bool:
        """True if there are no children; False also if that is not known."""
        return self._file >= 0 and not os.pread(self._file, 1, 0)


_HAS_CHILDREN_FILE = os.path.exists("/proc/self/task/{}/children".format(os.getpid()))


def _children_by_scan(pid: int) -> List[int]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return [int(name) for name in names if name.isdigit() and parent_of(int(name)) == pid]


def parent_of(pid: int) -> Optional[int]:
    """The parent's process id; None if there is no such process."""
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else None


def family(pids: Iterable[int]) -> List[int]:
    """These processes and all their descendants, parents first."""
    members = list(pids)
    for pid in members:  # grows as it goes
        members.extend(children(pid))
    return members


class Strangers:
    """Contains every process that shows no sign of belonging to a task or a slot.

    It is for the pilot itself, which may have children of its own beside orphans of tasks. Those
    are in the session of a slot, or have our directory as working directory, or write there; a
    daemon that gave up all three is not recognised.
    """

    def __init__(self, sessions: Iterable[int], directory: str) -> None:
        self._sessions = frozenset(sessions)
        self._prefix = directory + "/"

    def __contains__(self, pid: object) -> bool:
        fields = _stat_fields(pid)
        if not fields or int(fields[3]) in self._sessions:
            return not fields
        return not any(self._is_inside(pid, name) for name in ("cwd", "fd/1", "fd/2"))

    def _is_inside(self, pid: object, name: str) -> bool:
        try:
            return os.readlink("/proc/{}/{}".format(pid, name)).startswith(self._prefix)
        except OSError:
            return False


def _stat_fields(pid: object) -> List[bytes]:
    """State, parent, group, session, … of a process; empty if there is none."""
    try:
        with open("/proc/{}/stat".format(pid), "rb", 0) as file:
            # The name, in parentheses, may hold spaces and parentheses itself.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # gone already, or it changed its user: then we may not end it


def resume(pid: int) -> bool:
    """Let a process go on if somebody has stopped it; returns whether it was stopped."""
    fields = _stat_fields(pid)
    stopped = bool(fields) and fields[0] == b"T"
    if stopped:
        send(pid, signal.SIGCONT)
    return stopped


def signal_task(leader: int, number: int, walled: bool = False) -> None:
    """Signal the task whose group is led by our unreaped child ``leader``, and all processes that
    it started. If the task is ``walled``, its leader is the sandbox's first process, and without
    it all others end at once: so the leader gets no signal but SIGKILL."""
    members = family(children(os.getpid()))
    if leader in members:
        for pid in members:
            if pid != leader or not walled or number == signal.SIGKILL:
                send(pid, number)
        return
    try:
        os.killpg(leader, number)  # no /proc here
    except OSError:
        send(leader, number)


def _nothing() -> None:
    pass


def kill_children(
    keep: Container[int] = (),
    patience_seconds: float = 1e9,
    usage: Optional[Usage] = None,
    breathe: Callable[[], None] = _nothing,
) -> None:
    """SIGKILL and reap all our children and their descendants, except those in ``keep``.

    Returns when none is left, or when the patience is over (a process that hangs in the kernel
    cannot be killed). Their resources are added to ``usage``. If it takes long, ``breathe`` is
    called now and then.
    """
    usage = usage or Usage()
    give_up = time.monotonic() + patience_seconds
    passes = 0
    while True:
        pids = [pid for pid in children(os.getpid()) if pid not in keep]
        if not pids or time.monotonic() > give_up:
            return
        for pid in pids if passes < _FROM_THE_TOP else family(pids):
            send(pid, signal.SIGKILL)
        _reap(pids, usage)
        passes += 1
        if passes > 1:
            breathe()
            time.sleep(min(0.05, 0.0005 * passes))


def _reap(pids: List[int], usage: Usage) -> None:
    for pid in pids:
        try:
            reaped, _, rusage = os.wait4(pid, os.WNOHANG)
        except ChildProcessError:
            continue
        if reaped:
            usage.count(rusage)


_foreign: Set[int] = set()  # children of another user that we no longer wait for


def kill_all_children(
    usage: Optional[Usage] = None, breathe: Callable[[], None] = _nothing
) -> bool:
    """kill_children() until the kernel itself says that there are none; False if some are left that
    belong to another user."""
    usage = usage or Usage()
    patient_until = time.monotonic() + _FOREIGN_SECONDS
    blind_until = 0.0
    if _foreign:
        _foreign.intersection_update(_others(children(os.getpid())))
    while True:
        kill_children(_foreign, _FOREIGN_SECONDS, usage, breathe)
        try:
            reaped, _, rusage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if reaped:
            usage.count(rusage)
            continue
        left, now = children(os.getpid()), time.monotonic()
        if now > patient_until:
            _foreign.update(_others(left))
        if left and _foreign.issuperset(left):
            return False
        # /proc did not show this child: either it has just come, or /proc is not mounted and we
        # cannot find it.
        blind_until = blind_until or now + _BLIND_SECONDS
        if now > blind_until and not left:
            return True
        time.sleep(0.001)


def _others(pids: List[int]) -> List[int]:
    """Those that we may not signal."""
    others = []
    for pid in pids:
        try:
            os.kill(pid, 0)
        except PermissionError:
            others.append(pid)
        except OSError:
            pass
    return others
