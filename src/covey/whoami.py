"""Who runs this program: the owner of what is submitted, where no token says another."""

import getpass
import os


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
