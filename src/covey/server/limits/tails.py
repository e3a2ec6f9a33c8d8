"""Live output of running tasks, for clients that follow it: in memory, bounded, never recorded.

A bag has a ring of pieces while a client follows it, and for a minute after. The numbers of pieces
only grow, over restarts of the server too, so "after 7" never means two things. A client
that follows too slowly misses the oldest pieces.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from covey.pilot.protocol.messages import Piece
from covey.wire import LiveOutput

MOST_OF_A_BAG = 1 << 20
MOST_IN_ALL = 64 << 20
PIECE_BYTES = 200  # of a piece without its text
KEEP_SECONDS = 60.0


class _KeptPiece(Struct, frozen=True):
    number: int
    size: int
    piece: Piece


class _Ring(Struct, eq=False):
    followed: float  # when a client last asked
    owner: str  # of the bag
    size: int = 0
    pieces: deque[_KeptPiece] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Tails:
    def __init__(self, clock: Callable[[], float], first: int) -> None:
        """`clock` in seconds; `first` is above every piece's number of an earlier server."""
        self._clock = clock
        self._last = first
        self._size = 0
        self._sizes: Counter[str] = Counter()  # by owner
        self._rings: dict[int, _Ring] = {}  # by bag; the most recently followed is last

    def follow(self, bag: int, owner: str = "") -> asyncio.Event:
        """Keep what tasks of this owner's bag print from now on. The next piece sets the event."""
        ring = self._rings.pop(bag, None) or _Ring(self._clock(), owner)
        ring.followed = self._clock()
        self._rings[bag] = ring
        return ring.news

    def followed(self) -> bool:
        """Whether a client follows any bag, or did within the last minute."""
        self._forget()
        return bool(self._rings)

    def feed(self, pieces: Iterable[Piece]) -> None:
        """Keep these pieces, if their bags are followed."""
        self._forget()
        woken: dict[int, _Ring] = {}
        for piece in pieces:
            ring = self._rings.get(piece.bag)
            if ring is not None:
                self._keep(ring, piece)
                woken[piece.bag] = ring
        while self._size > MOST_IN_ALL:
            self._drop_oldest(self._least_followed())
        for ring in woken.values():
            ring.news.set()
            ring.news = asyncio.Event()

    def read(self, bag: int, task: int, after: int) -> LiveOutput:
        """Pieces of this task (-1: of all tasks) with numbers above `after`."""
        ring = self._rings.get(bag)
        kept = ring.pieces if ring is not None else ()
        if after > self._last:  # a number of an earlier server whose clock was ahead
            after = 0
        pieces = [
            item.piece for item in kept if item.number > after and task in (-1, item.piece.task)
        ]
        return LiveOutput(next=max(after, kept[-1].number if kept else 0), pieces=pieces)

    def _keep(self, ring: _Ring, piece: Piece) -> None:
        self._last += 1
        size = len(piece.text.encode("utf-8", "replace")) + PIECE_BYTES
        ring.pieces.append(_KeptPiece(self._last, size, piece))
        ring.size += size
        self._count(ring, size)
        while ring.size > MOST_OF_A_BAG:
            self._drop_oldest(ring)

    def _least_followed(self) -> _Ring:
        """A ring of the owner with the most output, so that nobody else loses pieces."""
        owner = max(self._sizes, key=lambda owner: self._sizes[owner])
        return next(ring for ring in self._rings.values() if ring.pieces and ring.owner == owner)

    def _drop_oldest(self, ring: _Ring) -> None:
        size = ring.pieces.popleft().size
        ring.size -= size
        self._count(ring, -size)

    def _count(self, ring: _Ring, size: int) -> None:
        self._size += size
        self._sizes[ring.owner] += size
        if not self._sizes[ring.owner]:
            del self._sizes[ring.owner]

    def _forget(self) -> None:
        until = self._clock() - KEEP_SECONDS
        for bag, ring in list(self._rings.items()):
            if ring.followed > until:
                break
            del self._rings[bag]
            self._count(ring, -ring.size)
