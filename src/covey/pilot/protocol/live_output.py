"""What running tasks print, sent to whoever watches them.

Best effort: what is not sent now comes with the attempt's end. Every INTERVAL_SECONDS the new
output of followed tasks goes out in one message, never more than a share of RATE_BYTES a second,
and not before the one before it was answered. Characters are never cut in two. Zeros stand where
a slot has given up the middle of what a task printed: they are passed over.
"""

from typing import Callable, Dict, List, Mapping, Sequence, Tuple

from covey.pilot.protocol.held_attempts import Holding
from covey.pilot.protocol.messages import Followed, Piece

INTERVAL_SECONDS = 0.25
RATE_BYTES = 256 * 1024
STREAMS = (1, 2)
MOST_LOOKS = 64  # at zeros, before others get their turn

# (attempt's key, stream, from which byte, how many at most) -> what is there
Reader = Callable[[str, int, int, int], bytes]


class Follower:
    def __init__(self, read: Reader) -> None:
        self._read = read
        self._places: Dict[Tuple[str, int], int] = {}
        self._next = 0.0
        self.waiting = False  # for the answer to what was sent last

    def wake_at(self, now: float, followed: Sequence[Followed]) -> float:
        return self._next if followed and not self.waiting else now + 1.0

    def pieces(
        self, now: float, followed: Sequence[Followed], holding: Mapping[str, Holding]
    ) -> List[Piece]:
        """What to send now. Who is followed first is heard first, when there is too much."""
        if not followed:
            self._places.clear()
            return []
        if self.waiting or now < self._next:
            return []
        self._next = now + INTERVAL_SECONDS
        left = int(RATE_BYTES * INTERVAL_SECONDS)
        found: List[Piece] = []
        places: Dict[Tuple[str, int], int] = {}
        for key, held in _followed(followed, holding):
            for stream in STREAMS:
                start = self._places.get((key, stream), 0)
                start, data = self._new(key, stream, start, left)
                places[(key, stream)] = start + len(data)
                if data:
                    left -= len(data)
                    found.append(_piece(held, stream, start, data))
        self._places = places
        return found

    def _new(self, key: str, stream: int, start: int, most: int) -> Tuple[int, bytes]:
        """What was printed from there on, and where that really begins."""
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
    wanted = {(one.bag, one.task) for one in followed}
    found = []
    for key, held in holding.items():
        bag, task = held.task.bag, held.task.task
        if held.started and ((bag, task) in wanted or (bag, -1) in wanted):
            found.append((key, held))
    return found


def _piece(held: Holding, stream: int, start: int, data: bytes) -> Piece:
    task = held.task
    text = data.decode("utf-8", "replace")
    return Piece(task.bag, task.task, held.epoch, task.sequence, stream, start, text)


def _whole(data: bytes) -> bytes:
    """Without the beginning of a character whose rest is still to come."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # the first of several
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
        if byte < 0x80:
            break
    return data
