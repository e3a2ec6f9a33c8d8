"""Messages survive the wire, and nothing else gets through."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.pilot.main import read_answer
from covey.pilot.protocol.messages import Answer, Body, End, Enrol, Held, Sync, Task
from covey.wire import decode, encode

SYNC = Sync(3, 2, 9, 8, 4, [End(2, 5, 1, 0, "ok", 0)], [Held(2, 6, 1, 1)])


def test_what_a_pilot_sends_is_what_the_server_reads() -> None:
    assert decode(Sync, json.dumps(SYNC._asdict()).encode()) == SYNC


def test_what_the_server_answers_is_what_the_pilot_reads() -> None:
    answer = Answer(
        2, 9, [Body(1, ["a"], ["x"])], [Task(7, 1, 2, ["v", 1, 0.5])], [Held(1, 2, 3, 4)]
    )
    assert read_answer(json.loads(encode(answer))) == answer


def test_a_field_from_the_future_is_ignored_on_both_sides() -> None:
    sent = {**SYNC._asdict(), "colour": "blue"}
    assert decode(Sync, json.dumps(sent).encode()) == SYNC
    answer = json.loads(encode(Answer(1, 1, tasks=[Task(1, 1, 1, [])])))
    answer["colour"] = "blue"
    answer["tasks"][0].append("more")
    assert read_answer(answer) == Answer(1, 1, tasks=[Task(1, 1, 1, [])])


@pytest.mark.parametrize(
    "change",
    [
        {"number": "9"},
        {"number": None},
        {"number": 1.5},
        {"ends": [[1, 2, 3]]},
        {"ends": {}},
        {"held": [[1, 2, 3, "x"]]},
    ],
)
def test_a_field_of_the_wrong_kind_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(Sync, json.dumps({**SYNC._asdict(), **change}).encode())


def test_a_missing_field_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="key"):
        decode(Enrol, b'{"host": "h", "slots": 1}')


@given(st.binary(max_size=200))
def test_rubbish_is_refused_with_words(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(Sync, body)
