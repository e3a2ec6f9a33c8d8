"""What waits for a commit is done in order, when it is durable."""

from covey.core.record.actions import (
    LeaseChunk,
    RecordEnds,
    SaveBag,
    Submitted,
)
from covey.core.record.events import (
    BagSubmitted,
    Committed,
)
from covey.core.record.model import (
    BagId,
)
from covey.pilot.protocol.messages import Answer
from tests.unit.core.table import Hand, Table, end, only, replies, spec, writes


def test_a_submission_is_acknowledged_only_when_durable() -> None:
    table = Table(durable=False)
    actions = table.handle(BagSubmitted(table.request(), spec()))
    assert writes(actions, SaveBag)
    assert not replies(actions, Submitted)
    assert only(table.commit(), Submitted).total == 4


def test_no_number_goes_out_before_it_is_reserved() -> None:
    table = Table(durable=False)
    table.handle(BagSubmitted(table.request(), spec(100)))
    table.commit()
    pilot = table_pilot(table)
    answer = only(pilot.sync(want=50), Answer)
    assert len(answer.tasks) == 8, "only the first chunk is durable"
    lease = LeaseChunk(BagId(1), 8, 24)
    assert [write for write in writes(table.actions, LeaseChunk) if write.first == 8] == [lease]
    assert not replies(pilot.sync(want=50), Answer), "nothing more until the commit"
    assert len(only(table.commit(), Answer).tasks) == 16


def table_pilot(table: Table) -> Hand:
    """Enrol on a table that does not commit by itself."""
    table.durable = True
    pilot = table.enrol(slots=50)
    table.durable = False
    return pilot


def test_ends_are_acknowledged_only_when_durable() -> None:
    table = Table()
    table.submit(spec())
    pilot = table.enrol()
    answer = pilot.ask()
    table.durable = False
    actions = pilot.sync(1, [end(answer)])
    assert writes(actions, RecordEnds)
    assert not replies(actions, Answer)
    assert only(table.commit(), Answer).number == 2


def test_a_commit_in_parts_answers_in_order() -> None:
    table = Table(durable=False)
    table.handle(BagSubmitted(table.request(), spec()))
    table.handle(BagSubmitted(table.request(), spec()))
    first = table.handle(Committed(2))
    assert only(first, Submitted).bag == 1
    assert only(table.commit(), Submitted).bag == 2
