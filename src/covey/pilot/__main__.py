"""Start a pilot: `python3 pilot.pyz START-FILE`, or with the server's address and a secret.

A start file (JSON, mode 0600) holds `address` or `address_file`, `secret`, `ca` (the certificate
authority to trust, as PEM text), and other fields of `Options`. Secrets never appear in arguments
or environments. `--check` only checks whether this host is suitable.
"""

import os
import sys
import tempfile
from typing import Any, List, Optional

from covey import __version__
from covey.pilot import start_file
from covey.pilot.host import host_facts
from covey.pilot.main import Pilot
from covey.pilot.options import Options, known_fields
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
            from covey.pilot import command_line  # only for people: a site job does not need it

            flags = command_line.read(words)
            checks = flags.check
            options = _from_file(flags.start, checks) if flags.start else _from_flags(flags)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write("covey-pilot: cannot start: %s\n" % error)
        return 2
    if checks:
        return Arrival(options, options.version or __version__, _say).report()
    return Pilot(options).run()


def _say(text: str) -> None:
    sys.stderr.write("covey-pilot: %s\n" % text)


def _from_file(path: str, stays: bool) -> Options:
    """`stays`: leave the file in place, because a real pilot still needs it."""
    fields = start_file.read(path) if stays else start_file.take(path)
    url, address_file = fields.pop("address", ""), fields.get("address_file", "")
    address = Address(url, address_file, fields.pop("ca", ""))
    if not address_file:
        check(address)
    fields.update(slots=fields["slots"] or host_facts.cores(), start_file=os.path.abspath(path))
    return Options(address=address, **known_fields(fields))


def check(address: Address) -> None:
    """Raises ValueError if this address can never be reached, so that waiting would not help."""
    connect(address, 1.0)
    if address.ca():
        context_for(address.ca())


def _from_flags(arguments: Any) -> Options:
    if arguments.secret_file == "-":
        secret = sys.stdin.readline().strip()
    else:
        with open(arguments.secret_file) as file:
            secret = file.read().strip()
    ca = ""
    if arguments.ca:
        with open(arguments.ca) as file:
            ca = file.read()
    address = Address(arguments.server, "", ca)
    check(address)
    directory = arguments.directory or tempfile.mkdtemp(prefix="covey-pilot-")
    return Options(
        address=address,
        secret=secret,
        directory=os.path.abspath(directory),
        slots=arguments.slots or host_facts.cores(),
        memory_mb=arguments.memory_mb,
        disk_mb=arguments.disk_mb,
        gpus=arguments.gpus,
        cache=os.path.abspath(arguments.cache) if arguments.cache else "",
        cache_mb=arguments.cache_mb,
        shared=arguments.shared,
    )


if __name__ == "__main__":
    sys.exit(main())
