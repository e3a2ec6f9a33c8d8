"""What several drivers need: counting, times, arrays, and what a failed command means."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from covey.sites.command_driver import Batch
from covey.sites.commands import Output
from covey.sites.driver import numbered
from covey.sites.errors import Away, Refused, Unclear

# Where a shell, or what is in its place, could not even start the command.
NOT_STARTED = (126, 127)

# Words of all of them for: nobody is there to talk to.
AWAY = re.compile(
    r"connection refused|connect failure|(cannot|unable to|failed to) (connect|contact)|"
    r"no route to|can't find address|not responding|\bis down\b",
    re.IGNORECASE,
)


# What comes of reading JSON that is not what it should be.
MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def not_submitted(output: Output, uncertain: re.Pattern[str]) -> NoReturn:
    """A submission failed. That the site refused is only believed where it says so in its own
    words, and these are not about an answer that got lost: then the job may well be there."""
    if output.status in NOT_STARTED:
        raise Away(output.words)
    words = output.stderr.strip() or output.stdout.strip()
    if output.status <= 0 or output.status == 255 or not words or uncertain.search(words):
        raise Unclear(output.words)
    raise Away(output.words) if AWAY.search(words) else Refused(output.words)


def no_list(output: Output) -> NoReturn:
    raise Unclear(output.words)


def checked(batch: Batch) -> Batch:
    """Names that a list could not tell would be lost: that is our own mistake, so it is loud."""
    expected = tuple(numbered(batch.title, index) for index in range(len(batch.names)))
    if not batch.names or batch.names != expected:
        raise ValueError(f"{batch.names!r} are not numbered on from {batch.title!r}")
    return batch


def minutes(seconds: float) -> int:
    return max(1, math.ceil(seconds / 60))


def clock(seconds: float) -> str:
    """H:MM:SS, of whole seconds."""
    whole = max(1, math.ceil(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def written(pairs: Sequence[tuple[int, int]]) -> str:
    """1-3,7"""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)


def arrays(
    handles: Iterable[str], form: re.Pattern[str]
) -> tuple[list[str], dict[tuple[str, str], list[int]]]:
    """Handles of jobs by themselves, and the elements of arrays together. `form` has the groups
    `job`, `index` and, where handles go on after that, `rest`."""
    alone: list[str] = []
    together: dict[tuple[str, str], list[int]] = {}
    for handle in dict.fromkeys(handles):
        match = form.fullmatch(handle)
        if match is None:
            alone.append(handle)
        else:
            key = match["job"], match.groupdict().get("rest") or ""
            together.setdefault(key, []).append(int(match["index"]))
    return alone, together


def whole(text: object) -> int:
    """A number that a site wrote, or 0."""
    written = str(text).strip()
    return int(written) if written.isascii() and written.isdigit() and len(written) < 18 else 0
