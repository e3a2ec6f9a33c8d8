"""Shared by drivers: numbers, times, arrays, and the meaning of a failed command."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from covey.sites.command_driver import Batch
from covey.sites.commands import Command, Output
from covey.sites.driver import numbered
from covey.sites.errors import Away, Refused, Unclear

# Exit statuses of a shell that could not start the command.
NOT_STARTED = (126, 127)

# What all of them print if they cannot reach their server.
AWAY = re.compile(
    r"connection refused|connect failure|(cannot|unable to|failed to) (connect|contact)|"
    r"no route to|can't find address|not responding|\bis down\b",
    re.IGNORECASE,
)


# Exceptions of code that reads unexpected JSON.
MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def not_submitted(output: Output, uncertain: re.Pattern[str]) -> NoReturn:
    """A submission failed. It was refused only if the site says so in its own words. If its words
    are about a lost answer (`uncertain`), the job may well be there."""
    if output.status in NOT_STARTED:
        raise Away(output.words)
    words = output.stderr.strip() or output.stdout.strip()
    if output.status <= 0 or output.status == 255 or not words or uncertain.search(words):
        raise Unclear(output.words)
    raise Away(output.words) if AWAY.search(words) else Refused(output.words)


def no_list(output: Output) -> NoReturn:
    raise Unclear(output.words)


def checked(batch: Batch) -> Batch:
    """Raises ValueError unless the names are consecutive: jobs with other names would be lost."""
    expected = tuple(numbered(batch.title, index) for index in range(len(batch.names)))
    if not batch.names or batch.names != expected:
        raise ValueError(f"the names {batch.names!r} do not follow {batch.title!r} in number")
    return batch


def flags(*pairs: tuple[str, str]) -> list[str]:
    """Options of a command with their values, without those that have none."""
    return [word for flag, value in pairs if value for word in (flag, value)]


def minutes(seconds: float) -> int:
    return max(1, math.ceil(seconds / 60))


def clock(seconds: float) -> str:
    """H:MM:SS, rounded up to whole seconds."""
    whole = max(1, math.ceil(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    spans: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return spans


def written(pairs: Sequence[tuple[int, int]]) -> str:
    """1-3,7"""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)


def arrays(
    handles: Iterable[str], form: re.Pattern[str]
) -> tuple[list[str], dict[tuple[str, str], list[int]]]:
    """Handles of single jobs, and the indices of elements by array. `form` has the groups `job`,
    `index` and, if handles continue after that, `rest`."""
    single: list[str] = []
    indices: dict[tuple[str, str], list[int]] = {}
    for handle in dict.fromkeys(handles):
        match = form.fullmatch(handle)
        if match is None:
            single.append(handle)
        else:
            key = match["job"], match.groupdict().get("rest") or ""
            indices.setdefault(key, []).append(int(match["index"]))
    return single, indices


MEASURE_SECONDS = 20.0  # that a question for free cores may take

# What follows the first answer of a command that asks two things: how many jobs wait.
PART = "\n\n"


def two_questions(first: str, second: str, options: Sequence[str]) -> Command:
    """Two commands in one. Both shell lines take the options as "$@"; an empty line separates their
    output. If the first one fails, the second is not run."""
    script = f"{first} || exit; echo; {second}"
    return Command(("/bin/sh", "-c", script, "sh", *options), b"", MEASURE_SECONDS)


def two_answers(output: Output, first_command: str) -> tuple[str, str]:
    """Raises Unclear if there is no answer to the first question."""
    if output.status != 0:
        no_list(output)
    first, _, second = output.stdout.strip("\n").partition(PART)
    if not first.strip():
        first, second = output.stdout, ""
    if not first.strip():
        raise Unclear(f"{first_command} printed nothing")
    return first, second


def clocked(text: str) -> float:
    """The seconds of 2-03:04:05, 03:04:05 or 4:05; 0 if this is no such time."""
    days, dash, rest = text.strip().rpartition("-")
    parts = [counted(part) for part in (days or "0", *rest.split(":"))]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not 3 <= len(parts) <= 4 or (dash and not days):
        return 0.0
    seconds = 0
    for part in known[1:]:
        seconds = 60 * seconds + part
    return float(86400 * known[0] + seconds)


def counted(text: str) -> int | None:
    """A number by itself; None for anything else."""
    written = text.strip()
    return whole(written) if written.isascii() and written.isdigit() else None


def whole(text: object) -> int:
    """A number that a site wrote, or 0."""
    written = str(text).strip()
    return int(written) if written.isascii() and written.isdigit() and len(written) < 18 else 0
