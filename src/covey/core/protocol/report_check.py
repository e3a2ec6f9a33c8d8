"""Checks messages of pilots before core believes them.

Core keeps numbers that pilots send in bitmaps and in the record, so each must be in the range that
these can hold. A message with a mistake changes nothing. The functions return what is wrong, or "".
"""

from covey.core.bags.bag_check import is_digest
from covey.core.values.space import LARGEST_BAG
from covey.pilot.protocol.messages import (
    LARGEST,
    LONGEST_PATH,
    LONGEST_TAG,
    LONGEST_UNKEPT_NAME,
    MOST_FILES,
    MOST_RESULT,
    MOST_SHORTAGE,
    MOST_SLOTS,
    MOST_TAGS,
    MOST_UNKEPT_NAMES,
    MOST_WAITING_BAGS,
    PILOT_OUTCOMES,
    PROTOCOL,
    End,
    Enrol,
    Held,
    Sync,
    Unkept,
)

_OUTCOMES = frozenset(PILOT_OUTCOMES)
MOST_SLOTS_WANTED = 1_000_000  # taken in one sync, of attempts; a pilot asks for fewer (MOST_WANT)


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
        return f"received ({sync_.received}) must be less than number ({sync_.number})"
    if not 0 <= sync_.want <= MOST_SLOTS_WANTED:
        return f"want must be between 0 and {MOST_SLOTS_WANTED}, not {sync_.want}"
    if not 0.0 <= sync_.clock <= LARGEST:
        return "clock is out of range"
    if len(sync_.ends) > most_ends:
        return f"a sync may have at most {most_ends} ends, not {len(sync_.ends)}"
    problem = _ends_problem(sync_.ends) if sync_.ends else ""
    if problem:
        return problem
    if len(sync_.receipts) > len(sync_.held or ()) + len(sync_.ends):
        return "there are more receipts than attempts"
    for claim in sync_.held or ():
        if max(claim) > LARGEST or not _may_exist(claim):
            return "a number in held is out of range"
    if len(sync_.waiting) > MOST_WAITING_BAGS or len(sync_.shortage) > MOST_SHORTAGE:
        return "too many waiting bags, or too long a shortage"
    for waiting in sync_.waiting:
        if not (0 <= waiting.bag <= LARGEST and 0 < waiting.slots <= MOST_SLOTS_WANTED):
            return "a number in waiting is out of range"
    return _tags_problem(sync_.tags) if sync_.tags is not None else ""


def _ends_problem(ends: list[End]) -> str:
    for end in ends:
        (
            epoch, sequence, bag, task, outcome, exit_code, signal, queued, wall, cpu, memory, age,
            _, _, stdout_bytes, stderr_bytes, _, result, files, unkept,
        ) = end  # fmt: skip  # by place: this is done for every end of every sync
        if outcome not in _OUTCOMES:
            return f"outcome must be one of {', '.join(PILOT_OUTCOMES)}, not {outcome!r}"
        if not (
            0 <= epoch <= LARGEST
            and 0 <= sequence <= LARGEST
            and 0 <= bag <= LARGEST
            and 0 <= task < LARGEST_BAG
            and -LARGEST <= exit_code <= LARGEST
            and -LARGEST <= signal <= LARGEST
            and -LARGEST <= queued <= LARGEST
            and -LARGEST <= wall <= LARGEST
            and -LARGEST <= cpu <= LARGEST
            and -LARGEST <= memory <= LARGEST
            and -LARGEST <= age <= LARGEST
            and -LARGEST <= stdout_bytes <= LARGEST
            and -LARGEST <= stderr_bytes <= LARGEST
        ):
            return "a number in one of the ends is out of range"
        if len(result) > MOST_RESULT:
            return f"a result has more than {MOST_RESULT} characters"
        problem = _files_problem(end) if files else ""
        if not problem and unkept is not None:
            problem = _unkept_problem(unkept)
        if problem:
            return problem
    return ""


def _unkept_problem(unkept: Unkept) -> str:
    numbers = 0 < unkept.files <= LARGEST and 0 <= unkept.bytes <= LARGEST
    lengths = max(map(len, unkept.names), default=0) <= LONGEST_UNKEPT_NAME
    if not numbers or not lengths or len(unkept.names) > MOST_UNKEPT_NAMES:
        return "the list of unkept files in one of the ends is malformed"
    return ""


def _files_problem(end: End) -> str:
    if len(end.files) > MOST_FILES:
        return f"a task may return at most {MOST_FILES} files, not {len(end.files)}"
    for file in end.files:
        if not 0 <= file.size <= LARGEST or not 0 < len(file.path) <= LONGEST_PATH:
            return f"file {file.path[:100]!r} is malformed: its size or its path is out of range"
        if file.digest and not is_digest(file.digest):
            return f"file {file.path[:100]!r}: {file.digest[:100]!r} is not a SHA-256 digest"
    return ""


def _may_exist(claim: Held) -> bool:
    """Whether an attempt can have these numbers; bitmaps cannot hold others."""
    return min(claim) >= 0 and claim.task < LARGEST_BAG


def shown_tags(tags: dict[str, str], owner: str) -> dict[str, str]:
    """The tags of a host that this owner may see: those that pilots publish about the host, and
    those that the owner's own tasks publish."""
    return {name: value for name, value in tags.items() if name.rpartition(":")[0] in ("", owner)}


def _tags_problem(tags: dict[str, str]) -> str:
    if len(tags) > MOST_TAGS or max(map(len, [*tags, *tags.values()]), default=0) > LONGEST_TAG:
        return f"a host may have at most {MOST_TAGS} tags, of at most {LONGEST_TAG} characters each"
    return ""
