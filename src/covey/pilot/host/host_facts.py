"""What a pilot can find out about its host. What cannot be found out is left out."""

import glob
import os
import pwd
import re
import shutil
import socket
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

# Tasks inherit what programs need to work, and nothing that could be a secret.
_INHERITED = (
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "MODULEPATH",
    "CUDA_VISIBLE_DEVICES",
)
_CGROUP_LIMITS = ("/sys/fs/cgroup%s/memory.max", "/sys/fs/cgroup/memory%s/memory.limit_in_bytes")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PROBE_SECONDS = 10.0


class HostLoad(NamedTuple):
    """What processes use: resident memory now, and processor seconds so far."""

    memory_mb: float = 0.0
    cpu_seconds: float = 0.0


def name() -> str:
    return socket.gethostname()[:255] or "unknown"


def user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def cores() -> int:
    return len(processors()) or os.cpu_count() or 1


def processors() -> List[int]:
    """The numbers of the processors that we may use; empty if that is not known."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return []


def memory_mb() -> int:
    """The host's memory, or our control group's limit if that is less. 0: unknown."""
    total = 0
    try:
        total = (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) >> 20
    except (ValueError, OSError):
        pass
    limits = [limit >> 20 for limit in _group_limits()]
    return min([total] + limits) if total else min(limits or [0])


def _group_limits() -> List[int]:
    """Memory limits of our control groups and of those around them."""
    limits = []
    for line in _read("/proc/self/cgroup").splitlines():
        place = line.split(":", 2)[-1].rstrip("/")
        if ":memory:" not in line and not line.startswith("0::"):
            continue
        while True:
            for pattern in _CGROUP_LIMITS:
                text = _read(pattern % place).strip()
                if text.isdigit() and int(text) < 1 << 60:
                    limits.append(int(text))
            if not place:
                break
            place = place.rpartition("/")[0]
    return limits


def free_memory_mb() -> int:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _read("/proc/meminfo"), re.M)
    return int(match.group(1)) >> 10 if match else 0


def disk_mb(directory: str) -> Tuple[int, int]:
    """The size of the directory's file system, and its free space."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return 0, 0
    return usage.total >> 20, usage.free >> 20


def gpus(chosen: Union[str, Iterable[str], None], environment: Mapping[str, str]) -> List[str]:
    """The ids of this host's GPUs: as chosen by option (`none` for none), else from $COVEY_GPUS,
    else those that our site allows, else all that are found."""
    ids = chosen or environment.get("COVEY_GPUS") or environment.get("CUDA_VISIBLE_DEVICES")
    if ids is None:
        return _nvidia() or _amd()
    words = ids.split(",") if isinstance(ids, str) else [str(gpu) for gpu in ids]
    kept = [word.strip() for word in words]
    return [word for word in kept if word and word not in ("none", "-1", "NoDevFiles")]


def _nvidia() -> List[str]:
    nodes = [path for path in glob.glob("/dev/nvidia[0-9]*") if path[11:].isdigit()]
    if not nodes and not shutil.which("nvidia-smi"):
        return []
    import subprocess  # a large module, used only here

    try:
        listed = subprocess.check_output(
            ["nvidia-smi", "-L"], stderr=subprocess.DEVNULL, timeout=_PROBE_SECONDS
        )
        return re.findall(r"^GPU (\d+):", listed.decode("utf-8", "replace"), re.M)
    except (OSError, subprocess.SubprocessError):
        return sorted((path[11:] for path in nodes), key=int)


def _amd() -> List[str]:
    """From ROCm's list of nodes: those with SIMD units are GPUs, numbered in order."""
    count = 0
    for path in glob.glob("/sys/class/kfd/kfd/topology/nodes/*/properties"):
        match = re.search(r"^simd_count (\d+)", _read(path), re.M)
        count += match is not None and int(match.group(1)) > 0
    return [str(number) for number in range(count)]


def cpu() -> Dict[str, str]:
    """The processor's model and clock, if the system reports them."""
    text = _read("/proc/cpuinfo")
    facts = {}
    model = re.search(r"^(?:model name|Processor|cpu model)\s*:\s*(.+)", text, re.M)
    if model:
        facts["cpu_model"] = model.group(1).strip()
    clock = re.search(r"^cpu MHz\s*:\s*([\d.]+)", text, re.M)
    if clock:
        facts["cpu_mhz"] = "%.0f" % float(clock.group(1))
    return facts


def system_version() -> str:
    """The name and version of the distribution."""
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read("/etc/os-release"), re.M)
    return match.group(1) if match else os.uname().release


def idle_percent() -> Optional[int]:
    """Idle processor time of the whole host: a host with two idle processors has 200."""
    try:
        busy = os.getloadavg()[0]
    except OSError:
        return None
    return int(max(0.0, (os.cpu_count() or 1) - busy) * 100)


def load_of(leaders: Iterable[int]) -> HostLoad:
    """What the process groups with these leaders use."""
    wanted = set(leaders)
    pages, ticks = 0, 0
    if not wanted:
        return HostLoad()
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if entry.isdigit():
            fields = _read("/proc/%s/stat" % entry).rpartition(")")[2].split()
            if len(fields) > 21 and (int(fields[2]) in wanted or int(entry) in wanted):
                ticks += int(fields[11]) + int(fields[12])
                pages += int(fields[21])
    return HostLoad(pages * os.sysconf("SC_PAGE_SIZE") / 1048576.0, ticks / float(_TICKS))


def task_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    variables = {key: environment[key] for key in _INHERITED if key in environment}
    variables.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    return variables


def cache_directory(environment: Mapping[str, str], directory: str) -> str:
    """The cache of a pilot started by hand: in the user's home, or in the pilot's own directory if
    there is no home (in a container, for example)."""
    home = environment.get("HOME") or os.path.expanduser("~")
    base = environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return os.path.join(base if os.path.isabs(base) else directory, "covey")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""
