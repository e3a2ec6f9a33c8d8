"""What a pilot knows of its host: its name, what it publishes about it, what tasks inherit."""

import os
import platform
import socket
from typing import Dict, Mapping

# Tasks inherit what makes programs work, and nothing that could be a secret of ours or theirs.
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


def name() -> str:
    return socket.gethostname()[:255] or "unknown"


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def tags() -> Dict[str, str]:
    found = {
        "cores": str(cores()),
        "machine": platform.machine(),
        "system": platform.system(),
        "release": platform.release(),
        "python": platform.python_version(),
    }
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found["memory_mb"] = str(pages >> 20)
    except (ValueError, OSError):
        pass
    return found


def task_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    found = {key: environment[key] for key in _INHERITED if key in environment}
    found.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    return found
