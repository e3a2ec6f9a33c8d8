"""Whether a pilot can work here: looked at before it enrols, and said in words that help.

The rule: everything that is wrong is said at once, in one block, and nothing is changed. What may
pass by itself (a server that is away or busy) is waited for, for a while; what waiting cannot mend
(a certificate, a secret, somebody else's server) is not.
"""

import os
import signal
import sys
import tempfile
import time
from email.utils import parsedate_to_datetime
from typing import Dict, List, NamedTuple, Optional, Tuple

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
LAST_LINES = 5

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
    """What the server says of itself. `problem`: why a pilot should not go on; `away`: nothing
    has been heard yet, and this is why."""

    version: str = ""
    digest: str = ""  # of its pilot file
    skew_seconds: float = 0.0  # this host's clock minus the server's
    problem: str = ""
    away: str = ""


def of_host(directory: str) -> List[str]:
    """What is wrong with this host."""
    found = []
    if sys.version_info[:2] < OLDEST_PYTHON:
        found.append("Python %s is too old: 3.6 or later is needed" % sys.version.split()[0])
    if os.uname().sysname == "Linux" and not os.path.exists("/proc/self/stat"):
        found.append("/proc is not mounted, so processes of tasks cannot be found: mount it")
    problem = _writable(directory)
    if problem:
        found.append("the directory %s cannot be used: %s" % (directory, problem))
    free_disk = host_facts.disk_mb(_existing(directory))[1]
    if 0 < free_disk < LEAST_DISK_MB:
        words = "only %d MB are free in %s; at least %d MB are needed"
        found.append(words % (free_disk, directory, LEAST_DISK_MB))
    free_memory = host_facts.free_memory_mb()
    if 0 < free_memory < LEAST_MEMORY_MB:
        words = "only %d MB of memory are free; at least %d MB are needed"
        found.append(words % (free_memory, LEAST_MEMORY_MB))
    return found


def _existing(path: str) -> str:
    path = os.path.abspath(path)
    while not os.path.isdir(path) and path != "/":
        path = os.path.dirname(path)
    return path


def _writable(path: str) -> str:
    """What is wrong with it; nothing is left behind, not even the directory."""
    try:
        with tempfile.TemporaryFile(dir=_existing(path)) as file:
            file.write(b"x")
    except OSError as error:
        return error.strerror or str(error)
    return ""


# -- the server ----------------------------------------------------------------------------


def ask(courier: Transfers, url: str) -> Hello:
    """Once."""
    try:
        response = courier.ask("HEAD", PILOT_FILE)
        response.read()
    except OSError as error:
        return of_error(url, str(error))
    finally:
        courier.close()
    version = response.headers.get("X-Covey-Version") or ""
    if response.status < 400 and not version:
        return Hello(problem="the program that answers at %s is not a covey server" % url)
    # Without a version: it has no time now.
    skew = _skew(response.headers.get("Date") or "")
    return Hello(version, response.headers.get("X-Covey-Pilot") or "", skew)


def _skew(date: str) -> float:
    """This host's clock minus the server's, 0 where that is not known."""
    try:
        there = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, IndexError):  # by Python's version
        return 0.0
    return time.time() - there


def of_error(url: str, error: str) -> Hello:
    """In words: what it means, and what to do."""
    lower = error.lower()
    if "certificate" in lower:
        meant = [text for mark, text in _CERTIFICATE_WORDS if mark in lower]
        problem = meant[0] if meant else error
        return Hello(problem="the certificate of %s is not accepted: %s" % (url, problem))
    if "ssl" in lower or "wrong_version" in lower:
        return Hello(problem="no TLS connection to %s: %s" % (url, error))
    if "not an answer of a covey server" in lower:
        return Hello(
            problem="the program that answers at %s is not a covey server: %s" % (url, error)
        )
    if "name or service" in lower or "name resolution" in lower or "nodename" in lower:
        return Hello(away="the host name in %s is unknown here: %s" % (url, error))
    if "refused" in lower:
        return Hello(
            away="no server listens at %s: is the server running, and is the port right?" % url
        )
    if "timed out" in lower or "unreachable" in lower or "no route" in lower:
        words = "cannot reach %s (%s): is there a firewall? A proxy is set with https_proxy"
        return Hello(away=words % (url, error))
    return Hello(away="cannot ask %s: %s" % (url, error))


def wait_for(courier: Transfers, address: Address, seconds: float) -> Hello:
    """Until it answers, or for so long."""
    until = time.monotonic() + seconds
    pause = 0.05
    while True:
        address.reload()
        url = address.url()
        found = (
            ask(courier, url) if url else Hello(away="the address of the server is not known yet")
        )
        if not found.away or time.monotonic() + pause > until:
            return found
        time.sleep(pause)
        pause = min(PAUSE_SECONDS, 2 * pause)


def block(problems: List[str]) -> str:
    """For people."""
    lines = ["covey-pilot: this host is not ready:"]
    return "\n".join(lines + ["  - " + problem for problem in problems]) + "\n"


# -- the site's own commands ---------------------------------------------------------------


def run(
    what: str, command: str, directory: str, env: Dict[str, str], seconds: float
) -> Optional[str]:
    """Run a command of the site's to its end: None if it went well, else what is wrong. Nothing
    of it is left in any case."""
    import subprocess  # large, and most sites have no such command

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
        said = _last_lines(output.read())
    if status == 0:
        return None
    how = "took longer than %g s" % seconds if status is None else _ended(status)
    return "the site's %s %s%s" % (what, how, ": " + said if said else "")


def _ended(status: int) -> str:
    return "ended with exit code %d" % status if status >= 0 else "died of signal %d" % -status


def _last_lines(data: bytes) -> str:
    lines: Tuple[str, ...] = tuple(data.decode("utf-8", "replace").strip().splitlines())
    return " | ".join(line[:300] for line in lines[-LAST_LINES:])
