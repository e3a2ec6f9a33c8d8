"""Who runs this program, and where: the owner of what is submitted, where no token says another,
and the machine that it was submitted on.
"""

import getpass
import os
import socket


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def host() -> str:
    return socket.gethostname()
