"""The output of running tasks, sent to the server for people who watch them.

Best effort: what is not sent now comes with the attempt's end. Every INTERVAL_SECONDS the new
output of followed tasks is sent in one message, of at most RATE_BYTES a second, after the message
before it was answered. A character is never cut in two. Zeros stand where a slot has dropped the
middle of a task's output: they are skipped.
"""

from typing import Callable, Dict, List, Mapping, Sequence, Tuple

from covey.pilot.protocol.held_attempts import Holding
from covey.pilot.protocol.messages import Followed, Piece

INTERVAL_SECONDS = 0.25
RATE_BYTES = 256 * 1024
STREAMS = (1, 2)
MOST_LOOKS = 64  # reads that bring only zeros, before the next stream gets its turn

# (the attempt's key, stream, first byte, most bytes) -> the bytes that are there
Reader = Callable[[str, int, int, int], bytes]


class Follower:
    def __init__(self, read: Reader) -> None:
        self._read = read
        self._places: Dict[Tuple[str, int], int] = {}
        self._next = 0.0
        self.waiting = False  # for the answer to the last message

    def wake_at(self, now: float, followed: Sequence[Followed]) -> float:
        return self._next if followed and not self.waiting else now + 1.0

    def pieces(
        self, now: float, followed: Sequence[Followed], holding: Mapping[str, Holding]
    ) -> List[Piece]:
        """What to send now. If there is too much, tasks that were followed first come first."""
        if not followed:
            self._places.clear()
            return []
        if self.waiting or now < self._next:
            return []
        self._next = now + INTERVAL_SECONDS
        left = int(RATE_BYTES * INTERVAL_SECONDS)
        pieces: List[Piece] = []
        places: Dict[Tuple[str, int], int] = {}
        for key, held in _followed(followed, holding):
            for stream in STREAMS:
                start = self._places.get((key, stream), 0)
                start, data = self._new(key, stream, start, left)
                places[(key, stream)] = start + len(data)
                if data:
                    left -= len(data)
                    pieces.append(_piece(held, stream, start, data))
        self._places = places
        return pieces

    def _new(self, key: str, stream: int, start: int, most: int) -> Tuple[int, bytes]:
        """The new output from ``start`` on, after any zeros; and where it begins."""
        for _ in range(MOST_LOOKS if most > 0 else 0):
            data = self._read(key, stream, start, most)
            text = data.lstrip(b"\0")
            start += len(data) - len(text)
            if text or not data:
                return start, _whole(text.partition(b"\0")[0])
        return start, b""


def _followed(
    followed: Sequence[Followed], holding: Mapping[str, Holding]
) -> List[Tuple[str, Holding]]:
    wanted = {(row.bag, row.task) for row in followed}
    attempts = []
    for key, held in holding.items():
        bag, task = held.task.bag, held.task.task
        if held.started and ((bag, task) in wanted or (bag, -1) in wanted):
            attempts.append((key, held))
    return attempts


def _piece(held: Holding, stream: int, start: int, data: bytes) -> Piece:
    task = held.task
    text = data.decode("utf-8", "replace")
    return Piece(task.bag, task.task, held.epoch, task.sequence, stream, start, text)


def _whole(data: bytes) -> bytes:
    """Without the beginning of a character whose other bytes have not come yet."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # the first byte of several
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
        if byte < 0x80:
            break
    return data
