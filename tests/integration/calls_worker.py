"""A worker of the simplest kind: each call is a line of Python, its value what `answer` is then.

answer = b"v..." (or b"e...", b"f..."): sent as it is
"""

import os
import socket
import struct
import sys
from typing import Any


def read(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = line.recv(size - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data


def main() -> None:
    line = socket.socket(fileno=int(os.environ["COVEY_CALLS"]))

    def say(data: bytes) -> None:
        line.sendall(struct.pack(">I", len(data)) + data)

    exec(os.environ.get("BEFORE", ""))  # noqa: S102
    say(os.environ.get("HELLO", "h{}").encode())
    known: Any = {"say": say, "line": line, "served": 0}
    while True:
        call = read(line, struct.unpack(">I", read(line, 4))[0])
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
