"""Runs one call: bytes in, kind and bytes out. There is always an answer.

A call is a pickle of (kind, function, arguments), the last two pickled separately (`loading`).
After it comes the key that proves the answer (`proof`). ONE calls the function with (args, kwargs);
EACH calls it with every item of a list of args, and answers with a list of values.

The answer to a failed call begins with a message for people, up to a NUL. A pickle follows: the
exception (None if it cannot be sent) and the traceback as text. The traceback is also printed, as
by any program that fails: `covey logs` and `covey failures` show it.
"""

import pickle
import sys
import threading
import traceback
from typing import Any, Callable, Tuple

from .frames import ERROR, MOST_INLINE, VALUE
from .loading import SIMPLE, Loader
from .proof import KEY_BYTES, PROOF_BYTES, proof_of

ONE, EACH = 1, 2
MOST_WORDS = 500
MOST_TRACEBACK = 12000
MOST_EXCEPTION = 15000
PROTOCOL = 4

Dumps = Callable[[Any], bytes]
Answer = Tuple[bytes, bytes]  # kind and data
Proven = Tuple[bytes, bytes, bytes]  # kind, data and proof


class CallRunner:
    """`dumps` pickles what plain pickle cannot."""

    def __init__(self, dumps: Dumps) -> None:
        self._dumps = dumps
        self._loader = Loader()
        self._threads = 0  # after the last call; 0 before the first
        self.prepare = self._loader.prepare

    def do(self, call: "bytes | memoryview", path: str = "") -> Proven:
        """Returns the kind of the answer, the answer, and its proof. With a `path` the call is in
        that file."""
        before = self._threads or threading.active_count()
        key, (kind, data) = self._do(call, path)
        self._threads = threading.active_count()
        if self._threads > before:
            _tell_of_threads()
        _flush()
        return kind, data, proof_of(key, kind, data)

    def _do(self, call: "bytes | memoryview", path: str) -> Tuple[bytes, Answer]:
        """Returns the key of the call (empty if the call cannot be read), and its answer."""
        key = b""
        try:
            if path:
                parts, key = _read(path)
            else:
                parts = pickle.loads(call)  # noqa: S301 # sent by the bag's owner
                key = bytes(call[-KEY_BYTES:])
            kind, packed, arguments = parts
            function = self._loader.function(packed)
            loaded = self._loader.arguments(arguments)
            del parts, packed, arguments
        except BaseException as error:
            words = "the call cannot be unpickled here: " + described(error)
            return key, _error(words, error, None)
        return key, self._run(kind, function, loaded)

    def _run(self, kind: int, function: Any, arguments: Any) -> Answer:
        try:
            if kind == EACH:
                value: Any = [function(*args) for args in arguments]
            else:
                value = function(*arguments[0], **arguments[1])
        except SystemExit as error:
            return _error("the function called sys.exit({!r})".format(error.code), error, None)
        except BaseException as error:
            return self._raised(error)
        try:
            return VALUE, self._pickled(value)
        except BaseException as error:
            words = "the value cannot be pickled ({}): {}".format(_kind(value), described(error))
            return _error(words, error, None)

    def _pickled(self, value: Any) -> bytes:
        return pickle.dumps(value, PROTOCOL) if type(value) in SIMPLE else self._dumps(value)

    def _raised(self, error: BaseException) -> Answer:
        words = described(error)
        try:
            packed = self._dumps(error)
        except BaseException as why:
            words += " (the exception itself cannot be pickled: {})".format(described(why))
            return _error(words, error, None)
        return _error(words, error, packed if len(packed) <= MOST_EXCEPTION else None)


def _read(path: str) -> Tuple[Any, bytes]:
    """The parts of a large call, and its key. Only the parts are read into memory."""
    with open(path, "rb") as file:
        file.seek(-KEY_BYTES, 2)
        key = file.read()
        file.seek(0)
        return pickle.load(file), key  # noqa: S301 # sent by the bag's owner


def described(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception_only(type(error), error)).strip()
    except Exception:
        return type(error).__name__


def _error(words: str, error: BaseException, packed: "bytes | None") -> Answer:
    rows = error.__traceback__
    while rows is not None and rows.tb_frame.f_globals.get("__name__") == __name__:
        rows = rows.tb_next  # leave out our own frames
    try:
        text = "".join(traceback.format_exception(type(error), error, rows))
    except Exception:
        text = words
    if len(text) > MOST_TRACEBACK:
        half = MOST_TRACEBACK // 2
        text = text[:half] + "\n[…]\n" + text[-half:]
    _write(text)
    head = words.replace("\0", " ").encode("utf-8", "replace")[:MOST_WORDS]
    body = pickle.dumps((packed, text), PROTOCOL)
    assert len(head) + 1 + len(body) + PROOF_BYTES <= MOST_INLINE
    return ERROR, head + b"\0" + body


def _kind(value: Any) -> str:
    return "{}.{}".format(type(value).__module__, type(value).__qualname__)


def _tell_of_threads() -> None:
    """Report threads that a function left behind. The worker does not wait for them at its end."""
    left = [
        thread.name
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    ]
    if left:
        names = ", ".join(sorted(left)[:5])
        text = "covey: threads that a function started still run after its end: {}\n"
        _write(text.format(names))


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
    except Exception:
        pass


def _flush() -> None:
    """The output belongs to this call. A function may have closed or replaced the streams."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
