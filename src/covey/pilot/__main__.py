"""Start a pilot: `python3 pilot.pyz START-FILE`, or with the server's address and a secret.

A start file (JSON, mode 0600) holds `address` or `address_file`, `secret`, and whatever else of
`Options`; secrets never appear in arguments or environments.
"""

import argparse
import json
import os
import sys
import tempfile
from typing import List, Optional

from covey.pilot import host
from covey.pilot.lines import Address
from covey.pilot.main import CACHE_MB, Options, Pilot


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="covey-pilot",
        description="Hold slots on this host and run tasks for a covey server.",
        epilog="example: pilot.pyz --server http://127.0.0.1:8080 --secret-file secret --slots 2",
    )
    parser.add_argument("start", nargs="?", help="a start file, written by the server")
    parser.add_argument("--server", default="", help="address of the server")
    parser.add_argument("--secret-file", help="a file with the secret; '-' reads standard input")
    parser.add_argument("--slots", type=int, default=0, help="tasks at a time (default: all cores)")
    parser.add_argument("--directory", default="", help="where to work (default: a temporary one)")
    parser.add_argument("--memory-mb", type=int, default=0, help="for all tasks (default: all)")
    parser.add_argument("--disk-mb", type=int, default=0, help="for all tasks (default: all free)")
    parser.add_argument("--gpus", default="", help="ids, as 0,1, or none (default: those found)")
    parser.add_argument(
        "--cache", default="", help="where files are kept (default: ~/.cache/covey)"
    )
    parser.add_argument("--cache-mb", type=int, default=CACHE_MB, help="how much is kept there")
    given = parser.parse_args(arguments)
    if not given.start and not (given.server and given.secret_file):
        parser.error("give a start file, or --server and --secret-file")
    try:
        options = _from_file(given.start) if given.start else _from_flags(given)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write("covey-pilot: cannot start: %s\n" % error)
        return 2
    return Pilot(options).run()


def _from_file(path: str) -> Options:
    with open(path) as file:
        found = json.load(file)
    address = Address(found.pop("address", ""), found.pop("address_file", ""))
    return Options(address=address, **found)


def _from_flags(given: argparse.Namespace) -> Options:
    if given.secret_file == "-":
        secret = sys.stdin.readline().strip()
    else:
        with open(given.secret_file) as file:
            secret = file.read().strip()
    directory = given.directory or tempfile.mkdtemp(prefix="covey-pilot-")
    return Options(
        address=Address(given.server),
        secret=secret,
        directory=os.path.abspath(directory),
        slots=given.slots or host.cores(),
        memory_mb=given.memory_mb,
        disk_mb=given.disk_mb,
        gpus=given.gpus,
        cache=os.path.abspath(given.cache) if given.cache else "",
        cache_mb=given.cache_mb,
    )


if __name__ == "__main__":
    sys.exit(main())
