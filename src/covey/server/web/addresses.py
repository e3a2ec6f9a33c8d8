"""Where a server listens, and under which names it is found.

Plain HTTP is for this machine only: anything that comes over a network is encrypted. With
certificates that somebody else gave, which do not name this machine's loopback, there is a second
door there for clients and pilots of this machine.
"""

import contextlib
import ipaddress
import itertools
import resource
import socket
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from covey.core.errors import BadConfig, CoveyError

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
BACKLOG = 4096  # a thousand pilots come at once
FAR_4, FAR_6 = "192.0.2.1", "2001:db8::1"  # of nobody
NAME_SECONDS = 2.0  # for a name server that may not answer
# A peer that has gone without a word is noticed within a minute.
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
)


class Door(NamedTuple):
    """A listening socket; `secure`: with TLS."""

    socket: socket.socket
    secure: bool

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])


class Place(NamedTuple):
    """An address of this machine to listen at."""

    family: socket.AddressFamily
    host: str

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        return ipaddress.ip_address(self.host)


def places(text: str) -> list[Place]:
    """From names and addresses with commas between them. Raises BadConfig."""
    found: list[Place] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            known = socket.getaddrinfo(part.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise BadConfig(f"serve.listen: {part!r}: {error.strerror}") from error
        found += [Place(family, str(where[0])) for family, _, _, _, where in known]
    if not found:
        raise BadConfig("serve.listen: name an address, such as 127.0.0.1, 0.0.0.0 or ::")
    return list(dict.fromkeys(found))


def is_local(where: Sequence[Place]) -> bool:
    """Whether nobody but this machine can get there."""
    return all(place.address.is_loopback for place in where)


def open_doors(where: Sequence[Place], secure: bool, port: int, last: int) -> list[Door]:
    """All on the given port; else on the one used before, so that pilots find us again; else on
    any. Raises CoveyError."""
    trouble: OSError | None = None
    for wanted in [port] if port else [last, 0, 0, 0]:
        try:
            return _open(where, secure, wanted)
        except OSError as error:
            trouble = error
    hosts = ", ".join(place.host for place in where)
    what = f"port {port} cannot be used" if port else "no port can be used"
    why = trouble.strerror if trouble is not None else ""
    raise CoveyError(f"{what} on {hosts}: {why}. Choose another port or address.")


def _open(where: Sequence[Place], secure: bool, port: int) -> list[Door]:
    doors: list[Door] = []
    try:
        for place in where:
            sock = socket.socket(place.family, socket.SOCK_STREAM)
            doors.append(Door(sock, secure))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for option in _KEEP_ALIVE:
                sock.setsockopt(*option)
            if place.family == socket.AF_INET6:  # :: and 0.0.0.0 shall not get in each other's way
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((place.host, port))
            port = port or doors[0].port
            sock.listen(BACKLOG)
        return doors
    except OSError:
        for door in doors:
            door.socket.close()
        raise


def url_of(host: str, port: int, secure: bool) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{shown}:{port}"


def seen_from_here(where: Sequence[Place]) -> str:
    """The address at which this machine reaches itself."""
    for place in where:
        if place.address.is_loopback:
            return place.host
        if place.address.is_unspecified:
            return LOOPBACK if place.family == socket.AF_INET else "::1"
    return where[0].host


class Names:
    """Under which names clients may call: for our own certificate. Addresses may change while
    the server runs; its host's name is looked up once."""

    def __init__(self, where: Sequence[Place], more: str, public: str) -> None:
        self._where = where
        given = [name.strip() for name in more.split(",")] + [urlsplit(public).hostname or ""]
        self.given = [name for name in given if name]
        for name in self.given:
            if not _fits(name):
                raise BadConfig(f"serve.names: {name!r} is neither a host name nor an address")

    @cached_property
    def host(self) -> str:
        return host_name()

    def __call__(self) -> list[str]:
        fixed = [*self.given, self.host, socket.gethostname(), "localhost", LOOPBACK, "::1"]
        bound = [place.host for place in self._where if not place.address.is_unspecified]
        found = [*fixed, *bound, *self._own_addresses()]
        return list(dict.fromkeys(name for name in found if _fits(name)))

    def public(self) -> str:
        """The best of them, for others: a name that nobody can look up is worse than a number."""
        bound = [place.host for place in self._where if not place.address.is_unspecified]
        better = [*self.given, *(host for host in bound if not _loopback(host))]
        if better:
            return better[0]
        return self.host if is_known(self.host) else self._outward() or self.host

    def _outward(self) -> str:
        """The address that others see when we call them; nothing is sent to find out."""
        for place in self._where:
            with contextlib.suppress(OSError):
                return _source_address(place.family, FAR_4 if place.address.version == 4 else FAR_6)
        return ""

    def _own_addresses(self) -> list[str]:
        """All that others may reach us at: a cluster's front end has one for each side."""
        found = []
        for place in self._where:
            if place.address.is_unspecified:
                four = place.family == socket.AF_INET
                found += _addresses_4() if four else _addresses_6()
                with contextlib.suppress(OSError):  # where there is no /proc
                    found.append(_source_address(place.family, FAR_4 if four else FAR_6))
        return found


def _source_address(family: socket.AddressFamily, far: str) -> str:
    """What others see when we call them; nothing is sent to find out."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((far, 9))
        return str(probe.getsockname()[0])


def _addresses_4() -> list[str]:
    """Of all interfaces, by the kernel's routes: an address is followed by what it is."""
    lines = [line.split() for line in _lines("/proc/net/fib_trie")]
    pairs = itertools.pairwise(lines)
    found = [one[-1] for one, what in pairs if what[:3] == ["/32", "host", "LOCAL"]]
    return [address for address in sorted(set(found)) if not _loopback(address)]


def _addresses_6() -> list[str]:
    """Those that are good beyond one link."""
    lines = [line.split() for line in _lines("/proc/net/if_inet6")]
    found = {ipaddress.IPv6Address(int(one[0], 16)) for one in lines if one[3] == "00"}
    return [str(address) for address in sorted(found)]


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []


def host_name() -> str:
    """With its domain, unless the name server does not know, or takes too long."""
    short = socket.gethostname()
    found = _in_time(socket.getfqdn)
    return found if found and not found.startswith("localhost") else short


def is_known(name: str) -> bool:
    """Whether at least this machine can look it up."""
    return bool(_in_time(lambda: socket.getaddrinfo(name, None)))


def _in_time(ask: Callable[[], T]) -> T | None:
    """What a name server says, if it says something, and soon."""
    found: list[T] = []

    def run() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            found.append(ask())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(NAME_SECONDS)
    return found[0] if found else None


def _fits(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        return name.isascii() and all(
            part and part.replace("-", "").replace("_", "").isalnum()
            for part in name.removeprefix("*.").split(".")
        )


def _loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


def allow_many_files() -> None:
    """Every parked pilot holds a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 16) if hard != resource.RLIM_INFINITY else 1 << 16
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
