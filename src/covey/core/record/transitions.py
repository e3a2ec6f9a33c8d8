"""The legal states of bags, pilots and site jobs. Nothing else changes a state.

An attempt needs no table: while core knows it, it is live; its end is a row in the record.
`docs/states.md` is made from here: python -m covey.core.record.transitions > docs/states.md
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from covey.core.record.model import BagStatus, JobStatus, PilotStatus

BAG: dict[StrEnum, tuple[StrEnum, ...]] = {
    BagStatus.RUNNING: (BagStatus.PAUSED, BagStatus.FINISHED, BagStatus.CANCELLED),
    BagStatus.PAUSED: (BagStatus.RUNNING, BagStatus.FINISHED, BagStatus.CANCELLED),
    BagStatus.FINISHED: (BagStatus.RUNNING,),  # retry of the failed
    BagStatus.CANCELLED: (),
}

PILOT: dict[StrEnum, tuple[StrEnum, ...]] = {
    PilotStatus.ACTIVE: (PilotStatus.SUSPECTED, PilotStatus.LOST, PilotStatus.LEFT),
    PilotStatus.SUSPECTED: (PilotStatus.ACTIVE, PilotStatus.LOST, PilotStatus.LEFT),
    PilotStatus.LOST: (PilotStatus.ACTIVE, PilotStatus.LEFT),  # it was only unreachable
    PilotStatus.LEFT: (),
}

JOB: dict[StrEnum, tuple[StrEnum, ...]] = {
    JobStatus.SUBMITTED: (JobStatus.ENDED,),
    JobStatus.ENDED: (),
}

TABLES: dict[type[StrEnum], Mapping[StrEnum, tuple[StrEnum, ...]]] = {
    BagStatus: BAG,
    PilotStatus: PILOT,
    JobStatus: JOB,
}

Status = TypeVar("Status", BagStatus, PilotStatus, JobStatus)


def step(old: Status, new: Status) -> Status:
    """The new state, if one may go there from the old; a wrong step is a bug of ours."""
    if new != old and new not in TABLES[type(old)][old]:
        raise AssertionError(f"no step from {old!r} to {new!r}")
    return new


def diagram() -> str:
    """All tables, as a page of diagrams."""
    lines = [
        "# States",
        "",
        "Made from `core/record/transitions.py`; nothing else changes a state.",
    ]
    for kind, table in TABLES.items():
        name = kind.__name__.removesuffix("Status")
        lines += ["", f"## {name}", "", "```mermaid", "stateDiagram-v2"]
        lines += [f"    [*] --> {next(iter(table)).value}"]
        for old, following in table.items():
            lines += [f"    {old.value} --> {new.value}" for new in following]
            lines += [f"    {old.value} --> [*]"] if not following else []
        lines += ["```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(diagram(), end="")
