"""What every record must do with ends of bags that are over, told by who may not know of them."""

import pytest

from covey.core.record.actions import CloseChunk, LeaseChunk, SaveBag, SavePilot
from covey.core.record.model import Verdict
from tests.contract.keeping import Kept
from tests.unit.store.builders import BAG, bag, end, ends, finished, pilot


@pytest.mark.parametrize("outcome", ["ok", "failed"])
@pytest.mark.parametrize(("only_of", "rows"), [("", 2), ("ann", 2), ("eve", 1)])
def test_an_end_is_kept_only_if_the_bag_is_its_owners(
    kept: Kept, outcome: str, only_of: str, rows: int
) -> None:
    kept.record.apply([SavePilot(pilot()), SaveBag(bag(1, 1, owner="ann")), LeaseChunk(BAG, 0, 1)])
    kept.record.apply([ends(end(0, "failed")), CloseChunk(BAG, 0), finished(0, 1)])
    verdict = Verdict.LATE if outcome == "ok" else Verdict.WASTE
    kept.record.apply([ends(end(0, outcome, verdict, attempt=(1, 9), only_of=only_of))])
    found = kept.reader.attempts(BAG, 0)
    assert len(found) == rows
    assert [one.outcome for one in found if one.counted] == [
        "ok" if outcome == "ok" and rows == 2 else "failed"
    ]


def test_an_end_of_no_bag_at_all_is_dropped(kept: Kept) -> None:
    kept.record.apply([SavePilot(pilot()), SaveBag(bag(1))])
    kept.record.apply([ends(end(0, "ok", Verdict.LATE, bag=77, only_of="eve"))])
    assert not kept.reader.attempts(77, 0)
