"""What a pilot says, before it is believed: whether it can be what a pilot would say.

Core goes by numbers that pilots send, and keeps them in bitmaps and in the record: each must be
one that these can hold. A message that is off changes nothing; words say why.
"""

from typing import Any

from covey.core.checking import is_digest
from covey.core.space import LARGEST_BAG
from covey.pilot.messages import PILOT_OUTCOMES, PROTOCOL, End, Enrol, Held, Sync

MOST_SLOTS = 4096
MOST_TAGS = 200
MOST_FILES = 10_000  # that a task returns
MOST_RESULT = 1 << 16
LARGEST = 2**53  # what every part of the system can count to


def enrol_problem(enrol_: Enrol) -> str:
    if enrol_.protocol != PROTOCOL:
        return f"this server speaks protocol {PROTOCOL}, the pilot {enrol_.protocol}"
    if not 1 <= enrol_.slots <= MOST_SLOTS:
        return f"slots must be between 1 and {MOST_SLOTS}, not {enrol_.slots}"
    if not 8 <= len(enrol_.key) <= 128:
        return "key must have 8 to 128 characters"
    if not enrol_.host or len(enrol_.host) > 255:
        return "host must have 1 to 255 characters"
    if not min(enrol_.memory_mb, enrol_.disk_mb, enrol_.gpus) >= 0:
        return "memory, disk and GPUs cannot be negative"
    if max(enrol_.memory_mb, enrol_.disk_mb, enrol_.gpus) > LARGEST:
        return "memory, disk or GPUs are out of range"
    texts = (enrol_.site, enrol_.job, enrol_.version, enrol_.machine, enrol_.boot)
    if max(map(len, texts)) > 1024:
        return "no text may be longer than 1024 characters"
    return _tags_problem(enrol_.tags)


def sync_problem(sync_: Sync, most_ends: int) -> str:
    if not 1 <= sync_.number <= LARGEST or not 0 <= sync_.received < sync_.number:
        return f"number {sync_.number} and received {sync_.received} do not fit"
    if not 0 <= sync_.want <= 1_000_000:
        return f"want must be between 0 and a million, not {sync_.want}"
    if len(sync_.ends) > most_ends:
        return f"at most {most_ends} ends in a sync, not {len(sync_.ends)}"
    problem = _ends_problem(sync_.ends) if sync_.ends else ""
    if problem:
        return problem
    for one in sync_.held or ():
        if max(one) > LARGEST or _no_attempt(one):
            return "a number in held is out of range"
    return _tags_problem(sync_.tags) if sync_.tags is not None else ""


def _ends_problem(ends: list[End]) -> str:
    """Looked at field by field: there are hundreds of them in a sync."""
    columns: Any = End(*zip(*ends, strict=True))  # type: ignore[arg-type]
    for outcome in columns.outcome:
        if outcome not in PILOT_OUTCOMES:
            return f"outcome must be one of {', '.join(PILOT_OUTCOMES)}, not {outcome!r}"
    names = columns[:4]  # of attempt and task
    numbers = (*names, *columns[5:12], columns.stdout_bytes, columns.stderr_bytes)
    off = any(min(column) < -LARGEST or max(column) > LARGEST for column in numbers)
    if off or min(map(min, names)) < 0 or max(columns.task) >= LARGEST_BAG:
        return "a number in one of the ends is out of range"
    if max(map(len, columns.result)) > MOST_RESULT:
        return f"a result of more than {MOST_RESULT} characters"
    problems = (_files_problem(end) for end in ends) if any(columns.files) else ()
    return next(filter(None, problems), "")


def _files_problem(end: End) -> str:
    if len(end.files) > MOST_FILES:
        return f"at most {MOST_FILES} files of a task, not {len(end.files)}"
    for one in end.files:
        if not 0 <= one.size <= LARGEST or not 0 < len(one.path) <= 4096:
            return f"file {one.path[:100]!r} is malformed"
        if one.digest and not is_digest(one.digest):
            return f"file {one.path[:100]!r}: {one.digest[:100]!r} is no SHA-256"
    return ""


def _no_attempt(one: Held) -> bool:
    """Numbers that no attempt ever had (and that no bitmap can hold)."""
    return min(one.epoch, one.sequence, one.bag, one.task) < 0 or one.task >= LARGEST_BAG


def _tags_problem(tags: dict[str, str]) -> str:
    if len(tags) > MOST_TAGS or max(map(len, [*tags, *tags.values()]), default=0) > 1024:
        return f"at most {MOST_TAGS} tags, and no text longer than 1024 characters"
    return ""
