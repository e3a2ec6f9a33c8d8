"""`covey explain`: the short answer first."""

import json
import time
from typing import Any

from covey.core.explain.answers import (
    BagAnswer,
    Near,
    Reason,
    Replication,
    Rival,
    RunningAttempt,
    TaskAnswer,
)
from covey.core.record.model import Need
from covey.wire import Explanation, WasteView
from tests.unit.cli.builders import row
from tests.unit.cli.source import FakeSource, Look

NONE = Replication(active=False, text="no running task gets another attempt: it is open")


def answer(**facts: Any) -> BagAnswer:
    known: dict[str, Any] = {
        "summary": "4 tasks wait", "total": 10, "done": 4, "failed": 2, "running": 0, "waiting": 4,
        "reasons": [], "replication": NONE,
    }  # fmt: skip
    return BagAnswer(**{**known, **facts})


def explanation(**facts: Any) -> Explanation:
    known: dict[str, Any] = {
        "bag": 3, "name": "fits", "owner": "me", "names": ["x"], "status": "running",
        "summary": "4 tasks wait", "waste": WasteView(),
    }  # fmt: skip
    return Explanation(**{**known, **facts})


def test_a_bag(look: Look, source: FakeSource) -> None:
    until = time.time() + 90.5
    source.explanation = explanation(
        answer=answer(
            reasons=[
                Reason(kind="banned", text="1 host is banned", hosts=["n1"], until=until),
                Reason(kind="order", text="other bags come first", hosts=["n2"]),
            ],
            hosts=3,
            able=1,
            near=[Near(host="n3", missing=["Host.a > 2"], values={"Host.a": "1"})],
            first=[Rival(bag=2, name="big", owner="me", rank=2.5, waiting=7)],
            first_on="n2",
            replicas=2,
        ),
        waste=WasteView(cancelled=2, cancelled_seconds=90.0, lost=1, lost_seconds=3.0),
    )
    assert look("explain").stdout.splitlines() == [
        "bag 3 fits: 4 tasks wait",
        "",
        "tasks     10: 4 done, 2 failed, 0 running, 4 waiting",
        "why       1 host is banned (n1); that ends in 1 m 30 s",
        "          other bags come first",
        "hosts     1 of 3 connected hosts could run the waiting tasks",
        "close     n3 lacks Host.a > 2 (Host.a is 1)",
        "first     bag 2 big (rank 2.5, 7 tasks to send), on n2",
        "tail      it is not in its tail",
        "replicas  no running task gets another attempt: it is open; 2 sent so far",
        "waste     2 attempts stopped because another attempt finished first (1 m 30 s); "
        "1 attempt lost with their host, or never started there (3.0 s)",
    ]
    assert source.told == [("explain", 3, -1)]


def test_a_task(look: Look, source: FakeSource) -> None:
    running = RunningAttempt(
        attempt="1.7", pilot=1, host="n1", site="lab", sent=time.time() - 60.2, ahead=True,
        rank=1.0, replica=False, suspected=True, deadline=2e9, text="it asked",
        behind=[Rival(bag=5, name="", owner="me", rank=0.0, waiting=1)],
    )  # fmt: skip
    replication = Replication(active=True, text="not true for it", refused=1, values={"Tail": "0"})
    source.explanation = explanation(
        summary="it waits for a slot of n1",
        task=TaskAnswer(
            task=7,
            values={"x": "7"},
            state="running",
            summary="",
            tries=1,
            running=[running],
            replication=replication,
        ),
        attempts=[row(7, outcome="failed", exit_code=1, counted=False)],
    )
    lines = look("explain", "3", "7").stdout.splitlines()
    assert lines[0] == "bag 3 fits, task 7 (x=7): it waits for a slot of n1"
    assert lines[2:4] == [
        "ended      attempt 1.7 on node1: exit 1 after 1.0 s, does not count",
        "before     it failed 1 and was lost 0 times",
    ]
    assert lines[4].startswith(
        "out        attempt 1.7 on n1 (lab), where it waits for a slot; sent 1 m 00 s ago: it asked"
    )
    assert lines[4].endswith("its pilot is silent")
    assert lines[5:] == [
        "behind it  bag 5 (1 task to send), on n1 now",
        "replicas   not true for it",
        "           where it is not true: Tail is 0",
    ]
    assert source.told == [("explain", 3, 7)]


def test_for_programs(look: Look, source: FakeSource) -> None:
    source.explanation = explanation(answer=answer())
    assert json.loads(look("explain", "--json").stdout)["answer"]["waiting"] == 4


def test_what_is_over_is_short(look: Look, source: FakeSource) -> None:
    source.explanation = explanation(status="finished", summary="it is finished")
    assert look("explain").stdout == "bag 3 fits: it is finished\n\nwaste  none so far\n"


def test_the_order_and_what_a_task_needs(look: Look, source: FakeSource) -> None:
    order = "tasks with a longer declared time go first"
    need = Need(cores=2, memory_mb=2048, gpus=1, limit_seconds=7200.0)
    source.explanation = explanation(
        answer=answer(order=order), task=TaskAnswer(task=7, state="waiting", summary="", need=need)
    )
    told = look("explain", "3", "7").stdout.splitlines()
    assert "needs  2 cores, 2.0 GB memory, 1 GPU, at most 2 h 00 m" in told
    assert f"order  {order}" in told
    source.explanation = explanation(answer=answer(order=order, waiting=1))
    assert order not in look("explain").stdout
