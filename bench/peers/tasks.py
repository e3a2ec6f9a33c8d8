"""Functions that workers of the tools call. Standard library only."""

import subprocess

NULL = subprocess.DEVNULL


class Failed(Exception):
    """A command did not end with 0. Tools that repeat failed calls see this one."""


def nothing() -> None:
    pass


def status_of(argv: list[str]) -> int:
    return subprocess.run(argv, stdin=NULL, stdout=NULL, stderr=NULL, check=False).returncode


def must_succeed(argv: list[str]) -> int:
    status = status_of(argv)
    if status != 0:
        raise Failed(str(status))
    return status
