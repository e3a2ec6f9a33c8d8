"""The tables of states are complete, and the diagram in the docs is theirs."""

from itertools import product
from pathlib import Path

import pytest

from covey.core.record.model import BagStatus, JobStatus, PilotStatus
from covey.core.record.transitions import TABLES, diagram, step

DOCS = Path(__file__).parents[4] / "docs" / "states.md"


@pytest.mark.parametrize("kind", [BagStatus, PilotStatus, JobStatus])
def test_every_state_has_its_steps_and_no_others_are_taken(
    kind: type[BagStatus] | type[PilotStatus] | type[JobStatus],
) -> None:
    table = TABLES[kind]
    assert list(table) == list(kind)
    for old, new in product(kind, kind):
        if new in table[old] or old is new:
            assert step(old, new) is new  # type: ignore[type-var]
        else:
            with pytest.raises(AssertionError, match="no step from"):
                step(old, new)  # type: ignore[type-var]


def test_the_documentation_shows_these_tables() -> None:
    assert DOCS.read_text() == diagram(), "make it anew: see core/record/transitions.py"
