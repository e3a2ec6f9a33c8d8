"""Input files of single tasks."""

from covey.core.record.actions import (
    RecordEnds,
)
from covey.core.record.model import (
    Blob,
    Placed,
    TaskInput,
)
from covey.pilot.protocol.messages import Answer
from tests.unit.core.bags.test_bag_requests import DIGEST, enrol
from tests.unit.core.table import Table, only, spec, writes


def test_each_task_gets_its_own_input_and_a_missing_one_fails_only_its_task() -> None:
    table = Table()
    bag = spec(
        3,
        inputs=(Placed(path="fit.py", blob=Blob(DIGEST, 10)),),
        task_inputs=(TaskInput(source="cases/{i}.json", path="case-{task}.json"),),
        manifest={"cases/0.json": Blob(DIGEST, 5), "cases/2.json": Blob(DIGEST, 6)},
    )
    table.submit(bag)
    pilot = enrol(table, 4)
    actions = pilot.sync(4)
    answer = only(actions, Answer)
    assert [one.path for one in answer.bodies[0].inputs] == ["fit.py"]
    assert [(t.task, t.inputs[0].path, t.inputs[0].size) for t in answer.tasks] == [
        (0, "case-0.json", 5),
        (2, "case-2.json", 6),
    ]
    (record,) = writes(actions, RecordEnds)[0].ends
    assert (record.task, record.end.outcome) == (1, "failed")
    assert "cases/1.json" in record.end.message
