"""Brief rows of results, as every record gives them: how tasks ended, and nothing else."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from covey.wire import ResultQuery, ResultRow
from tests.contract.keeping import Kept
from tests.unit.store.builders import BAG, a_bag_of, end, ends

BRIEF = {"row", "task", "outcome", "exit_code", "signal", "host"}
BRIEF |= {"wall_seconds", "message", "result", "files"}


@pytest.mark.parametrize("how", [{"by_row": True}, {"sort": "-x"}, {"where": ("x > 0",)}])
def test_brief_rows_say_how_tasks_ended_and_nothing_else(kept: Kept, how: dict[str, Any]) -> None:
    kept.record.apply(a_bag_of(3))
    kept.record.apply([ends(end(2), end(0, result='{"y":1}', cpu_seconds=3.0))])
    kept.record.apply([ends(end(1, "failed", exit_code=3, message="no", cause="exit 3"))])
    full = kept.reader.results(BAG, ResultQuery(**how))
    rows = kept.reader.results(BAG, ResultQuery(**how, brief=True))
    assert len(rows) == len(full) > 1
    for row, whole in zip(rows, full, strict=True):
        sent = json.loads(msgspec.json.encode(row))
        assert set(sent) <= BRIEF
        expected = {name: value for name, value in asdict(whole).items() if name in BRIEF}
        assert asdict(msgspec.convert(sent, ResultRow)) == asdict(ResultRow(**expected))
