"""Results are JSON objects, whatever was written; tags are whole lines."""

import os
from pathlib import Path

import pytest

from covey.pilot.files.task_reports import (
    DROPPED,
    TagPipe,
    TaskResult,
    ignored_line,
    last_object,
    object_text,
)
from covey.pilot.slots import slot_signals


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"a" : 1, "b": 2.50}', '{"a":1,"b":2.5}'),
        (b'\xef\xbb\xbf{"a": 1}\n\n', '{"a":1}'),
        (b'{"a": NaN, "b": -Infinity, "c": 1e400}', '{"a":null,"b":"-Infinity","c":"Infinity"}'),
        (b'{"a": "\\ud800"}', '{"a":"\\ud800"}'),
        (b'{"a": "\\u0000\\u00e9"}', '{"a":"\\u0000é"}'),
        (b'{"a": 123456789012345678901234567890}', '{"a":123456789012345678901234567890}'),
    ],
)
def test_an_object_becomes_compact_json(data: bytes, text: str) -> None:
    assert object_text(data) == text


@pytest.mark.parametrize("data", [b"", b"1", b"[]", b"{", b"{'a': 1}", b"\xff", b'{"a": 1} x'])
def test_what_is_no_object(data: bytes) -> None:
    with pytest.raises(ValueError):
        object_text(data)


def test_an_object_has_a_limit() -> None:
    assert object_text(b'{"a":"' + b"x" * 65528 + b'"}')
    with pytest.raises(ValueError, match="longer"):
        object_text(b'{"a":"' + b"x" * 65529 + b'"}')


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (b'x\n{"a": 1}\n', '{"a":1}'),
        (b'{"a": 1}', '{"a":1}'),
        (b'{"a": 1}\nx', ""),
        (b'x {"a": 1}', ""),
        (b"{a}", ""),
        (b"", ""),
    ],
)
def test_the_last_line(printed: bytes, text: str) -> None:
    assert last_object(printed) == text


def test_a_result_is_empty_again_after_each_task(tmp_path: Path) -> None:
    path = tmp_path / "result"
    result = TaskResult(str(path))
    result.open()
    for text in ("one", "two"):
        path.write_text(text)
        assert result.take() == text.encode()
        assert result.take() is None
        assert not result.stale
    other = tmp_path / "other"
    other.write_text("moved")
    other.rename(path)
    assert result.take() == b"moved"
    assert result.stale
    result.open()
    assert (result.take(), result.stale, path.read_text()) == (None, False, "")


def test_tags_are_drained_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        slot_signals, "signal_input", lambda fd: None
    )  # the signal would end this process
    path = tmp_path / "tags"
    tags = TagPipe(str(path))
    assert (tags.take(), tags.watched()) == ("", [])
    tags.open()
    writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(writer, b"a=1\nb=2")
    assert tags.take() == "a=1\nb=2"
    for _ in range(10):
        os.write(writer, b"x=12345\n" * 1000)
        tags.drain()
    kept = tags.take()
    assert kept.endswith("\nx=12345\n" + DROPPED)
    assert len(kept) == 16384 + len(DROPPED)
    os.write(writer, b"123456789\n" * 5000)
    assert tags.take() == "123456789\n" * 1638 + DROPPED
    before = tags.watched()
    tags.open()  # a task removed it
    assert tags.watched() == before
    path.open("w").write("c=3\n")
    assert tags.take() == "c=3\n"
    os.close(writer)


def test_a_last_line_that_is_too_long_is_told_of() -> None:
    assert "longer than 65536 bytes" in ignored_line(b'{"a":"' + b"x" * 65536 + b'"}\n')
    assert ignored_line(b'{"a":1}\n') == ""
    assert ignored_line(b"x\n" * 40000 + b'{"a":1}\n') == ""
