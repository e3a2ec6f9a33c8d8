"""Numbers, times and tasks as text for people: short, and the same everywhere."""

import shlex
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from covey.core.values.space import Scalar
from covey.frontend.terminal import clean
from covey.pilot.slots.outcomes import signal_name
from covey.wire import BagView, ResultRow, Straggler

MINUTE, HOUR, DAY = 60, 3600, 86400
LONGEST_DAYS = 99


class HasNeed(Protocol):
    """Any record with the resources that a task needs."""

    @property
    def cores(self) -> int: ...
    @property
    def memory_mb(self) -> int: ...
    @property
    def disk_mb(self) -> int: ...
    @property
    def gpus(self) -> int: ...
    @property
    def limit_seconds(self) -> float: ...


def duration(seconds: float) -> str:
    """53 ms, 1.2 s, 3 m 05 s, 2 h 10 m, 4 d 3 h. Never negative, and never more than >99 d."""
    seconds = max(0.0, seconds)
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
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


def span(low: float, high: float) -> str:
    """A range in one unit: 20–35 s, 4–6 min, 1.5–3 h. One number if both ends look the same."""
    low, high = max(0.0, low), max(0.0, low, high)
    if high > LONGEST_DAYS * DAY:
        return duration(low) if low > LONGEST_DAYS * DAY else f">{_rounded(low / DAY)} d"
    units = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s"))
    unit, name = next((pair for pair in units if high >= pair[0] * 1.5), units[-1])
    if unit == 1:  # less than a second is shown as 1 s
        first, last = str(max(1, round(low))), str(max(1, round(high)))
    else:
        first, last = _rounded(low / unit), _rounded(high / unit)
    if first == last:
        return f"{last} {name}"
    return f"{first}–{last} {name}"


def _rounded(number: float) -> str:
    """Two digits are enough for an estimate."""
    if number >= 9.5:
        return str(round(number))
    return f"{round(number * 2) / 2:g}"


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


def size(number: int) -> str:
    """The size of a file."""
    return count(number, "byte") if number < 1024 else memory(number // 1024)


def megabytes(number: int) -> str:
    return memory(number * 1024)


def need(task: HasNeed) -> str:
    """What a task needs: 2 cores, 4 GB memory, at most 2 h 00 m."""
    return need_range([task])


def need_range(needs: Sequence[HasNeed]) -> str:
    """What several tasks need, as ranges: 1 to 8 cores, 2 to 64 GB memory."""

    def between(amounts: list[float], form: Callable[[float], str]) -> str:
        low, high = form(min(filter(None, amounts))), form(max(amounts))
        return high if low == high else f"{low} to {high}"

    cores, gpus = [task.cores for task in needs], [task.gpus for task in needs]
    parts = [between([*cores], lambda n: f"{n:g}") + (" core" if max(cores) == 1 else " cores")]
    for amounts, what in (
        ([task.memory_mb for task in needs], "memory"),
        ([task.disk_mb for task in needs], "disk"),
    ):
        if any(amounts):
            parts.append(f"{between([*amounts], lambda n: megabytes(int(n)))} {what}")
    if any(gpus):
        parts.append(between([*gpus], lambda n: f"{n:g}") + (" GPU" if max(gpus) == 1 else " GPUs"))
    times = [task.limit_seconds for task in needs]
    if any(times):
        parts.append(f"at most {between(times, duration)}")
    return ", ".join(parts)


def command(argv: Sequence[str]) -> str:
    """The command as a person would type it, without quotes around {NAME}."""
    return " ".join(word if _plain(word) else shlex.quote(word) for word in argv)


def _plain(word: str) -> bool:
    bare = word.replace("{", "").replace("}", "")
    return bool(word) and (not bare or shlex.quote(bare) == bare)


def labels(bag: BagView) -> str:
    return ", ".join(f"{name}={value}" for name, value in bag.labels.items())


def title(bag: BagView) -> str:
    return clean(f"bag {bag.id} {bag.name}".rstrip())


def state(row: ResultRow) -> str:
    return "done" if row.outcome == "ok" else "failed"


def ending(row: ResultRow) -> str:
    """How an attempt ended, in one or two words: exit 1, SIGKILL, timeout."""
    if row.outcome in ("ok", "failed"):
        if row.signal:
            return signal_name(row.signal)
        if row.exit_code >= 0:
            ignored = ", result ignored" if row.outcome == "ok" and row.cause else ""
            return f"exit {row.exit_code}{ignored}"
    return row.outcome


def explained(row: ResultRow) -> str:
    """How an attempt ended, in the pilot's words if the exit status does not say it."""
    exited = row.outcome in ("ok", "failed") and not row.signal
    return ending(row) if exited or not row.message else row.message


def overtimes(number: int, growth: float) -> str:
    return f"over its time limit a task gets x{growth:g} the time, up to {count(number, 'time')}"


def assignments(names: Sequence[str], values: Sequence[Scalar]) -> str:
    """NAME=VALUE, NAME=VALUE on one line, even if values have newlines."""
    pairs = (f"{name}={value}" for name, value in zip(names, values, strict=True))
    return clean(", ".join(pairs))


def task_title(names: Sequence[str], task: int, values: Sequence[Scalar]) -> str:
    shown = assignments(names, values)
    return f"task {task} ({shown})" if shown else f"task {task}"


def straggler(names: Sequence[str], late: Straggler) -> str:
    return (
        f"{task_title(names, late.task, late.values)} on {late.host} "
        f"runs for {duration(late.seconds)}, others took {duration(late.typical_seconds)}"
    )


def status(bag: BagView) -> str:
    """The status of a bag, in capitals if somebody has to do something."""
    if bag.quarantined:
        return "QUARANTINED"
    return bag.status.upper() if bag.status == "paused" else bag.status


def paused(bag: BagView) -> list[str]:
    """Lines about a paused bag: the reason, what to look at, and how to go on."""
    if bag.quarantined:
        return [
            f"bag {bag.id} is {status(bag)}: {bag.reason.partition(': ')[2]}",
            f"look: covey explain {bag.id}   give up: covey cancel {bag.id}",
        ]
    reason = f": {bag.reason}" if bag.reason else ""
    look = f"look: covey failures {bag.id}   " if bag.failed else ""
    return [
        f"bag {bag.id} is PAUSED{reason}",
        f"{look}go on: covey resume {bag.id}   give up: covey cancel {bag.id}",
    ]


def ignored_results(bag: BagView) -> list[str]:
    """Lines about reported values that are not in the table, and how to find their tasks."""
    return [
        f"values that tasks of bag {bag.id} reported were ignored: {why}. Write large values to a "
        f"file and return it (--output). Which tasks: covey results {bag.id} --where "
        "'cause ~ ignored' --columns task,cause"
        for why in bag.ignored_results
    ]


def unkept(bag: BagView) -> str:
    """The files of tasks that are not kept, and the option that keeps them; empty if there are
    none."""
    lost = bag.unkept
    if not lost.files:
        return ""
    many = f"{count(lost.files, 'file')} of {count(lost.tasks, 'task')}"
    names = f" ({some(lost.names, lost.files)})" if lost.names else ""
    return (
        f"NOT KEPT: {many}{names}, {size(lost.bytes)} in all: no output pattern names them; "
        "submit with --output '*' to keep all files"
    )


def output_warnings(bag: BagView) -> list[str]:
    """Warnings about a bag with files that are not kept, or without any output."""
    if bag.unkept.files:
        return [unkept(bag)]
    if not bag.silent:
        return []
    return [
        "nothing came back: its tasks printed nothing, reported no values and returned no files "
        "(to return files: --output PATTERN)"
    ]


def some(words: Sequence[str], number: int) -> str:
    """The first words of `number`: n1, n2 and 7 more."""
    more = number - len(words)
    return ", ".join(words) + (f" and {more:,} more" if more > 0 else "")


def last_lines(text: str, number: int) -> list[str]:
    """The last lines, without blank ones at the end."""
    return text.rstrip().splitlines()[-number:]


def plain_value(value: object) -> str:
    """A parameter or a reported value as people read it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    return msgspec.json.encode(value).decode()


def site_jobs(running: int, suspended: int, waiting: int) -> str:
    """Counts of a site's jobs. `running` includes those that are `suspended`."""
    still = f" ({suspended:,} of them suspended by the site)" if suspended else ""
    return f"{running:,} running{still}, {waiting:,} waiting"
