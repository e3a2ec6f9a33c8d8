"""Turns the bytes of an answer into a value, or into the exception that was raised.

Unpickling can run any code. So an answer is unpickled only if its proof fits the call
(`covey.worker.proof`): then it comes from a host that was given this call. The executor's `trust`
says what such a host may do here:

- OBJECTS: a value may be any object. Hosts that run calls are trusted to run code in this program.
- DATA: a value is plain data (see `_PLAIN`). Anything else is refused before it does anything.
"""

import functools
import io
import pickle
import re
import threading
from collections.abc import Sequence
from fractions import Fraction
from hmac import compare_digest
from typing import Any, ClassVar

import cloudpickle

from covey.core.errors import CoveyError
from covey.executor.failures import RemoteTraceback
from covey.worker.calls import described
from covey.worker.loading import IN_BYTES, SETS_CLASS
from covey.worker.proof import PROOF_BYTES, proof_of

OBJECTS, DATA = "objects", "data"
TRUSTS = (OBJECTS, DATA)
MOST_IN_KEY = 10_000  # values inside a tuple that is a key or an element of a set
_SMALL = 4096  # bytes


class Unreadable(CoveyError):
    """The answer cannot be unpickled here."""


def check_trust(trust: str) -> None:
    """Raises ValueError."""
    if trust not in TRUSTS:
        raise ValueError(f"trust is {OBJECTS!r} or {DATA!r}, not {trust!r}")


def is_proven(key: bytes, kind: bytes, data: bytes) -> bool:
    """Whether the answer was made by a worker that had the call with this key."""
    if len(data) < PROOF_BYTES:
        return False
    # For a few bytes a copy costs less than a view.
    answer = data if len(data) < _SMALL else memoryview(data)
    return compare_digest(proof_of(key, kind, answer[:-PROOF_BYTES]), data[-PROOF_BYTES:])


def value(data: bytes, trust: str = OBJECTS) -> Any:
    """A pickle has its own end, so the proof after it does not matter. Raises Unreadable."""
    try:
        return _loaded(data, trust)
    except Exception as error:
        raise Unreadable(
            f"the value cannot be unpickled here: {type(error).__name__}: {error}"
        ) from error


def exception(
    data: bytes, trust: str = OBJECTS
) -> tuple[str, BaseException | None, RemoteTraceback]:
    """From the answer of a failed call: the message, the exception that was raised (None if it
    cannot be made here), and its traceback."""
    words = words_of(data)
    packed, text = _PlainUnpickler(data.partition(b"\0")[2]).load()
    raised: BaseException | None = None
    if packed is not None:
        try:
            loaded = _loaded(packed, trust)
            raised = loaded if isinstance(loaded, BaseException) else None
        except Exception as error:  # its class is not here, or does not take its arguments
            words += f" (the exception itself cannot be unpickled here: {described(error)})"
    return words, raised, RemoteTraceback(str(text))


def words_of(data: bytes) -> str:
    """The message in the answer of a failed call."""
    return data.partition(b"\0")[0].decode("utf-8", "replace")


def _loaded(data: bytes, trust: str) -> Any:
    if trust != OBJECTS:
        return _PlainUnpickler(data).load()
    if IN_BYTES not in data:
        return pickle.loads(data)  # noqa: S301 # proven to come from a host that had the call
    with _classes_come:
        return _Unpickler(data).load()


class _Unpickler(pickle.Unpickler):
    """An object whose class was pickled by value brings the class with it, as it was on the host. A
    class that is known here stays unchanged."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._known: list[type] = []

    def find_class(self, module: str, name: str) -> Any:
        attribute = super().find_class(module, name)
        if module.startswith("cloudpickle"):
            if name in ("_make_skeleton_class", "_make_skeleton_enum"):
                return functools.partial(self._make, attribute)
            if name == SETS_CLASS:
                return functools.partial(self._set, attribute)
        return attribute

    def _make(self, make: Any, *args: Any) -> Any:
        known = args[-2] in _CLASSES
        made = make(*args)
        if known:
            self._known.append(made)
        return made

    def _set(self, setstate: Any, made: Any, state: Any) -> Any:
        return made if any(made is known for known in self._known) else setstate(made, state)


# cloudpickle's classes by id. With a version that has no such table, known classes change.
_CLASSES: Any = getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})
_classes_come = threading.RLock()  # held while a class is known but incomplete


def _bytearray(data: object = b"") -> bytearray:
    """Only bytes are accepted: `bytearray(10**12)` would take all memory."""
    if not isinstance(data, bytes):
        raise pickle.UnpicklingError("a bytearray is made of bytes")
    return bytearray(data)


def _fraction(numerator: object, denominator: object = 1) -> Fraction:
    """From two integers or, as older Pythons write it, from text. `Fraction("1e999999999")` would
    take hours."""
    if isinstance(numerator, str) and _FRACTION.fullmatch(numerator):
        return Fraction(numerator)
    if isinstance(numerator, int) and isinstance(denominator, int):
        return Fraction(numerator, denominator)
    raise pickle.UnpicklingError("a fraction is made of two whole numbers")


def _complex(real: float, imaginary: float) -> complex:
    return complex(real, imaginary)


# Numbers, text, bytes, lists, tuples, dictionaries and sets are pickled without a name. These are
# the other names that plain data needs, and the functions that make the objects here.
_PLAIN = {
    ("builtins", "bytearray"): _bytearray,
    ("builtins", "complex"): _complex,
    ("fractions", "Fraction"): _fraction,
}
_DATA_TYPES = {
    ("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")
} | {("decimal", "Decimal")}
_FRACTION = re.compile(r"-?[0-9]{1,4000}(/[0-9]{1,4000})?")


def _check_keys(keys: Sequence[Any]) -> None:
    """Raises UnpicklingError for deeply shared tuples of tuples: hashing these takes hours."""
    for key in keys:
        if isinstance(key, tuple):
            left, seen = [key], 0
            while left:
                parts = left.pop()
                seen += len(parts)
                if seen > MOST_IN_KEY:
                    raise pickle.UnpicklingError("a key is a tuple of very many values")
                left += [part for part in parts if isinstance(part, tuple)]


# The implementation in Python. The one in C takes gigabytes if a few bytes ask for it (in the memo
# of values), and can change attributes of classes.
_PythonUnpickler: Any = getattr(pickle, "_Unpickler")  # noqa: B009


class _PlainUnpickler(_PythonUnpickler):  # type: ignore[misc]
    """Makes only plain data and Python's own exceptions."""

    dispatch: ClassVar[dict[int, Any]] = dict(_PythonUnpickler.dispatch)
    for code in (pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PERSID, pickle.BINPERSID):
        del dispatch[code[0]]

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._size = len(data)

    def load_build(self) -> None:
        """Only exceptions may have attributes that come separately."""
        if len(self.stack) < 2 or not isinstance(self.stack[-2], Exception):
            raise pickle.UnpicklingError("it sets attributes of an object that is not an exception")
        super().load_build()

    def load_bytearray8(self) -> None:
        """Allocate only as many bytes as there are, whatever the length field says."""
        size = int.from_bytes(self.read(8), "little")
        if size > self._size:
            raise pickle.UnpicklingError("it ends in the middle of a bytearray")
        self.append(bytearray(self.read(size)))

    def load_setitem(self) -> None:
        _check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        _check_keys(self.stack[::2])
        super().load_setitems()

    def load_additems(self) -> None:
        _check_keys(self.stack)
        super().load_additems()

    def load_frozenset(self) -> None:
        _check_keys(self.stack)
        super().load_frozenset()

    def load_dict(self) -> None:
        _check_keys(self.stack[::2])
        super().load_dict()

    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.ADDITEMS[0]] = load_additems
    dispatch[pickle.FROZENSET[0]] = load_frozenset
    dispatch[pickle.DICT[0]] = load_dict

    def find_class(self, module: str, name: str) -> Any:
        made = _PLAIN.get((module, name))
        if made is not None:
            return made
        if (module, name) in _DATA_TYPES:
            return super().find_class(module, name)
        if module == "builtins" and name in _EXCEPTIONS:
            return _EXCEPTIONS[name]
        raise pickle.UnpicklingError(
            f"it holds {module}.{name}, which is not plain data: only numbers, text, bytes, dates, "
            "lists, tuples, dictionaries and sets of these come from hosts that are not trusted "
            f"with code (trust={DATA!r})"
        )


def _exceptions() -> dict[str, type[Exception]]:
    import builtins

    return {
        name: value
        for name, value in vars(builtins).items()
        if isinstance(value, type)
        and issubclass(value, Exception)
        and not issubclass(value, ExceptionGroup)
    }


_EXCEPTIONS = _exceptions()
