"""Doing one call: bytes in, kind and bytes out. Whatever happens, there is an answer.

A call is a pickle of (kind, function, arguments), the last two pickled by themselves: a function
that comes again is not unpickled again, unless it is so large that it would be in the way. ONE
calls it with (args, kwargs); EACH calls it with every item of a list of args, and answers with the
list of values.

Functions that travel by value have globals of their own. What the initializer has changed in its
own is put into theirs, if both are of one module: so it may load a model, say, for all of them.

The answer to a failed one begins with words for people, up to a NUL. A pickle follows: the
exception (None if it cannot travel) and the traceback as text.
"""

import collections
import io
import pickle
import sys
import threading
import traceback
from typing import Any, Callable, Dict, List, Tuple

from .frames import ERROR, MOST_INLINE, VALUE

ONE, EACH = 1, 2
MOST_FUNCTIONS = 1000
MOST_KEPT = 1 << 18  # bytes of a function that is kept
MOST_WORDS = 500
MOST_TRACEBACK = 12000
MOST_EXCEPTION = 15000
SIMPLE = frozenset({type(None), bool, int, float, complex, str, bytes})
PROTOCOL = 4

Dumps = Callable[[Any], bytes]
Answer = Tuple[bytes, bytes]


class Doer:
    """`dumps` pickles what plain pickle cannot."""

    def __init__(self, dumps: Dumps) -> None:
        self._dumps = dumps
        self._prepared: Dict[str, Dict[str, Any]] = {}  # by module
        self._functions: "collections.OrderedDict[bytes, Any]" = collections.OrderedDict()

    def prepare(self, packed: bytes) -> None:
        """Run the initializer, a pickle of (function, arguments). Raises whatever it raises."""
        loaded = Unpickler(packed)
        function, arguments = loaded.load()
        before = [dict(one) for one in loaded.globals]
        function(*arguments)
        for names, old in zip(loaded.globals, before):
            changed = self._prepared.setdefault(names.get("__name__", ""), {})
            changed.update(
                (name, value) for name, value in names.items() if old.get(name, old) is not value
            )

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
            function = self._function(packed)
            given = pickle.loads(arguments)  # noqa: S301
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
            return _error(said(error), error, self._packed(error))
        try:
            return VALUE, self._pickled(value)
        except BaseException as error:
            words = "the value cannot be pickled ({}): {}".format(_kind(value), said(error))
            return _error(words, error, None)

    def _function(self, packed: bytes) -> Any:
        kept = len(packed) <= MOST_KEPT
        if kept and packed in self._functions:
            self._functions.move_to_end(packed)
            return self._functions[packed]
        loaded = Unpickler(packed)
        found = loaded.load()
        for names in loaded.globals:
            names.update(self._prepared.get(names.get("__name__", ""), {}))
        if kept:
            self._functions[packed] = found
            if len(self._functions) > MOST_FUNCTIONS:
                self._functions.popitem(last=False)
        return found

    def _pickled(self, value: Any) -> bytes:
        return pickle.dumps(value, PROTOCOL) if type(value) in SIMPLE else self._dumps(value)

    def _packed(self, error: BaseException) -> "bytes | None":
        """None: it cannot travel."""
        try:
            packed = self._dumps(error)
        except BaseException:
            return None
        return packed if len(packed) <= MOST_EXCEPTION else None


class Unpickler(pickle.Unpickler):
    """Remembers the globals of the functions that it makes."""

    def __init__(self, packed: bytes) -> None:
        super().__init__(io.BytesIO(packed))
        self.globals: List[Dict[str, Any]] = []

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if name != "_make_function" or not module.startswith("cloudpickle"):
            return found

        def make(code: Any, names: Dict[str, Any], *rest: Any) -> Any:
            if all(one is not names for one in self.globals):
                self.globals.append(names)
            return found(code, names, *rest)

        return make


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
