"""The progress of a bag: the arithmetic (`ProgressMeter`), and two ways to show it.

On a terminal, a few lines are redrawn. A pipe, a file or the log of a CI service gets a line every
LINE_SECONDS. The remaining time is a range that the server estimates. Until the server has an
estimate, the meter computes one from the recent rate.
"""

import math
import os
import sys
import time
from typing import Protocol, TextIO

from covey.frontend import formats
from covey.frontend.tables import fit, width_of
from covey.frontend.terminal import clean
from covey.wire import BagView

MEMORY_SECONDS = 15.0
MEMORY_SHARE = 1 / 3  # of the time so far: the rate of a long run is a mean over a longer time
KNOWN_SECONDS = 1.0  # the rate is unknown before
LINE_SECONDS = 10.0
BAR_WIDTH = 24
STRAGGLERS = 2
ERASE = "\x1b[K"  # the rest of the line
ERASE_BELOW = "\x1b[J"
RED, GREEN, RESET = "\x1b[31m", "\x1b[32m", "\x1b[0m"


class ProgressMeter:
    """An exponentially weighted rate of ends. The counts of ends and of seconds fade in the same
    way, so the rate is right from the first sample on."""

    def __init__(self) -> None:
        self._ends = 0.0
        self._seconds = 0.0
        self._last: tuple[float, int] | None = None
        self._began = 0.0

    def update(self, now: float, ended: int) -> None:
        if self._last is None:
            self._last, self._began = (now, ended), now
            return
        then, before = self._last
        passed = now - then
        if passed <= 0:
            return
        if ended < before:  # failed tasks are run again
            self._last = (now, ended)
            return
        memory = max(MEMORY_SECONDS, (now - self._began) * MEMORY_SHARE)
        fade = math.exp(-passed / memory)
        self._ends = self._ends * fade + (ended - before)
        self._seconds = self._seconds * fade + passed
        self._last = (now, ended)

    @property
    def rate(self) -> float:
        """Ends per second; 0 while it is unknown."""
        if self._seconds < KNOWN_SECONDS:
            return 0.0
        return self._ends / self._seconds

    def eta_seconds(self, left: int) -> float | None:
        rate = self.rate
        if left <= 0:
            return 0.0
        return left / rate if rate > 1e-12 else None


class Progress(Protocol):
    """Shows the progress of a bag. `close` removes what was drawn on the terminal."""

    poll_seconds: float
    wait_seconds: float

    def show(self, bag: BagView) -> None: ...

    def close(self) -> None: ...


def describe(bag: BagView, meter: ProgressMeter) -> list[str]:
    """The facts, most important first."""
    ended = bag.done + bag.failed
    parts = [f"{ended:,}/{bag.total:,}", f"{percent(ended, bag.total)}%"]
    if bag.failed:
        parts.append(f"{bag.failed:,} failed")
    if bag.status == "paused":
        parts.append("PAUSED")
    if not bag.over:
        parts.append(f"{bag.running:,} running")
        if bag.sent:
            parts.append(f"{bag.sent:,} sent")
        if bag.in_doubt:
            parts.append(f"{bag.in_doubt:,} being checked after a restart")
        if meter.rate > 0:
            parts.append(formats.rate(meter.rate))
    if bag.open and ended == bag.total:
        parts.append(f"waits for more tasks, or for 'covey close {bag.id}'")
    elif bag.status == "running":
        parts.append(f"ETA {_left(bag, meter)}")
    return parts


def _left(bag: BagView, meter: ProgressMeter) -> str:
    if bag.estimate is not None:
        return formats.span(bag.estimate.low, bag.estimate.high)
    return eta(meter, bag.total - bag.done - bag.failed)


def eta(meter: ProgressMeter, left: int) -> str:
    seconds = meter.eta_seconds(left)
    if seconds is None:
        return "–"
    return f"{math.ceil(seconds)} s" if seconds < 59 else formats.duration(seconds)


def remarks(bag: BagView) -> dict[str, str]:
    """What is unusual: why nothing can run, files that are not kept, and slow tasks. The key names
    the fact; the text about the same fact may change."""
    if bag.over or bag.status == "paused":
        return {}
    texts = {bag.reason: _waiting(bag.reason)} if bag.reason else {}
    if bag.unkept.files:
        texts["unkept"] = f"{formats.unkept(bag)} (stop this bag: covey cancel {bag.id})"
    for late in bag.stragglers[:STRAGGLERS]:
        texts[f"task {late.task}"] = f"slow: {formats.straggler(bag.names, late)}"
    return texts


def _waiting(reason: str) -> str:
    return reason if reason.startswith("waits for ") else f"waits: {reason}"


def percent(ended: int, total: int) -> int:
    """100 only if all tasks have ended."""
    return 100 if ended >= total else min(99, 100 * ended // max(1, total))


def bar(ended: int, total: int, width: int, ascii_only: bool = False) -> str:
    full, empty = ("#", "-") if ascii_only else ("█", "░")
    filled = width if ended >= total else min(width - 1, width * ended // max(1, total))
    return full * filled + empty * (width - filled)


class Redrawn:
    """A few lines of a terminal, redrawn in place: the bar, and the remarks below it. The cursor is
    never hidden, so the terminal is still usable after Ctrl-Z or kill."""

    poll_seconds = 0.1
    wait_seconds = 1.0

    def __init__(self, stream: TextIO, colour: bool) -> None:
        self.stream = stream
        self.colour = colour
        self.meter = ProgressMeter()
        self._drawn: list[str] = []
        self._ascii = "utf" not in (stream.encoding or "").lower()

    def show(self, bag: BagView) -> None:
        self.meter.update(time.monotonic(), bag.done + bag.failed)
        width = self._columns() - 1
        below = [fit(clean(f"  {text}"), width) for text in remarks(bag).values()]
        lines = [self._line(bag, width), *below]
        if lines != self._drawn:
            drawn = "\n".join(line + ERASE for line in lines)
            erase = ERASE_BELOW if len(self._drawn) > len(lines) else ""
            self.stream.write(f"{self._to_start()}{drawn}{erase}")
            self.stream.flush()
            self._drawn = lines

    def close(self) -> None:
        if self._drawn:
            self.stream.write(f"{self._to_start()}{ERASE_BELOW}")
            self.stream.flush()
            self._drawn = []

    def _to_start(self) -> str:
        """What moves the cursor back to the first line that was drawn."""
        up = len(self._drawn) - 1
        return f"\r\x1b[{up}A" if up > 0 else "\r"

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _line(self, bag: BagView, width: int) -> str:
        """The name, the bar and the facts. On a narrow terminal, first the name is left out, then
        the bar."""
        ended = bag.done + bag.failed
        facts = "  ".join(describe(bag, self.meter))
        if self._ascii:
            facts = facts.replace("–", "-")
        head = fit(clean(formats.title(bag)), 30)
        left = width - width_of(facts) - 2
        drawn = min(BAR_WIDTH, left - width_of(head) - 2)
        if drawn < 8:
            head = f"bag {bag.id}"
            drawn = min(BAR_WIDTH, left - width_of(head) - 2)
        if drawn < 8:
            return fit(facts, width)
        blocks = bar(ended, bag.total, drawn, self._ascii)
        if self.colour:
            blocks = f"{GREEN}{blocks}{RESET}"
            for alarm in (f"{bag.failed:,} failed", "PAUSED"):
                facts = facts.replace(alarm, f"{RED}{alarm}{RESET}")
        return f"{head}  {blocks}  {facts}"


class ProgressLines:
    """For files, pipes and CI services: a line every LINE_SECONDS, and a line for each remark."""

    poll_seconds = 0.25
    wait_seconds = LINE_SECONDS

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.meter = ProgressMeter()
        self._next = -math.inf
        self._printed: set[str] = set()  # keys of remarks

    def show(self, bag: BagView) -> None:
        now = time.monotonic()
        self.meter.update(now, bag.done + bag.failed)
        if now >= self._next and not bag.over:
            self._print(f"{formats.title(bag)}: {', '.join(describe(bag, self.meter))}")
            self._next = now + LINE_SECONDS
        for key, text in remarks(bag).items():
            if key not in self._printed:
                self._printed.add(key)
                self._print(f"{formats.title(bag)}: {text}")

    def close(self) -> None:
        """Nothing was drawn."""

    def _print(self, line: str) -> None:
        print(clean(line), file=self.stream, flush=True)


class Silent:
    """Shows nothing, for --json."""

    poll_seconds = 0.25
    wait_seconds = LINE_SECONDS

    def show(self, bag: BagView) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing was drawn."""


def for_stream(stream: TextIO | None = None) -> Progress:
    stream = sys.stderr if stream is None else stream
    plain = os.environ.get("TERM") == "dumb" or os.environ.get("CI")
    if plain or not stream.isatty():
        return ProgressLines(stream)
    return Redrawn(stream, colour=not os.environ.get("NO_COLOR"))


def summary(bag: BagView) -> str:
    parts = [f"{formats.count(bag.done, 'task')} done"]
    if bag.failed:
        parts.append(f"{bag.failed:,} failed")
    missing = bag.total - bag.done - bag.failed
    if missing:
        parts.append(f"{missing:,} {'not run' if bag.over else 'not ended'}")
    took = f" in {formats.duration(bag.ended - bag.created)}" if bag.ended else ""
    status = bag.status.upper() if bag.status == "paused" else bag.status
    return f"{formats.title(bag)} {status}: {', '.join(parts)}{took}"
