"""Whatever a bag says: it is taken or refused, soon, and the server goes on, also after a restart.

A submission goes the whole way through the server's own parts: bytes, decoder, core, the SQLite
record, a pilot's answer as bytes, a restart from that record. Only the sockets are left out; the
real server is attacked in `tests/integration/test_server_bounds.py`.
"""

import json
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from covey import wire
from covey.core.errors import InvalidBag
from covey.core.record.actions import (
    Action,
    LoadBag,
    LoadRows,
    Note,
    Refuse,
    Reply,
    Submitted,
    Write,
)
from covey.core.record.events import (
    BagLoaded,
    BagSubmitted,
    CancelRequested,
    Committed,
    Event,
    PauseRequested,
    PilotEnrolled,
    PolicyRequested,
    RetryRequested,
    SegmentAppended,
    SyncReceived,
    Ticked,
)
from covey.core.record.model import (
    BagId,
    BagSpec,
    BagStatus,
    PolicySpec,
    RequestId,
    Segment,
    Settings,
)
from covey.core.record.task_classes import find_needs
from covey.core.scheduler import Scheduler
from covey.pilot.protocol.messages import Answer, Enrol, Enrolled, Sync
from covey.server.api.bags import Append
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.wire import ResultQuery

EXAMPLES = int(os.environ.get("COVEY_FUZZ_BAGS", "60"))
LONGEST_SECONDS = 0.5  # of the processor, for one event: a tenth of it on a calm machine
Kind = TypeVar("Kind")

# -- what may be said -------------------------------------------------------------------------

EXTREMES = [
    0,
    1,
    -1,
    2**31,
    2**32,
    2**53,
    2**62,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**30,
    10**400,
]
FLOATS = [0.0, -0.0, 1e-320, 1e-9, 0.1, 1.0, 1e15, 1e22, 1.7e308, -1.7e308]
WHOLE = st.one_of(st.sampled_from(EXTREMES), st.integers(0, 20))
REAL = st.one_of(st.sampled_from(FLOATS), st.floats(allow_nan=False, allow_infinity=False))
WORDS = [
    "",
    "x",
    "{x}",
    "{task}",
    "a/b",
    "../b",
    "\0",
    "é",
    "𝔘",
    "\ud800",
    "-",
    "1",
    "1.0",
    "nan",
    "∞",
]
TEXT = st.one_of(st.sampled_from(WORDS), st.text(max_size=5))
NUMBERS = [
    "0",
    "1",
    "-1",
    "0.1",
    ".5",
    "5.",
    "+3",
    "1e3",
    "1e-400",
    "1e400",
    "1e401",
    "1e5000",
    "NaN",
]
NUMBERS += [
    "1e99999999999999",
    "Infinity",
    "NaN",
    "",
    "0x10",
    "1_000",
    "٣",
    "9" * 30,
    "9" * 61,
    "1e308",
]
NUMBERS += ["9223372036854775807", "9223372036854775808", "-9223372036854775808"]
NAME = st.sampled_from(["x", "y", "z", "i", "task", "bag", "call", "class", "ä", "x y", ""])
SCALAR = st.one_of(TEXT, WHOLE, REAL)
RANGE = st.builds(
    lambda start, step, count: {"type": "range", "start": start, "step": step, "count": count},
    st.sampled_from(NUMBERS),
    st.sampled_from(NUMBERS),
    WHOLE,
)
VALUES = st.builds(lambda items: {"type": "values", "items": items}, st.lists(SCALAR, max_size=4))
AXIS = st.builds(
    lambda name, values: {"type": "axis", "name": name, "values": values}, NAME, RANGE | VALUES
)
SPACE = st.recursive(
    AXIS,
    lambda part: st.builds(
        lambda kind, parts: {"type": kind, "parts": parts},
        st.sampled_from(["product", "zip"]),
        st.lists(part, max_size=3),
    ),
    max_leaves=5,
)
EXPRESSIONS = [
    "true",
    "Job.x > 1",
    "Job.x",
    "undefined",
    "error",
    "1/0",
    "1" * 4400,
    "1e999",
    "Host.Cpus * 1e308 * 1e308",
    "9223372036854775807 + 1",
    "((((((((((1))))))))))",
    "(" * 300,
    '"' + "x" * 3000 + '"',
    'regexp("(a*)*b", Host.Name)',
    "sum({" + ",".join(["Job.x"] * 100) + "}) > 0",
    "Job",
    "Bag.Bag.Bag",
    "random() > 0.5",
    "Tail ? 1 : undefined",
    "strcat(" + ",".join(["Host.Name"] * 200) + ")",
    "9" * 4000 + "d",
    "30m",
]
EXPRESSION = st.one_of(st.just(""), st.sampled_from(EXPRESSIONS), TEXT)
POLICY = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            ("requirements", "rank", "concurrency", "deadline", "replication", "tail", "grid"),
            EXPRESSION,
        ),
        "max_replicas": EXPRESSION,
        "preset": st.sampled_from(["", "fast-tail", "reliable-tail", "frugal", "no such"]),
        "sticky_tail": st.booleans(),
        **dict.fromkeys(
            ("only_sites", "avoid_hosts", "failover_sites"), st.lists(TEXT, max_size=3)
        ),
    },
)
NEED = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("cores", "memory_mb", "disk_mb", "gpus"), WHOLE),
        "limit_seconds": REAL | WHOLE,
    },
)
CONDITION = st.fixed_dictionaries(
    {"name": NAME},
    optional={"values": st.lists(SCALAR, max_size=3), "low": REAL | WHOLE, "high": REAL},
)
RESOURCE = st.sampled_from(["cores", "memory", "disk", "gpus", "time"])
NEED_FROM = st.dictionaries(RESOURCE | TEXT, st.sampled_from(["{x}", "{x} GB"]) | TEXT, max_size=2)
RULE = st.fixed_dictionaries(
    {"when": st.lists(CONDITION, max_size=2), "need": NEED}, optional={"need_from": NEED_FROM}
)
BLOB = st.fixed_dictionaries({"digest": st.sampled_from(["0" * 64, "", "é"]), "size": WHOLE})
PLACED = st.fixed_dictionaries(
    {"path": TEXT}, optional={"blob": BLOB, "url": TEXT, "digest": TEXT, "copy": st.booleans()}
)
ROWS = st.fixed_dictionaries(
    {"digest": st.just("0" * 64), "form": st.sampled_from(["csv", "lines", ""])},
    optional={"names": st.lists(NAME, max_size=2), "count": WHOLE},
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "argv": st.lists(TEXT, max_size=3),
    "space": SPACE,
    "rows": ROWS,
    "open": st.booleans(),
    "calls": st.booleans(),
    **dict.fromkeys(("name", "key", "notes", "chdir", "check", "setup"), TEXT),
    **dict.fromkeys(("labels", "env"), st.dictionaries(TEXT, TEXT, max_size=2)),
    "export": st.booleans(),
    "need": NEED,
    "need_from": NEED_FROM,
    "task_needs": st.lists(NEED, max_size=2),
    "order": st.sampled_from(["given", "long-first"]) | TEXT,
    "rules": st.lists(RULE, max_size=3),
    **dict.fromkeys(("retries", "overtimes", "breaker", "output_mb", "log_kb"), WHOLE),
    **dict.fromkeys(("grow_memory", "grow_time", "setup_seconds"), REAL | WHOLE),
    "idempotent": st.booleans(),
    "policy": POLICY,
    "inputs": st.lists(PLACED, max_size=2),
    "task_inputs": st.lists(st.fixed_dictionaries({"source": TEXT, "path": TEXT}), max_size=2),
    "manifest": st.dictionaries(TEXT, BLOB, max_size=2),
    **dict.fromkeys(("outputs", "optional_outputs"), st.lists(TEXT, max_size=2)),
    "ok_codes": st.lists(WHOLE, max_size=3),
}
PLAIN = {
    "argv": ["true", "{x}"],
    "space": {"type": "axis", "name": "x", "values": {"type": "values", "items": [1, "2", 3.5]}},
}
# Most bags with several strange things in them are refused for the first of these: so few of them.
BAG = st.lists(st.sampled_from(sorted(FIELDS)), max_size=3, unique=True).flatmap(
    lambda names: st.fixed_dictionaries(
        {**{name: st.just(value) for name, value in PLAIN.items()}, **{n: FIELDS[n] for n in names}}
    )
)

# -- the server's parts -----------------------------------------------------------------------


class Served:
    """Core on a real record, with one pilot."""

    def __init__(self, path: Path) -> None:
        self.record = SqliteRecord(path)
        self.now = 1000.0
        self.requests = 0
        self.pilot = 0
        self.syncs = 0
        self.notes: list[Note] = []
        self.start()

    def start(self) -> None:
        snapshot = self.record.open()
        self.scheduler, actions = Scheduler.recover(snapshot, Settings(chunk=8), self.now)
        self._carry_out(actions)

    def handle(self, heard: Event) -> list[Action]:
        began = time.process_time()
        actions = self.scheduler.handle(heard, self.now)
        assert time.process_time() - began < LONGEST_SECONDS, f"it took too long: {heard!r:.500}"
        return self._carry_out(actions)

    def _carry_out(self, actions: list[Action]) -> list[Action]:
        """The writes, what follows from them, and every answer as bytes."""
        self.scheduler.state.check()
        done = list(actions)
        writes = [one for one in actions if isinstance(one, Write)]
        if writes:
            self.record.apply([one.change for one in writes])
            done += self.handle(Committed(writes[-1].number))
        for one in actions:
            if isinstance(one, Reply) and isinstance(one.message, Answer | Enrolled):
                assert wire.encode(one.message)
            if isinstance(one, Note):
                self.notes.append(one)
            if isinstance(one, LoadBag):
                done += self.handle(BagLoaded(one.request, one.bag, self.record.load(one.bag)))
            assert not isinstance(one, LoadRows), "no file is here"
        return done

    def request(self) -> RequestId:
        self.requests += 1
        return RequestId(self.requests)

    def enrol(self) -> None:
        key = f"key {self.now} {self.requests}"
        enrolled = PilotEnrolled(self.request(), Enrol(key, "host", 4), "word", "digest")
        self.pilot, self.syncs = only(self.handle(enrolled), Enrolled).pilot, 0

    def sync(self) -> list[Action]:
        self.syncs += 1
        epoch = self.scheduler.state.epoch
        return self.handle(
            SyncReceived(
                self.request(), Sync(self.pilot, epoch, self.syncs, self.syncs - 1, 4, [], None)
            )
        )

    def later(self) -> None:
        for _ in range(3):
            self.now += 1.0
            self.handle(Ticked())


def only(actions: list[Action], kind: type[Kind]) -> Kind:
    found = [one.message for one in actions if isinstance(one, Reply)]
    [message] = [one for one in found if isinstance(one, kind)]
    return message


def read(body: Any, kind: type[Kind]) -> Kind | None:
    """As the API reads a request; None if it refuses it."""
    try:
        return msgspec.json.decode(json.dumps(body).encode(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return None


def admitted(spec: BagSpec, segment: Segment) -> Segment | None:
    """With what its tasks need, as admission finds it; None if it is refused."""
    try:
        return replace(segment, task_needs=find_needs(spec, segment))
    except InvalidBag:
        return None


def taken(actions: list[Action]) -> bool:
    """Whether what was asked for was done; it was done or refused."""
    refused = [one for one in actions if isinstance(one, Refuse)]
    replied = [one for one in actions if isinstance(one, Reply)]
    assert len(refused) + len(replied) >= 1
    for one in refused:
        assert len(one.detail) < 20_000
        assert "bug of covey" not in one.detail, one.detail
    return not refused


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)
@given(said=BAG, segment=SPACE, policy=POLICY)
def test_whatever_a_bag_says_the_server_goes_on(
    said: dict[str, Any], segment: Any, policy: Any
) -> None:
    spec = read(said, BagSpec)
    if spec is None or (spec.rows is not None and spec.rows.count):  # no file of rows is here
        return
    first = admitted(spec, Segment(space=spec.space, rows=spec.rows))
    if first is None:
        return
    spec = replace(spec, task_needs=first.task_needs)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "covey.db"
        served = Served(path)
        served.enrol()
        answered = served.handle(BagSubmitted(served.request(), spec))
        if not taken(answered):
            assert served.scheduler.state.counters.next_bag == 1
            served.record.close()
            return
        event("accepted")
        bag = only(answered, Submitted).bag
        served.sync()
        more = read({"segment": {"space": segment}}, Append)
        segment = admitted(spec, more.segment) if more is not None else None
        if more is not None and segment is not None:
            taken(served.handle(SegmentAppended(served.request(), bag, segment, more.key)))
        changed = read(policy, PolicySpec)
        if changed is not None:
            taken(served.handle(PolicyRequested(served.request(), bag, changed)))
        served.later()
        served.start()  # once more, from the record
        assert bag not in served.scheduler.state.bags or not is_quarantined(served, bag)
        served.enrol()
        good = BagSpec(argv=("true",), owner="another")
        other = only(served.handle(BagSubmitted(served.request(), good)), Submitted).bag
        served.later()
        taken(served.handle(PauseRequested(served.request(), bag, "")))
        assert [task.bag for task in only(served.sync(), Answer).tasks] == [other]
        taken(served.handle(RetryRequested(served.request(), bag, None)))
        taken(served.handle(CancelRequested(served.request(), bag)))
        reader = SqliteReader(path)
        view = reader.bag(bag)
        assert view is not None
        assert msgspec.json.encode(view)
        assert msgspec.json.encode(reader.results(bag, ResultQuery()))
        reader.close()
        served.record.close()
        assert not [note for note in served.notes if "internal error" in note.what]


def is_quarantined(served: Served, bag: BagId) -> bool:
    found = served.scheduler.state.bags[bag]
    return found.status is BagStatus.PAUSED and found.reason.startswith("quarantined")
