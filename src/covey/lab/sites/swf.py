"""Traces in the Standard Workload Format: other people's jobs, as a batch system logged them.

A line is 18 numbers; those that are read here are 2 (time of submission), 3 (wait), 4 (run time),
5 (processors), 8 (processors asked for) and 9 (time asked for). -1: unknown.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from covey.core.errors import BadConfig

COMMENT = ";"
SUBMITTED, WAITED, RAN, CORES, ASKED_CORES, ASKED_TIME = 1, 2, 3, 4, 7, 8


class TraceJob(Struct, frozen=True):
    submitted: float
    cores: int
    seconds: float
    asked: float  # seconds; at least the real ones
    waited: float  # as logged; -1: not known


def read(path: Path) -> list[TraceJob]:
    """The jobs that ran, in the order of their submission. Raises BadConfig."""
    try:
        if path.suffix == ".gz":
            text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        else:
            text = path.read_text(encoding="utf-8", errors="replace")
    except (OSError, EOFError) as error:
        raise BadConfig(f"{path}: cannot be read: {error}") from None
    return sorted(_jobs(text, path), key=lambda job: job.submitted)


def _jobs(text: str, path: Path) -> Iterator[TraceJob]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(COMMENT):
            continue
        try:
            fields = [float(word) for word in line.split()]
            cores = int(max(fields[CORES], fields[ASKED_CORES]))
            ran, asked = fields[RAN], fields[ASKED_TIME]
        except (ValueError, IndexError, OverflowError):
            words = "is no job: 18 numbers are expected"
            raise BadConfig(f"{path}, line {number}: {line[:60]!r} {words}") from None
        if cores > 0 and ran > 0:
            yield TraceJob(fields[SUBMITTED], cores, ran, max(ran, asked), fields[WAITED])
