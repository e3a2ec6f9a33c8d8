"""Whatever legal changes are made, in whatever batches and over whatever restarts: the record in
memory and the one in SQLite tell the same story.
"""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from covey.core.actions import (
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
from covey.core.model import (
    BagId,
    BagStatus,
    EndRecord,
    JobId,
    JobRecord,
    PilotId,
    PilotStatus,
    Verdict,
)
from covey.store.memory import MemoryRecord
from covey.store.reading import SqliteReader
from covey.store.sqlite import SqliteRecord
from tests.unit.store.builders import bag, end, pilot

TOTAL = 12
BAGS = st.integers(1, 3)
TASKS = st.integers(0, TOTAL - 1)
TEXTS = st.sampled_from(["", "short\nlast\n", "long line\n" * 60, "\n \n", "é" * 500])
FAILURES = st.sampled_from(["failed", "timeout", "cancelled", "host", "lost"])


class Model:
    """As much as is needed to tell which changes core could make."""

    def __init__(self) -> None:
        self.status = BagStatus.RUNNING
        self.mark = 0
        self.open: dict[int, int] = {}
        self.closed: dict[int, int] = {}
        self.result: dict[int, str] = {}

    def verdict(self, task: int, outcome: str, give_up: bool) -> Verdict:
        known = self.result.get(task)
        if outcome == "ok" and known != "ok":
            self.result[task] = "ok"
            if self.status is not BagStatus.RUNNING:
                return Verdict.LATE
            return Verdict.REPLACES if known else Verdict.COUNTS
        if outcome != "ok" and known is None and give_up and self.status is BagStatus.RUNNING:
            self.result[task] = outcome
            return Verdict.COUNTS
        late = outcome == "ok" and self.status is not BagStatus.RUNNING
        return Verdict.LATE if late else Verdict.WASTE

    def totals(self) -> tuple[int, int]:
        done = sum(outcome == "ok" for outcome in self.result.values())
        return done, len(self.result) - done


class Twins(RuleBasedStateMachine):
    @initialize()
    def make(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.memory = MemoryRecord()
        self.sqlite = SqliteRecord(self.directory / "record.db")
        self.reader = SqliteReader(self.directory / "record.db")
        assert self.memory.open() == self.sqlite.open()
        self.bags: dict[int, Model] = {}
        self.jobs: list[JobId] = []
        self.pilots: list[PilotId] = []
        self.lost: list[EndRecord] = []
        self.sequence = 0
        self.pending: list[Change] = []

    @rule(retries=st.integers(0, 3))
    @precondition(lambda self: len(self.bags) < 3)
    def submit(self, retries: int) -> None:
        id_ = len(self.bags) + 1
        self.bags[id_] = Model()
        key = f"key {id_}" if id_ != 2 else ""
        self.pending.append(SaveBag(bag(id_, TOTAL, key=key, retries=retries)))

    @rule(id_=BAGS, size=st.integers(1, 5))
    def lease(self, id_: int, size: int) -> None:
        model = self.bags.get(id_)
        if model is None or model.mark == TOTAL or model.status is not BagStatus.RUNNING:
            return
        first, model.mark = model.mark, min(TOTAL, model.mark + size)
        model.open[first] = model.mark
        self.pending.append(LeaseChunk(BagId(id_), first, model.mark))

    @rule(
        id_=BAGS,
        tasks=st.lists(TASKS, min_size=1, max_size=8),
        failure=FAILURES,
        good=st.integers(0, 3),
        give_up=st.booleans(),
        texts=st.tuples(TEXTS, TEXTS),
        number=st.integers(0, 9),
    )
    def record(
        self,
        id_: int,
        tasks: list[int],
        failure: str,
        good: int,
        give_up: bool,
        texts: tuple[str, str],
        number: int,
    ) -> None:
        model = self.bags.get(id_)
        if model is None:
            return
        made = []
        for place, task in enumerate(tasks):
            if task >= model.mark:
                continue
            outcome = "ok" if place % 4 < good else failure
            verdict = model.verdict(task, outcome, give_up)
            self.sequence += 1
            attempt = (self.sequence % 3, self.sequence)
            stdout, stderr = texts
            one = end(
                task, outcome, verdict, attempt=attempt, bag=id_, stdout=stdout, stderr=stderr
            )
            made.append(one)
            if outcome == "lost" and attempt[0]:
                self.lost.append(one)
        number = number if PilotId(1) in self.pilots else 0
        self.pending.append(RecordEnds(PilotId(1), number, tuple(made)))

    @rule(outcome=st.sampled_from(["ok", "failed", "cancelled", "lost"]))
    @precondition(lambda self: self.lost)
    def real_end(self, outcome: str) -> None:
        before = self.lost.pop()
        verdict = self.bags[before.bag].verdict(before.task, outcome, False)
        one = end(before.task, outcome, verdict, attempt=before.attempt, bag=before.bag)
        self.pending.append(RecordEnds(PilotId(2), 0, (one,)))

    @rule(id_=BAGS)
    def close_chunks(self, id_: int) -> None:
        model = self.bags.get(id_, Model())
        for first, stop in list(model.open.items()):
            if all(task in model.result for task in range(first, stop)):
                model.closed[first] = model.open.pop(first)
                self.pending.append(CloseChunk(BagId(id_), first))

    @rule(id_=BAGS, how=st.sampled_from([BagStatus.FINISHED, BagStatus.CANCELLED]))
    def end_bag(self, id_: int, how: BagStatus) -> None:
        model = self.bags.get(id_)
        if model is not None and model.status is BagStatus.RUNNING:
            model.status = how
            self.pending.append(SaveBagStatus(BagId(id_), how, 50.5, *model.totals()))

    @rule(id_=BAGS)
    def reopen_failed(self, id_: int) -> None:
        model = self.bags.get(id_)
        if model is None:
            return
        failed = [task for task, outcome in model.result.items() if outcome != "ok"]
        for task in failed:
            del model.result[task]
        for first, stop in list(model.closed.items()):
            if any(first <= task < stop for task in failed):
                model.open[first] = model.closed.pop(first)
        model.status = BagStatus.RUNNING
        self.pending.append(ReopenFailed(BagId(id_), 60.5))

    @rule(status=st.sampled_from(list(PilotStatus)), which=st.integers(1, 3), again=st.booleans())
    def change_pilot(self, status: PilotStatus, which: int, again: bool) -> None:
        id_ = PilotId(which)
        if id_ in self.pilots and not again:
            self.pending.append(SavePilotStatus(id_, status, 990.5, "why"))
        else:
            self.pilots.append(id_)
            self.pending.append(SavePilot(pilot(which, slots=which, recorded=which)))

    @rule(end_one=st.booleans())
    def change_job(self, end_one: bool) -> None:
        if end_one and self.jobs:
            self.pending.append(EndJob(self.jobs.pop(0), 70.5, "why"))
        else:
            self.sequence += 1
            job = JobRecord(id=JobId(f"j{self.sequence}"), site="s", slots=1, submitted=1.5)
            self.jobs.append(job.id)
            self.pending.append(SaveJob(job))

    @rule()
    def commit(self) -> None:
        changes, self.pending = self.pending, []
        self.memory.apply(changes)
        self.sqlite.apply(changes)
        self.same_story()

    @rule(close=st.booleans())
    def restart(self, close: bool) -> None:
        """The server dies; what was not committed never was, so it is committed first here."""
        self.commit()
        if close:
            self.sqlite.close()
        assert self.sqlite.open() == self.memory.open()

    def same_story(self) -> None:
        assert self.reader.bags() == self.memory.bags()
        assert self.reader.pilots() == self.memory.pilots()
        for id_, model in self.bags.items():
            assert self.sqlite.load(BagId(id_)) == self.memory.load(BagId(id_))
            self.same_results(id_)
            view = self.reader.bag(id_)
            assert view is not None
            assert (view.done, view.failed) == model.totals()

    def same_results(self, id_: int) -> None:
        for by_row in (False, True):
            for failed_only in (False, True):
                how = {"by_row": by_row, "failed_only": failed_only}
                results = self.reader.results(id_, **how)
                assert results == self.memory.results(id_, **how)
                middle = len(results) // 2
                after = results[middle].row if by_row and results else middle
                assert self.reader.results(id_, after, 3, **how) == self.memory.results(
                    id_, after, 3, **how
                )
        for task in range(TOTAL):
            assert self.reader.attempts(id_, task) == self.memory.attempts(id_, task)
            assert self.reader.output(id_, task) == self.memory.output(id_, task)

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.reader.close()
            self.sqlite.close()
            shutil.rmtree(self.directory)


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=40, stateful_step_count=40)
