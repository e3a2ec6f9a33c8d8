"""Renewal: a pilot that waited in a queue while its server was upgraded fetches the server's pilot
file and becomes that pilot.

The rule: only once. The new file must have the digest that the server named. The new pilot finds
a mark in its environment and does not renew itself again, whatever its version is.
"""

import hashlib
import os
import sys
from typing import Any, Dict, List, Mapping

from covey.pilot import start_file as start_file_module
from covey.pilot.files.transfers import Transfers
from covey.pilot.host.host_checks import PILOT_FILE

MARK = "COVEY_PILOT_RENEWED"  # in the environment of the successor
MOST_BYTES = 4 << 20


class Unrenewed(Exception):
    """The message says why the pilot could not renew itself."""


def own_file() -> str:
    """The pilot file that this process runs; "" if it runs from no such file."""
    archive = getattr(globals().get("__loader__"), "archive", "")
    return os.path.abspath(archive) if archive else ""


def wanted(ours: str, theirs: str, file: str, environment: Mapping[str, str]) -> bool:
    """Whether a pilot of version `ours`, from this pilot file, should become the server's."""
    return bool(theirs) and ours != theirs and bool(file) and not environment.get(MARK)


def fetch(transfers: Transfers, digest: str, directory: str) -> str:
    """Fetch the server's pilot file into the directory; returns its path. Raises Unrenewed."""
    try:
        response = transfers.ask("GET", PILOT_FILE)
        data = response.read(MOST_BYTES)
    except Exception as error:  # any failure of the network
        raise Unrenewed("the pilot file cannot be fetched: %s" % error) from error
    if response.status != 200:
        raise Unrenewed("the pilot file cannot be fetched: status %d" % response.status)
    if hashlib.sha256(data).hexdigest() != digest:
        raise Unrenewed("the pilot file does not have the digest that the server named")
    path = os.path.join(directory, "renewed.pyz")
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "wb") as file:
            file.write(data)
    except OSError as error:
        raise Unrenewed("the pilot file cannot be written: %s" % error) from error
    return path


def become(path: str, start_file: str, start: Dict[str, Any], theirs: str) -> None:
    """Replace this process by that pilot, with the same start information. Raises OSError; then
    this process is unchanged."""
    start_file = start_file or os.path.join(os.path.dirname(path), "start.json")
    start_file_module.write(
        start_file, dict(start, discard=list(start.get("discard", ())) + [path])
    )
    environment = dict(os.environ)
    environment[MARK] = theirs or "yes"
    command: List[str] = [sys.executable, path, start_file]
    sys.stderr.flush()
    os.execve(sys.executable, command, environment)
