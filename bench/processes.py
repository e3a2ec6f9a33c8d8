"""Looking at processes through /proc, and ending those that are ours.

The benchmark is a subreaper: whatever it starts, and whatever those start, stays below it in the
tree even when its parent dies. So "ours" is exactly "our descendants", and each is ended by pid.
"""

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

TICK = 1.0 / os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36


class Stat(NamedTuple):
    """Of a process or of one thread; times in seconds. The kernel samples how a time divides
    into user and system, but knows their sum."""

    parent: int
    state: str
    cpu: float
    children: float  # CPU of all children that were waited for


class Memory(NamedTuple):
    """Bytes resident, now and at most."""

    now: int
    peak: int


def adopt_orphans() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def read_stat(path: str) -> Stat | None:
    """From /proc/PID/stat or /proc/PID/task/TID/stat; None if it is gone."""
    try:
        text = Path(path).read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    user, system, child_user, child_system = (int(field) * TICK for field in fields[11:15])
    return Stat(int(fields[1]), fields[0], user + system, child_user + child_system)


def stat(pid: int) -> Stat | None:
    return read_stat(f"/proc/{pid}/stat")


def cpu(*pids: int) -> float:
    return sum(found.cpu for pid in pids if (found := stat(pid)) is not None)


def precise_cpu(pid: int) -> float:
    """CPU seconds of all threads that live, to the microsecond."""
    total = 0
    for name in os.listdir(f"/proc/{pid}/task"):
        try:
            total += int(Path(f"/proc/{pid}/task/{name}/schedstat").read_text().split()[0])
        except OSError:
            pass  # it has just ended
    return total / 1e9


def pin(pid: int, core: int) -> None:
    """All threads of a process to one core; those that they start will be there, too."""
    for name in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(name), {core})


def alive(pid: int) -> bool:
    found = stat(pid)
    return found is not None and found.state not in "ZX"


def memory(pid: int) -> Memory:
    values = {"VmRSS": 0, "VmHWM": 0}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in values:
            values[name] = int(rest.split()[0]) * 1024
    return Memory(values["VmRSS"], values["VmHWM"])


def share_of_memory(pid: int) -> int:
    """Resident bytes, of which those that several processes share count for each in part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def parents() -> dict[int, int]:
    """Each live process with its parent."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (one := stat(int(name))) is not None and one.state not in "ZX":
            found[int(name)] = one.parent
    return found


def children(pid: int) -> list[int]:
    return sorted(child for child, parent in parents().items() if parent == pid)


def descendants(pid: int) -> list[int]:
    """Parents before their children."""
    return below(pid, parents())


def below(pid: int, parent_of: dict[int, int]) -> list[int]:
    found = [pid]
    for one in found:
        found.extend(sorted(child for child, parent in parent_of.items() if parent == one))
    return found[1:]


def command(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode("utf-8", "replace") for part in text.split(b"\0")[:-1]]


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_tree(pid: int) -> int:
    """End a process and all below it at once; how many there were."""
    found = [pid, *descendants(pid)]
    for one in found:
        kill(one)
    return len(found)


def end_descendants(seconds: float = 5.0) -> list[int]:
    """End all that is still ours; those that were."""
    ended: list[int] = []
    until = time.monotonic() + seconds
    while found := descendants(os.getpid()):
        for pid in found:
            kill(pid)
            ended.append(pid)
        bury()
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    bury()
    return sorted(set(ended))


def bury() -> None:
    """Wait for every child that has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def wait_gone(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
