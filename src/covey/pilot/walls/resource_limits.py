"""Enforce a task's limits of memory and processors.

The rule: a limit holds for all processes of a task, from their first instruction on. So it is set
on the slot itself while it starts the process, and children inherit it.

Memory is limited by a control group, if this user may make one below the group that we are in
(never elsewhere: a task must not escape the limits that hold for us). Then the kernel enforces the
limit and counts. Otherwise the processes are sampled several times a second and killed if they are
over their limit; RLIMIT_DATA, somewhat above the limit, stops what grows faster than that.

What a task writes to files in memory (a tmpfs) is memory, too. A control group counts it; a group
in which a task left such files is not used for another task. Without a group, we look into the
directories in memory that a task in a sandbox has of its own. In a shared /dev/shm, the files count
that a process of the task was seen to write to; they are removed at the task's end.
"""

import errno
import os
import resource
import time
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from covey.pilot.slots import process_tree
from covey.pilot.walls.open_files import SharedMemory

_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.2, 1.0
_AT_THE_LIMIT = 0.9
_FORK_KB = 8 << 10  # by which a fork of this slot may be larger than the slot, before the task runs
_BACKSTOP_BYTES = 64 << 20
_OWN_ROOM_BYTES = 32 << 20  # that a slot may need while it is limited itself
_TAIL_BYTES = 2000
_ASKED = 8  # processes of a task that are asked
_REMOVE_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_REFUSED = (b"MemoryError", b"bad_alloc", b"annot allocate", b"Out of memory!")
_NOT_OURS = (b"CUDA", b"HIP ")  # memory of a device: more memory of the host would not help


class Peak(NamedTuple):
    """What is known about a task's memory at its end (``kb`` 0: nothing)."""

    killed: bool
    kb: int


class Memory:
    """The memory limits of one slot's tasks, one after the other. ``group`` is the name of the
    control group to make; "": use none. ``in_memory``: directories in memory that each task has of
    its own."""

    def __init__(self, group: str, in_memory: Sequence[str] = ()) -> None:
        self._name = group
        self._group: Optional[ControlGroup] = None
        # In a sandbox a task has its own /dev/shm.
        self._shared = None if in_memory else SharedMemory()
        self._sampled = Sampled(in_memory, self._shared)
        self._way: Union[ControlGroup, Sampled] = self._sampled
        self._limit_mb = 0
        self._interval = _FIRST_LOOK_SECONDS

    def begin(self, limit_mb: int) -> None:
        """Call it just before the spawn, and ``spawned`` after it, whether or not it succeeded."""
        self._limit_mb = limit_mb
        self._interval = _FIRST_LOOK_SECONDS
        if self._shared is not None:
            self._shared.begin()
        if self._name:
            self._group, self._name = make_group(self._name), ""
        if self._group is not None:
            try:
                self._group.begin(limit_mb)
                self._way = self._group
                return
            except OSError:  # somebody else manages the group: do without it from now on
                self.remove()
        self._way = self._sampled
        self._sampled.begin(limit_mb)

    def spawned(self) -> None:
        self._way.spawned()

    def pause(self) -> float:
        """Seconds until the next look; they grow."""
        now = self._interval
        self._interval = min(_LAST_LOOK_SECONDS, now * 1.2)
        return now

    def over(self) -> bool:
        """Look at the running processes: must they be killed?"""
        if self._shared is not None and self._way is self._group:
            # So that ``end`` can remove the task's files.
            self._shared.used_kb(process_tree.family(process_tree.children(os.getpid())))
        return self._way.over()

    def end(self, usage_kb: int, failed: bool, stderr: bytes) -> Tuple[bool, int]:
        """Whether the task was over its limit, and how much memory it had. ``usage_kb`` is what
        ``wait4`` reports for its largest process. A task begins as a fork of this slot, so a usage
        close to the slot's own says nothing about the task."""
        if self._shared is not None:
            self._shared.end()
        killed, peak_kb = self._way.end()
        if usage_kb > _max_rss_kb() + _FORK_KB:
            peak_kb = max(peak_kb, usage_kb)
        if failed and not killed:
            refused = self._way.refuses and was_refused(stderr[-_TAIL_BYTES:])
            killed = refused or peak_kb >= _AT_THE_LIMIT * self._limit_mb * 1024
        return killed, peak_kb or usage_kb

    def remove(self) -> None:
        if self._group is not None:
            self._group.remove()
            self._group = None


def was_refused(words: bytes) -> bool:
    """Whether the end of a program's standard error says that it got no memory."""
    return any(word in words for word in _REFUSED) and not any(word in words for word in _NOT_OURS)


class Sampled:
    """A limit that is enforced by sampling."""

    def __init__(
        self, in_memory: Sequence[str] = (), shared: Optional[SharedMemory] = None
    ) -> None:
        self._in_memory = in_memory
        self._shared = shared
        self._limit_kb = 0
        self._peak_kb = 0
        self._before: Optional[Tuple[int, int]] = None
        self.refuses = False  # whether the system refuses memory to the running task

    def begin(self, limit_mb: int) -> None:
        self._limit_kb = limit_mb * 1024
        self._peak_kb = 0
        self._killed = False
        self.refuses = False
        limit = limit_mb * 1048576 * 5 // 4 + _BACKSTOP_BYTES
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        lower = hard == resource.RLIM_INFINITY or limit < hard
        if lower and limit > _own_data_bytes() + _OWN_ROOM_BYTES:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
            self._before = (soft, hard)
            self.refuses = True

    def spawned(self) -> None:
        if self._before is not None:
            resource.setrlimit(resource.RLIMIT_DATA, self._before)
            self._before = None

    def over(self) -> bool:
        pids = process_tree.family(process_tree.children(os.getpid()))
        used = sum(rss_kb(pid) for pid in pids)
        if used > self._limit_kb:
            # Memory that forked processes share was counted for each of them.
            used = min(used, sum(_pss_kb(pid) for pid in pids))
        if self._in_memory:
            used += _files_kb(pids, self._in_memory)
        elif self._shared is not None:
            files_kb = self._shared.used_kb(pids)
            # Mapped files were counted with the processes.
            used += max(0, files_kb - sum(map(_mapped_kb, pids))) if files_kb else 0
        self._peak_kb = max(self._peak_kb, used)
        self._killed = self._killed or used > self._limit_kb
        return self._killed

    def end(self) -> Peak:
        return Peak(self._killed, self._peak_kb)


class ControlGroup:
    """A control group of our own. The two versions differ in names and in how a peak is reset."""

    refuses = False  # the kernel kills instead

    def __init__(self, path: str, ours: str, version: int) -> None:
        self.path = path
        self._ours = ours
        self._version = version
        self._limit_mb = 0
        self._charged = False  # with files in memory that a task left behind
        if version == 1:
            self._peak_name, self._events_name = "memory.max_usage_in_bytes", "memory.oom_control"
        else:
            self._peak_name, self._events_name = "memory.peak", "memory.events"
        os.makedirs(path, exist_ok=True)
        self._kills = self._count_kills()  # an existing group may have some already

    def begin(self, limit_mb: int) -> None:
        """Raises OSError; then nothing has changed."""
        if self._charged:
            self._renew()
        if limit_mb != self._limit_mb:
            self._set_limit(limit_mb * 1048576)
            self._limit_mb = limit_mb
        self._reset_peak()
        _write(self.path, "cgroup.procs", "0")

    def spawned(self) -> None:
        _write(self._ours, "cgroup.procs", "0")

    def over(self) -> bool:
        """The kernel kills one process of the task; the others would then wait in vain."""
        return self._count_kills() > self._kills

    def end(self) -> Peak:
        peak = int(_read(self.path, self._peak_name).strip() or 0)
        # Cached files stay in memory only as long as there is room.
        numbers = _read(self.path, "memory.stat")
        files = _number(numbers, "cache" if self._version == 1 else "file")
        kills, before = self._count_kills(), self._kills
        self._kills = kills
        shared = _number(numbers, "shmem")
        self._charged = shared > 0
        return Peak(kills > before, max(0, peak - files + shared) // 1024)

    def remove(self) -> None:
        _remove(self.path)

    def _set_limit(self, limit: int) -> None:
        if self._version == 2:
            _write(self.path, "memory.max", str(limit))
            _try_write(self.path, "memory.swap.max", "0")
            _try_write(self.path, "memory.oom.group", "1")
            return
        # Memory and swap together may never be less than memory alone.
        _try_write(self.path, "memory.memsw.limit_in_bytes", "-1")
        _write(self.path, "memory.limit_in_bytes", str(limit))
        _try_write(self.path, "memory.memsw.limit_in_bytes", str(limit))

    def _reset_peak(self) -> None:
        if self._version == 1:
            _write(self.path, self._peak_name, "0")
            return
        # Version 2 cannot reset it: only a new group begins at zero.
        if self._limit_mb and int(_read(self.path, self._peak_name).strip() or 0):
            self._renew()

    def _renew(self) -> None:
        """Make a new group. What earlier tasks left in memory is then charged only to the groups
        above us. Raises OSError."""
        limit_mb, self._limit_mb = self._limit_mb, 0
        _remove(self.path)
        os.mkdir(self.path)
        self._kills = 0
        self._set_limit(limit_mb * 1048576)
        self._limit_mb = limit_mb
        self._charged = False

    def _count_kills(self) -> int:
        return _number(_read(self.path, self._events_name), "oom_kill")


def make_group(name: str) -> Optional[ControlGroup]:
    """A group below the one that we are in; None if that is not permitted."""
    own = own_group()
    if own is None:
        return None
    ours, version = own
    path = os.path.join(ours, name)
    try:
        if version == 2 and "memory" not in _read(ours, "cgroup.subtree_control").split():
            _write(ours, "cgroup.subtree_control", "+memory")
        elif version == 1 and _read(ours, "memory.use_hierarchy").strip() == "0":
            return None  # the limits above us would not hold below
        _sweep(ours)
        return ControlGroup(path, ours, version)
    except OSError:
        return None


def _sweep(folder: str) -> None:
    """Remove the empty groups of a pilot that was killed with all its processes."""
    for name in os.listdir(folder):
        words = name.split("-")
        if words[0] == "covey" and len(words) == 4 and not os.path.exists("/proc/" + words[1]):
            try:
                os.rmdir(os.path.join(folder, name))
            except OSError:
                pass


def remove_group(name: str) -> None:
    """Remove the group of a slot that died."""
    own = own_group() if name else None
    if own is not None:
        _remove(os.path.join(own[0], name))


def _remove(path: str) -> None:
    """A group may count a process for a moment longer than ``wait4`` does."""
    for seconds in _REMOVE_SECONDS:
        try:
            os.rmdir(path)
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                return  # most slots never made a group
            time.sleep(seconds)


def own_group() -> Optional[Tuple[str, int]]:
    """The directory of our own group that counts memory, and its version."""
    return locate(_read("/proc/self", "cgroup"), _read("/proc/self", "mountinfo"))


def locate(groups: str, mounts: str) -> Optional[Tuple[str, int]]:
    """The same, from the text of /proc/self/cgroup and /proc/self/mountinfo."""
    ours = {}
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            ours["cgroup"] = path
        elif number == "0" and not controllers:
            ours["cgroup2"] = path
    for kind, version in (("cgroup", 1), ("cgroup2", 2)):
        for line in mounts.splitlines() if kind in ours else ():
            before, _, after = line.partition(" - ")
            fields, kinds = before.split(), after.split()
            if kinds[:1] != [kind] or (version == 1 and "memory" not in kinds[2].split(",")):
                continue
            root, point = fields[3].rstrip("/"), fields[4]
            path = ours[kind]
            if path == root or path.startswith(root + "/"):
                return (point + path[len(root) :]).rstrip("/"), version
    return None


def _number(text: str, name: str) -> int:
    """The number in the line that begins with this name; 0 if there is none."""
    values = ("\n" + text).partition("\n" + name + " ")[2].split(None, 1)
    return int(values[0]) if values else 0


def _read(folder: str, name: str) -> str:
    """The text of a small file of the kernel; "" if there is none."""
    try:
        fd = os.open(folder + "/" + name, os.O_RDONLY)
    except OSError:
        return ""
    try:
        pieces: List[bytes] = []
        while True:
            piece = os.read(fd, 1 << 16)
            if not piece:
                return b"".join(pieces).decode("utf-8", "replace")
            pieces.append(piece)
    except OSError:  # the process has just ended
        return ""
    finally:
        os.close(fd)


def _write(folder: str, name: str, text: str) -> None:
    # Without O_CREAT: the group may be gone, or may not have this file.
    fd = os.open(folder + "/" + name, os.O_WRONLY)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)


def _try_write(folder: str, name: str, text: str) -> None:
    try:
        _write(folder, name, text)
    except OSError:
        pass


def _max_rss_kb() -> int:
    usage = process_tree.Usage()
    usage.count(resource.getrusage(resource.RUSAGE_SELF))
    return usage.memory_kb


def _own_data_bytes() -> int:
    fields = _read("/proc/self", "statm").split()
    return int(fields[5]) * _PAGE_KB * 1024 if len(fields) > 5 else 0


def rss_kb(pid: int) -> int:
    """The resident memory of a process."""
    fields = _read("/proc/{}".format(pid), "statm").split()
    return int(fields[1]) * _PAGE_KB if fields else 0


def _pss_kb(pid: int) -> int:
    for line in _read("/proc/{}".format(pid), "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return rss_kb(pid)  # an older kernel, or the process has just ended


def _mapped_kb(pid: int) -> int:
    """The files in memory that a process has mapped."""
    for line in _read("/proc/{}".format(pid), "status").splitlines():
        if line.startswith("RssShmem:"):
            return int(line.split()[1])
    return 0


def _files_kb(pids: Sequence[int], folders: Sequence[str]) -> int:
    """The content of these directories as processes in a sandbox see them. Not every process can be
    asked (the sandbox's own processes hide); all others give the same answer."""
    host = [_device(folder) for folder in folders]
    most = 0
    for pid in pids[:_ASKED]:
        root = "/proc/{}/root".format(pid)
        sizes = {_device(root + folder): _filled_kb(root + folder) for folder in folders}
        if not any(device in sizes for device in host):  # else it is not in a sandbox
            most = max(most, sum(sizes.values()))
    return most


def _device(folder: str) -> int:
    try:
        return os.stat(folder).st_dev
    except OSError:
        return -1


def _filled_kb(folder: str) -> int:
    try:
        seen = os.statvfs(folder)
    except OSError:  # the process has just ended, or hides
        return 0
    return (seen.f_blocks - seen.f_bfree) * seen.f_frsize // 1024


# Processors


def bind(cores: Iterable[int]) -> None:
    """Run this process, and what it starts from now on, only on these processors, if the system can
    do that. Raises OSError."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)  # novm
        return
    try:
        import ctypes

        function = ctypes.CDLL(None, use_errno=True).sched_setaffinity
    except (ImportError, AttributeError, OSError):
        return
    mask = sum(1 << core for core in cores).to_bytes(_MASK_BYTES, "little")  # for PyPy
    if function(0, _MASK_BYTES, mask) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_MASK_BYTES = 1024


def bound() -> List[int]:
    """The processors that this process may run on; empty if that is not known."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))  # novm
    text = _read("/proc/self", "status")
    for line in text.splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return _expand(line.split()[1])
    return []


def _expand(ranges: str) -> List[int]:
    """ "0-2,5" is 0, 1, 2 and 5."""
    numbers: List[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
