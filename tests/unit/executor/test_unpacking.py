"""What a host may make this program do by an answer: nothing, unless it was given the call and is
trusted with objects."""

import binascii
import datetime
import decimal
import fractions
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from covey.executor import answers
from covey.executor.executor import Executor
from covey.executor.failures import CallFailed
from covey.executor.packing import Packer, Small
from covey.executor.unpacking import DATA, OBJECTS, Unreadable, exception, is_proven, value
from covey.worker.calls import CallRunner
from covey.worker.frames import ERROR, VALUE
from covey.worker.proof import PROOF_BYTES, proof_of
from tests.unit.executor.lane_server import SECONDS, Server, row

KEY = bytes(range(16))
PLAIN = [
    None, True, 3, -(1 << 80), 0.5, 1 + 2j, "text", b"bytes", bytearray(b"more"), [1, [2]],
    (1, (2,)), {"a": {1: "b"}}, {1, 2}, frozenset({3}), datetime.datetime(2026, 11, 18, 1, 2, 3),
    datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), datetime.date(2026, 1, 1),
    datetime.timedelta(3), decimal.Decimal("1.5"), fractions.Fraction(1, 3),
]  # fmt: skip


class Touch:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def proven(kind: bytes, data: bytes, key: bytes = KEY) -> bytes:
    return data + proof_of(key, kind, data)


@pytest.mark.parametrize("one", PLAIN, ids=repr)
@pytest.mark.parametrize("protocol", [4, 5])  # what workers write
def test_plain_data_comes_back_as_itself(one: Any, protocol: int) -> None:
    found = value(proven(VALUE, pickle.dumps(one, protocol)), DATA)
    assert found == one
    assert type(found) is type(one)


@pytest.mark.parametrize(
    "evil",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cbuiltins\ngetattr\n(S'1'\nS'format'\ntR.",
        b"(S'true'\nios\nsystem\n.",  # INST
        b"cbuiltins\nBaseExceptionGroup\n.",
        b"cbuiltins\nbytearray\n(J\xff\xff\xff\x7ftR.",  # two gigabytes of nothing
        b"cdatetime\ndatetime.now\n(tR.",  # a dotted name
        b"\x82\x01.",  # an extension code
        b"Pname\n.",  # a persistent id
        b"cfractions\nFraction\n(S'1e999999999'\ntR.",  # a number of a billion digits
        b"cfractions\nFraction\nN}S'limit_denominator'\nK\x01s\x86b.",  # an attribute of a class
        b"cdatetime\ndate\n}S'today'\nK\x01sb.",
        b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"few.",
        b"\x80\x02}N" + b"2\x86" * 70 + b"Ns.",  # a key of 2**70 parts
        b"\x80\x04\x8f(N" + b"2\x86" * 70 + b"\x90.",
        pickle.dumps(Path("x"), 4),
        pickle.dumps(Touch, 4),
        cloudpickle.dumps(lambda: 1),
        b"",
        b"\x80\x04",
        b"not a pickle",
    ],
)
def test_nothing_else_does(evil: bytes) -> None:
    with pytest.raises(Unreadable):
        value(evil, DATA)


def test_what_is_refused_has_done_nothing(tmp_path: Path) -> None:
    evil = pickle.dumps({"result": [1, Touch(tmp_path / "made")]})
    with pytest.raises(Unreadable, match=r"it holds posix\.mkdir, which is not plain data"):
        value(evil, DATA)
    assert not (tmp_path / "made").exists()
    value(evil, OBJECTS)
    assert (tmp_path / "made").exists(), "the attack would work"


def test_exceptions_of_python_itself_are_plain() -> None:
    def fail() -> None:
        raise KeyError("no such town")

    packed = Packer().call(fail, (), {})
    assert isinstance(packed, Small)
    kind, data, _ = CallRunner(cloudpickle.dumps).do(_bytes(packed))
    assert kind == ERROR
    words, raised, where = exception(data, DATA)
    assert (words, type(raised)) == ("KeyError: 'no such town'", KeyError)
    assert "in fail" in where.text


def test_other_exceptions_keep_their_words() -> None:
    data = b"Odd: 1\0" + pickle.dumps((pickle.dumps(Path("x")), "the traceback"))
    words, raised, where = exception(data, DATA)
    assert raised is None
    assert words.startswith("Odd: 1 (the exception itself cannot be unpickled here: ")
    assert "the traceback" in str(where)


def test_even_trusted_hosts_wrap_an_exception_in_plain_data(tmp_path: Path) -> None:
    data = b"words\0" + pickle.dumps((None, Touch(tmp_path / "made")))
    with pytest.raises(pickle.UnpicklingError):
        exception(data, OBJECTS)
    assert not (tmp_path / "made").exists()


def _bytes(packed: Small) -> bytes:
    return binascii.a2b_base64(packed.text)


def test_each_call_has_a_key_and_its_answer_is_proven_by_it() -> None:
    packer, doer = Packer(), CallRunner(cloudpickle.dumps)
    one, other = (packer.call(abs, (-3,), {}) for _ in range(2))
    assert isinstance(one, Small)
    assert isinstance(other, Small)
    assert one.key != other.key
    kind, data, proof = doer.do(_bytes(one))
    answer = data + proof
    assert is_proven(one.key, kind, answer)
    assert not is_proven(other.key, kind, answer), "the answer to another call"
    assert not is_proven(one.key, ERROR, answer), "a value that is said to be an error"
    assert not is_proven(one.key, kind, data)
    assert not is_proven(one.key, kind, b"")
    for place in range(len(answer)):
        changed = answer[:place] + bytes([answer[place] ^ 1]) + answer[place + 1 :]
        assert not is_proven(one.key, kind, changed)


def test_large_values_are_proven_too(executor: Executor, server: Server) -> None:
    assert len(executor.submit(bytes, 100_000).result(SECONDS)) == 100_000
    assert len(server.files[0]) > 100_000 + PROOF_BYTES


@pytest.mark.parametrize("trust", [OBJECTS, DATA])
def test_an_answer_without_proof_is_not_unpickled(
    server: Server, tmp_path: Path, trust: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who was never given the calls answers them."""
    evil, executor = pickle.dumps(Touch(tmp_path / "made")), Executor(server, trust=trust)
    for kind, forged in ((VALUE, evil), (ERROR, b"Oops\0" + pickle.dumps((evil, "text")))):
        answer = proven(kind, forged)
        monkeypatch.setattr(
            CallRunner,
            "do",
            lambda *_, kind=kind, answer=answer: (kind, answer[:-16], answer[-16:]),
        )
        with pytest.raises(CallFailed, match="it was not unpickled") as caught:
            executor.submit(abs, -1).result(SECONDS)
        assert ("Oops" in str(caught.value)) == (kind == ERROR)
    executor.shutdown()
    assert not (tmp_path / "made").exists()


def test_a_host_that_has_the_call_runs_nothing_where_only_data_is_trusted(
    server: Server, tmp_path: Path
) -> None:
    with Executor(server, trust=DATA) as executor:
        assert executor.submit(divmod, 7, 2).result(SECONDS) == (3, 1)
        with pytest.raises(CallFailed, match="not plain data"):
            executor.submit(Touch, tmp_path / "made").result(SECONDS)
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 7, 0).result(SECONDS)
    assert not (tmp_path / "made").exists()


def test_trust_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="trust is 'objects' or 'data', not 'all'"):
        Executor(trust="all")


def test_whoever_has_no_key_gets_plain_data() -> None:
    import binascii

    answer = {"value": binascii.b2a_base64(proven(VALUE, pickle.dumps([1, "a"]))).decode()}
    assert answers.value(row(0, 0.0, answer, True), 7, lambda: None, DATA) == [1, "a"]  # type: ignore[arg-type, return-value]


def test_fractions_of_older_pythons() -> None:
    assert value(b"cfractions\nFraction\n(S'-3/4'\ntR.", DATA) == fractions.Fraction(-3, 4)


def test_few_bytes_do_not_take_much_memory() -> None:
    """The second value is remembered as number four billion."""
    sparse = b"\x80\x02]r\xff\xff\xff\xff(K\x01e."
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from covey.executor.unpacking import DATA, value\n"
        f"print(value({sparse!r}, DATA))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[1]\n", done.stderr
