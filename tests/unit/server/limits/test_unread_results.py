"""Nobody is told that there is nothing to read when there is."""

from random import Random
from typing import Any

import pytest

from covey.core.record.actions import Action, RecordEnds, Write
from covey.core.record.events import Committed
from covey.core.record.model import BagId, PilotId
from covey.pilot.protocol.messages import Answer, End
from covey.questions.bag_questions import Progress, ProgressOfBag
from covey.server.limits.unread_results import UnreadResults
from covey.wire import ResultQuery, ResultRow
from tests.unit.core.table import Hand, Table, end, replies, spec

FOLLOW = ResultQuery(by_row=True, limit=100)
ZEROS = [
    *("exit_code", "signal", "pilot", "memory_kb", "stdout_bytes", "stderr_bytes"),
    *("sent", "fetched", "started", "ended", "delivered", "wall_seconds", "cpu_seconds"),
]


def a_row(number: int) -> ResultRow:
    names = ("attempt", "host", "message", "output")
    texts: dict[str, Any] = dict.fromkeys(names, "")
    zeros: dict[str, Any] = dict.fromkeys(ZEROS, 0)
    return ResultRow(
        row=number, task=number, values=[], outcome="ok", counted=True, **texts, **zeros
    )


def progress(table: Table, bag: BagId) -> Progress | None:
    return ProgressOfBag(bag).answer(table.scheduler.state, table.now)


def present(table: Table, bag: BagId) -> Progress:
    found = progress(table, bag)
    assert found is not None
    return found


class Record:
    """The rows of one bag, and with which write each of them came."""

    def __init__(self, table: Table, bag: int) -> None:
        self.table = table
        self.bag = BagId(bag)

    def rows(self, after: int) -> list[ResultRow]:
        state = self.table.scheduler.state
        found: list[int] = []
        for action in self.table.actions:
            if isinstance(action, Write) and isinstance(action.change, RecordEnds):
                found += [action.number for one in action.change.ends if one.bag == self.bag]
        readable = [row for row, write in enumerate(found) if write <= state.journal.durable]
        return [a_row(row) for row in readable if row > after]


def test_a_new_bag_has_nothing_and_an_old_one_is_read_first() -> None:
    table, unread = Table(), UnreadResults()
    bag = table.scheduler.state.bags[BagId(table.submit(spec(4)))]
    assert unread.certainly_none(progress(table, bag.id), FOLLOW)
    assert not unread.certainly_none(None, FOLLOW)
    pilot = table.enrol()
    answer = pilot.ask()
    pilot.ask(ends=[end(answer)])
    assert not unread.certainly_none(progress(table, bag.id), FOLLOW)
    unread.learn(present(table, bag.id), FOLLOW, [a_row(7)])
    after = ResultQuery(by_row=True, limit=100, after=7)
    assert unread.certainly_none(progress(table, bag.id), after)
    assert not unread.certainly_none(
        progress(table, bag.id), FOLLOW
    )  # who begins again reads again


@pytest.mark.parametrize(
    "other",
    [
        ResultQuery(limit=100, after=7),
        ResultQuery(by_row=True, sort="seconds", limit=100, after=7),
        ResultQuery(by_row=True, offset=3, limit=100, after=7),
    ],
)
def test_other_orders_are_read(other: ResultQuery) -> None:
    table, unread = Table(), UnreadResults()
    bag = table.scheduler.state.bags[BagId(table.submit(spec(4)))]
    assert not unread.certainly_none(progress(table, bag.id), other)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (ResultQuery(by_row=True, limit=1), [a_row(7)]),  # a full page: there may be more
        (ResultQuery(by_row=True), []),  # the record's own page
        (ResultQuery(by_row=True, limit=9, failed_only=True), []),
        (ResultQuery(by_row=True, limit=9, where=("i = 1",)), []),
    ],
)
def test_from_a_part_nothing_is_learnt(query: ResultQuery, rows: list[ResultRow]) -> None:
    table, unread = Table(), UnreadResults()
    bag = table.scheduler.state.bags[BagId(table.submit(spec(4)))]
    pilot = table.enrol()
    pilot.ask(ends=[end(pilot.ask())])
    unread.learn(present(table, bag.id), query, rows)
    assert not unread.certainly_none(
        progress(table, bag.id), ResultQuery(by_row=True, limit=9, after=7)
    )


@pytest.mark.parametrize("seed", range(30))
def test_in_any_order_of_ends_commits_and_questions(seed: int) -> None:
    random, table, unread = Random(seed), Table(durable=False), UnreadResults()
    bag = _submitted(table)
    record, pilot = Record(table, bag), _enrolled(table)
    held: list[End] = []
    last, spared, found = -1, 0, 0
    for _ in range(200):
        state = table.scheduler.state
        choice = random.choice(("ask", "end", "commit", "commit", "read", "read"))
        actions: list[Action] = []
        free = len(state.pilots[PilotId(pilot.pilot)].waiting) < 2  # as pilots do
        if choice == "ask" and free:
            actions = pilot.sync(want=2)
        elif choice == "end" and held and free:
            random.shuffle(held)
            actions = pilot.sync(ends=[held.pop()])
        elif choice == "commit" and state.journal.durable < state.journal.writes:
            actions = table.handle(
                Committed(random.randint(state.journal.durable + 1, state.journal.writes))
            )
        elif choice == "read":
            query = ResultQuery(by_row=True, limit=50, after=last)
            rows = record.rows(last)
            if unread.certainly_none(progress(table, record.bag), query):
                spared += 1
                assert not rows
            else:
                unread.learn(present(table, record.bag), query, rows)
                found += len(rows)
                last = rows[-1].row if rows else last
        for answer in replies(actions, Answer):
            held += [end(answer, index) for index in range(len(answer.tasks))]
    assert spared > 10
    assert found


def _submitted(table: Table) -> int:
    table.durable = True
    bag = table.submit(spec(60))
    table.durable = False
    return bag


def _enrolled(table: Table) -> Hand:
    table.durable = True
    pilot = table.enrol(slots=4)
    table.durable = False
    return pilot
