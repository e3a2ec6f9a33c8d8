"""What every record must do. This suite is the specification of the Record and Reader ports."""

from typing import Any

import pytest

from covey.core.record.actions import (
    Change,
    CloseChunk,
    EndJob,
    LeaseChunk,
    RecordEnds,
    ReopenFailed,
    SaveBag,
    SaveBagStatus,
    SaveJob,
    SavePilot,
    SavePilotStatus,
)
from covey.core.record.model import (
    BagId,
    BagSnapshot,
    BagStatus,
    ChunkRecord,
    JobId,
    JobOutcome,
    JobRecord,
    Need,
    PilotId,
    PilotStatus,
    Snapshot,
    Verdict,
)
from covey.wire import ResultQuery, ResultRow
from tests.contract.keeping import Kept
from tests.unit.store.builders import (
    BAG,
    PILOT,
    a_bag_of,
    bag,
    cancelled,
    end,
    ends,
    finished,
    pilot,
    successes,
)

COUNTS, REPLACES, LATE, WASTE = Verdict.COUNTS, Verdict.REPLACES, Verdict.LATE, Verdict.WASTE

UNFINISHED = (BagStatus.RUNNING, BagStatus.PAUSED)


def snapshot(kept: Kept, id_: int = 1) -> BagSnapshot:
    """Of a bag; the same whether it is loaded or found when the record is opened again."""
    loaded = kept.record.load(BagId(id_))
    assert loaded is not None
    found = [one for one in kept.reopen().bags if one.bag.id == id_]
    assert found == ([loaded] if loaded.bag.status in UNFINISHED else [])
    return loaded


def totals(kept: Kept, id_: int = 1) -> tuple[int, int]:
    view = kept.reader.bag(id_)
    assert view is not None
    return view.done, view.failed


def results(kept: Kept, **how: Any) -> list[ResultRow]:
    return kept.reader.results(BAG, ResultQuery(**how))


def counted(kept: Kept) -> dict[int, str]:
    return {row.task: row.outcome for row in results(kept)}


def told(kept: Kept, task: int) -> list[tuple[str, str, bool]]:
    return [(r.attempt, r.outcome, r.counted) for r in kept.reader.attempts(BAG, task)]


def test_an_empty_record(kept: Kept) -> None:
    snapshot = kept.reopen()
    assert snapshot == Snapshot(
        epoch=2, bags=(), pilots=(), jobs=(), next_bag=1, next_pilot=1, keys={}
    )
    assert kept.record.load(BAG) is None
    assert kept.reader.bags() == []
    assert kept.reader.bag(1) is None
    assert results(kept) == []
    assert kept.reader.attempts(1, 0) == []
    assert kept.reader.output(1, 0) is None
    assert kept.reader.pilots() == []


def test_every_opening_has_its_own_epoch(kept: Kept) -> None:
    assert [kept.reopen().epoch for _ in range(3)] == [2, 3, 4]
    assert kept.record.open().epoch == 5


def test_a_bag_comes_back_as_it_was(kept: Kept) -> None:
    env = {"A": "ä\n", "B": ""}
    made = bag(3, 5, name="n", owner="o", key="k", env=env, chdir="/tmp", retries=2)
    kept.record.apply([SaveBag(made), SaveBag(bag(4, 1, key="l")), SaveBag(bag(5, 1))])
    kept.record.apply([SaveBagStatus(BagId(4), BagStatus.CANCELLED, 5.0, 0, 0)])
    opened = kept.reopen()
    assert [one.bag.id for one in opened.bags] == [3, 5]
    assert opened.bags[0] == BagSnapshot(bag=made, chunks=(), open_done=(), failed=(), tries={})
    assert opened.next_bag == 6
    assert opened.keys == {"k": 3, "l": 4}, "also of bags that are over"


def test_chunks(kept: Kept) -> None:
    kept.record.apply([SaveBag(bag(1, 10)), LeaseChunk(BAG, 0, 4), LeaseChunk(BAG, 4, 8)])
    kept.record.apply([successes([0, 1, 2, 3, 5]), CloseChunk(BAG, 0)])
    found = snapshot(kept)
    assert found.chunks == (
        ChunkRecord(first=0, stop=4, closed=True),
        ChunkRecord(first=4, stop=8, closed=False),
    )
    assert found.open_done == (5,), "closed chunks are not looked at"
    assert totals(kept) == (5, 0)


def test_a_chunk_closes_only_with_all_its_results(kept: Kept) -> None:
    kept.record.apply(a_bag_of(2))
    with pytest.raises(AssertionError):
        kept.record.apply([successes([0]), CloseChunk(BAG, 0)])


def test_results_may_follow_their_chunks_closing_within_one_commit(kept: Kept) -> None:
    kept.record.apply(a_bag_of(2))
    kept.record.apply([CloseChunk(BAG, 0), finished(2), successes([0, 1])])
    assert totals(kept) == (2, 0)


def test_results_are_listed_with_all_that_is_known(kept: Kept) -> None:
    kept.record.apply(a_bag_of(3))
    printed = {"stdout": "a\nlast\n\n", "stderr": "e", "stdout_bytes": 8, "stderr_bytes": 1}
    failure = end(2, "failed", exit_code=9, signal=15, message="no", **printed)  # type: ignore[arg-type]
    kept.record.apply([ends(failure)])
    (row,) = results(kept)
    assert (row.row, row.task, row.values, row.outcome, row.counted) == (
        1,
        2,
        [102],
        "failed",
        True,
    )
    assert (row.exit_code, row.signal, row.attempt, row.pilot) == (9, 15, "1.3", 7)
    assert (row.host, row.message, row.output) == ("node1", "no", "last")
    assert (row.sent, row.fetched, row.started) == (1000.1, 1000.2, 1000.3)
    assert (row.ended, row.delivered, row.wall_seconds) == (1001.7, 1001.8, 1001.7 - 1000.3)
    assert (row.cpu_seconds, row.memory_kb) == (1.25, 3412)
    assert (row.stdout_bytes, row.stderr_bytes) == (8, 1)
    assert kept.reader.attempts(BAG, 2) == [row]
    kept.reopen()
    assert results(kept) == [row]


def test_a_result_counts_once(kept: Kept) -> None:
    kept.record.apply(a_bag_of(3))
    kept.record.apply([successes([0])])
    with pytest.raises(AssertionError):
        kept.record.apply([ends(end(0, attempt=(1, 99)))])


def test_a_success_does_not_replace_a_success(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(3), successes([0])])
    with pytest.raises(AssertionError):
        kept.record.apply([ends(end(0, "ok", REPLACES, attempt=(1, 99)))])


def test_waste_is_only_recorded(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(3), successes([0])])
    kept.record.apply([ends(end(0, "ok", WASTE, attempt=(1, 8)), end(1, "cancelled", WASTE))])
    assert told(kept, 0) == [("1.1", "ok", True), ("1.8", "ok", False)]
    assert told(kept, 1) == [("1.2", "cancelled", False)]
    assert counted(kept) == {0: "ok"}
    assert totals(kept) == (1, 0)


def test_a_success_replaces_a_failure(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(3), ends(end(0, "failed"))])
    assert (snapshot(kept).failed, totals(kept)) == ((0,), (0, 1))
    kept.record.apply([ends(end(0, "ok", REPLACES, attempt=(1, 9)))])
    assert told(kept, 0) == [("1.1", "failed", False), ("1.9", "ok", True)]
    found = snapshot(kept)
    assert (found.failed, found.open_done, found.tries) == ((), (0,), {})
    assert totals(kept) == (1, 0)


def test_failures_are_listed_wherever_they_are(kept: Kept) -> None:
    kept.record.apply(a_bag_of(8, chunks=2))
    kept.record.apply([ends(end(1, "failed"), end(5, "lost")), successes([0, 2, 3, 4])])
    kept.record.apply([CloseChunk(BAG, 0)])
    found = snapshot(kept)
    assert found.failed == (1, 5)
    assert found.open_done == (4,)
    assert totals(kept) == (4, 2)
    assert [row.task for row in results(kept, failed_only=True)] == [1, 5]


@pytest.mark.parametrize("outcome", ["failed", "output", "setup"])
def test_own_failures_are_tries(kept: Kept, outcome: str) -> None:
    kept.record.apply(a_bag_of(4))
    kept.record.apply([ends(end(0, outcome, WASTE), end(0, outcome, WASTE, attempt=(1, 9)))])
    kept.record.apply([ends(end(1, "host", WASTE), end(2, "lost", WASTE), end(3, outcome, WASTE))])
    kept.record.apply([ends(end(3, attempt=(1, 8)))])
    assert snapshot(kept).tries == {0: 2}, "of tasks without a result, and not of losses"


def test_reopening_gives_failed_tasks_a_fresh_start(kept: Kept) -> None:
    kept.record.apply(a_bag_of(6, chunks=3))
    kept.record.apply([successes([0, 1, 2, 4]), ends(end(3, "failed"), end(5, "failed", WASTE))])
    kept.record.apply([CloseChunk(BAG, 0), CloseChunk(BAG, 2)])
    kept.record.apply([ReopenFailed(BAG, 1.0)])
    found = snapshot(kept)
    assert [chunk.closed for chunk in found.chunks] == [True, False, False]
    assert (found.failed, found.open_done) == ((), (2, 4))
    assert found.tries == {5: 1}, "of a task that had not been given up"
    assert told(kept, 3) == [("1.4", "failed", False)]
    kept.record.apply([ends(end(3, "failed", WASTE, attempt=(1, 9)))])
    assert snapshot(kept).tries == {3: 1, 5: 1}


def test_reopening_a_bag_that_was_over(kept: Kept) -> None:
    kept.record.apply(a_bag_of(2))
    kept.record.apply([successes([0]), ends(end(1, "failed"))])
    kept.record.apply([CloseChunk(BAG, 0), finished(1, 1)])
    loaded = snapshot(kept)
    assert (loaded.bag.status, loaded.failed) == (BagStatus.FINISHED, (1,))
    kept.record.apply([ReopenFailed(BAG, 3000.0)])
    assert snapshot(kept).bag.status is BagStatus.RUNNING
    view = kept.reader.bag(1)
    assert view is not None
    assert (view.status, view.ended, view.done, view.failed) == ("running", 0.0, 1, 0)
    kept.record.apply([ends(end(1, attempt=(1, 9))), CloseChunk(BAG, 0), finished(2)])
    assert totals(kept) == (2, 0)


def test_the_status_of_a_bag(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(2), successes([0, 1]), CloseChunk(BAG, 0), finished(2)])
    view = kept.reader.bag(1)
    assert view is not None
    assert (view.status, view.ended, view.done, view.failed) == ("finished", 2000.5, 2, 0)
    assert kept.reopen().bags == ()


def test_a_late_success_counts_if_there_is_none(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(4), successes([0]), cancelled(1)])
    kept.record.apply([ends(end(1, "ok", LATE), end(0, "ok", LATE, attempt=(1, 9)))])
    assert told(kept, 0) == [("1.1", "ok", True), ("1.9", "ok", False)]
    assert told(kept, 1) == [("1.2", "ok", True)]
    assert totals(kept) == (2, 0)
    assert [row.task for row in results(kept, by_row=True)] == [0, 1]


def test_a_late_success_replaces_a_failure(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(2), successes([0]), ends(end(1, "failed"))])
    kept.record.apply([CloseChunk(BAG, 0), finished(1, 1)])
    kept.record.apply([ends(end(1, "ok", LATE, attempt=(1, 9)))])
    assert told(kept, 1) == [("1.2", "failed", False), ("1.9", "ok", True)]
    assert totals(kept) == (2, 0)


def test_a_late_success_of_nothing_we_sent_is_only_recorded(kept: Kept) -> None:
    kept.record.apply([SaveBag(bag(1, 10)), LeaseChunk(BAG, 0, 4), cancelled(0)])
    kept.record.apply([ends(end(5, "ok", LATE), end(77, "ok", LATE), end(0, "ok", LATE, bag=9))])
    assert counted(kept) == {}
    assert totals(kept) == (0, 0)
    assert kept.reader.attempts(BAG, 77)[0].values == []
    assert kept.reader.attempts(9, 0) == []
    assert kept.reader.output(9, 0) is None


def test_results_that_cross_with_a_cancellation_are_in_its_totals(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(4), successes([0]), ends(end(2, "failed")), cancelled(1, 1)])
    kept.record.apply([successes([1]), ends(end(2, "ok", REPLACES, attempt=(1, 9)))])
    assert totals(kept) == (3, 0)


@pytest.mark.parametrize("outcome", ["ok", "failed", "cancelled"])
def test_the_real_end_of_a_lost_attempt_takes_its_row(kept: Kept, outcome: str) -> None:
    kept.record.apply([*a_bag_of(2), ends(end(0, "lost", WASTE))])
    kept.record.apply([ends(end(0, outcome, COUNTS if outcome == "ok" else WASTE))])
    assert told(kept, 0) == [("1.1", outcome, outcome == "ok")]


def test_the_real_end_of_an_attempt_whose_loss_counted(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(4), ends(*(end(task, "lost") for task in range(4)))])
    kept.record.apply([CloseChunk(BAG, 0)])
    kept.record.apply([ends(end(0, "ok", REPLACES), end(1, "failed", WASTE))])
    kept.record.apply([finished(1, 3), ends(end(2, "ok", LATE))])
    assert told(kept, 0) == [("1.1", "ok", True)]
    assert told(kept, 1) == [("1.2", "failed", True)], "its task stays given up"
    assert told(kept, 2) == [("1.3", "ok", True)]
    assert totals(kept) == (2, 2)


def test_an_attempt_lost_twice_has_one_row(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(2), ends(end(0, "lost", WASTE)), ends(end(0, "lost", WASTE))])
    assert told(kept, 0) == [("1.1", "lost", False)]


def test_nobodys_attempts_are_all_different(kept: Kept) -> None:
    unknown = [end(task, "lost", attempt=(0, 0)) for task in (0, 1)]
    kept.record.apply([*a_bag_of(2), ends(*unknown), ReopenFailed(BAG, 1.0), ends(unknown[0])])
    assert told(kept, 0) == [("0.0", "lost", False), ("0.0", "lost", True)]
    assert told(kept, 1) == [("0.0", "lost", False)]


def test_losses_of_earlier_servers_are_remembered(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(3), ends(end(0, "lost", WASTE), end(1, "lost", WASTE))])
    kept.reopen()
    kept.record.apply([successes([0, 2])])
    assert told(kept, 0) == [("1.1", "ok", True)]
    assert told(kept, 1) == [("1.2", "lost", False)]


def test_output_is_of_the_attempt_that_counts(kept: Kept) -> None:
    kept.record.apply(a_bag_of(3))
    long = "line\n" * 1000 + "ünïcode"
    kept.record.apply([ends(end(0, stdout=long, stderr="x" * 500), end(1, stdout="s"), end(2))])
    kept.record.apply([ends(end(0, "failed", WASTE, attempt=(1, 9), stdout="other"))])
    output = kept.reader.output(BAG, 0)
    assert output is not None
    assert (output.attempt, output.outcome) == ("1.1", "ok")
    assert (output.stdout, output.stderr) == (long, "x" * 500)
    assert [row.output for row in results(kept)] == ["ünïcode", "s", ""]
    nothing = kept.reader.output(BAG, 2)
    assert nothing is not None
    assert (nothing.stdout, nothing.stderr) == ("", "")


def test_output_is_of_the_latest_attempt_if_none_counts(kept: Kept) -> None:
    kept.record.apply(a_bag_of(3))
    tries = [end(0, "failed", WASTE, attempt=(1, n), stdout=str(n)) for n in (4, 5)]
    kept.record.apply([ends(*tries)])
    output = kept.reader.output(BAG, 0)
    assert output is not None
    assert output.stdout == "5"
    assert kept.reader.output(BAG, 1) is None


def test_results_come_in_pages(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(10), *a_bag_of(10, id_=2)[1:]])
    for task in (5, 3, 8, 1):
        kept.record.apply(
            [successes([task], bag=2), ends(end(task, "failed" if task > 4 else "ok"))]
        )

    def tasks(after: int = -1, limit: int = 1000, **how: Any) -> list[int]:
        query = ResultQuery(after=after, limit=limit, **how)
        return [row.task for row in kept.reader.results(BAG, query)]

    assert tasks() == [1, 3, 5, 8]
    assert tasks(limit=2) == [1, 3]
    assert tasks(3, 2) == [5, 8]
    assert tasks(8) == []
    assert tasks(failed_only=True) == [5, 8]
    assert tasks(5, failed_only=True) == [8]
    rows = results(kept, by_row=True)
    assert [row.task for row in rows] == [5, 3, 8, 1]
    assert tasks(rows[1].row, by_row=True) == [8, 1]
    assert tasks(rows[1].row, 1, by_row=True) == [8]
    assert tasks(rows[0].row, by_row=True, failed_only=True) == [8]
    kept.record.apply([finished(2, 2)])
    kept.record.apply([successes([0], bag=2)])
    assert tasks(by_row=True) == [5, 3, 8, 1]


def test_bags_are_listed_newest_first(kept: Kept) -> None:
    kept.record.apply(
        [SaveBag(bag(id_, name=f"b{id_}", need=Need(limit_seconds=1.5))) for id_ in (1, 2, 3)]
    )
    views = kept.reader.bags()
    assert [view.name for view in views] == ["b3", "b2", "b1"]
    assert (views[0].argv, views[0].names, views[0].total) == (["/bin/true"], ["x"], 10)
    assert (views[0].created, views[0].classes[0].limit_seconds) == (1000.5, 1.5)


def test_pilots(kept: Kept) -> None:
    statuses = [PilotStatus.ACTIVE, PilotStatus.SUSPECTED, PilotStatus.LOST, PilotStatus.LEFT]
    changes: list[Change] = [SavePilot(pilot(id_)) for id_ in (1, 2, 3, 4)]
    for id_, status in enumerate(statuses, 1):
        changes.append(SavePilotStatus(PilotId(id_), status, 950.0 + id_, "why"))
    kept.record.apply(changes)
    opened = kept.reopen()
    assert [one.id for one in opened.pilots] == [1, 2, 3], "those that left are gone"
    assert opened.pilots[0] == pilot(1)
    assert opened.pilots[2] == pilot(3, status=PilotStatus.LOST)
    assert opened.next_pilot == 5
    views = kept.reader.pilots()
    assert [(v.id, v.status, v.heard) for v in views[:2]] == [(4, "left", 954), (3, "lost", 953)]
    assert [view.id for view in kept.reader.pilots(limit=1)] == [4]


def test_the_last_recorded_sync_of_a_pilot(kept: Kept) -> None:
    def recorded() -> int:
        (one,) = kept.reopen().pilots
        return one.recorded

    kept.record.apply([*a_bag_of(9), successes([0], number=5), RecordEnds(PILOT, 7, ())])
    assert recorded() == 7
    kept.record.apply([successes([1], number=6), successes([2])])
    assert recorded() == 7
    kept.record.apply([SavePilot(pilot(host="node2"))])
    assert recorded() == 7, "enrolling again forgets nothing"
    assert kept.reader.pilots()[0].host == "node2"


def test_jobs(kept: Kept) -> None:
    jobs = [
        JobRecord(id=JobId(name), site="here", slots=2, submitted=at)
        for name, at in (("b", 1.5), ("a", 2.5), ("c", 3.5))
    ]
    kept.record.apply([SaveJob(job) for job in jobs])
    kept.record.apply([EndJob(JobId("a"), 9.0, "done", JobOutcome.OK)])
    assert kept.reopen().jobs == (jobs[0], jobs[2])
