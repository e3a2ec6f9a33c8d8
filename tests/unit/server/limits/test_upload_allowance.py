"""What pilots may send for their attempts, and for which."""

import pytest
from starlette.requests import Request

from covey.core.record.attempts import Attempt
from covey.core.record.model import (
    AttemptId,
    BagId,
    BagSpec,
    JobId,
    PilotId,
    PilotRecord,
    TaskNumber,
)
from covey.core.state import Pilot
from covey.server.limits import upload_allowance as module
from covey.server.limits.upload_allowance import Allowance
from covey.server.web.problems import HttpProblem

MB = 1 << 20
SPECS = {
    BagId(1): BagSpec(argv=("x",), owner="ann", output_mb=1),
    BagId(2): BagSpec(argv=("x",), owner="bob", output_mb=2),
}


def pilot_with(*attempts: tuple[int, int]) -> Pilot:
    record = PilotRecord(
        id=PilotId(7),
        key="a-long-enough-key",
        credential="",
        host="h",
        slots=4,
        site="s",
        job=JobId("j"),
        tags={},
        version="1",
        enrolled=0.0,
    )
    pilot = Pilot(record, 0.0, 1e10)
    for sequence, bag in attempts:
        id_ = AttemptId(1, sequence)
        pilot.attempts[id_] = Attempt(id_, BagId(bag), TaskNumber(0), record.id, 0.0)
    return pilot


def claim(known: Allowance, pilot: Pilot, digest: str, size: int, attempt: str) -> int:
    """The bag, or the status of a refusal."""
    query = f"size={size}&attempt={attempt}"
    request = Request(
        {"type": "http", "query_string": query.encode(), "headers": [], "path_params": {}}
    )
    specs = {one.bag: SPECS[one.bag] for one in pilot.attempts.values()}
    try:
        return known.claim(pilot, specs, request, digest)
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
    del pilot.attempts[AttemptId(1, 1)]
    assert claim(known, pilot, "a", 1, "1.1") == 403
    assert list(known._sent[PilotId(7)]) == [AttemptId(1, 2)], "it is forgotten"


def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 3)
    known, pilot = Allowance(), pilot_with((1, 1))
    found = [claim(known, pilot, digest, 1, "1.1") for digest in "abcda"]
    assert found == [1, 1, 1, 413, 1]
