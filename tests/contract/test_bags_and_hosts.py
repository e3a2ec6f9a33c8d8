"""What every record must do with bags that grow, pause, are tried again and are purged, and with
what it knows of hosts."""

import msgspec
import pytest

from covey.core.record import call_files
from covey.core.record.actions import (
    AppendSegment,
    CloseBag,
    CloseChunk,
    LeaseChunk,
    PurgeBag,
    ReopenFailed,
    SaveBag,
    SaveBagStatus,
    SaveHost,
    SavePilot,
    SaveToken,
)
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagSpec,
    BagStatus,
    Blob,
    Condition,
    More,
    Need,
    PilotId,
    Placed,
    Reopening,
    Role,
    Rule,
    Segment,
    TokenRecord,
    Verdict,
)
from covey.core.values.space import Axis, Range, Values
from covey.ports import NamedFiles
from covey.wire import HostView, ResultQuery
from tests.contract.keeping import CASES, MORE_CASES, Kept
from tests.unit.store.builders import (
    BAG,
    a_bag_of,
    bag,
    cancelled,
    end,
    ends,
    finished,
    pilot,
    returned,
    successes,
)

WASTE = Verdict.WASTE
ALL = ResultQuery()


def test_a_bag_is_shown_with_all_that_its_owner_said(kept: Kept) -> None:
    rule = Rule(when=(Condition(name="x", low=105),), need=Need(cores=4, gpus=1))
    made = bag(
        1,
        10,
        labels={"project": "p"},
        notes="why",
        outputs=("*.txt",),
        optional_outputs=("log",),
        need=Need(memory_mb=100, disk_mb=7, limit_seconds=2.5),
        rules=(rule,),
    )
    kept.record.apply([SaveBag(made)])
    view = kept.reader.bag(1)
    assert view is not None
    assert (view.labels, view.notes, view.outputs) == ({"project": "p"}, "why", ["*.txt", "log"])
    first, second = view.classes
    assert (first.cores, first.memory_mb, first.disk_mb, first.gpus) == (1, 100, 7, 0)
    assert (first.limit_seconds, second.limit_seconds) == (2.5, 0.0)
    assert (second.cores, second.gpus, second.ended, second.mean_seconds) == (4, 1, None, None)
    assert (view.open, view.reason, view.result_names) == (False, "", [])
    assert kept.reopen().bags[0].bag == made


def test_a_paused_bag_says_why_and_is_not_forgotten(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(4), successes([0]), ends(end(1, "failed"))])
    kept.record.apply([SaveBagStatus(BAG, BagStatus.PAUSED, 5.0, 1, 1, "it fails everywhere")])
    view = kept.reader.bag(1)
    assert view is not None
    assert (view.status, view.reason, view.ended) == ("paused", "it fails everywhere", 0.0)
    assert (view.done, view.failed, view.over) == (1, 1, False)
    kept.record.apply([successes([2])])
    view = kept.reader.bag(1)
    assert view is not None
    assert view.done == 2, "what was out when it was paused still comes in"
    (found,) = kept.reopen().bags
    assert (found.bag.status, found.bag.reason) == (BagStatus.PAUSED, "it fails everywhere")
    assert (found.open_done, found.failed) == ((0, 2), (1,))
    kept.record.apply([SaveBagStatus(BAG, BagStatus.RUNNING, 6.0, 2, 1)])
    view = kept.reader.bag(1)
    assert view is not None
    assert (view.status, view.reason) == ("running", "")


def test_reopening_lets_a_paused_bag_run(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(2), ends(end(0, "failed"))])
    kept.record.apply([SaveBagStatus(BAG, BagStatus.PAUSED, 5.0, 0, 1, "why")])
    kept.record.apply([ReopenFailed(BAG, 6.0)])
    (found,) = kept.reopen().bags
    assert (found.bag.status, found.bag.reason, found.failed) == (BagStatus.RUNNING, "", ())


def open_bag(**spec: object) -> BagRecord:
    made = bag(1, 2, **spec)
    return msgspec.structs.replace(made, open=True)


def more(*items: str | int) -> Segment:
    return Segment(space=Axis("x", Values(items)))


def test_segments_follow_one_another(kept: Kept) -> None:
    kept.record.apply([SavePilot(pilot()), SaveBag(open_bag()), LeaseChunk(BAG, 0, 2)])
    kept.record.apply([successes([0, 1])])
    assert [row.values for row in kept.reader.results(BAG, ALL)] == [[100], [101]]
    kept.record.apply([AppendSegment(BAG, more("a", "b", "c"), 5, "k1")])
    kept.record.apply([AppendSegment(BAG, more(7), 6), AppendSegment(BAG, more(8), 7, "k2")])
    kept.record.apply([LeaseChunk(BAG, 2, 7), successes([2, 4, 5, 6])])
    assert [row.values for row in kept.reader.results(BAG, ALL)] == (
        [[100], [101], ["a"], ["c"], [7], [8]]
    )
    (found,) = kept.reopen().bags
    assert found.bag.segments == (more("a", "b", "c"), more(7), more(8))
    assert (found.bag.total, found.bag.open, found.keys) == (7, True, ("k1", "k2"))
    view = kept.reader.bag(1)
    assert view is not None
    assert (view.total, view.open, view.done) == (7, True, 6)
    text = b"".join(kept.reader.export(BAG, ALL, "csv")).decode()
    assert [line.split(",")[1] for line in text.splitlines()[1:]] == (
        ["100", "101", "a", "c", "7", "8"]
    )


def test_a_key_of_a_segment_is_used_once_per_bag(kept: Kept) -> None:
    other = msgspec.structs.replace(open_bag(), id=BagId(2))
    kept.record.apply([SaveBag(open_bag()), SaveBag(other)])
    kept.record.apply([AppendSegment(BagId(id_), more(1), 3, "k") for id_ in (1, 2)])
    with pytest.raises(AssertionError):
        kept.record.apply([AppendSegment(BAG, more(1), 4, "k")])


def test_a_bag_that_is_closed(kept: Kept) -> None:
    kept.record.apply([SaveBag(open_bag()), CloseBag(BAG)])
    (found,) = kept.reopen().bags
    view = kept.reader.bag(1)
    assert view is not None
    assert (found.bag.open, view.open) == (False, False)


def test_parameters_from_rows(kept: Kept) -> None:
    space = Axis("seed", Range("1", "1", 2))
    spec = BagSpec(argv=("x",), space=space, rows=CASES)
    made = BagRecord(id=BAG, spec=spec, total=6, created=1.5, open=True)
    kept.record.apply([SaveBag(made), LeaseChunk(BAG, 0, 6), successes([5, 1, 2])])
    segment = Segment(space=space, rows=MORE_CASES)
    kept.record.apply([AppendSegment(BAG, segment, 10), LeaseChunk(BAG, 6, 10)])
    kept.record.apply([successes([6, 9])])
    rows = {row.task: row.values for row in kept.reader.results(BAG, ALL)}
    assert rows == {
        1: ["left", 1, 2],
        2: ["right", 2.5, 1],
        5: ["a,b", 3, 2],
        6: ["up", 10, 1],
        9: ["down", "?", 2],
    }
    view = kept.reader.bag(1)
    assert view is not None
    assert view.names == ["case", "size", "seed"]
    lines = b"".join(kept.reader.export(BAG, ALL, "csv")).decode().splitlines()
    assert [line.partition(",done")[0] for line in lines[1:]] == (
        ["1,left,1,2", "2,right,2.5,1", '5,"a,b",3,2', "6,up,10,1", "9,down,?,2"]
    )
    query = ResultQuery(where=("size >= 2.5",), sort="-size")
    assert [row.task for row in kept.reader.results(BAG, query)] == [6, 5, 2]


def test_overtimes_and_lack_of_memory_are_counted_apart(kept: Kept) -> None:
    kept.record.apply(a_bag_of(6))
    story = [(0, "timeout"), (0, "timeout"), (0, "failed"), (1, "memory"), (1, "memory")]
    story += [(1, "output"), (2, "timeout"), (3, "host"), (4, "setup"), (5, "lost")]
    made = [end(t, o, WASTE, attempt=(1, 10 + n)) for n, (t, o) in enumerate(story)]
    kept.record.apply([ends(*made)])
    (found,) = kept.reopen().bags
    assert found.tries == {0: 1, 1: 3, 4: 1}
    assert found.overtimes == {0: 2, 2: 1}
    assert found.short == {1: 2}
    kept.record.apply([ends(end(0, attempt=(1, 90)), end(1, "memory", attempt=(1, 91)))])
    (found,) = kept.reopen().bags
    assert (found.tries, found.overtimes, found.short) == ({4: 1}, {2: 1}, {}), "of unfinished ones"


def test_some_failed_tasks_are_reopened(kept: Kept) -> None:
    kept.record.apply(a_bag_of(6, chunks=3))
    waste = [end(t, "memory", WASTE, attempt=(1, 20 + t)) for t in range(4)]
    failures = [end(t, "failed", attempt=(1, 30 + t)) for t in range(4)]
    kept.record.apply([ends(*waste, *failures), successes([4, 5])])
    kept.record.apply([CloseChunk(BAG, first) for first in (0, 2, 4)])
    kept.record.apply([finished(2, 4)])
    kept.record.apply([ReopenFailed(BAG, 9.0, (3, 1), More(1.5, 2.0))])
    found = kept.record.load(BAG)
    assert found is not None
    assert kept.reopen().bags == (found,)
    assert [chunk.closed for chunk in found.chunks] == [False, False, True]
    assert (found.failed, found.tries, found.short) == ((0, 2), {}, {})
    assert found.reopenings == (Reopening(row=10, tasks=(1, 3), more=More(1.5, 2.0)),)
    view = kept.reader.bag(1)
    assert view is not None
    assert (view.status, view.done, view.failed) == ("running", 2, 2)

    again = [end(t, "memory", WASTE, attempt=(1, 40 + t)) for t in (1, 3)]
    kept.record.apply([ends(*again), ReopenFailed(BAG, 10.0, (3,), More(2.0))])
    (found,) = kept.reopen().bags
    assert (found.tries, found.short) == ({1: 1}, {1: 1}), "3 has started afresh once more"
    kept.record.apply([ReopenFailed(BAG, 11.0)])
    (found,) = kept.reopen().bags
    assert (found.failed, found.tries) == ((), {1: 1}), "1 had not been given up again"
    assert [(one.tasks, one.more.memory) for one in found.reopenings] == (
        [((1, 3), 1.5), ((3,), 2.0), (None, 1.0)]
    )


def test_reopening_none_of_the_failed_tasks(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(2), ends(end(0, "failed")), ReopenFailed(BAG, 1.0, (1,))])
    (found,) = kept.reopen().bags
    assert found.failed == (0,)


def printed(task: int, id_: int) -> object:
    file = returned(f"{task}.txt", 3, data=b"abc")
    large = returned("large", 9, digest=f"{id_:064x}")
    return end(task, stdout="hello\n", stderr="e", bag=id_, files=(file, large), result='{"a":1}')


def two_bags(kept: Kept) -> None:
    for id_ in (1, 2):
        kept.record.apply([*a_bag_of(2, id_=id_)[1:]])
        failure = end(1, "failed", WASTE, bag=id_, cause="exit 1", stdout="no", attempt=(1, 50))
        kept.record.apply([ends(printed(0, id_), failure)])  # type: ignore[arg-type]
    kept.record.apply([cancelled(1)])


@pytest.mark.parametrize("what", ["logs", "files"])
def test_purging_a_part(kept: Kept, what: str) -> None:
    two_bags(kept)
    before = kept.reader.results(2, ALL), kept.reader.files(2), kept.reader.output(2, 0)
    kept.record.apply([PurgeBag(BAG, what)])
    output = kept.reader.output(BAG, 0)
    failure = kept.reader.output(BAG, 1)
    assert output is not None
    assert failure is not None
    (row,) = kept.reader.results(BAG, ALL)
    files = kept.reader.files(BAG)
    if what == "logs":
        assert (output.stdout, output.stderr, failure.stdout) == ("", "", "")
        assert (row.output, row.files, len(files)) == ("hello", 2, 2)
    else:
        assert (output.stdout, output.stderr, failure.stdout) == ("hello\n", "e", "no")
        assert (row.output, row.files, len(files)) == ("hello", 0, 0)
    assert before == (kept.reader.results(2, ALL), kept.reader.files(2), kept.reader.output(2, 0))


def test_purging_all(kept: Kept) -> None:
    kept.record.apply([SaveBag(bag(3, 1, key="k"))])
    two_bags(kept)
    view = kept.reader.bag(2)
    before = kept.reader.results(2, ALL), kept.reader.files(2)
    kept.record.apply([PurgeBag(BAG, "all")])
    assert [view.id for view in kept.reader.bags()] == [3, 2]
    assert kept.reader.bag(1) is None
    assert kept.record.load(BAG) is None
    assert kept.reader.results(BAG, ALL) == []
    assert kept.reader.files(BAG) == []
    assert kept.reader.output(BAG, 0) is None
    assert kept.reader.failures(BAG) == []
    assert (kept.reader.results(2, ALL), kept.reader.files(2)) == before
    assert kept.reader.bag(2) == view
    kept.record.apply([SaveBagStatus(BagId(3), BagStatus.CANCELLED, 9.0, 0, 0)])
    kept.record.apply([PurgeBag(BagId(3), "all")])
    opened = kept.reopen()
    assert opened.keys == {}, "its key may be used again"
    assert opened.next_bag == 4, "its number may not"
    kept.record.apply([SaveBag(bag(4, 1, key="k"))])
    late = end(0, "ok", Verdict.LATE, attempt=(1, 77), cause="c", result='{"b":2}')
    kept.record.apply([ends(late)])
    assert kept.reader.attempts(BAG, 0) == []


def test_only_what_is_over_is_purged(kept: Kept) -> None:
    kept.record.apply(a_bag_of(2))
    with pytest.raises(AssertionError):
        kept.record.apply([PurgeBag(BAG, "all")])


def test_digests_of_all_files_that_are_needed(kept: Kept) -> None:
    reader = kept.reader
    inputs = (
        Placed(path="a", blob=Blob("1" * 64, 5)),
        Placed(path="b", url="http://x/b", digest="9" * 64),
    )
    manifest = {"m": Blob("2" * 64, 5)}
    spec = BagSpec(argv=("x",), rows=CASES, inputs=inputs, manifest=manifest)
    made = BagRecord(id=BAG, spec=spec, total=3, created=1.5, open=True)
    kept.record.apply([SaveBag(made), LeaseChunk(BAG, 0, 3)])
    kept.record.apply([AppendSegment(BAG, Segment(rows=MORE_CASES), 5)])
    kept.record.apply([ends(printed(0, 1))])  # type: ignore[arg-type]
    named = {"1" * 64, "2" * 64, CASES.digest, MORE_CASES.digest}
    returned = f"{1:064x}"
    assert reader.named_files() == NamedFiles({"": named}, {"": {returned}})
    assert reader.named_files().of("") == named | {returned}
    assert reader.named_files().of("bob") == set()
    kept.record.apply([cancelled(1), PurgeBag(BAG, "files")])
    assert reader.named_files() == NamedFiles({"": named}, {})
    kept.record.apply([PurgeBag(BAG, "all")])
    assert reader.named_files() == NamedFiles({}, {})


def test_the_file_of_a_large_call_is_needed_until_it_is_done(kept: Kept) -> None:
    reader, record = kept.reader, kept.record

    def listed(*letters: str) -> Axis:
        blobs = [Blob(letter * 64, 300_000) for letter in letters]
        named = [call_files.reference(blob) if blob.digest[0] != "-" else "YQ==" for blob in blobs]
        return Axis("call", Values(tuple(named)))

    def needed() -> str:
        assert reader.named_files().of("bob") == set()
        return "".join(sorted(digest[0] for digest in reader.named_files().of("ann")))

    spec = BagSpec(argv=("x",), calls=True, owner="ann", space=listed("a", "-"))
    record.apply([SaveBag(BagRecord(id=BAG, spec=spec, total=2, created=1.5, open=True))])
    for letters, total in (("--", 4), ("b-ac", 8), ("-", 9), ("d", 10)):
        record.apply([AppendSegment(BAG, Segment(space=listed(*letters)), total)])
    record.apply([LeaseChunk(BAG, 0, 10)])
    other = BagSpec(argv=("x", "{call}"), owner="bob", space=listed("e"))
    record.apply([SaveBag(BagRecord(id=BagId(2), spec=other, total=1, created=1.5))])
    assert needed() == "abcd", "of other bags they are values as any"
    record.apply([ends(end(0), end(4), end(7, "failed"), end(9, "lost", WASTE))])
    assert needed() == "acd", "one that failed may be tried again, a lost one will be"
    record.apply([ends(end(6))])
    assert needed() == "cd"
    kept.reopen()
    assert needed() == "cd"
    kept.record.apply([cancelled(1)])
    assert needed() == ""


def test_hosts(kept: Kept) -> None:
    kept.record.apply([SaveHost("b", "here", 4, 50.0, {"arch": "x86"})])
    kept.record.apply(a_bag_of(9))
    kept.record.apply([ends(end(0, host="a", delivered=60.0), end(1, host="b", delivered=60.5))])
    outcomes = ["failed", "timeout", "cancelled", "lost", "host", "memory"]
    made = [end(2 + n, o, WASTE, host="b", delivered=70.0) for n, o in enumerate(outcomes)]
    kept.record.apply([ends(*made)])
    kept.record.apply([ends(end(8, "lost", WASTE, host="b", delivered=99.0))])
    first, second = kept.reader.hosts()
    assert first == HostView(
        host="b",
        site="here",
        slots=4,
        pilots=0,
        running=0,
        first=50.0,
        heard=70.0,
        done=1,
        failed=4,
        tags={"arch": "x86"},
    )
    assert (second.host, second.first, second.heard, second.done) == ("a", 60.0, 60.0, 1)
    kept.record.apply([SaveHost("a", "there", 2, 80.0, {"me:x": "1"})])
    kept.record.apply([SaveHost("b", "here", 8, 75.0, {})])
    kept.reopen()
    first, second = kept.reader.hosts()
    assert (first.host, first.site, first.slots, first.first) == ("a", "there", 2, 60.0)
    assert (first.heard, first.tags, first.done) == (80.0, {"me:x": "1"}, 1)
    assert (second.slots, second.tags, second.heard) == (8, {}, 75.0)


def test_files_belong_to_the_owners_of_the_bags_that_name_them(kept: Kept) -> None:
    blobs = {letter: Blob(letter * 64, 5) for letter in "ab"}
    for number, (owner, letter) in enumerate((("ann", "a"), ("bob", "b")), 1):
        manifest = {"m": blobs[letter]}
        kept.record.apply([SaveBag(bag(number, 3, owner=owner, manifest=manifest))])
        kept.record.apply([LeaseChunk(BagId(number), 0, 3)])
    noted = bag(3, 3, owner="bob", notes=f"I know of {'a' * 64}")
    file = returned(path="f", size=5, digest="c" * 64)
    kept.record.apply([SaveBag(noted), ends(end(0, bag=2, files=(file,)))])
    named = {"ann": {"a" * 64}, "bob": {"b" * 64}}
    assert kept.reader.named_files() == NamedFiles(named, {"bob": {"c" * 64}})


def test_whose_pilots_were_on_a_host(kept: Kept) -> None:
    for number, (host, owner) in enumerate((("n1", "ann"), ("n1", ""), ("n2", "bob")), 1):
        kept.record.apply([SavePilot(pilot(number, host=host, owner=owner))])
    assert kept.reader.host_owners() == {"n1": {"ann", ""}, "n2": {"bob"}}


def test_machines_keep_their_names(kept: Kept) -> None:
    kept.record.apply([SaveHost("n1", "s", 1, 5.0, {}), SaveHost("n2", "s", 1, 5.0, {}, "m2")])
    assert kept.reopen().hosts == {"m2": "n2"}
    kept.record.apply([SaveHost("n1", "s", 1, 6.0, {}, "m1"), SaveHost("n2", "s", 1, 6.0, {})])
    assert kept.reopen().hosts == {"m1": "n1", "m2": "n2"}, "an older pilot does not say"
    assert {one.host: one.machine for one in kept.reader.hosts()} == {"n1": "m1", "n2": "m2"}


def test_tokens(kept: Kept) -> None:
    ann = TokenRecord(id=1, name="a", role=Role.USER, owner="ann", digest="d1", created=1.5)
    bob = TokenRecord(
        id=2, name="b", role=Role.ADMIN, owner="bob", digest="d2", created=2.5, expires=9.5
    )
    kept.record.apply([SaveToken(ann), SaveToken(bob)])
    opened = kept.reopen()
    assert (opened.tokens, opened.next_token) == ((ann, bob), 3)
    kept.record.apply([SaveToken(msgspec.structs.replace(bob, revoked=7.5))])
    opened = kept.reopen()
    assert (opened.tokens, opened.next_token) == ((ann,), 3), "its number is not used again"


def test_a_host_first_seen_with_an_end_and_saved_in_one_commit(kept: Kept) -> None:
    kept.record.apply(a_bag_of(2))
    kept.record.apply([ends(end(0, host="n", delivered=5.0)), SaveHost("n", "s", 1, 6.0, {})])
    (host,) = kept.reader.hosts()
    assert (host.first, host.heard, host.done, host.site) == (5.0, 6.0, 1, "s")


def test_what_pilots_have(kept: Kept) -> None:
    made = pilot(3, memory_mb=16_000, disk_mb=900, gpus=2, machine="m", boot="b", owner="ann")
    kept.record.apply([SavePilot(pilot(3)), SavePilot(made)])
    assert kept.reopen().pilots == (made,)
    (view,) = kept.reader.pilots()
    assert (view.id, view.memory_mb, view.gpus) == (PilotId(3), 16_000, 2)
    assert view.owner == "ann"
