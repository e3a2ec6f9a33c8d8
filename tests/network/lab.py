"""Networks of our own: namespaces that know only each other, over lines that a test spoils.

A namespace is a machine of its own as far as the network goes. A `Wire` joins two of them: packets
pass through this process, which delays, loses, throttles or swallows them (the kernels that tests
run on have no netem). Names are random, so that several tests may run at once; whatever happens,
everything is removed in the end. All of this takes root.
"""

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import secrets
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

PORT = 7443
LINE = "line0"  # the device in a far namespace
NAMESPACES = "/run/netns"
_NEW_NET = 0x40000000
_TUNSETIFF = 0x400454CA
_PLAIN_TUN = 0x0001 | 0x1000  # packets, nothing around them
_QUEUE_SECONDS = 1.0  # a router keeps no more than that; the rest it drops
_libc = ctypes.CDLL(None, use_errno=True)


def run(*words: str, text: str = "") -> str:
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


@contextmanager
def inside(name: str) -> Iterator[None]:
    """This thread, and the processes that it starts, live in that namespace."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _enter(os.open(f"{NAMESPACES}/{name}", os.O_RDONLY))
        yield
    finally:
        _enter(home)


def _enter(handle: int) -> None:
    try:
        if _libc.setns(handle, _NEW_NET):
            raise OSError(ctypes.get_errno(), "setns: these tests need root")
    finally:
        os.close(handle)


class Quality(NamedTuple):
    """Of a line. `loss`: the share of packets that never arrive; 1 cuts it without a word."""

    bits_per_second: float = 0.0  # 0: as fast as it goes
    delay_seconds: float = 0.0
    loss: float = 0.0


class Wire:
    """Between two TUN devices. Setting `quality` changes it for what comes from then on."""

    def __init__(self, one: int, other: int, seed: int) -> None:
        self.quality = Quality()
        self.passed = self.lost = 0
        self._chance = random.Random(seed)
        self._handles = (one, other)
        self._ends, self._end = os.pipe()
        ways = ((one, other), (other, one))
        self._threads = [
            threading.Thread(target=self._carry, args=way, daemon=True) for way in ways
        ]
        for thread in self._threads:
            thread.start()

    def cut(self) -> None:
        """Nobody is told: whoever sends waits."""
        self.quality = self.quality._replace(loss=1.0)

    def mend(self) -> None:
        self.quality = Quality()

    def close(self) -> None:
        os.close(self._end)
        for thread in self._threads:
            thread.join(10)
        for handle in (*self._handles, self._ends):
            os.close(handle)

    def _carry(self, source: int, target: int) -> None:
        under_way: list[tuple[float, int, bytes]] = []  # when it arrives
        free = 0.0  # when the line can take the next packet
        count = 0
        while True:
            now = time.monotonic()
            while under_way and under_way[0][0] <= now:
                _write(target, heapq.heappop(under_way)[2])
            wait = max(0.0, under_way[0][0] - now) if under_way else None
            ready, _, _ = select.select([source, self._ends], [], [], wait)
            if self._ends in ready:
                return
            if source not in ready:
                continue
            packet, quality, now = _read(source), self.quality, time.monotonic()
            free = max(free, now)
            if self._chance.random() < quality.loss or free - now > _QUEUE_SECONDS:
                self.lost += 1
                continue
            self.passed += 1
            if quality.bits_per_second:
                free += len(packet) * 8 / quality.bits_per_second
            count += 1
            heapq.heappush(under_way, (free + quality.delay_seconds, count, packet))


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 65536)
    except OSError:
        time.sleep(0.01)  # the interface is down
        return b""


def _write(handle: int, packet: bytes) -> None:
    try:
        os.write(handle, packet)
    except OSError:
        pass  # the interface is down, or its queue full: networks lose packets


def _tun(namespace: str, name: str) -> int:
    with inside(namespace):
        handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _PLAIN_TUN))
    return handle


# What a firewall of the strict kind lets through: answers, and connections to one port outside.
WALL = """
table inet wall {
  chain coming { type filter hook input priority 0; policy drop;
    iif lo accept; ct state established,related accept; }
  chain going { type filter hook output priority 0; policy drop;
    oif lo accept; ct state established,related accept; tcp dport %s accept; %s }
  chain passing { type filter hook forward priority 0; policy drop; }
}
"""


class Far:
    """A namespace with one line to the server's."""

    def __init__(self, lab: "Lab", number: int) -> None:
        self.name = f"{lab.name}p{number}"
        self._number = number
        self._server = lab.server
        self.near = f"10.77.{number}.1"  # the server, seen from here
        self.address = f"10.77.{number}.2"
        run("ip", "netns", "add", self.name)
        here, there = f"to{number}", LINE
        self.wire = Wire(_tun(lab.server, here), _tun(self.name, there), lab.seed + number)
        self._device = here
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", there)
        run("ip", "-n", self.name, "link", "set", there, "up", "mtu", "1400")
        run("ip", "-n", lab.server, "addr", "add", f"{self.near}/24", "dev", here)
        run("ip", "-n", lab.server, "link", "set", here, "up", "mtu", "1400")
        self.wall()

    def wall(self, more: str = "") -> None:
        """One port out (and `more`), nothing in."""
        run("ip", "netns", "exec", self.name, "nft", "flush", "ruleset")
        run("ip", "netns", "exec", self.name, "nft", "-f", "-", text=WALL % (PORT, more))

    def down(self) -> None:
        """The interface itself, as when somebody pulls the plug: senders are told."""
        run("ip", "-n", self.name, "link", "set", LINE, "down")

    def up(self) -> None:
        run("ip", "-n", self.name, "link", "set", LINE, "up")

    def move(self) -> None:
        """Another address, as from another access point. Connections of the old one are dead,
        and nobody says so."""
        old, self.address = self.address, f"10.77.{self._number}.77"
        for word, address in (("del", old), ("add", self.address)):
            run("ip", "-n", self.name, "addr", word, f"{address}/24", "dev", LINE)

    def move_server(self) -> None:
        """The same at the other end of the line."""
        old, self.near = self.near, f"10.77.{self._number}.99"
        for word, address in (("del", old), ("add", self.near)):
            run("ip", "-n", self._server, "addr", word, f"{address}/24", "dev", self._device)

    def processes(self) -> list[int]:
        return [int(pid) for pid in run("ip", "netns", "pids", self.name).split()]

    def within(self, *words: str) -> list[str]:
        """The command that runs these words there. (`ip netns exec` would hide cgroups.)"""
        return ["nsenter", f"--net={NAMESPACES}/{self.name}", *words]


class Lab:
    """The server's namespace, and those around it."""

    def __init__(self) -> None:
        self.seed = int(os.environ.get("NETWORK_SEED", random.SystemRandom().getrandbits(32)))
        print(f"NETWORK_SEED={self.seed}")
        self.name = "cv" + secrets.token_hex(3)
        self.server = f"{self.name}s"
        self.far: list[Far] = []
        run("ip", "netns", "add", self.server)
        run("ip", "-n", self.server, "link", "set", "lo", "up")

    def place(self) -> Far:
        found = Far(self, len(self.far))
        self.far.append(found)
        return found

    def close(self) -> None:
        for far in self.far:
            for pid in far.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            far.wire.close()
        for name in (self.server, *(far.name for far in self.far)):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30)


@contextmanager
def open_lab() -> Iterator[Lab]:
    lab = Lab()
    try:
        yield lab
    finally:
        lab.close()
