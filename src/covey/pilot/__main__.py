"""Start a pilot: `python3 pilot.pyz START-FILE`, or with the server's address and a secret.

A start file (JSON, mode 0600) holds `address` or `address_file`, `secret`, `ca` (the certificate
authority to trust, as PEM text), and whatever else of `Options`; secrets never appear in arguments
or environments. `--check` only looks whether this host would do.
"""

import os
import sys
import tempfile
from typing import Any, List, Optional

from covey import __version__
from covey.pilot import options as told
from covey.pilot import start_file
from covey.pilot.host import host_facts
from covey.pilot.main import Options, Pilot
from covey.pilot.protocol.arrival import Arrival
from covey.pilot.protocol.connection import context_for
from covey.pilot.protocol.request_threads import Address, connect


def main(arguments: Optional[List[str]] = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    checks = False
    try:
        if len(words) == 1 and not words[0].startswith("-"):
            options = _from_file(words[0], stays=False)
        else:
            from covey.pilot import command_line  # for people; a pilot in a job does without

            given = command_line.read(words)
            checks = given.check
            options = _from_file(given.start, checks) if given.start else _from_flags(given)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write("covey-pilot: cannot start: %s\n" % error)
        return 2
    if checks:
        return Arrival(options, options.version or __version__, _say).report()
    return Pilot(options).run()


def _say(text: str) -> None:
    sys.stderr.write("covey-pilot: %s\n" % text)


def _from_file(path: str, stays: bool) -> Options:
    """`stays`: the file is for somebody else yet."""
    found = start_file.read(path) if stays else start_file.take(path)
    url, named = found.pop("address", ""), found.get("address_file", "")
    address = Address(url, named, found.pop("ca", ""))
    if not named:
        check(address)
    found.update(slots=found["slots"] or host_facts.cores(), start_file=os.path.abspath(path))
    return Options(address=address, **told.known(found))


def check(address: Address) -> None:
    """Raises ValueError if nobody could be reached like that: waiting would not help."""
    connect(address, 1.0)
    if address.ca():
        context_for(address.ca())


def _from_flags(given: Any) -> Options:
    if given.secret_file == "-":
        secret = sys.stdin.readline().strip()
    else:
        with open(given.secret_file) as file:
            secret = file.read().strip()
    ca = ""
    if given.ca:
        with open(given.ca) as file:
            ca = file.read()
    address = Address(given.server, "", ca)
    check(address)
    directory = given.directory or tempfile.mkdtemp(prefix="covey-pilot-")
    return Options(
        address=address,
        secret=secret,
        directory=os.path.abspath(directory),
        slots=given.slots or host_facts.cores(),
        memory_mb=given.memory_mb,
        disk_mb=given.disk_mb,
        gpus=given.gpus,
        cache=os.path.abspath(given.cache) if given.cache else "",
        cache_mb=given.cache_mb,
        shared=given.shared,
    )


if __name__ == "__main__":
    sys.exit(main())
