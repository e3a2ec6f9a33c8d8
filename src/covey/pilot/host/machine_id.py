"""The machine's identity: an id that outlives pilots, and one for each start of the machine.

The rule: the id reveals nothing about the machine to anybody who does not know the site's name. It
stays when the machine's name or address changes, and is the same for all pilots of the host. A
machine without a machine id and without a network card of its own (a container) draws a random id
and keeps it in the cache directory, which its pilots share. Cloned machines have the same id, but
a different `boot`.
"""

import hashlib
import os
from typing import List

MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
CARDS = "/sys/class/net"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
KEPT = "machine"
LENGTH = 16
_NO_IDS = ("", "uninitialized")
_NO_MAC = ("", "00:00:00:00:00:00")


def machine(site: str, cache: str) -> str:
    """This host's id for this site. Raises OSError only if a random id cannot be kept."""
    own_id, card = machine_id(), mac()
    if not own_id and not card:
        own_id = _drawn(cache)
    text = "|".join((site, own_id, card))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:LENGTH]


def boot() -> str:
    """An id that changes at each start of the machine; "" if the system has none."""
    return _line(BOOT_ID)


def machine_id() -> str:
    for path in MACHINE_IDS:
        value = _line(path)
        if value not in _NO_IDS:
            return value
    return ""


def mac() -> str:
    """The address of the first real network card: virtual cards come and go, and are often equal
    on many hosts."""
    for name in _names(CARDS):
        if os.path.exists(os.path.join(CARDS, name, "device")):
            address = _line(os.path.join(CARDS, name, "address"))
            if address not in _NO_MAC:
                return address
    return ""


def _drawn(cache: str) -> str:
    """A random id, the same for all who share this cache."""
    path = os.path.join(cache, KEPT)
    os.makedirs(cache, 0o700, exist_ok=True)
    mine = "%s-%d" % (path, os.getpid())
    with open(mine, "w") as file:
        file.write(os.urandom(16).hex() + "\n")
    try:
        os.link(mine, path)  # the file is complete, and only the first link succeeds
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not os.path.exists(path):
            os.rename(mine, path)
    finally:
        if os.path.exists(mine):
            os.unlink(mine)
    return _line(path)


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _line(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""
