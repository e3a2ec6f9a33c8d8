"""When a function is pickled, and when what was pickled still stands."""

import functools
import gc
import hashlib
from typing import Any

import pytest

from covey.core.record.model import Blob
from covey.executor.failures import CallTooLarge
from covey.executor.packing import MOST_INLINE, Large, Packer, Small
from covey.executor.unpacking import Unreadable, value
from covey.pilot.calls.call_records import MOST_CALL, MOST_FILE
from covey.worker import pickler


@pytest.fixture
def pickled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything that is pickled, in order."""
    found: list[Any] = []
    real = pickler.dumps

    def dumps(what: Any, *rest: Any) -> bytes:
        found.append(what)
        return real(what, *rest)

    monkeypatch.setattr(pickler, "dumps", dumps)
    return found


def in_module(text: str, **names: Any) -> dict[str, Any]:
    found = {"__name__": "__main__", **names}
    exec(text, found)  # noqa: S102 # as a notebook does
    return found


def test_a_function_is_pickled_once(pickled: list[Any]) -> None:
    packer, function = Packer(), in_module("def f(x): return x")["f"]
    for number in range(3):
        packer.call(function, (number,), {})
    assert pickled == [function]


def test_one_that_looks_at_constants_functions_and_modules_too(pickled: list[Any]) -> None:
    names = in_module("import os\nk = 2\ndef g(): return k\ndef f(): return g(), os.sep, undefined")
    packer = Packer()
    assert packer.function(names["f"]) is packer.function(names["f"])
    assert len(pickled) == 1


@pytest.mark.parametrize("change", [{"k": 3}, {"g": abs}, {"undefined": 1}])
def test_it_is_pickled_again_when_a_name_means_something_else(change: dict[str, Any]) -> None:
    names = in_module("k = 2\ndef g(x): return k\ndef f(): return g(undefined)")
    packer = Packer()
    before = packer.function(names["f"])
    names.update(change)
    assert packer.function(names["f"]) != before


def test_a_cell_that_changed_is_noticed() -> None:
    count = 1

    def look() -> int:
        return count

    packer = Packer()
    assert value(packer.function(look))() == 1
    count = 2
    assert value(packer.function(look))() == 2


def test_one_that_looks_at_a_list_is_pickled_every_time() -> None:
    seen: list[int] = []

    def look(shift: int = 0) -> int:
        return len(seen) + shift

    packer = Packer()
    assert value(packer.function(look))() == 0
    seen.append(1)
    assert value(packer.function(look))() == 1


def test_a_default_that_may_change_is_not_trusted() -> None:
    def look(seen: list[int] = []) -> int:  # noqa: B006
        return len(seen)

    packer = Packer()
    assert value(packer.function(look))() == 0
    assert look.__defaults__ is not None
    look.__defaults__[0].append(1)
    assert value(packer.function(look))() == 1


def test_what_is_no_function_is_pickled_every_time() -> None:
    seen: list[int] = []
    partial = functools.partial(len, seen)
    packer = Packer()
    assert value(packer.function(partial))() == 0
    seen.append(1)
    assert value(packer.function(partial))() == 1


def test_a_function_that_is_gone_is_forgotten() -> None:
    packer = Packer()
    for _ in range(10):
        packer.function(in_module("def f(): pass")["f"])
        gc.collect()
    assert not packer._kept


def test_the_largest_call_has_a_limit() -> None:
    packer = Packer()
    most = packer.call(len, (bytes(MOST_FILE - 2000),), {})
    assert isinstance(most, Large)
    assert MOST_FILE - 2000 < most.blob.size <= MOST_FILE
    with pytest.raises(CallTooLarge, match=r"arguments should.*name of a file"):
        packer.call(len, (bytes(MOST_FILE),), {})
    large = bytes(MOST_FILE)
    with pytest.raises(CallTooLarge, match="its function"):
        packer.call(lambda: len(large), (), {})


def test_a_large_call_is_named_by_its_content() -> None:
    packer = Packer()
    small = packer.call(len, (bytes(MOST_INLINE - 1000),), {})
    assert isinstance(small, Small)
    assert len(small.text) < MOST_CALL
    one, same, other = (packer.calls(len, [(bytes(MOST_INLINE), n)]) for n in (1, 1, 2))
    assert isinstance(one, Large)
    assert isinstance(other, Large)
    assert one == same
    assert one.text != other.text
    assert one.text == f"@{hashlib.sha256(one.data).hexdigest()}:{len(one.data):09}"
    assert one.blob == Blob(one.text[1:65], len(one.data))


def test_what_cannot_be_unpickled_is_said() -> None:
    with pytest.raises(Unreadable, match="no_such_module"):
        value(b"cno_such_module\nfunction\n.")
