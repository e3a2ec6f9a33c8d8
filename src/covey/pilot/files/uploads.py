"""Upload the files that tasks return.

The rule: an attempt ends only when its files are at the server. Files that are too large to travel
with the end are hashed and uploaded in pieces by a few threads, for as long as it takes. A lost
piece is sent again, and the server says where to continue. Only if the server refuses a file for
good does the attempt end without it: then the attempt has failed because of its output.
"""

import base64
import hashlib
import os
import random
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Set, Tuple

from covey.pilot.files.transfers import Transfers
from covey.pilot.protocol.messages import OutputFile
from covey.pilot.protocol.thread_pool import ThreadPool
from covey.pilot.slots.orders import Returned

PIECE_BYTES = 4 << 20
ASK_BYTES = 1 << 18  # for a larger file the server is asked first whether and where to begin
THREADS = 2
FIRST_BACKOFF = 0.2
LAST_BACKOFF = 30.0
MOST_REFUSALS = 8  # in a row, with other statuses than those for good
_FOR_GOOD = (403, 413)
_NOT_OF_THE_FILE = (401, 404, 408, 410, 429)  # this pilot must enrol again, or wait


class Sent(NamedTuple):
    """The files of one attempt as they were sent, in their order; or why they did not arrive."""

    key: str
    files: List[OutputFile]
    problem: str


class _Refused(Exception):
    pass


class _Load(NamedTuple):
    key: str
    files: List[Returned]


class Uploads:
    """`connect` makes a connection for each thread; `wake` is called when something was sent. The
    keys are those of attempts."""

    def __init__(self, connect: Callable[[], Transfers], wake: Callable[[], None]) -> None:
        self._connect = connect
        self._wake = wake
        self._loads: Deque[_Load] = deque()
        self._sent: Deque[Sent] = deque()
        self._change = threading.Condition()
        self._pending: Set[str] = set()
        self._threads = ThreadPool(self._run, THREADS, "uploads")
        self._closed = False

    def put(self, key: str, files: List[Returned]) -> Optional[List[OutputFile]]:
        """The files as they go into the attempt's end, if all are small; else None, and the upload
        has begun."""
        if not any(file.moved_to for file in files):
            return [_inline(file) for file in files]
        with self._change:
            self._pending.add(key)
            self._loads.append(_Load(key, files))
            self._change.notify()
            count = len(self._pending)
        self._threads.want(count)
        return None

    def sent(self) -> List[Sent]:
        self._threads.fill()
        sent = []
        while self._sent:
            sent.append(self._sent.popleft())
        return sent

    def close(self) -> List[str]:
        """Stop sending. Returns the attempts whose files were not sent yet."""
        with self._change:
            self._closed = True
            self._change.notify_all()
            return sorted(self._pending)

    # -- the threads -----------------------------------------------------------------------

    def _run(self) -> None:
        transfers = self._connect()
        while True:
            with self._change:
                while not self._loads and not self._closed:
                    self._change.wait()
                if self._closed:
                    return
                load = self._loads.popleft()
            self._send(load, transfers)

    def _send(self, load: _Load, transfers: Transfers) -> None:
        files: List[OutputFile] = []
        problem = ""
        try:
            for file in load.files:
                if file.moved_to:
                    files.append(self._upload(load.key, file, transfers))
                else:
                    files.append(_inline(file))
        except _Refused as error:
            problem = str(error)
        except Exception as error:  # the main thread must hear of any error
            problem = "an output file could not be sent: %s: %s" % (type(error).__name__, error)
        for file in load.files:
            if file.moved_to:
                _discard(file.moved_to)
        with self._change:
            if self._closed:
                return
            self._pending.discard(load.key)
        self._sent.append(Sent(load.key, files, problem))
        self._wake()

    def _upload(self, key: str, file: Returned, transfers: Transfers) -> OutputFile:
        digest, size = _hashed(file.moved_to, file.size)
        offset, failures, refusals = 0, 0, 0
        ask = size > ASK_BYTES
        with open(file.moved_to, "rb") as source:
            while not self._closed:
                source.seek(offset)
                data = b"" if ask else source.read(min(PIECE_BYTES, size - offset))
                try:
                    status, content = transfers.put(key, digest, offset, size, data)
                except OSError:
                    status, content = 0, {}
                if status == 200:
                    failures = refusals = 0
                    if content.get("complete"):
                        break
                    offset, ask = _place(content, size), False
                    continue
                refusals += 400 <= status < 500 and status not in _NOT_OF_THE_FILE
                if status in _FOR_GOOD or refusals > MOST_REFUSALS:
                    words = content.get("detail") or "status %d" % status
                    raise _Refused("%s: the server refused it: %s" % (file.path, words))
                offset, ask = 0, size > ASK_BYTES  # the next answer says where to continue
                failures += 1
                self._pause(failures)
        return OutputFile(file.path, size, digest, "", file.executable)

    def _pause(self, failures: int) -> None:
        backoff = min(FIRST_BACKOFF * 2 ** min(failures - 1, 10), LAST_BACKOFF)
        until = time.monotonic() + backoff * random.uniform(0.5, 1.0)
        with self._change:
            while not self._closed and time.monotonic() < until:
                self._change.wait(max(0.0, until - time.monotonic()))


def _place(content: Dict[str, Any], size: int) -> int:
    try:
        return max(0, min(int(content["size"]), size))
    except (KeyError, TypeError, ValueError):
        return 0


def _inline(file: Returned) -> OutputFile:
    data = base64.b64encode(file.data).decode("ascii")
    return OutputFile(file.path, file.size, "", data, file.executable)


def _hashed(path: str, most: int) -> Tuple[str, int]:
    """Hash at most ``most`` bytes: somebody may still have the file open and add to it."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        data = file.read(min(1 << 18, most))
        while data:
            digest.update(data)
            size += len(data)
            data = file.read(min(1 << 18, most - size))
    return digest.hexdigest(), size


def _discard(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
