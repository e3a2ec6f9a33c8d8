"""What of a call cannot be pickled, for people. It is looked for only after that has failed, by
pickling one thing after the other."""

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from covey.executor.watching import names_in
from covey.worker import pickler

Named = tuple[str, Any]


def tell(error: Exception, function: Any, given: Iterable[Named]) -> None:
    """Add to the words of the error where it comes from, if they are words and that is found."""
    words = error.args[0] if len(error.args) == 1 else None
    where = _first(given) or _inside(function, [])
    if where and isinstance(words, str):
        error.args = (f"{words}: {where}",)


def arguments(args: Iterable[Any], kwargs: dict[str, Any]) -> Iterator[Named]:
    for number, value in enumerate(args, 1):
        yield f"argument {number}", value
    for name, value in kwargs.items():
        yield f"argument {name!r}", value


def _first(given: Iterable[Named]) -> str:
    return next((_words(*one) for one in given if _fails(one[1])), "")


def _words(name: str, value: Any) -> str:
    return f"{name} ({type(value).__qualname__})"


def _fails(value: Any) -> bool:
    try:
        pickler.dumps(value)
    except Exception:
        return True
    return False


def _inside(function: Any, seen: list[Any]) -> str:
    """The deepest that has a name."""
    for name, value in _reached(function):
        if any(value is one for one in seen) or not _fails(value):
            continue
        deeper = _inside(value, [*seen, function, value])
        of = getattr(function, "__qualname__", type(function).__qualname__)
        return deeper or f"{_words(name, value)} of {of}"
    return ""


def _reached(function: Any) -> Iterator[Named]:
    if isinstance(function, functools.partial):
        yield "the function", function.func
        yield from arguments(function.args, function.keywords)
    elif isinstance(function, types.MethodType):
        yield "the object", function.__self__
    elif isinstance(function, types.FunctionType):
        for name in names_in(function.__code__):
            if name in function.__globals__:
                yield f"global {name!r}", function.__globals__[name]
        free = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in free:
            try:
                yield f"variable {name!r}", cell.cell_contents
            except ValueError:
                continue  # it is empty
        yield "its defaults", (function.__defaults__, function.__kwdefaults__)
