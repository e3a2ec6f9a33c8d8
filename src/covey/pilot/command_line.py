"""The pilot's command line, for people; site jobs name a start file and nothing else."""

import argparse
from typing import List

from covey.pilot.options import CACHE_MB


def read(words: List[str]) -> argparse.Namespace:
    """Ends the process if the arguments are wrong or ask for help."""
    parser = argparse.ArgumentParser(
        prog="covey-pilot",
        description="Hold slots on this host and run tasks for a covey server.",
        epilog="example: pilot.pyz --server http://127.0.0.1:8080 --secret-file secret --slots 2",
    )
    add = parser.add_argument
    add("start", nargs="?", help="a start file, written by the server")
    add("--server", default="", help="address of the server")
    add("--ca", default="", help="PEM file of the authority to trust")
    add("--secret-file", help="a file with the secret; '-' reads standard input")
    add("--slots", type=int, default=0, help="tasks at a time (default: all cores)")
    add("--directory", default="", help="working directory (default: a temporary one)")
    add("--memory-mb", type=int, default=0, help="MB for all tasks (default: all)")
    add("--disk-mb", type=int, default=0, help="MB for all tasks (default: all free)")
    add("--gpus", default="", help="ids such as 0,1, or none (default: all found)")
    add("--cache", default="", help="directory for input files (default: ~/.cache/covey)")
    add("--cache-mb", type=int, default=CACHE_MB, help="size of that directory in MB")
    add("--shared", action="store_true", help="run tasks of several owners, each in a sandbox")
    add("--check", action="store_true", help="only check whether this host is ready")
    arguments = parser.parse_args(words)
    if not arguments.start and not (arguments.server and arguments.secret_file):
        parser.error("give a start file, or --server and --secret-file")
    return arguments
