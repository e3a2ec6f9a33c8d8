"""Checks before a pilot enrols: whether it can work on this host, with messages that help.

The rule: all problems are reported at once, in one block, and nothing is changed. A problem that
may pass by itself (a server that is away or busy) is waited for, for a while; one that does not
pass (a wrong certificate, secret or server) is not.
"""

import os
import signal
import sys
import tempfile
import time
from email.utils import parsedate_to_datetime
from typing import Dict, List, NamedTuple, Optional

from covey.pilot.files.setups import last_lines
from covey.pilot.files.transfers import Transfers
from covey.pilot.host import host_facts
from covey.pilot.protocol.request_threads import Address
from covey.pilot.slots.slot_files import MINIMUM_FREE_BYTES

PILOT_FILE = "/pilot/v1/pilot.pyz"
OLDEST_PYTHON = (3, 6)
LEAST_DISK_MB = MINIMUM_FREE_BYTES >> 20
LEAST_MEMORY_MB = 64
MOST_SKEW_SECONDS = 600.0
PAUSE_SECONDS = 2.0

_UNKNOWN_AUTHORITY = (
    "this pilot does not know the authority that signed it: the start file is from another server"
)
_CERTIFICATE_WORDS = (
    ("hostname mismatch", "it is not valid for this name: use a name or address that it contains"),
    ("doesn't match", "it is not valid for this name: use a name or address that it contains"),
    ("not valid for", "it is not valid for this name: use a name or address that it contains"),
    ("has expired", "it has expired, or this host's clock is wrong"),
    ("not yet valid", "it is not valid yet: this host's clock seems to be slow"),
    ("self", _UNKNOWN_AUTHORITY + ", or has no 'ca'"),
    ("unable to get", _UNKNOWN_AUTHORITY),
)


class Hello(NamedTuple):
    """The server's first answer. `problem`: why this pilot should not go on. `away`: why there was
    no answer yet."""

    version: str = ""
    digest: str = ""  # of its pilot file
    skew_seconds: float = 0.0  # this host's clock minus the server's
    problem: str = ""
    away: str = ""


def of_host(directory: str) -> List[str]:
    """The problems of this host."""
    problems = []
    if sys.version_info[:2] < OLDEST_PYTHON:
        problems.append("Python %s is too old: 3.6 or later is needed" % sys.version.split()[0])
    if os.uname().sysname == "Linux" and not os.path.exists("/proc/self/stat"):
        problems.append("/proc is not mounted, so processes of tasks cannot be found: mount it")
    problem = _writable(directory)
    if problem:
        problems.append("the directory %s cannot be used: %s" % (directory, problem))
    free_disk = host_facts.disk_mb(_existing(directory))[1]
    if 0 < free_disk < LEAST_DISK_MB:
        words = "only %d MB are free in %s; at least %d MB are needed"
        problems.append(words % (free_disk, directory, LEAST_DISK_MB))
    free_memory = host_facts.free_memory_mb()
    if 0 < free_memory < LEAST_MEMORY_MB:
        words = "only %d MB of memory are free; at least %d MB are needed"
        problems.append(words % (free_memory, LEAST_MEMORY_MB))
    return problems


def _existing(path: str) -> str:
    path = os.path.abspath(path)
    while not os.path.isdir(path) and path != "/":
        path = os.path.dirname(path)
    return path


def _writable(path: str) -> str:
    """Why the directory cannot be written to; "" if it can. Leaves nothing behind."""
    try:
        with tempfile.TemporaryFile(dir=_existing(path)) as file:
            file.write(b"x")
    except OSError as error:
        return error.strerror or str(error)
    return ""


# -- the server ----------------------------------------------------------------------------


def ask(transfers: Transfers, url: str) -> Hello:
    """Ask the server once."""
    try:
        response = transfers.ask("HEAD", PILOT_FILE)
        response.read()
    except OSError as error:
        return of_error(url, str(error))
    finally:
        transfers.close()
    version = response.headers.get("X-Covey-Version") or ""
    if response.status < 400 and not version:
        return Hello(problem="the program that answers at %s is not a covey server" % url)
    # Without a version: it has no time now.
    skew = _skew(response.headers.get("Date") or "")
    return Hello(version, response.headers.get("X-Covey-Pilot") or "", skew)


def _skew(date: str) -> float:
    """This host's clock minus the server's; 0 if it is not known."""
    try:
        there = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, IndexError):  # depending on Python's version
        return 0.0
    return time.time() - there


def of_error(url: str, error: str) -> Hello:
    """What an error means, and what to do about it."""
    lower = error.lower()
    if "certificate" in lower:
        meanings = [text for mark, text in _CERTIFICATE_WORDS if mark in lower]
        problem = meanings[0] if meanings else error
        return Hello(problem="the certificate of %s is not accepted: %s" % (url, problem))
    if "ssl" in lower or "wrong_version" in lower:
        return Hello(problem="no TLS connection to %s: %s" % (url, error))
    if "not an answer of a covey server" in lower:
        words = "the program that answers at %s is not a covey server: %s"
        return Hello(problem=words % (url, error))
    if "name or service" in lower or "name resolution" in lower or "nodename" in lower:
        return Hello(away="the host name in %s is unknown here: %s" % (url, error))
    if "refused" in lower:
        words = "no server listens at %s: is the server running, and is the port right?"
        return Hello(away=words % url)
    if "timed out" in lower or "unreachable" in lower or "no route" in lower:
        words = "cannot reach %s (%s): is there a firewall? A proxy is set with https_proxy"
        return Hello(away=words % (url, error))
    return Hello(away="no answer from %s: %s" % (url, error))


def wait_for(transfers: Transfers, address: Address, seconds: float) -> Hello:
    """Ask until the server answers, for at most this long."""
    until = time.monotonic() + seconds
    pause = 0.05
    while True:
        address.reload()
        url = address.url()
        unknown = Hello(away="the address of the server is not known yet")
        hello = ask(transfers, url) if url else unknown
        if not hello.away or time.monotonic() + pause > until:
            return hello
        time.sleep(pause)
        pause = min(PAUSE_SECONDS, 2 * pause)


def block(problems: List[str]) -> str:
    """The problems as text for people."""
    lines = ["covey-pilot: this host is not ready:"]
    return "\n".join(lines + ["  - " + problem for problem in problems]) + "\n"


# -- the site's own commands ---------------------------------------------------------------


def run(
    what: str, command: str, directory: str, env: Dict[str, str], seconds: float
) -> Optional[str]:
    """Run a shell command of the site to its end. Returns None if it succeeded, else the problem.
    No process of its group is left in any case."""
    import subprocess  # a large module, and most sites have no such command

    os.makedirs(directory, 0o700, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env=env,
            start_new_session=True,
        )
        try:
            status: Optional[int] = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass  # nothing is left
        process.wait()
        output.seek(max(0, output.tell() - 4096))
        printed = last_lines(output.read())
    if status == 0:
        return None
    how = "took longer than %g s" % seconds if status is None else _ended(status)
    return "the site's %s %s%s" % (what, how, ": " + printed if printed else "")


def _ended(status: int) -> str:
    return "ended with exit code %d" % status if status >= 0 else "died of signal %d" % -status
