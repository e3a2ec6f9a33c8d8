"""Every test of a record runs against each kind of record."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.keeping import Kept, KeptInMemory, KeptInSqlite


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    made: Kept = KeptInMemory() if request.param == "memory" else KeptInSqlite(tmp_path / "r.db")
    yield made
    made.close()
