"""Peers that take their time for ever, and peers that are gone without a word: neither keeps
others from being served, and what they hold is freed."""

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.world import World, task_script, wait_until
from tests.network.remote import Remote
from tests.network.serving import (
    authority_file,
    connections_at,
    connections_to,
    covey,
    pilot,
    port_of,
    record_of,
    serve,
    wait_enrolled,
)

# What a server waits for, in a tenth of the time.
HASTY = """
import covey.server.web.slow_requests as arriving
arriving.HEAD_SECONDS, arriving.LOOK_SECONDS = 2.0, 0.5
import covey.server.process as process
process.HANDSHAKE_SECONDS = 2.0
"""
# The same for what its system does.
WATCHFUL = """
import socket, covey.server.web.addresses as listening
soon = {socket.TCP_KEEPIDLE: 1, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 2,
        socket.TCP_USER_TIMEOUT: 3000}
listening._KEEP_ALIVE = tuple(
    (level, name, soon.get(name, value) if level == socket.IPPROTO_TCP else value)
    for level, name, value in listening._KEEP_ALIVE)
"""
# And for a pilot.
HASTY_PILOT = """
import covey.pilot.protocol.connection as dial, covey.pilot.main as main
dial.CONNECT_SECONDS, main.SLACK_SECONDS, dial._UNANSWERED_MS = 2.0, 2.0, 3000
dial._KEEP_ALIVE = tuple((name, 1 if name != "TCP_KEEPCNT" else 2) for name, _ in dial._KEEP_ALIVE)
"""
CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CONTEXT.check_hostname, CONTEXT.verify_mode = False, ssl.CERT_NONE
EACH = 80  # attackers of each kind
MOST_GROWTH = 150 << 20


class Slow:
    """One that connects, says a few words, and from then on sends, or reads, a byte at a time."""

    def __init__(self, port: int, words: bytes, reads: bool = False, tls: bool = True) -> None:
        self.reads = reads
        self.over = False
        self._plain = socket.socket()
        if reads:
            self._plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._plain.settimeout(20)
        self._plain.connect(("127.0.0.1", port))
        self._socket: socket.socket = self._plain
        if tls:
            self._socket = CONTEXT.wrap_socket(self._plain)
        self._socket.sendall(words)
        self._socket.setblocking(False)

    def go_on(self) -> None:
        """Whoever only writes finds out by reading that nobody listens."""
        try:
            if self.reads:
                self.over = not self._socket.recv(1)
                return
            self._socket.send(b"a")
            self.over = not self._socket.recv(4096)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.over = True

    def close(self) -> None:
        self._socket.close()


@contextmanager
def attack(slow: list[Slow]) -> Iterator[None]:
    ends = threading.Event()

    def go_on() -> None:
        while not ends.wait(0.2):
            for one in slow:
                if not one.over:
                    one.go_on()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
        for one in slow:
            one.close()


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_slow_attackers_do_not_keep_others_from_being_served(world: World) -> None:
    server = serve(world, "--listen", "0.0.0.0", "--pilots", "0", patch=HASTY)
    record, port, ca = record_of(world), port_of(world), authority_file(world)
    pilot(world, record.address, ca)
    wait_enrolled(world)
    file = Remote(world).store(os.urandom(8 << 20)).digest
    kinds: dict[str, Callable[[], Slow]] = {
        "no TLS": lambda: Slow(port, b"\x16", tls=False),
        "heads": lambda: Slow(port, b"POST /pilot/v1/sync HTTP/1.1\r\nX-Slow: "),
        "syncs": lambda: Slow(port, posted("/pilot/v1/sync", 1 << 20)),
        "enrolments": lambda: Slow(port, posted("/pilot/v1/enrol", 1 << 19)),
        "answers": lambda: Slow(port, got(f"/api/v1/files/{file}", record.token), reads=True),
    }
    before = resident(server.pid)
    slow = {name: [make() for _ in range(EACH)] for name, make in kinds.items()}
    everybody = [one for some in slow.values() for one in some]
    with attack(everybody):
        bag = world.submit(task_script("echo {i}"), 20)
        began = time.monotonic()
        done = covey(world, record.address, ca, "bags")
        assert done.returncode == 0, done.stderr
        world.wait_over(bag, 30)
        assert time.monotonic() - began < 20
        assert resident(server.pid) - before < MOST_GROWTH
        # Those who read will not know for a while: much is on its way to them.
        wait_until(lambda: all(one.over or one.reads for one in everybody), 30, lambda: told(slow))
        wait_until(lambda: len(connections_at(port, server.pid)) < 10, 30)
        assert resident(server.pid) - before < MOST_GROWTH
    world.check_results(bag, 20)
    world.check_once(bag, 20)


def posted(path: str, size: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + b"{"


def got(path: str, token: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def told(slow: dict[str, list[Slow]]) -> str:
    return str({name: sum(not one.over for one in some) for name, some in slow.items()})


def test_connections_that_are_half_open_are_noticed_by_both_sides(remote: Remote) -> None:
    """The line swallows everything from one moment on: nobody is told of any end."""
    world, far = remote.world, remote.lab.place()
    server = remote.serve(patch=WATCHFUL, poll_seconds="3")
    port = port_of(world)
    flying = remote.pilot(far, "--slots", "2", patch=HASTY_PILOT)
    bag = world.submit(task_script("sleep 2; echo {i}"), 4)
    wait_until(lambda: world.started(bag) == 2, 30, world.log_tail)
    wait_until(lambda: connections_at(port, server.pid))
    old = connections_to(port, flying.pid)
    assert old
    far.wire.cut()
    wait_until(lambda: not connections_at(port, server.pid), 20)
    wait_until(lambda: world.ended(bag) == 2 and not connections_to(port, flying.pid) & old, 40)
    assert len(os.listdir(f"/proc/{flying.pid}/fd")) < 60
    far.wire.mend()
    world.wait_over(bag)
    world.check_results(bag, 4)
    world.check_once(bag, 4)
    assert world.rows("SELECT count(*), min(status) FROM pilots") == [(1, "active")]
    assert len(connections_to(port, flying.pid)) <= 4
