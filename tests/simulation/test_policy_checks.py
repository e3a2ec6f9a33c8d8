"""Tasks that wait while a host is idle: which of them may wait by the rules, and which must not."""

from collections.abc import Sequence

import pytest

from covey.core.record.model import BagSpec, Settings
from covey.core.values.space import Axis, Range
from covey.pilot.protocol.messages import FAILED
from tests.memory_store.memory_record import MemoryRecord
from tests.simulator.checkers.ledger import (
    BagNotes,
    HostLife,
    Ledger,
    Ruling,
    Run,
    Sending,
    Violation,
)
from tests.simulator.checkers.policy_checks import LAST_TRY_SECONDS, TRY_SECONDS, Police
from tests.simulator.checkers.site_checks import Supervisor
from tests.simulator.plan.places import Place

BAG, TASK = 1, 0
FAILED_AT = 1000.0


def life(name: str, number: int, ledger: Ledger, now: float, *, idle: bool) -> HostLife:
    host = HostLife(name=name, place=Place(name), slots=8, contacts=[now])
    host.idle_since = FAILED_AT if idle else float("inf")
    ledger.lives[number] = host
    return host


def waits(after: float, *, retries: int = 1, failing: Sequence[str] = ("idle",)) -> bool:
    """Whether a task that failed once waits wrongly `after` so many seconds: one host is idle,
    another one is busy. `failing`: hosts on which the bag's latest tasks have failed."""
    now, ledger = FAILED_AT + after, Ledger()
    ledger.restarts.append(0.0)
    space = Axis("i", Range("0", "1", 1))
    spec = BagSpec(argv=("work",), space=space, owner="ann", retries=retries)
    notes = BagNotes(spec, 1, rulings=[Ruling(spec.policy)])
    ledger.bags[BAG] = notes
    notes.failures = dict.fromkeys(failing, 2)
    life("idle", 1, ledger, now, idle=True)
    life("busy", 2, ledger, now, idle=False)
    gone = HostLife(name="gone", place=Place("gone"), died=FAILED_AT)
    sending = Sending((1, 1), (BAG, TASK), 3, 1, FAILED_AT - 1.0, gone, FAILED_AT - 1.0)
    ledger.runs[(BAG, TASK)] = [Run(sending, gone, FAILED_AT - 1.0, FAILED_AT, FAILED)]
    police = Police(ledger, Settings(), MemoryRecord(), Supervisor(ledger, {}))
    try:
        police.calm(now, 0.0)
    except Violation:
        return True
    return False


LONG = 0.5 * LAST_TRY_SECONDS


def test_a_last_try_may_wait_for_a_host_that_does_better() -> None:
    assert not waits(LONG)


@pytest.mark.parametrize(
    ("after", "retries", "failing"),
    [
        (LONG, 1, ()),  # the bag's tasks do well on the idle host, too
        (LONG, 1, ("idle", "busy")),  # no host does better
        (LONG, 2, ("idle",)),  # the task may fail once more
        (LAST_TRY_SECONDS + 2 * TRY_SECONDS, 1, ("idle",)),  # it has waited for long enough
    ],
)
def test_no_other_task_may(after: float, retries: int, failing: tuple[str, ...]) -> None:
    assert waits(after, retries=retries, failing=failing)
