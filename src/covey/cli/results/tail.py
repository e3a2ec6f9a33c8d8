"""`covey logs -f`: what tasks print, while they print it.

Live pieces of output may get lost. Each piece has its position in its stream. When an attempt ends,
the record has the whole output. So we remember how far each stream was printed, print only what is
new, and say how many bytes are missing.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from covey.client.client import Client
from covey.frontend import bag_places, formats, terminal
from covey.frontend.terminal import clean, say
from covey.pilot.protocol.messages import Piece
from covey.wire import BagView, Output, ResultQuery, ResultRow

WAIT_SECONDS = 1.0
LONGEST_LINE = 1 << 16  # characters; with many tasks, a longer line is printed in parts
STREAMS = {1: "stdout", 2: "stderr"}
PALETTE = ("cyan", "yellow", "green", "magenta", "blue", "bright_red")
_CUT = re.compile(r"\n\[\.\.\. ([0-9]{1,18}) bytes left out \.\.\.\]\n")
_REPLACED = "\ufffd"  # stands for one byte that is not valid UTF-8


class WantedTasks(NamedTuple):
    """Which tasks, and which of their output, to show."""

    only: str | None = None  # stdout or stderr
    tail: int | None = None  # last lines of earlier output
    failed: bool = False
    causes: tuple[str, ...] = ()
    raw: bool = False  # keep control characters, also on a terminal

    @property
    def ends_only(self) -> bool:
        """Whether only the end of a task decides if it is shown."""
        return self.failed or bool(self.causes)

    def takes(self, row: ResultRow) -> bool:
        if self.ends_only and row.outcome == "ok":
            return False
        return not self.causes or row.cause.startswith(self.causes)


class TailPart(NamedTuple):
    """Text of a stream, and the byte of the stream at which the text starts."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + _size(self.text)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace")) - 2 * text.count(_REPLACED)


class SeenTask:
    """Remembers how far each stream was printed."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], int] = {}

    def fresh(self, attempt: str, stream: int, part: TailPart) -> str:
        """The part's text that was not printed before, with a note about missing bytes."""
        printed = self._ends.get((attempt, stream))
        if printed is not None and part.end <= printed:
            return ""
        self._ends[attempt, stream] = part.end
        if printed is None or printed == part.start:
            return part.text
        if printed < part.start:
            return f"\n[... {part.start - printed:,} bytes not seen ...]\n{part.text}"
        rest = part.text.encode("utf-8", "replace")[printed - part.start :]
        return rest.decode("utf-8", "replace")


def parts_of(text: str, total: int) -> list[TailPart]:
    """The parts of a stream of `total` bytes that the record keeps: everything, or head and
    tail."""
    kept = _size(text)
    for cut in _CUT.finditer(text):  # the task itself may have printed a line like this
        if kept - len(cut[0]) + int(cut[1]) == total:
            head, tail = text[: cut.start()], text[cut.end() :]
            return [TailPart(0, head), TailPart(total - _size(tail), tail)]
    return [TailPart(0, text)] if text else []


class Sink:
    """Prints text of tasks as it comes."""

    def __init__(self, as_json: bool, raw: bool) -> None:
        self._as_json = as_json
        self._raw = raw
        self._seen = SeenTask()

    def piece(self, piece: Piece) -> None:
        attempt = f"{piece.epoch}.{piece.sequence}"
        self._print(piece.task, attempt, piece.stream, TailPart(piece.start, piece.text))

    def rest(self, row: ResultRow, output: Output, only: str | None) -> None:
        """Print the output that the record has and that was not printed before."""
        for stream, text, total in (
            (1, output.stdout, row.stdout_bytes),
            (2, output.stderr, row.stderr_bytes),
        ):
            if only in (None, STREAMS[stream]):
                for part in parts_of(text, total):
                    self._print(row.task, row.attempt, stream, part)

    def end(self, task: int, attempt: str) -> None:
        """Called when the attempt has no more output."""

    def _print(self, task: int, attempt: str, stream: int, part: TailPart) -> None:
        text = self._seen.fresh(attempt, stream, part)
        if not text:
            return
        if self._as_json:
            line = {"task": task, "attempt": attempt, "stream": STREAMS[stream], "text": text}
            terminal.echo_json(msgspec.json.encode(line).decode())
        else:
            self.write(task, attempt, stream, text)
        sys.stdout.flush()

    def write(self, task: int, attempt: str, stream: int, text: str) -> None:
        terminal.echo_output(text, self._raw)


class Prefixed(Sink):
    """Prints the output of many tasks: whole lines, each with the number of its task."""

    def __init__(self, as_json: bool, raw: bool, total: int) -> None:
        super().__init__(as_json, raw)
        self._width = len(str(max(0, total - 1)))
        self._pending: dict[tuple[str, int], str] = {}

    @property
    def coloured(self) -> bool:
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def write(self, task: int, attempt: str, stream: int, text: str) -> None:
        *lines, rest = (self._pending.pop((attempt, stream), "") + text).split("\n")
        if len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], ""
        if rest:
            self._pending[attempt, stream] = rest
        for line in lines:
            self._line(task, line)

    def end(self, task: int, attempt: str) -> None:
        for stream in STREAMS:
            rest = self._pending.pop((attempt, stream), "")
            if rest:
                self._line(task, rest)

    def _line(self, task: int, line: str) -> None:
        colour = PALETTE[task % len(PALETTE)] if self.coloured else ""
        shown = line.rstrip("\r").rpartition("\r")[2]
        terminal.echo_prefixed(f"{task:>{self._width}} |", colour, shown, self._raw)


def follow_task(
    client: Client, bag: BagView, task: int, wanted: WantedTasks, as_json: bool
) -> None:
    """Print the output of one task until the task has ended, or the bag is over."""
    sink = Sink(as_json, wanted.raw)
    ended: set[str] = set()
    live = _live(client, bag.id, task, wanted)
    while True:
        view = client.bag(bag.id)
        for row in client.attempts(bag.id, task):
            if row.attempt not in ended:
                ended.add(row.attempt)
                _end(client, bag, row, sink, wanted)
            if row.counted:
                if not as_json:
                    _say_ended(bag, row)
                return
        if view is None or view.over:
            say(f"bag {bag.id} is {view.status if view else 'gone'}; task {task} has no result")
            return
        for piece in next(live):
            sink.piece(piece)


def _say_ended(bag: BagView, row: ResultRow) -> None:
    title = formats.task_title(bag.names, row.task, row.values)
    say(clean(f"{title}: {formats.explained(row)} on {row.host}"))


def follow_bag(client: Client, bag: BagView, wanted: WantedTasks, as_json: bool) -> None:
    """Print the output of all tasks, from now until the bag is over."""
    sink = Prefixed(as_json, wanted.raw, bag.total)
    live = _live(client, bag.id, -1, wanted)
    query = ResultQuery(by_row=True, after=_last_row(client, bag), failed_only=wanted.ends_only)
    paused = False
    while True:
        view = client.bag(bag.id)
        over = view is None or view.over
        for piece in next(live) if not over else ():
            sink.piece(piece)
        for row in bag_places.all_results(client, bag.id, query):
            query = query.behind([row])
            if wanted.takes(row):
                _end(client, bag, row, sink, wanted)
        if over:
            return
        if view is not None and (view.status == "paused") != paused:
            paused = not paused
            for line in formats.paused(view) if paused else ():
                say(line)


def _end(client: Client, bag: BagView, row: ResultRow, sink: Sink, wanted: WantedTasks) -> None:
    if row.stdout_bytes or row.stderr_bytes:
        output = client.output(bag.id, row.task)
        if output is not None and output.attempt == row.attempt:
            sink.rest(row, output, wanted.only)
    sink.end(row.task, row.attempt)


def _live(client: Client, bag: int, task: int, wanted: WantedTasks) -> Iterator[Sequence[Piece]]:
    """New pieces of output, for ever. With --tail, the first pieces have only their last lines."""
    after, tail = 0, wanted.tail
    while True:
        answer = client.live_output(bag, task, after, wait_seconds=WAIT_SECONDS)
        after = answer.next
        pieces: Sequence[Piece] = [
            piece
            for piece in answer.pieces
            if wanted.only in (None, STREAMS.get(piece.stream)) and not wanted.ends_only
        ]
        if tail is not None and pieces:
            pieces, tail = last_lines(pieces, tail), None
        yield pieces


def last_lines(pieces: Sequence[Piece], number: int) -> list[Piece]:
    """The last `number` lines of each stream."""
    left: dict[tuple[int, int, int], int] = {}
    kept: list[Piece] = []
    for piece in reversed(pieces):
        stream = (piece.epoch, piece.sequence, piece.stream)
        lines = piece.text.splitlines(keepends=True)
        room = left.get(stream, number)
        left[stream] = max(0, room - len(lines))
        shown = "".join(lines[-room:]) if room else ""
        start = piece.start + _size(piece.text) - _size(shown)
        kept.append(piece._replace(start=start, text=shown))
    return kept[::-1]


def _last_row(client: Client, bag: BagView) -> int:
    """The number of the bag's last result row; -1 if there is none."""

    def behind(row: int) -> bool:
        return bool(client.results(bag.id, ResultQuery(by_row=True, after=row, limit=1)))

    low, high = -1, 1
    if not behind(low):
        return low
    while behind(high):
        low, high = high, high * 4
    while high - low > 1:  # there are rows after low, and none after high
        middle = (low + high) // 2
        low, high = (middle, high) if behind(middle) else (low, middle)
    return high
