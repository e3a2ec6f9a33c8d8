"""Which machine this is: an id that outlives pilots, and one for this start of the machine.

The rule: the id says nothing about the machine to whoever does not know the site's name, stays when
its name and address change, and is the same for all pilots of the host. A machine that has neither
a machine id nor a network card of its own (a container) draws one, and keeps it in the cache
directory, which its pilots share. Cloned machines have the same id; they differ in `boot`.
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
    """Of this host, for this site. Raises OSError only where one had to be drawn and cannot be
    kept."""
    known, card = machine_id(), mac()
    if not known and not card:
        known = _drawn(cache)
    text = "|".join((site, known, card))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:LENGTH]


def boot() -> str:
    """Another one whenever the machine starts; nothing where the system does not say."""
    return _line(BOOT_ID)


def machine_id() -> str:
    for path in MACHINE_IDS:
        found = _line(path)
        if found not in _NO_IDS:
            return found
    return ""


def mac() -> str:
    """Of the first real network card; virtual ones come and go, and many hosts have equal ones."""
    for name in _names(CARDS):
        if os.path.exists(os.path.join(CARDS, name, "device")):
            found = _line(os.path.join(CARDS, name, "address"))
            if found not in _NO_MAC:
                return found
    return ""


def _drawn(cache: str) -> str:
    """One at random, the same for everybody who has this cache."""
    path = os.path.join(cache, KEPT)
    os.makedirs(cache, 0o700, exist_ok=True)
    mine = "%s-%d" % (path, os.getpid())
    with open(mine, "w") as file:
        file.write(os.urandom(16).hex() + "\n")
    try:
        os.link(mine, path)  # whole, and only the first one wins
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
