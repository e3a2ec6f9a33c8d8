"""The tools: which version, from where, and an environment for each.

A tool from PyPI gets a virtual environment of its own in the cache directory, made once. Debian's
tools are installed if they are missing and this user may. What cannot be had is a reason in words,
never a tool that is silently left out.
"""

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from bench.peers.tools import workqueue

TOOLS = Path(__file__).with_name("tools")


class Missing(Exception):
    """A tool that cannot be had here."""


class Tool(NamedTuple):
    """`module` in bench.peers.tools; `pinned` for PyPI, `programs` and `packages` for Debian.
    `slow` ones get fewer tasks."""

    name: str
    module: str
    pinned: str = ""
    programs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    slow: bool = False
    has_server: bool = True
    text: str = ""


HQ_TEXT = "PyPI's build: server and workers are threads of the submitting process, without journal"
TOOL_LIST = (
    Tool("covey", "covey", text="defaults: own directory, captured output, durable results"),
    Tool("HyperQueue", "hyperqueue", "hyperqueue==0.27.0", text=HQ_TEXT),
    Tool("dask", "distributed", "distributed==2026.8.0", text="scheduler and workers by `dask …`"),
    Tool("parsl", "parsl", "parsl==2026.10.26", text="HighThroughputExecutor, local blocks"),
    Tool("ray", "ray", "ray==2.60.0", text="`ray.init`; a node per worker in the fault cases"),
    Tool(
        "executorlib",
        "executorlib",
        "executorlib[cache]==1.11.0",
        has_server=False,
        text="SingleNodeExecutor, block_allocation; local, without a server",
    ),
    Tool(
        "Work Queue",
        "workqueue",
        programs=("work_queue_worker", "cc"),
        packages=("coop-computing-tools", "coop-computing-tools-dev", "gcc", "libc6-dev"),
        slow=True,
        text="Debian's cctools; the manager is a small C program, as its manual has it",
    ),
    Tool(
        "GNU parallel",
        "parallel",
        programs=("parallel",),
        packages=("parallel",),
        slow=True,
        has_server=False,
        text="statuses from its job log; no server, no workers",
    ),
    Tool(
        "xargs",
        "xargs",
        programs=("xargs",),
        packages=("findutils",),
        has_server=False,
        text="keeps no record at all; says only whether all commands succeeded",
    ),
)
BY_NAME = {tool.module: tool for tool in TOOL_LIST} | {tool.name: tool for tool in TOOL_LIST}


class Environment(NamedTuple):
    """How to run a tool's module."""

    python: str
    version: str
    variables: dict[str, str]


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "covey-bench"


def prepare(tool: Tool) -> Environment:
    """Raises Missing, with the reason."""
    if tool.pinned:
        return _from_pypi(tool)
    if not tool.packages:
        from covey import __version__

        return Environment(sys.executable, __version__, {})
    _from_debian(tool)
    extra = {workqueue.MANAGER: _compiled()} if tool.module == "workqueue" else {}
    return Environment(sys.executable, _debian_version(tool), extra)


def _from_pypi(tool: Tool) -> Environment:
    home = cache() / tool.pinned.replace("==", "-").replace("[cache]", "")
    python, ready = home / "bin" / "python", home / "ready"
    if not ready.exists():
        print(f"… installing {tool.pinned}", file=sys.stderr, flush=True)
        shutil.rmtree(home, ignore_errors=True)
        _must(tool.pinned, [_base_python(), "-m", "venv", str(home)])
        _must(tool.pinned, [str(python), "-m", "pip", "install", "--quiet", tool.pinned])
        ready.touch()
    bin_first = f"{home / 'bin'}:{os.environ.get('PATH', '')}"
    variables = {"PATH": bin_first}
    if tool.module == "ray":  # its authentication stays on, with a token for this run alone
        variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return Environment(str(python), tool.pinned.partition("==")[2], variables)


def _base_python() -> str:
    """Not of our own environment, which the tool's should not depend on."""
    found = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    return str(found) if found.exists() else sys.executable


def _from_debian(tool: Tool) -> None:
    if all(map(shutil.which, tool.programs)) and all(map(_installed, tool.packages)):
        return
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    apt = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"]
    print(f"… installing {', '.join(tool.packages)}", file=sys.stderr, flush=True)
    options = ["-o", "DPkg::Lock::Timeout=300", "install", "--yes", "--no-install-recommends"]
    _must(" ".join(tool.packages), [*apt, *options, *tool.packages])


def _installed(package: str) -> bool:
    return bool(_debian_field(package, "${Version}"))


def _debian_version(tool: Tool) -> str:
    return _debian_field(tool.packages[0], "${Version}") or "unknown"


def _debian_field(package: str, field: str) -> str:
    command = ["dpkg-query", "--show", "--showformat", field, package]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def _compiled() -> str:
    source = TOOLS / "workqueue.c"
    cache().mkdir(parents=True, exist_ok=True)
    program = cache() / "work-queue-manager"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        libraries = ["-lwork_queue", "-ldttools", "-lz", "-lm"]
        command = ["cc", "-O2", str(source), "-I/usr/include/cctools", *libraries]
        _must("the manager of Work Queue", [*command, "-o", str(program)])
    return str(program)


def _must(what: str, command: list[str]) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{what}: {error}") from error
    if ran.returncode != 0:
        last = (ran.stderr or ran.stdout).strip().splitlines()[-1:] or [f"exit {ran.returncode}"]
        raise Missing(f"{what} could not be installed: {last[0][:200]}")
