"""The addresses at which a server listens, and the names under which others reach it.

Plain HTTP is for this machine only: everything that comes over a network is encrypted. A
certificate of the administrator does not name the loopback address; then a second door listens
there, for clients and pilots on this machine.
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
BACKLOG = 4096  # a thousand pilots may connect at once
FAR_4, FAR_6 = "192.0.2.1", "2001:db8::1"  # addresses for documentation: nobody has them
NAME_SECONDS = 2.0  # how long to wait for a name server
# Notices within a minute that a peer has vanished.
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
    """The places for names and addresses with commas between them. Raises BadConfig."""
    listed: list[Place] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            addresses = socket.getaddrinfo(part.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as error:
            words = f"serve.listen: {part!r} cannot be looked up: {error.strerror}"
            raise BadConfig(words) from error
        listed += [Place(family, str(address[0])) for family, _, _, _, address in addresses]
    if not listed:
        raise BadConfig("serve.listen is empty: give an address, such as 127.0.0.1, 0.0.0.0 or ::")
    return list(dict.fromkeys(listed))


def is_local(where: Sequence[Place]) -> bool:
    """Whether only this machine can reach these places."""
    return all(place.address.is_loopback for place in where)


def open_doors(where: Sequence[Place], secure: bool, port: int, last: int) -> list[Door]:
    """Listen at all places on the given port. Without one: on the last port, so that pilots find
    the server again; else on any free port. Raises CoveyError."""
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
            if place.family == socket.AF_INET6:  # so that :: and 0.0.0.0 can have the same port
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
    """The names under which clients may call, for our own certificate. Addresses may change while
    the server runs; the host's name is looked up once."""

    def __init__(self, where: Sequence[Place], more: str, public: str) -> None:
        self._where = where
        given = [name.strip() for name in more.split(",")] + [urlsplit(public).hostname or ""]
        self.given = [name for name in given if name]
        for name in self.given:
            if not _fits(name):
                raise BadConfig(
                    f"serve.names: {name!r} is neither a host name nor an IP address; "
                    "give names such as covey.example.org, with commas between them"
                )

    @cached_property
    def host(self) -> str:
        return host_name()

    def __call__(self) -> list[str]:
        fixed = [*self.given, self.host, socket.gethostname(), "localhost", LOOPBACK, "::1"]
        bound = [place.host for place in self._where if not place.address.is_unspecified]
        names = [*fixed, *bound, *self._own_addresses()]
        return list(dict.fromkeys(name for name in names if _fits(name)))

    def public(self) -> str:
        """The best name for other machines; an address, if the host's name cannot be looked up."""
        bound = [place.host for place in self._where if not place.address.is_unspecified]
        better = [*self.given, *(host for host in bound if not _loopback(host))]
        if better:
            return better[0]
        return self.host if is_known(self.host) else self._outward() or self.host

    def _outward(self) -> str:
        """This machine's address on the way out; empty if there is none."""
        for place in self._where:
            with contextlib.suppress(OSError):
                return _source_address(place.family, FAR_4 if place.address.version == 4 else FAR_6)
        return ""

    def _own_addresses(self) -> list[str]:
        """All addresses at which others may reach this machine; a cluster's front end has one in
        each of its networks."""
        own = []
        for place in self._where:
            if place.address.is_unspecified:
                four = place.family == socket.AF_INET
                own += _addresses_4() if four else _addresses_6()
                with contextlib.suppress(OSError):  # where there is no /proc
                    own.append(_source_address(place.family, FAR_4 if four else FAR_6))
        return own


def _source_address(family: socket.AddressFamily, far: str) -> str:
    """The address from which packets to `far` would be sent; none is sent."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((far, 9))
        return str(probe.getsockname()[0])


def _addresses_4() -> list[str]:
    """IPv4 addresses of all interfaces. The kernel's table has each address on the line before its
    kind."""
    lines = [line.split() for line in _lines("/proc/net/fib_trie")]
    pairs = itertools.pairwise(lines)
    own = [address[-1] for address, kind in pairs if kind[:3] == ["/32", "host", "LOCAL"]]
    return [address for address in sorted(set(own)) if not _loopback(address)]


def _addresses_6() -> list[str]:
    """IPv6 addresses of all interfaces, without link-local ones."""
    lines = [line.split() for line in _lines("/proc/net/if_inet6")]
    own = {ipaddress.IPv6Address(int(line[0], 16)) for line in lines if line[3] == "00"}
    return [str(address) for address in sorted(own)]


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []


def host_name() -> str:
    """This host's name, with its domain if the name server says it in time."""
    short = socket.gethostname()
    full = _in_time(socket.getfqdn)
    return full if full and not full.startswith("localhost") else short


def is_known(name: str) -> bool:
    """Whether this machine can look the name up."""
    return bool(_in_time(lambda: socket.getaddrinfo(name, None)))


def _in_time(ask: Callable[[], T]) -> T | None:
    """The answer of a name server; None if it fails or takes too long."""
    answers: list[T] = []

    def run() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            answers.append(ask())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(NAME_SECONDS)
    return answers[0] if answers else None


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
    """Raise the limit of open files: every parked pilot holds a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 16) if hard != resource.RLIM_INFINITY else 1 << 16
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
