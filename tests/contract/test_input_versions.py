"""Versions of a bag's input files, in every record."""

from covey.core.record.actions import LeaseChunk, PurgeBag, SaveBag, SaveInputVersion
from covey.core.record.input_files import InputVersionView
from covey.core.record.model import (
    AttemptId,
    BagId,
    BagRecord,
    Blob,
    InputChanges,
    InputSource,
    InputVersion,
    Placed,
    TaskInput,
    Verdict,
)
from covey.wire import ResultQuery
from tests.contract.keeping import Kept
from tests.unit.store.builders import BAG, bag, cancelled, end, ends

FIRST, SECOND, THIRD = (Blob(letter * 64, 3) for letter in "abc")
OWN = TaskInput(source="{x}.csv", path="in.csv", base="/home/ann")
SOURCE = InputSource(path="/home/ann/fit.py", to="fit.py")


def submitted() -> BagRecord:
    return bag(
        total=4,
        owner="ann",
        inputs=(Placed(path="fit.py", blob=FIRST), Placed(path="old", blob=FIRST)),
        task_inputs=(OWN,),
        manifest={"100.csv": FIRST, "101.csv": FIRST},
        sources=(SOURCE,),
        sources_host="laptop",
        sources_seal="s1",
    )


def version(first: tuple[int, int], **changes: object) -> InputVersion:
    made = InputChanges(**changes)  # type: ignore[arg-type]
    return InputVersion(first=AttemptId(*first), at=7.5, files=2, names=("fit.py",), changes=made)


SECOND_VERSION = version((1, 3), inputs=(Placed(path="fit.py", blob=SECOND),), removed=("old",))
THIRD_VERSION = version((2, 1), manifest={"101.csv": THIRD}, sources_seal="s2")


def keep(kept: Kept) -> None:
    kept.record.apply([SaveBag(submitted()), LeaseChunk(BAG, 0, 4)])
    kept.record.apply([SaveInputVersion(BAG, SECOND_VERSION)])
    kept.record.apply([SaveInputVersion(BAG, THIRD_VERSION)])


def test_they_come_back_in_order(kept: Kept) -> None:
    keep(kept)
    (opened,) = kept.reopen().bags
    assert opened.bag.input_versions == (SECOND_VERSION, THIRD_VERSION)
    assert opened.bag.spec == submitted().spec


def test_the_files_as_they_are_now(kept: Kept) -> None:
    keep(kept)
    view = kept.reader.inputs(BAG)
    assert view is not None
    assert (view.version, view.host, view.sources, view.seal) == (3, "laptop", [SOURCE], "s2")
    assert view.inputs == [Placed(path="fit.py", blob=SECOND)]
    assert (view.task_inputs, view.manifest) == ([OWN], {"100.csv": FIRST, "101.csv": THIRD})
    known = InputVersionView(version=2, at=7.5, files=2, names=["fit.py"])
    assert view.versions[0] == known
    assert kept.reader.inputs(99) is None
    shown = kept.reader.bag(BAG)
    assert shown is not None
    assert shown.inputs.versions == view.versions
    assert (shown.inputs.host, shown.inputs.count) == ("laptop", 2)
    assert shown.inputs.paths == ["/home/ann/fit.py", "/home/ann/{x}.csv"]


def test_every_attempt_has_the_version_that_it_was_sent_with(kept: Kept) -> None:
    keep(kept)
    attempts = [(1, 2), (1, 3), (1, 9), (2, 1)]
    kept.record.apply([ends(*(end(task, attempt=one) for task, one in enumerate(attempts)))])
    rows = kept.reader.results(BAG, ResultQuery())
    assert [row.inputs_version for row in rows] == [1, 2, 2, 3]
    kept.record.apply([ends(end(0, "failed", Verdict.WASTE, attempt=(2, 4)))])
    assert [row.inputs_version for row in kept.reader.attempts(BAG, 0)] == [1, 3]


def test_files_of_all_versions_are_named(kept: Kept) -> None:
    keep(kept)
    assert kept.reader.named_files().bags == {"ann": {FIRST.digest, SECOND.digest, THIRD.digest}}


def test_they_go_with_their_bag(kept: Kept) -> None:
    keep(kept)
    kept.record.apply([cancelled(0), PurgeBag(BAG, "all")])
    assert kept.reader.inputs(BAG) is None
    assert kept.reader.named_files().bags == {}
    kept.record.apply([SaveBag(bag(2))])
    view = kept.reader.bag(BagId(2))
    assert view is not None
    assert view.inputs.versions == []


def test_a_view_has_the_last_of_many(kept: Kept) -> None:
    kept.record.apply([SaveBag(submitted())])
    kept.record.apply([SaveInputVersion(BAG, version((1, number))) for number in range(2, 30)])
    view, inputs = kept.reader.bag(BAG), kept.reader.inputs(BAG)
    assert view is not None
    assert inputs is not None
    assert [one.version for one in view.inputs.versions] == list(range(20, 30))
    assert [one.version for one in inputs.versions] == list(range(2, 30))
