"""Whatever legal changes are made, in whatever batches and over whatever restarts: the record in
memory and the one in SQLite tell the same story.
"""

import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from covey.core.errors import InvalidQuery
from covey.core.record.actions import (
    AppendSegment,
    Change,
    CloseBag,
    CloseChunk,
    EndJob,
    ForgetSite,
    LeaseChunk,
    PurgeBag,
    RecordEnds,
    ReopenFailed,
    SaveBag,
    SaveBagStatus,
    SaveHistory,
    SaveHost,
    SaveJob,
    SavePilot,
    SavePilotStatus,
    SavePolicy,
    SaveSite,
)
from covey.core.record.histories import Ban, History
from covey.core.record.model import (
    BagId,
    BagStatus,
    EndRecord,
    JobId,
    JobOutcome,
    JobRecord,
    More,
    PilotId,
    PilotStatus,
    PolicySpec,
    Segment,
    SiteRecord,
    SiteSpec,
    SiteStatus,
    Verdict,
)
from covey.core.values.space import Axis, Values
from covey.pilot.protocol.messages import OutputFile
from covey.ports import Reader
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.wire import ResultQuery
from tests.memory_store.memory_record import MemoryRecord
from tests.unit.store.builders import bag, end, pilot, returned

TOTAL = 12
BAGS = st.integers(1, 4)
TASKS = st.integers(0, TOTAL + 3)
TEXTS = st.sampled_from(["", "short\nlast\n", "long line\n" * 60, "\n \n", "é" * 500])
FAILURES = st.sampled_from(
    ["failed", "timeout", "memory", "output", "setup", "cancelled", "host", "lost"]
)
CAUSES = st.sampled_from(["", "exit 1", "exit 1: a, b", "time limit"])
REPORTS = st.sampled_from(
    ["", '{"a":1,"b":"x"}', '{"b":2.5,"c":[1]}', '{"a":null,"d\\"":true}', "no", '{"x":-1}']
)
FILES = st.lists(
    st.sampled_from(
        [
            returned("a", 3, data=b"abc"),
            returned("b", 9000, data=b"b" * 9000, executable=True),
            returned("c", 10**9, digest="c" * 64),
        ]
    ),
    max_size=3,
).map(tuple)
UNFINISHED = (BagStatus.RUNNING, BagStatus.PAUSED)
WHERE = [
    ("x >= 105",),
    ("x != 103", "state = done"),
    ("a = 1",),
    ("b > 0",),
    ("b = x",),
    ("b != x",),
    ("c ~ 1",),
    ("cause = ''",),
    ("cause ~ exit", "exit in 0,1"),
    ("host > node", "files >= 1"),
    ("output ~ line",),
]
SORTS = ["task", "-x", "a", "-b", "c", "cause", "-files", "-host", "output"]


class Model:
    """As much as is needed to tell which changes core could make."""

    def __init__(self) -> None:
        self.status = BagStatus.RUNNING
        self.total = TOTAL
        self.mark = 0
        self.open: dict[int, int] = {}
        self.closed: dict[int, int] = {}
        self.result: dict[int, str] = {}

    def verdict(self, task: int, outcome: str, give_up: bool) -> Verdict:
        known = self.result.get(task)
        if outcome == "ok" and known != "ok":
            self.result[task] = "ok"
            if self.status not in UNFINISHED:
                return Verdict.LATE
            return Verdict.REPLACES if known else Verdict.COUNTS
        if outcome != "ok" and known is None and give_up and self.status in UNFINISHED:
            self.result[task] = outcome
            return Verdict.COUNTS
        late = outcome == "ok" and self.status not in UNFINISHED
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
        self.jobs: list[JobRecord] = []
        self.pilots: list[PilotId] = []
        self.lost: list[EndRecord] = []
        self.sequence = 0
        self.submitted = 0
        self.asked = 0
        self.pending: list[Change] = []

    @rule(retries=st.integers(0, 3))
    @precondition(lambda self: len(self.bags) < 3)
    def submit(self, retries: int) -> None:
        self.submitted += 1
        id_ = self.submitted
        self.bags[id_] = Model()
        key = f"key {id_}" if id_ != 2 else ""
        made = bag(id_, TOTAL, key=key, retries=retries, labels={"a": "b"}, outputs=("*",))
        self.pending.append(SaveBag(msgspec.structs.replace(made, open=retries > 1)))

    @rule(id_=BAGS, items=st.lists(st.sampled_from([1, 2.5, "t"]), min_size=1, max_size=3))
    def append(self, id_: int, items: list[str | int | float]) -> None:
        model = self.bags.get(id_)
        if model is None:
            return
        self.sequence += 1
        model.total += len(items)
        segment = Segment(space=Axis("x", Values(tuple(items))))
        key = f"s{self.sequence}" if self.sequence % 2 else ""
        self.pending.append(AppendSegment(BagId(id_), segment, model.total, key))

    @rule(id_=BAGS)
    def close_bag(self, id_: int) -> None:
        if id_ in self.bags:
            self.pending.append(CloseBag(BagId(id_)))

    @rule(id_=BAGS, pause=st.booleans())
    def pause(self, id_: int, pause: bool) -> None:
        model = self.bags.get(id_)
        if model is not None and model.status in UNFINISHED:
            model.status = BagStatus.PAUSED if pause else BagStatus.RUNNING
            reason = "why" if pause else ""
            self.pending.append(
                SaveBagStatus(BagId(id_), model.status, 40.5, *model.totals(), reason)
            )

    @rule(id_=BAGS, what=st.sampled_from(["logs", "files", "all"]))
    def purge(self, id_: int, what: str) -> None:
        model = self.bags.get(id_)
        if model is None or model.status in UNFINISHED:
            return
        self.pending.append(PurgeBag(BagId(id_), what))
        if what == "all":
            del self.bags[id_]
            self.lost = [one for one in self.lost if one.bag != id_]

    @rule(name=st.sampled_from(["node1", "node2", "node3"]), slots=st.integers(1, 9))
    def save_host(self, name: str, slots: int) -> None:
        at, tags = 1000.0 + slots, {f"tag{slots}": "v"}
        self.pending.append(SaveHost(name, "site", slots, at, tags))

    @rule(name=st.sampled_from(["node1", "node2", "node3", "node4"]), row=st.integers(0, 3))
    def save_history(self, name: str, row: int) -> None:
        """With a row of 0: an empty one."""
        bans = {f"owner {number}": Ban(since=float(number)) for number in range(row)}
        at = 1000.0 + row if row else 0.0
        self.pending.append(SaveHistory(name, History(at=at, row=row, bans=bans)))

    @rule(id_=BAGS, rank=st.sampled_from(["", "1", "x"]))
    def save_policy(self, id_: int, rank: str) -> None:
        if id_ in self.bags:
            self.pending.append(SavePolicy(BagId(id_), PolicySpec(rank=rank)))

    @rule(id_=BAGS, size=st.integers(1, 5))
    def lease(self, id_: int, size: int) -> None:
        model = self.bags.get(id_)
        if model is None or model.mark == model.total or model.status not in UNFINISHED:
            return
        first, model.mark = model.mark, min(model.total, model.mark + size)
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
        extras=st.tuples(CAUSES, REPORTS, FILES),
        host=st.sampled_from(["node1", "node2"]),
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
        extras: tuple[str, str, tuple[OutputFile, ...]],
        host: str,
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
            one = end(
                task,
                outcome,
                verdict,
                attempt=attempt,
                bag=id_,
                host=host,
                stdout=texts[0],
                stderr=texts[1],
                cause="" if outcome == "ok" else extras[0],
                result=extras[1],
                files=() if outcome == "lost" else extras[2],
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
        if model is not None and model.status in UNFINISHED:
            model.status = how
            self.pending.append(SaveBagStatus(BagId(id_), how, 50.5, *model.totals()))

    @rule(id_=BAGS, some=st.none() | st.sets(TASKS, max_size=6), memory=st.sampled_from([1.0, 2.0]))
    def reopen_failed(self, id_: int, some: set[int] | None, memory: float) -> None:
        model = self.bags.get(id_)
        if model is None:
            return
        failed = [
            task
            for task, outcome in model.result.items()
            if outcome != "ok" and (some is None or task in some)
        ]
        for task in failed:
            del model.result[task]
        for first, stop in list(model.closed.items()):
            if any(first <= task < stop for task in failed):
                model.open[first] = model.closed.pop(first)
        model.status = BagStatus.RUNNING
        tasks = None if some is None else tuple(some)
        self.pending.append(ReopenFailed(BagId(id_), 60.5, tasks, More(memory)))

    @rule(status=st.sampled_from(list(PilotStatus)), which=st.integers(1, 3), again=st.booleans())
    def change_pilot(self, status: PilotStatus, which: int, again: bool) -> None:
        id_ = PilotId(which)
        if id_ in self.pilots and not again:
            self.pending.append(SavePilotStatus(id_, status, 990.5, "why"))
        else:
            self.pilots.append(id_)
            self.pending.append(SavePilot(pilot(which, slots=which, recorded=which)))

    @rule(what=st.sampled_from(("begin", "name", "end")), trial=st.booleans())
    def change_job(self, what: str, trial: bool) -> None:
        if what == "end" and self.jobs:
            self.pending.append(EndJob(self.jobs.pop(0).id, 70.5, "why", JobOutcome.OK))
        elif what == "name" and self.jobs:
            job = msgspec.structs.replace(
                self.jobs[-1], handle=f"handle-{self.sequence}", started=50.5, pilot=self.sequence
            )
            self.jobs[-1] = job
            self.pending.append(SaveJob(job))
        else:
            self.sequence += 1
            id_, size = JobId(f"j{self.sequence}"), self.sequence % 7
            job = JobRecord(
                id=id_, site="s", slots=1 + size, submitted=1.5, memory_mb=size, trial=trial
            )
            self.jobs.append(job)
            self.pending.append(SaveJob(job))

    @rule(
        name=st.sampled_from(("a", "b")),
        status=st.sampled_from((None, *SiteStatus)),
        queued=st.integers(0, 3),
    )
    def change_site(self, name: str, status: SiteStatus | None, queued: int) -> None:
        if status is None:
            self.pending.append(ForgetSite(name))
        else:
            spec = SiteSpec(name=name, driver="virtual", queued=queued)
            self.pending.append(SaveSite(SiteRecord(spec=spec, status=status)))

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
        assert self.reader.hosts() == self.memory.hosts()
        assert self.reader.named_files() == self.memory.named_files()
        assert self.reader.host_owners() == self.memory.host_owners()
        assert [view.id for view in self.reader.bags()] == sorted(self.bags, reverse=True)
        for id_, model in self.bags.items():
            assert self.sqlite.load(BagId(id_)) == self.memory.load(BagId(id_))
            self.same_results(id_)
            self.same_answers(id_)
            view = self.reader.bag(id_)
            assert view is not None
            assert (view.done, view.failed, view.total) == (*model.totals(), model.total)

    def same_results(self, id_: int) -> None:
        for by_row in (False, True):
            for failed_only in (False, True):
                query = ResultQuery(by_row=by_row, failed_only=failed_only)
                results = self.reader.results(id_, query)
                assert results == self.memory.results(id_, query)
                middle = len(results) // 2
                after = results[middle].row if by_row and results else middle
                query = msgspec.structs.replace(query, after=after, limit=3)
                assert self.reader.results(id_, query) == self.memory.results(id_, query)
        for task in range(TOTAL):
            assert self.reader.attempts(id_, task) == self.memory.attempts(id_, task)
            assert self.reader.output(id_, task) == self.memory.output(id_, task)

    def same_answers(self, id_: int) -> None:
        """To two of the questions that there are, each time others."""
        self.asked += 1
        question = ResultQuery(
            where=WHERE[self.asked % len(WHERE)], sort=SORTS[self.asked % len(SORTS)]
        )
        for query in (question, ResultQuery(sort=question.sort, limit=5, offset=1)):
            assert self.told(self.reader, id_, query) == self.told(self.memory, id_, query)
        assert self.reader.failures(id_) == self.memory.failures(id_)
        waste = [msgspec.structs.asdict(one.waste(id_)) for one in (self.reader, self.memory)]
        assert waste[0] == pytest.approx(waste[1])
        for limit in (1, 4, 1000):
            assert self.reader.files(id_, 1, limit) == self.memory.files(id_, 1, limit)

    def told(self, reader: Reader, id_: int, query: ResultQuery) -> object:
        try:
            rows = reader.results(id_, query)
        except InvalidQuery as error:
            return str(error)
        exports = [b"".join(reader.export(id_, query, form)) for form in ("csv", "jsonl")]
        return rows, exports

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.reader.close()
            self.sqlite.close()
            shutil.rmtree(self.directory)


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=40, stateful_step_count=40)
