"""From the bytes of an answer to a value, or to what was raised.

Unpickling can run any code. So an answer is unpickled only if its proof fits the call
(`covey.worker.proof`): it comes from a host that was given this call. What such a host may do here
is decided by the executor's `trust`:

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
from covey.worker.calls import said
from covey.worker.loading import IN_BYTES, SETS_CLASS
from covey.worker.proof import PROOF_BYTES, proof_of

OBJECTS, DATA = "objects", "data"
TRUSTS = (OBJECTS, DATA)
MOST_IN_KEY = 10_000  # values, of a key or of an element of a set that is a tuple
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
    # A view costs more to make than a few bytes cost to copy.
    answer = data if len(data) < _SMALL else memoryview(data)
    return compare_digest(proof_of(key, kind, answer[:-PROOF_BYTES]), data[-PROOF_BYTES:])


def value(data: bytes, trust: str = OBJECTS) -> Any:
    """A pickle ends by itself: the proof behind it is not looked at. Raises Unreadable."""
    try:
        return _loaded(data, trust)
    except Exception as error:
        raise Unreadable(
            f"the value cannot be unpickled here: {type(error).__name__}: {error}"
        ) from error


def exception(
    data: bytes, trust: str = OBJECTS
) -> tuple[str, BaseException | None, RemoteTraceback]:
    """Of an answer that says that a call failed: its words, what was raised (None if that cannot
    be had), and where."""
    words = words_of(data)
    packed, text = _PlainUnpickler(data.partition(b"\0")[2]).load()
    raised: BaseException | None = None
    if packed is not None:
        try:
            found = _loaded(packed, trust)
            raised = found if isinstance(found, BaseException) else None
        except Exception as error:  # its class cannot be made of its arguments, or is not here
            words += f" (the exception itself cannot be unpickled here: {said(error)})"
    return words, raised, RemoteTraceback(str(text))


def words_of(data: bytes) -> str:
    """What an answer says to people of a call that failed."""
    return data.partition(b"\0")[0].decode("utf-8", "replace")


def _loaded(data: bytes, trust: str) -> Any:
    if trust != OBJECTS:
        return _PlainUnpickler(data).load()
    if IN_BYTES not in data:
        return pickle.loads(data)  # noqa: S301 # proven to come from a host that had the call
    with _classes_come:
        return _Unpickler(data).load()


class _Unpickler(pickle.Unpickler):
    """What comes of a class that travels by value brings it along, as it was on the host. One that
    is known here stays as it is here."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._known: list[type] = []

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if module.startswith("cloudpickle"):
            if name in ("_make_skeleton_class", "_make_skeleton_enum"):
                return functools.partial(self._make, found)
            if name == SETS_CLASS:
                return functools.partial(self._set, found)
        return found

    def _make(self, make: Any, *args: Any) -> Any:
        known = args[-2] in _CLASSES
        made = make(*args)
        if known:
            self._known.append(made)
        return made

    def _set(self, setstate: Any, made: Any, state: Any) -> Any:
        return made if any(made is one for one in self._known) else setstate(made, state)


# By the ids that cloudpickle gives them. If another version has none of these, classes are changed.
_CLASSES: Any = getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})
_classes_come = threading.RLock()  # one is known when it is begun: nobody else may see it then


def _bytearray(given: object = b"") -> bytearray:
    """`bytearray(10**12)` would take all memory: only bytes become one."""
    if not isinstance(given, bytes):
        raise pickle.UnpicklingError("a bytearray is made of bytes")
    return bytearray(given)


def _fraction(given: object, denominator: object = 1) -> Fraction:
    """Of two numbers or, as older Pythons write it, of text. `Fraction("1e999999999")` would take
    hours."""
    if isinstance(given, str) and _FRACTION.fullmatch(given):
        return Fraction(given)
    if isinstance(given, int) and isinstance(denominator, int):
        return Fraction(given, denominator)
    raise pickle.UnpicklingError("a fraction is made of two whole numbers")


def _complex(real: float, imaginary: float) -> complex:
    return complex(real, imaginary)


# Numbers, text, bytes, lists, tuples, dictionaries and sets are pickled without a name. These are
# the names that plain data needs besides, and what makes them here.
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
    """Raises UnpicklingError for tuples of tuples of the same tuples: hashing these takes hours."""
    for key in keys:
        if isinstance(key, tuple):
            left, seen = [key], 0
            while left:
                parts = left.pop()
                seen += len(parts)
                if seen > MOST_IN_KEY:
                    raise pickle.UnpicklingError("a key is a tuple of very many values")
                left += [part for part in parts if isinstance(part, tuple)]


# The one that is written in Python. That in C takes gigabytes if a few bytes say so (where a value
# is remembered), and lets them change the attributes of classes.
_PythonUnpickler: Any = getattr(pickle, "_Unpickler")  # noqa: B009


class _PlainUnpickler(_PythonUnpickler):  # type: ignore[misc]
    """Makes plain data and the exceptions that Python itself has, and nothing else."""

    dispatch: ClassVar[dict[int, Any]] = dict(_PythonUnpickler.dispatch)
    for code in (pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PERSID, pickle.BINPERSID):
        del dispatch[code[0]]

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._size = len(data)

    def load_build(self) -> None:
        """Only exceptions have attributes that come separately."""
        if len(self.stack) < 2 or not isinstance(self.stack[-2], Exception):
            raise pickle.UnpicklingError("it sets attributes of what is not an exception")
        super().load_build()

    def load_bytearray8(self) -> None:
        """Room for as many bytes as there are, not as it says that there are."""
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
        name: found
        for name, found in vars(builtins).items()
        if isinstance(found, type)
        and issubclass(found, Exception)
        and not issubclass(found, ExceptionGroup)
    }


_EXCEPTIONS = _exceptions()
