"""From a function and its arguments to the bytes of a call, and from an answer to a value.

A function is pickled once, as long as nothing it looks at has changed: what travels by value holds
the globals and the closure of that moment. So we keep, with the bytes, what these names meant; a
function that looks at something that can change in itself (a list, say) is pickled every time.
"""

import binascii
import hashlib
import pickle
import types
import weakref
from typing import Any, NamedTuple

import cloudpickle

from covey.core import calls
from covey.core.errors import CoveyError
from covey.core.model import Blob
from covey.executor.failures import CallTooLarge, RemoteTraceback
from covey.pilot.calling import MOST_CALL, MOST_FILE
from covey.worker.calls import EACH, ONE, PROTOCOL, SIMPLE

CONSTANT = SIMPLE | {types.ModuleType, types.BuiltinFunctionType, range, type}
MOST_DEPTH = 10
MOST_INLINE = 1 << 18  # bytes of a call that is not worth a file
AROUND = 1 << 10  # more than a call has besides its function and arguments
assert MOST_INLINE + AROUND <= MOST_CALL


class Large(NamedTuple):
    """A call that travels as a file; `text` is what travels in its place."""

    text: str
    blob: Blob
    data: bytes


class Watched(NamedTuple):
    """What a name meant to a function: the one that was pickled (None: it must not be held), or
    one that it uses."""

    owner: Any
    name: str | int | None  # of a global, or the number of a cell; None: its defaults
    meant: object


class _Kept(NamedTuple):
    function: "weakref.ref[Any]"
    packed: bytes
    watched: tuple[Watched, ...]


class Packer:
    """For several threads: no lock is held, two may do the same work."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | Large:
        """As it travels. Raises CallTooLarge, and what pickling raises."""
        if not kwargs and all(type(one) in SIMPLE for one in args):
            given = pickle.dumps((args, kwargs), PROTOCOL)
        else:
            given = cloudpickle.dumps((args, kwargs), PROTOCOL)
        return _call(ONE, self.function(function), given)

    def calls(self, function: Any, chunk: list[tuple[Any, ...]]) -> str | Large:
        """One call of the function for each of these."""
        return _call(EACH, self.function(function), cloudpickle.dumps(chunk, PROTOCOL))

    def function(self, function: Any) -> bytes:
        key = id(function)
        kept = self._kept.get(key)
        if kept is not None and kept.function() is function:
            if all(_look(function, one) is one.meant for one in kept.watched):
                return kept.packed
            del self._kept[key]
        packed: bytes = cloudpickle.dumps(function, PROTOCOL)
        if not isinstance(function, types.FunctionType):
            return packed
        watched = watch(function) if b"cloudpickle" in packed else ()
        if watched is not None:
            known, kept_ones = weakref.ref(function), self._kept
            kept_ones[key] = _Kept(known, packed, watched)
            weakref.finalize(function, kept_ones.pop, key, None).atexit = False
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


_MISSING, _ITSELF = object(), object()


def _look(function: Any, one: Watched) -> object:
    owner = function if one.owner is None else one.owner
    found: object
    if one.name is None:
        found = owner.__defaults__
    elif isinstance(one.name, str):
        found = owner.__globals__.get(one.name, _MISSING)
    else:
        try:
            found = (owner.__closure__ or ())[one.name].cell_contents
        except (IndexError, ValueError):  # an empty one
            found = _MISSING
    return _ITSELF if found is function else found


def watch(
    function: types.FunctionType, owner: types.FunctionType | None = None, depth: int = 0
) -> tuple[Watched, ...] | None:
    """All that it looks at, or a function that it uses does (`owner`); None if some of that may
    change in itself."""
    one = function if owner is None else owner
    if depth > MOST_DEPTH or one.__kwdefaults__ or one.__dict__:
        return None
    names: list[str | int | None] = [None, *_names(one.__code__)]
    names += range(len(one.__closure__ or ()))
    found = []
    for name in names:
        asked = Watched(owner, name, None)
        found.append(asked._replace(meant=_look(function, asked)))
    for each in list(found):
        inner = _inside(each.meant, function, depth)
        if inner is None:
            return None
        found += inner
    return tuple(found)


def _inside(value: object, function: types.FunctionType, depth: int) -> tuple[Watched, ...] | None:
    if value is _MISSING or value is _ITSELF or type(value) in CONSTANT:
        return ()
    if isinstance(value, types.FunctionType):
        return watch(function, value, depth + 1)
    if isinstance(value, tuple) and depth < MOST_DEPTH:
        parts = [_inside(one, function, depth + 1) for one in value]
        return None if None in parts else tuple(one for part in parts for one in part or ())
    return None


def _names(code: types.CodeType) -> list[str]:
    """Of globals (and attributes, which does no harm), those of functions inside it too."""
    found = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _names(constant)
    return found


class Unreadable(CoveyError):
    """What came cannot be unpickled here."""


def value(data: bytes) -> Any:
    """Raises Unreadable."""
    try:
        return pickle.loads(data)  # noqa: S301 # from our own bag
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
            found = pickle.loads(packed)  # noqa: S301
            raised = found if isinstance(found, BaseException) else None
        except Exception:
            raised = None  # its class cannot be made from what it was made of, or is not here
    return words, raised, RemoteTraceback(text)
