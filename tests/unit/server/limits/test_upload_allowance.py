"""What pilots may send for their attempts, and for which."""

import msgspec
import pytest
from starlette.requests import Request

from covey.core.record.model import AttemptId, BagId, PilotId
from covey.questions.pilot_questions import PilotWork, ReturnRule
from covey.server.limits import upload_allowance as module
from covey.server.limits.upload_allowance import Allowance
from covey.server.web.problems import HttpProblem
from tests.unit.core.table import Table
from tests.unit.server.deciders import decider_of

MB = 1 << 20
RULES = {BagId(1): ReturnRule("ann", 1), BagId(2): ReturnRule("bob", 2)}


def pilot_with(*attempts: tuple[int, int]) -> PilotWork:
    """Attempts, and the bags that they are of."""
    held = [(AttemptId(1, sequence), BagId(bag)) for sequence, bag in attempts]
    return PilotWork(PilotId(7), held, {bag: RULES[bag] for _, bag in held})


def claim(known: Allowance, work: PilotWork, digest: str, size: int, attempt: str) -> int:
    """The bag, or the status of a refusal."""
    query = f"size={size}&attempt={attempt}"
    request = Request(
        {"type": "http", "query_string": query.encode(), "headers": [], "path_params": {}}
    )
    try:
        return known.claim(work, request, digest)
    except HttpProblem as problem:
        return problem.status


def test_each_attempt_has_its_own() -> None:
    known, pilot = Allowance(), pilot_with((1, 1), (2, 2))
    assert claim(known, pilot, "a", MB, "1.1") == 1
    assert claim(known, pilot, "a", MB, "1.1") == 1, "the next piece of it"
    assert claim(known, pilot, "b", 1, "1.1") == 413
    assert claim(known, pilot, "a", MB, "1.2") == 2
    assert claim(known, pilot, "b", MB, "1.2") == 2
    assert claim(known, pilot, "b", MB + 1, "1.2") == 413, "it cannot grow on the way"
    assert claim(known, pilot, "c", 0, "1.3") == 403
    assert claim(known, pilot, "c", 0, "nonsense") == 400
    assert claim(known, pilot, "c", 0, "") == 400, "each file is for an attempt"
    pilot = pilot_with((2, 2))
    assert claim(known, pilot, "a", 1, "1.1") == 403
    assert list(known._sent[PilotId(7)]) == [AttemptId(1, 2)], "it is forgotten"


def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 3)
    known, pilot = Allowance(), pilot_with((1, 1))
    found = [claim(known, pilot, digest, 1, "1.1") for digest in "abcda"]
    assert found == [1, 1, 1, 413, 1]


def test_pilots_that_have_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_PILOTS", 0)
    known, table = Allowance(), Table()
    here = table.enrol().pilot
    for pilot in (here, 7):
        claim(known, msgspec.structs.replace(pilot_with((1, 1)), pilot=pilot), "a", 1, "1.1")
    known.forget(decider_of(table.scheduler))
    assert list(known._sent) == [here]
