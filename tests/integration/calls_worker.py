"""A worker of the simplest kind: each call is a line of Python, its value what `answer` is then.

answer = b"v..." (or b"e...", b"f..."): sent as it is

With AHEAD in its environment it takes calls from the queue, and says more in its answers.
"""

import os
import select
import socket
import struct
import sys
import time
from typing import Any


def read(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = line.recv(size - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data


def frame(line: socket.socket) -> bytes:
    return read(line, struct.unpack(">I", read(line, 4))[0])


def packet(queue: socket.socket) -> bytes:
    while True:
        try:
            return queue.recv(1 << 17)
        except BlockingIOError:
            select.select([queue], [], [])


def printed() -> bool:
    return any(os.lseek(stream, 0, os.SEEK_END) for stream in (1, 2))


def main() -> None:
    line = socket.socket(fileno=int(os.environ["COVEY_CALLS"]))
    ahead = "AHEAD" in os.environ
    queue = socket.socket(fileno=int(os.environ["COVEY_CALLS_AHEAD"])) if ahead else line
    began, number = time.monotonic(), 0

    def say(data: bytes, headed: bool = ahead) -> None:
        waits = headed and (data[:1] == b"f" or printed())
        if headed:
            times = time.monotonic() - began, time.process_time()
            head = struct.pack(">Qdd?", number, *times, waits)
            data = data[:1] + head + data[1:]
        line.sendall(struct.pack(">I", len(data)) + data)
        if waits and frame(line) != b"g":
            sys.exit(1)

    hello = 'h{"ahead": 1, "cpu": 0}' if ahead else "h{}"
    exec(os.environ.get("BEFORE", ""))  # noqa: S102
    say(os.environ.get("HELLO", hello).encode(), False)
    exec(os.environ.get("AFTER", ""))  # noqa: S102
    known: Any = {"say": say, "line": line, "queue": queue, "served": 0}
    while True:
        call = packet(queue) if ahead else b"l"
        if not call:
            sys.exit(0)
        began = time.monotonic()
        if ahead:
            number = struct.unpack_from(">xQ", call)[0]
        call = frame(line) if call[:1] == b"l" else call[9:]
        if call[:1] == b"@":
            with open(call[1:], "rb") as file:
                call = file.read()
        known["answer"] = b"v"
        exec(call.decode(), known)  # noqa: S102
        known["served"] += 1
        sys.stdout.flush()
        if known["answer"]:
            say(known["answer"])


main()
