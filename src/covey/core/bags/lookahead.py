"""Reserves task numbers ahead of dispatch, chunk by chunk.

Numbers go out only below the durable mark, which `reserve` moves ahead of demand. So after a crash
everything above it is known never to have been sent. Tasks are sorted into classes a chunk at a
time, and a bag has a limited number of such chunks open. A chunk whose tasks fit no pilot for
`buffer_seconds` lets the next ones go first (GridBot's scheduling buffer and its time to live), and
comes back when all chunks have had their turn. A bag whose long tasks go first opens more chunks
from the start, to find these tasks.
"""

from covey.core.after_commit import Reserving
from covey.core.match.bag_policy import CROWDED
from covey.core.protocol.task_recall import pause
from covey.core.record.actions import LeaseChunk, LoadRows
from covey.core.record.model import BagId, BagStatus
from covey.core.record.task_numbers import Loaded
from covey.core.state import Bag
from covey.core.turn import Turn
from covey.core.values.space import Scalar

MOST_SORTED = 4096  # tasks of a chunk that are sorted into classes at once
MOST_ORDERED = 32_768  # tasks among which the longest are searched
MOST_ROW_BYTES = 4 << 20  # of a chunk's rows: they are in memory until its tasks have ended


def reserve(turn: Turn, bag: Bag, *, searching: bool = False) -> None:
    """Keep the mark ahead of demand: each chunk is twice as large as the one before. With
    `searching` a pilot has found no task of its classes: open more chunks, within limits."""
    settings, chunks, places = turn.state.settings, bag.chunks, bag.places
    if chunks.asked_mark >= bag.total:
        if searching and chunks.set_aside and chunks.asked_mark == chunks.mark:
            _bring_back(turn, bag)
        return
    ahead = chunks.asked_mark - places.next
    if bag.classes.classify is not None:
        ahead += places.waiting() - len(places.aside)
    if ahead > chunks.size // 2:
        if chunks.asked_mark > chunks.mark or not (searching or _searches_long_tasks(bag, ahead)):
            return
        looked = len(chunks.open) - len(chunks.set_aside)
        if looked >= settings.most_lookahead and not (searching and _set_aside(turn, bag)):
            return
    largest = settings.largest_chunk
    if bag.classes.classify is not None:
        largest = min(largest, MOST_SORTED)
    part = bag.numbering.part(chunks.asked_mark)
    if part.rows is not None and part.rows.row_bytes:
        largest = max(1, min(largest, MOST_ROW_BYTES // part.rows.row_bytes))
    chunks.size = min(max(settings.chunk, chunks.size * 2), largest)
    stop = min(chunks.asked_mark + chunks.size, part.stop)
    first = chunks.reserve(stop)
    turn.write(LeaseChunk(bag.id, first, stop), Reserving(bag.id, first))


def _searches_long_tasks(bag: Bag, ahead: int) -> bool:
    return ahead < MOST_ORDERED and bag.classes.long_first


def _set_aside(turn: Turn, bag: Bag) -> bool:
    """Let the chunk that has waited longest stand aside, if it has waited for `buffer_seconds`.
    Returns whether one did."""
    late = turn.now - turn.state.settings.buffer_seconds
    chunks, live, loaded = bag.chunks, bag.places.live, bag.numbering.loaded
    for first, since in chunks.sorted_at.items():
        if since > late:
            return False
        if first in chunks.open and first not in chunks.awaited and first not in chunks.set_aside:
            del chunks.sorted_at[first]
            chunks.set_aside[first] = stop = chunks.open[first]
            bag.places.set_aside(first, stop)
            if first in loaded and not any(first <= task < stop for task in live):
                del loaded[first]
                chunks.awaited[first] = stop  # its rows are read again when it comes back
            return True
    return False


def _bring_back(turn: Turn, bag: Bag) -> None:
    """All chunks are open: bring one back that was set aside, in exchange for one that has waited
    long enough."""
    chunks, places = bag.chunks, bag.places
    first = next(iter(chunks.set_aside))
    looked = len(chunks.open) - len(chunks.set_aside)
    if looked >= turn.state.settings.most_lookahead and not _set_aside(turn, bag):
        return
    stop = chunks.set_aside.pop(first)
    chunks.sorted_at[first] = turn.now
    if first in chunks.awaited:
        load_rows(turn, bag, first, stop)
    for task in [task for task in places.aside if first <= task < stop]:
        places.aside.remove(task)
        bag.free(task)
    turn.state.queue.news += 1


def reserved(turn: Turn, bag: Bag, first: int) -> None:
    """The chunk is durable. Its tasks may go out once their values are known."""
    stop = bag.chunks.open.get(first)
    if stop is None:
        return  # the bag was cancelled in the meantime
    if bag.numbering.part(first).rows is None:
        _open_up(turn, bag, first)
    else:
        load_rows(turn, bag, first, stop)


def _open_up(turn: Turn, bag: Bag, first: int) -> None:
    """Move the mark over this chunk, and over the chunks behind it that waited for it."""
    chunks, places = bag.chunks, bag.places
    chunks.open_up(first)
    if bag.classes.classify is not None and bag.status in (BagStatus.RUNNING, BagStatus.PAUSED):
        for task in range(places.next, chunks.mark):
            places.ready[bag.class_of(task)].add(task)
        places.next = chunks.mark
        chunks.sorted_at[first] = turn.now
        if bag.classes.crowded:
            pause(turn, bag, CROWDED)
        elif bag.classes.long_first:
            reserve(turn, bag)
    bag.cache.dirty = True
    turn.state.queue.news += 1


def load_rows(turn: Turn, bag: Bag, first: int, stop: int) -> None:
    part = bag.numbering.part(first)
    if part.rows is None:
        return
    bag.chunks.awaited[first] = stop
    rows = (part.row_of(first), part.row_of(stop - 1) + 1)
    turn.actions.append(LoadRows(bag.id, first, part.rows, *rows))


def rows_loaded(turn: Turn, id_: BagId, first: int, rows: list[list[Scalar]]) -> None:
    bag = turn.state.bags.get(id_)
    if bag is None or first not in bag.chunks.awaited:
        return  # the bag is over, or the rows were read twice
    stop = bag.chunks.awaited.pop(first)
    bag.numbering.loaded[first] = Loaded(bag.numbering.part(first).row_of(first), rows)
    waiting = [task for task in bag.places.parked if first <= task < stop]
    for task in waiting:
        bag.places.parked.remove(task)
        bag.free(task)
    turn.state.queue.news += 1
    if first >= bag.chunks.mark:
        _open_up(turn, bag, first)


def rows_failed(turn: Turn, id_: BagId, first: int, reason: str) -> None:
    """The bag cannot go on without its rows: pause it, so that its owner sees why and can resume
    it."""
    bag = turn.state.bags.get(id_)
    if bag is not None and first in bag.chunks.awaited:
        pause(turn, bag, f"the file of its parameters cannot be read: {reason}")
