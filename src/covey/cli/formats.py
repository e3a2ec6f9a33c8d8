"""How numbers, times and tasks look to people: short, and the same everywhere."""

import shlex
import signal
import time
from collections.abc import Sequence

from covey.core.space import Scalar
from covey.wire import BagView, ResultRow

MINUTE, HOUR, DAY = 60, 3600, 86400
LONGEST_DAYS = 99


def duration(seconds: float) -> str:
    """1.2 s, 3 m 05 s, 2 h 10 m, 4 d 3 h: never negative, never absurd."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} m {whole % MINUTE:02} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE:02} m"
    if whole // DAY > LONGEST_DAYS:
        return f">{LONGEST_DAYS} d"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def ago(then: float, now: float | None = None) -> str:
    if not then:
        return "–"
    return f"{duration((time.time() if now is None else now) - then)} ago"


def clock(then: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(then)) if then else "–"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def rate(per_second: float) -> str:
    if per_second >= 1:
        return f"{per_second:,.0f}/s" if per_second >= 100 else f"{per_second:.1f}/s"
    if per_second * MINUTE >= 1:
        return f"{per_second * MINUTE:.1f}/min"
    return f"{per_second * HOUR:.1f}/h"


def memory(kilobytes: int) -> str:
    if kilobytes <= 0:
        return "–"
    if kilobytes < 1024:
        return f"{kilobytes} kB"
    if kilobytes < 1024 * 1024:
        return f"{kilobytes / 1024:.1f} MB"
    return f"{kilobytes / 1024 / 1024:.1f} GB"


def command(argv: Sequence[str]) -> str:
    """As one would type it; the braces of placeholders need no quotes."""
    return " ".join(word if _plain(word) else shlex.quote(word) for word in argv)


def _plain(word: str) -> bool:
    bare = word.replace("{", "").replace("}", "")
    return bool(word) and (not bare or shlex.quote(bare) == bare)


def title(bag: BagView) -> str:
    return f"bag {bag.id} {bag.name}".rstrip()


def state(row: ResultRow) -> str:
    return "done" if row.outcome == "ok" else row.outcome


def ending(row: ResultRow) -> str:
    """How an attempt ended, in two words: exit 1, SIGKILL, timeout."""
    if row.outcome in ("ok", "failed"):
        if row.signal:
            return signal_name(row.signal)
        if row.exit_code >= 0:
            return f"exit {row.exit_code}"
    return row.outcome


def explained(row: ResultRow) -> str:
    """How an attempt ended, with what the pilot says about it beyond the bare exit status."""
    exited = row.outcome in ("ok", "failed") and not row.signal
    return ending(row) if exited or not row.message else row.message


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def assignments(names: Sequence[str], values: Sequence[Scalar]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))


def task_title(names: Sequence[str], row: ResultRow) -> str:
    told = assignments(names, row.values)
    return f"task {row.task} ({told})" if told else f"task {row.task}"


def last_line(text: str) -> str:
    """The last line that says something."""
    for line in reversed(text.splitlines()):
        if line.strip():
            return line.strip()
    return ""
