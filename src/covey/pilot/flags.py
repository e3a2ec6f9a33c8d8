"""The pilot's command line, for people; site jobs name a start file and nothing else."""

import argparse
from typing import List

from covey.pilot.options import CACHE_MB


def read(words: List[str]) -> argparse.Namespace:
    """Ends the process when they make no sense, or ask for help."""
    parser = argparse.ArgumentParser(
        prog="covey-pilot",
        description="Hold slots on this host and run tasks for a covey server.",
        epilog="example: pilot.pyz --server http://127.0.0.1:8080 --secret-file secret --slots 2",
    )
    add = parser.add_argument
    add("start", nargs="?", help="a start file, written by the server")
    add("--server", default="", help="address of the server")
    add("--ca", default="", help="file with the authority to trust, as PEM")
    add("--secret-file", help="a file with the secret; '-' reads standard input")
    add("--slots", type=int, default=0, help="tasks at a time (default: all cores)")
    add("--directory", default="", help="where to work (default: a temporary one)")
    add("--memory-mb", type=int, default=0, help="for all tasks (default: all)")
    add("--disk-mb", type=int, default=0, help="for all tasks (default: all free)")
    add("--gpus", default="", help="ids, as 0,1, or none (default: those found)")
    add("--cache", default="", help="where files are kept (default: ~/.cache/covey)")
    add("--cache-mb", type=int, default=CACHE_MB, help="how much is kept there")
    add("--shared", action="store_true", help="tasks of several owners, each walled in")
    add("--check", action="store_true", help="look whether this host would do")
    given = parser.parse_args(words)
    if not given.start and not (given.server and given.secret_file):
        parser.error("give a start file, or --server and --secret-file")
    return given
