"""Whatever a task does: what its pilot then sends, the server takes."""

import json
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from covey.core.protocol.report_check import enrol_problem, sync_problem
from covey.core.record.model import Settings
from covey.pilot.files import outputs, task_reports
from covey.pilot.host.tags import HostTags, Now, PilotFacts
from covey.pilot.protocol.ended_attempts import size_of
from covey.pilot.protocol.message_limits import allowed_end, allowed_tags, refused_end
from covey.pilot.protocol.messages import (
    LONGEST_PATH,
    LONGEST_TAG,
    MOST_ENROL_BYTES,
    MOST_FILES,
    MOST_RESULT,
    MOST_SYNC_BYTES,
    MOST_TAGS,
    PILOT_OUTCOMES,
    End,
    Enrol,
    OutputFile,
    Sync,
)
from covey.wire import decode

# Any text that Python can hold: half surrogate pairs, controls, what takes most bytes in JSON.
ANY = st.text(st.characters() | st.sampled_from('\ud800\udc80\0\x1b\u2028😀"\\'), max_size=40)
LONG = st.builds(lambda text, times: (text or "x") * times, ANY, st.sampled_from([1, 1, 100, 3000]))
FILE = st.builds(OutputFile, LONG.filter(bool), st.integers(0, 2**40), st.just(""), st.just(""))
FILES = st.lists(FILE, max_size=3)
PRINTED = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)  # decoded from bytes
END = st.builds(
    lambda outcome, stdout, result, message, files: End(
        1, 2, 3, 4, outcome, stdout=stdout, result=result, message=message, files=files
    ),
    st.sampled_from(PILOT_OUTCOMES),
    PRINTED,
    PRINTED,
    LONG,
    FILES,
)


def problem_of(sync: Sync) -> str:
    """What the server says to it, as it comes over the wire."""
    body = json.dumps(sync._asdict()).encode()
    assert len(body) <= MOST_SYNC_BYTES
    return sync_problem(decode(Sync, body), Settings().most_ends)


@settings(max_examples=300, deadline=None)
@given(END)
@example(End(1, 2, 3, 4, "ok", message="\udc80"))
@example(End(1, 2, 3, 4, "ok", result="x" * 70_000))
@example(End(1, 2, 3, 4, "ok", files=[OutputFile("f", 1)] * (MOST_FILES + 2000)))
@example(End(1, 2, 3, 4, "ok", files=[OutputFile("\0" * LONGEST_PATH, 1)] * MOST_FILES))
@example(End(1, 2, 3, 4, "ok", files=[OutputFile("d/" * LONGEST_PATH, 1)]))
@example(End(1, 2, 3, 4, "ok", files=[OutputFile("d\udc80", 1)]))
@example(End(1, 2, 3, 4, "ok", stdout="\0" * (1 << 20), stderr="\ufffd" * (1 << 20)))
def test_every_end_that_is_sent_is_taken(end: End) -> None:
    found = allowed_end(end)
    assert not problem_of(Sync(1, 1, 1, 0, 0, [found]))
    assert found[:4] == end[:4]
    if len(found.files) < len(end.files):  # it says so, and has not ended well
        assert found.outcome != "ok"
        assert found.message
    assert allowed_end(found) == found


@given(END, LONG)
def test_what_is_said_of_a_refused_end_is_taken(end: End, words: str) -> None:
    found = refused_end(end, words)
    assert not problem_of(Sync(1, 1, 1, 0, 0, [found]))
    assert found.outcome != "ok"
    assert size_of(found) < 5000


def test_what_slots_take_from_tasks_is_within_the_limits() -> None:
    assert outputs.MOST_FILES <= MOST_FILES
    assert task_reports.RESULT_BYTES <= MOST_RESULT


def test_two_full_logs_with_a_result_are_no_reason_to_fail() -> None:
    stream = "\0" * (1 << 20)
    end = End(1, 2, 3, 4, "ok", stdout=stream, stderr=stream, result="\u1234" * 21_000)
    assert allowed_end(end) == end


TAG = st.tuples(LONG, LONG)


@settings(max_examples=200, deadline=None)
@given(st.lists(TAG, max_size=20), st.integers(0, 300))
def test_all_tags_that_are_sent_are_taken(tags: list[tuple[str, str]], more: int) -> None:
    asked = {**dict(tags), **{f"name{n}": "😀" * (n % LONGEST_TAG) for n in range(more)}}
    found, missing = allowed_tags(asked)
    assert not problem_of(Sync(1, 1, 1, 0, 0, tags=found))
    assert set(found) <= set(asked)
    changed = {name for name in asked if found.get(name) != asked[name]}
    assert set(missing) == changed
    body = json.dumps(Enrol("key-of-a-pilot", "host", 1, tags=found)._asdict()).encode()
    assert len(body) <= MOST_ENROL_BYTES
    assert not enrol_problem(decode(Enrol, body))


LINES = st.lists(
    st.builds("{}={}".format, st.from_regex(r"[A-Za-z_]\w{0,9}", fullmatch=True) | LONG, LONG),
    max_size=20,
)


def tags_of(path: Path) -> HostTags:
    fixed = PilotFacts("p", "s", 1, 100, [], "/\udc80", "/cache", 0.0)
    return HostTags(fixed, str(path))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LINES, st.sampled_from(["ann", "b" * 1100, "\udc80"])), max_size=5))
def test_whatever_tasks_write_as_tags_is_taken_now_and_by_the_next_pilot(
    written: list[tuple[list[str], str]],
) -> None:

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tags.json"
        tags = tags_of(path)
        tags.at_enrolment()
        for lines, owner in written:
            tags.wrote(owner, "\n".join(lines))
        for now in (0.0, 100.0):
            found = tags.changed(now, Now(1, [], 0.1, 0.0))
            assert found is None or not problem_of(Sync(1, 1, 1, 0, 0, tags=found))
        tags.close()
        enrol = Enrol("key-of-a-pilot", "host", 1, tags=tags_of(path).at_enrolment())
        body = json.dumps(enrol._asdict()).encode()
        assert len(body) <= MOST_ENROL_BYTES
        assert not enrol_problem(decode(Enrol, body))


def test_the_newest_tags_stay_and_the_rest_is_told(tmp_path: Path) -> None:
    tags = tags_of(tmp_path / "tags.json")
    words = tags.wrote("ann", "\n".join(f"tag{n}={n}" for n in range(1000)))
    assert "850 tags were dropped or cut (ann:tag0, ann:tag1" in words
    found = tags.changed(0.0, Now(1, [], 0.1, 0.0))
    assert found is not None
    assert found["ann:tag999"] == "999"
    assert "ann:tag0" not in found
    assert len(found) <= MOST_TAGS
    assert found["tags_dropped"].startswith("850 tags were dropped or cut: at most")
    assert tags.wrote("ann", "tag999=1") == ""
