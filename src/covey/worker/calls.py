"""Doing one call: bytes in, kind and bytes out. Whatever happens, there is an answer.

A call is a pickle of (kind, function, arguments), the last two pickled by themselves (`loading`).
ONE calls it with (args, kwargs); EACH calls it with every item of a list of args, and answers with
the list of values.

The answer to a failed one begins with words for people, up to a NUL. A pickle follows: the
exception (None if it cannot travel) and the traceback as text.
"""

import pickle
import sys
import threading
import traceback
from typing import Any, Callable, Tuple

from .frames import ERROR, MOST_INLINE, VALUE
from .loading import SIMPLE, Loader

ONE, EACH = 1, 2
MOST_WORDS = 500
MOST_TRACEBACK = 12000
MOST_EXCEPTION = 15000
PROTOCOL = 4

Dumps = Callable[[Any], bytes]
Answer = Tuple[bytes, bytes]


class Doer:
    """`dumps` pickles what plain pickle cannot."""

    def __init__(self, dumps: Dumps) -> None:
        self._dumps = dumps
        self._loader = Loader()
        self.prepare = self._loader.prepare

    def do(self, call: "bytes | memoryview", path: str = "") -> Answer:
        """With a `path` the call is in that file."""
        before = threading.active_count()
        answer = self._do(call, path)
        if threading.active_count() > before:
            _tell_of_threads()
        _flush()
        return answer

    def _do(self, call: "bytes | memoryview", path: str) -> Answer:
        try:
            parts = _read(path) if path else pickle.loads(call)  # noqa: S301 # its owner's own
            kind, packed, arguments = parts
            function = self._loader.function(packed)
            given = self._loader.arguments(arguments)
            del parts, packed, arguments
        except BaseException as error:
            return _error("the call cannot be unpickled here: " + said(error), error, None)
        try:
            if kind == EACH:
                value: Any = [function(*one) for one in given]
            else:
                value = function(*given[0], **given[1])
        except SystemExit as error:
            return _error("the function called sys.exit({!r})".format(error.code), error, None)
        except BaseException as error:
            return self._raised(error)
        try:
            return VALUE, self._pickled(value)
        except BaseException as error:
            words = "the value cannot be pickled ({}): {}".format(_kind(value), said(error))
            return _error(words, error, None)

    def _pickled(self, value: Any) -> bytes:
        return pickle.dumps(value, PROTOCOL) if type(value) in SIMPLE else self._dumps(value)

    def _raised(self, error: BaseException) -> Answer:
        words = said(error)
        try:
            packed = self._dumps(error)
        except BaseException as why:
            words += " (the exception itself cannot be pickled: {})".format(said(why))
            return _error(words, error, None)
        return _error(words, error, packed if len(packed) <= MOST_EXCEPTION else None)


def _read(path: str) -> Any:
    """Of a large call nothing is in memory but its parts."""
    with open(path, "rb") as file:
        return pickle.load(file)  # noqa: S301 # its owner's own


def said(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception_only(type(error), error)).strip()
    except Exception:
        return type(error).__name__


def _error(words: str, error: BaseException, packed: "bytes | None") -> Answer:
    rows = error.__traceback__
    while rows is not None and rows.tb_frame.f_globals.get("__name__") == __name__:
        rows = rows.tb_next  # how we came there is of no interest
    try:
        text = "".join(traceback.format_exception(type(error), error, rows))
    except Exception:
        text = words
    if len(text) > MOST_TRACEBACK:
        half = MOST_TRACEBACK // 2
        text = text[:half] + "\n[…]\n" + text[-half:]
    head = words.replace("\0", " ").encode("utf-8", "replace")[:MOST_WORDS]
    body = pickle.dumps((packed, text), PROTOCOL)
    assert len(head) + 1 + len(body) <= MOST_INLINE
    return ERROR, head + b"\0" + body


def _kind(value: Any) -> str:
    return "{}.{}".format(type(value).__module__, type(value).__qualname__)


def _tell_of_threads() -> None:
    """They are in nobody's way: the worker does not wait for them when it ends."""
    left = [
        one.name
        for one in threading.enumerate()
        if not one.daemon and one is not threading.main_thread()
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
    """What was printed belongs to this call. A function may have closed or replaced the streams."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
