"""A record of the sixth version becomes a current one, and loses nothing."""

from pathlib import Path

import pytest

from covey.core.errors import StoreError
from covey.core.record.actions import SaveInputVersion
from covey.core.record.input_files import InputSummary
from covey.core.record.model import (
    AttemptId,
    BagId,
    Blob,
    InputChanges,
    InputVersion,
    Placed,
    TaskInput,
)
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.wire import ResultQuery
from tests.integration.old_records import record_of_version
from tests.unit.store.builders import BAG

BLOB = Blob("a" * 64, 3)
NEW = Placed(path="fit.py", blob=Blob("b" * 64, 4))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return record_of_version(6, tmp_path)


def test_a_server_goes_on_with_it(path: Path) -> None:
    with pytest.raises(StoreError, match="older covey"):
        SqliteReader(path).bags()
    record = SqliteRecord(path)
    (running,) = record.open().bags
    assert (running.bag.id, running.open_done, running.bag.input_versions) == (2, (0,), ())
    assert running.bag.spec.task_inputs == (TaskInput(source="{x}.csv", path="in.csv"),)
    over = record.load(BAG)
    assert over is not None
    assert (over.failed, len(over.reopenings)) == ((3,), 1)


def test_nobody_knows_where_its_inputs_came_from(path: Path) -> None:
    SqliteRecord(path).open()
    reader = SqliteReader(path)
    view, inputs = reader.bag(BAG), reader.inputs(BAG)
    assert view is not None
    assert inputs is not None
    assert view.inputs == InputSummary()
    assert (inputs.version, inputs.sources) == (1, [])
    assert inputs.inputs == [Placed(path="fit.py", blob=BLOB)]
    assert {row.inputs_version for row in reader.results(BAG, ResultQuery())} == {1}


def test_what_is_new_can_be_kept(path: Path) -> None:
    record = SqliteRecord(path)
    record.open()
    version = InputVersion(
        first=AttemptId(1, 9),
        at=5.0,
        files=1,
        names=("fit.py",),
        changes=InputChanges(inputs=(NEW,)),
    )
    record.apply([SaveInputVersion(BAG, version)])
    reader = SqliteReader(path)
    assert [row.inputs_version for row in reader.attempts(BAG, 3)] == [1, 2]
    inputs = reader.inputs(BAG)
    assert inputs is not None
    assert inputs.inputs == [NEW]
    loaded = record.load(BagId(1))
    assert loaded is not None
    assert loaded.bag.input_versions == (version,)
