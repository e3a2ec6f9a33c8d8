"""From a function and its arguments to the bytes of a call, and from an answer to a value.

A function is pickled once, as long as nothing it looks at has changed (`watching`): what travels by
value holds the globals and the closure of that moment.
"""

import binascii
import functools
import hashlib
import io
import pickle
import threading
import types
import weakref
from typing import Any, NamedTuple

import cloudpickle

from covey.core import calls
from covey.core.errors import CoveyError
from covey.core.model import Blob
from covey.executor import culprit
from covey.executor.failures import CallTooLarge, RemoteTraceback
from covey.executor.watching import Watched, unchanged, watch
from covey.pilot.calling import MOST_CALL, MOST_FILE
from covey.worker import pickler
from covey.worker.calls import EACH, ONE, PROTOCOL, said
from covey.worker.loading import IN_BYTES, SETS_CLASS, SIMPLE

MOST_KEPT = 1000  # functions; some hold themselves
MOST_INLINE = 1 << 18  # bytes of a call that is not worth a file
AROUND = 1 << 10  # more than a call has besides its function and arguments
assert MOST_INLINE + AROUND <= MOST_CALL


class Large(NamedTuple):
    """A call that travels as a file; `text` is what travels in its place."""

    text: str
    blob: Blob
    data: bytes


class _Kept(NamedTuple):
    function: "weakref.ref[Any]"
    packed: bytes
    watched: Watched | None  # None: it travels as a name


class Packer:
    """For several threads: no lock is held, two may do the same work."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | Large:
        """As it travels. Raises CallTooLarge, and what pickling raises."""
        try:
            if not kwargs and all(type(one) in SIMPLE for one in args):
                given = pickle.dumps((args, kwargs), PROTOCOL)
            else:
                given = pickler.dumps((args, kwargs), PROTOCOL)
            packed = self.function(function)
        except Exception as error:
            culprit.tell(error, function, culprit.arguments(args, kwargs))
            raise
        return _call(ONE, packed, given)

    def calls(self, function: Any, chunk: list[tuple[Any, ...]]) -> str | Large:
        """One call of the function for each of these."""
        try:
            packed, given = self.function(function), pickler.dumps(chunk, PROTOCOL)
        except Exception as error:
            each = (one for args in chunk for one in culprit.arguments(args, {}))
            culprit.tell(error, function, each)
            raise
        return _call(EACH, packed, given)

    def function(self, function: Any) -> bytes:
        key, kept = id(function), self._kept
        found = kept.get(key)
        if found is not None and found.function() is function:
            if found.watched is None or unchanged(function, found.watched):
                return found.packed
            kept.pop(key, None)
        if not isinstance(function, types.FunctionType):
            return pickler.dumps(function, PROTOCOL)
        by_name = pickler.by_name(function)
        watched = None if by_name else watch(function)
        packed = pickler.dumps(function, PROTOCOL)
        if by_name or watched is not None:
            if len(kept) >= MOST_KEPT:
                kept.clear()
            gone = weakref.ref(function, lambda _: kept.pop(key, None))
            kept[key] = _Kept(gone, packed, watched)
        return packed


def _call(kind: int, function: bytes, given: bytes) -> str | Large:
    size = len(function) + len(given)
    if size > MOST_FILE - AROUND:
        what = "function, with what it refers to," if len(function) > len(given) else "arguments"
        raise CallTooLarge(
            f"this call has {size:,} bytes, about {MOST_FILE:,} are the most: its {what} should "
            "be smaller. Give the name of a file and read it in the function, make the data "
            "there, or load it once per worker with Executor(initializer=...)."
        )
    data = pickle.dumps((kind, function, given), PROTOCOL)
    if size > MOST_INLINE:
        blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
        return Large(calls.reference(blob), blob, data)
    return binascii.b2a_base64(data, newline=False).decode("ascii")


class Unreadable(CoveyError):
    """What came cannot be unpickled here."""


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


def _loaded(data: bytes) -> Any:
    if IN_BYTES not in data:
        return pickle.loads(data)  # noqa: S301 # from our own bag
    with _classes_come:
        return _Unpickler(data).load()


def value(data: bytes) -> Any:
    """Raises Unreadable."""
    try:
        return _loaded(data)
    except Exception as error:
        raise Unreadable(
            f"the value cannot be unpickled here: {type(error).__name__}: {error}"
        ) from error


def exception(data: bytes) -> tuple[str, BaseException | None, RemoteTraceback]:
    """Of an answer that says that a call failed: its words, what was raised (None if that cannot
    be had), and where."""
    head, _, body = data.partition(b"\0")
    packed, text = pickle.loads(body)  # noqa: S301
    words = head.decode("utf-8", "replace")
    raised: BaseException | None = None
    if packed is not None:
        try:
            found = _loaded(packed)
            raised = found if isinstance(found, BaseException) else None
        except Exception as error:  # its class cannot be made of its arguments, or is not here
            words += f" (the exception itself cannot be unpickled here: {said(error)})"
    return words, raised, RemoteTraceback(text)
