"""Packs a function and its arguments into the bytes of a call (`unpacking` reads answers).

A call ends with the key that proves its answer (`covey.worker.proof`). A small call has a random
key. The key of a large call depends on its content, so that equal large calls stay one file.

A function is pickled once, as long as nothing that it reaches has changed (`watching`): a function
that is pickled by value has the globals and the closure of that moment.
"""

import binascii
import hashlib
import os
import pickle
import types
import weakref
from typing import Any, NamedTuple

from covey.core.record import call_files
from covey.core.record.model import Blob
from covey.executor import culprit
from covey.executor.failures import CallTooLarge
from covey.executor.watching import Watched, unchanged, watch
from covey.pilot.calls.call_records import MOST_CALL, MOST_FILE
from covey.worker import pickler
from covey.worker.calls import EACH, ONE, PROTOCOL
from covey.worker.loading import SIMPLE
from covey.worker.proof import KEY_BYTES

MOST_KEPT = 1000  # functions; some keep themselves alive
MOST_INLINE = 1 << 18  # bytes of a call that is not worth a file
KEYS_AT_ONCE = 256
AROUND = 1 << 10  # more bytes than a call has besides its function and arguments
assert MOST_INLINE + AROUND <= MOST_CALL


class Small(NamedTuple):
    """A call that is sent inside its task, as `text`."""

    text: str
    key: bytes


class Large(NamedTuple):
    """A call that is sent as a file; `text` is sent inside its task."""

    text: str
    key: bytes
    blob: Blob
    data: bytes


class _PackedFunction(NamedTuple):
    function: "weakref.ref[Any]"
    packed: bytes
    watched: Watched | None  # None: it is pickled as a name


class Packer:
    """Thread-safe without a lock: two threads may do the same work."""

    def __init__(self) -> None:
        self._kept: dict[int, _PackedFunction] = {}
        self._secret = os.urandom(KEY_BYTES)  # for making the keys of large calls
        self._keys: list[bytes] = []  # random keys that no call has yet

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Small | Large:
        """The packed call. Raises CallTooLarge, and what pickling raises."""
        try:
            if not kwargs and SIMPLE.issuperset(map(type, args)):
                arguments = pickle.dumps((args, kwargs), PROTOCOL)
            else:
                arguments = pickler.dumps((args, kwargs), PROTOCOL)
            packed = self.function(function)
        except Exception as error:
            culprit.tell(error, function, culprit.arguments(args, kwargs))
            raise
        return self._pack(ONE, packed, arguments)

    def calls(self, function: Any, chunk: list[tuple[Any, ...]]) -> Small | Large:
        """One call of the function for each element of the chunk."""
        try:
            packed, arguments = self.function(function), pickler.dumps(chunk, PROTOCOL)
        except Exception as error:
            each = (named for args in chunk for named in culprit.arguments(args, {}))
            culprit.tell(error, function, each)
            raise
        return self._pack(EACH, packed, arguments)

    def function(self, function: Any) -> bytes:
        key, kept = id(function), self._kept
        entry = kept.get(key)
        if entry is not None and entry.function() is function:
            if entry.watched is None or unchanged(function, entry.watched):
                return entry.packed
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
            kept[key] = _PackedFunction(gone, packed, watched)
        return packed

    def _new_key(self) -> bytes:
        """A random key that no other call has. Many are drawn at once, because a request to the
        system for each call would be slow. Thread-safe."""
        try:
            return self._keys.pop()
        except IndexError:
            drawn = os.urandom(KEY_BYTES * KEYS_AT_ONCE)
            keys = [drawn[k : k + KEY_BYTES] for k in range(0, len(drawn), KEY_BYTES)]
            key = keys.pop()
            self._keys = keys
            return key

    def _pack(self, kind: int, function: bytes, arguments: bytes) -> Small | Large:
        size = len(function) + len(arguments)
        if size > MOST_FILE - AROUND:
            raise _too_large(len(function), len(arguments))
        data = pickle.dumps((kind, function, arguments), PROTOCOL)
        if size > MOST_INLINE:
            key = hashlib.blake2b(data, digest_size=KEY_BYTES, key=self._secret).digest()
            data += key
            blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
            return Large(call_files.reference(blob), key, blob, data)
        key = self._new_key()
        return Small(binascii.b2a_base64(data + key, newline=False).decode("ascii"), key)


def _too_large(function_bytes: int, argument_bytes: int) -> CallTooLarge:
    what = "function, with what it refers to," if function_bytes > argument_bytes else "arguments"
    return CallTooLarge(
        f"this call has {function_bytes + argument_bytes:,} bytes, more than the limit of about "
        f"{MOST_FILE:,}: its {what} should be smaller. Give the name of a file and read it in "
        f"the function, make "
        "the data there, or load it once per worker with Executor(initializer=...)."
    )
