"""The worker's half of a call, without a process."""

import binascii
import functools
import pickle
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from covey.executor.packing import Packer, Small
from covey.executor.unpacking import exception, value
from covey.pilot.calls import call_records
from covey.worker import frames, main
from covey.worker.calls import EACH, MOST_EXCEPTION, ONE, PROTOCOL, CallRunner
from covey.worker.frames import ERROR, VALUE
from covey.worker.loading import MOST_KEPT
from covey.worker.proof import KEY_BYTES


def call(function: Any, *args: Any, kind: int = ONE, **kwargs: Any) -> bytes:
    given = [(one,) for one in args] if kind == EACH else (args, kwargs)
    return pickle.dumps(
        (kind, cloudpickle.dumps(function), cloudpickle.dumps(given)), protocol=PROTOCOL
    ) + bytes(KEY_BYTES)


def doer() -> CallRunner:
    return CallRunner(cloudpickle.dumps)


def failed(function: Any, *args: Any) -> tuple[str, BaseException | None, str]:
    kind, data, _ = doer().do(call(function, *args))
    assert kind == ERROR
    words, raised, where = exception(data)
    return words, raised, where.text


def test_both_ends_of_the_line_speak_alike() -> None:
    kinds = ("HELLO", "REFUSE", "VALUE", "FILE", "ERROR", "PACKED", "ON_LINE", "GO")
    for name in (*kinds, "CALLS", "QUEUE", "MOST_INLINE", "MOST_PACKET"):
        assert getattr(frames, name) == getattr(call_records, name), name
    assert frames.BY_FILE.decode() == call_records.BY_FILE
    for name in ("LENGTH", "HEAD", "LABEL"):
        assert getattr(frames, name).format == getattr(call_records, name).format, name


def test_a_call_has_a_value() -> None:
    kind, data, _ = doer().do(call(lambda x, y=0: x - y, 5, y=3))
    assert (kind, value(data)) == (VALUE, 2)


def test_a_chunk_has_a_list_of_values() -> None:
    kind, data, _ = doer().do(call(abs, -1, -2, kind=EACH))
    assert (kind, value(data)) == (VALUE, [1, 2])


def test_a_function_that_comes_again_is_not_made_again() -> None:
    def counts() -> int:
        counts.times = getattr(counts, "times", 0) + 1  # type: ignore[attr-defined]
        return counts.times  # type: ignore[attr-defined]

    one, again = doer(), call(counts)
    assert [value(one.do(again)[1]) for _ in range(3)] == [1, 2, 3]


def test_a_call_in_a_file_is_done(tmp_path: Path) -> None:
    path = tmp_path / "call"
    path.write_bytes(call(len, bytes(3_000_000)))
    kind, data, _ = doer().do(b"@call", str(path))
    assert (kind, value(data)) == (VALUE, 3_000_000)
    path.write_bytes(call(bytes.__add__, b"x" * 1_000_000, b"y")[:-1000])
    for wrong in (path, tmp_path / "nothing"):
        kind, data, _ = doer().do(b"@call", str(wrong))
        assert kind == ERROR
        assert exception(data)[0].startswith("the call cannot be unpickled here: ")


def test_a_large_function_is_not_kept() -> None:
    data = bytes(2 * MOST_KEPT)
    one, large, small = doer(), call(lambda: len(data)), call(lambda: 0)
    assert [value(one.do(each)[1]) for each in (large, small, large)] == [len(data), 0, len(data)]
    assert len(one._loader._functions) == 1


def test_an_exception_comes_with_words_and_traceback() -> None:
    words, raised, text = failed(int, "three")
    assert isinstance(raised, ValueError)
    assert words.startswith("ValueError: invalid literal")
    assert "invalid literal" in text
    assert "covey" not in text


@pytest.mark.parametrize("size", [MOST_EXCEPTION, 10_000_000])
def test_an_exception_that_is_too_large_is_words_only(size: int) -> None:
    def large() -> None:
        raise ValueError("x" * size)

    words, raised, text = failed(large)
    assert raised is None
    assert words.startswith("ValueError: xxx")
    assert len(words) < 1000
    assert len(text) < 20_000


def test_it_is_said_why_an_exception_does_not_come_as_itself() -> None:
    class Holding(Exception):
        def __init__(self) -> None:
            super().__init__(threading.Lock())

    class Demanding(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__("words")

    def raises(kind: Any, *args: Any) -> None:
        raise kind(*args)

    words, raised, _ = failed(raises, Holding)
    assert raised is None
    assert "(the exception itself cannot be pickled: TypeError: cannot pickle '_thread" in words
    words, raised, _ = failed(raises, Demanding, 1, 2)
    assert raised is None
    assert "words (the exception itself cannot be unpickled here: TypeError: " in words


def test_an_exception_without_words_of_its_own_is_named() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def raises() -> None:
        raise Mute

    assert "Mute" in failed(raises)[0]


def test_an_end_of_the_program_is_no_end_of_the_worker() -> None:
    def ends() -> None:
        raise SystemExit(3)

    words, raised, _ = failed(ends)
    assert words == "the function called sys.exit(3)"
    assert raised is None


def test_a_value_that_cannot_be_pickled_is_named() -> None:
    words, raised, _ = failed(threading.Lock)
    assert words.startswith("the value cannot be pickled (_thread.lock)")
    assert raised is None


def test_a_call_that_cannot_be_read_is_an_error() -> None:
    missing = b"cno_such_module\nfunction\n."
    kind, data, _ = doer().do(pickle.dumps((ONE, missing, pickle.dumps(((), {})))))
    assert kind == ERROR
    assert exception(data)[0].startswith("the call cannot be unpickled here: ModuleNotFoundError")


def test_threads_that_stay_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    stop = threading.Event()
    _waits["event"] = stop
    kind, _, _ = doer().do(call(_start))
    stop.set()
    assert kind == VALUE
    assert "a straggler" in capsys.readouterr().err


_waits: dict[str, threading.Event] = {}


def _start() -> None:
    threading.Thread(target=_waits["event"].wait, name="a straggler").start()


def test_what_an_initializer_changes_is_there_for_functions_of_its_module() -> None:
    names: dict[str, Any] = {"__name__": "notebook", "model": None, "other": 1}
    text = "def load():\n global model\n model = 'loaded'\ndef look():\n return model, other\n"
    exec(text, names)  # noqa: S102 # as a notebook does
    one = doer()
    one.prepare(cloudpickle.dumps((names["load"], ())))
    assert value(one.do(call(names["look"]))[1]) == ("loaded", 1)
    names["other"] = 2
    assert value(one.do(call(names["look"]))[1]) == ("loaded", 2)
    elsewhere: dict[str, Any] = {"__name__": "elsewhere", "model": "its own"}
    exec("def look():\n    return model\n", elsewhere)  # noqa: S102
    assert value(one.do(call(elsewhere["look"]))[1]) == "its own"


def test_what_an_initializer_changes_in_place_is_kept_and_nothing_else() -> None:
    names: dict[str, Any] = {"__name__": "notebook", "threading": threading}
    text = (
        "models, cache, read = [], {}, [1]\n"
        "def helper(): return len(read)\n"
        "def load():\n models.append(helper())\n cache['lock'] = threading.Lock()\n"
        "def look(): return models, len(cache), read, helper()\n"
    )
    exec(text, names)  # noqa: S102 # as a notebook does
    one = doer()
    one.prepare(cloudpickle.dumps((names["load"], ())))
    assert value(one.do(call(names["look"]))[1]) == ([1], 1, [1], 1)
    for changed in ("models", "read"):
        names[changed].append(2)
    assert value(one.do(call(names["look"]))[1]) == ([1], 1, [1, 2], 2)


def test_objects_are_not_kept_with_their_methods() -> None:
    one = doer()
    for function in ([1].append, functools.partial([0].append, 1), functools.partial(pow, 2)):
        one.do(call(function, 2))
    assert len(one._loader._functions) == 1


def test_another_python_is_refused_in_words() -> None:
    assert main.refusal("") == ""
    assert main.refusal(main.python_here()) == ""
    words = main.refusal("cpython 2.7")
    assert "pickled with cpython 2.7, but " in words
    assert main.python_here() in words
    assert main.refusal("pypy " + main.python_here().split()[1])


def test_calls_that_a_packer_makes_are_understood() -> None:
    packer = Packer()
    one = doer()
    for made, expected in (
        (packer.call(divmod, (7, 2), {}), (3, 1)),
        (packer.call(int, ("ff",), {"base": 16}), 255),
        (packer.calls(pow, [(2, 3), (3, 2)]), [8, 9]),
    ):
        assert isinstance(made, Small)
        assert value(one.do(binascii.a2b_base64(made.text))[1]) == expected
