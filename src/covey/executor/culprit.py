"""Finds out which part of a call cannot be pickled, for a helpful message. It is used only after
pickling has failed, and pickles one part after the other."""

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from covey.executor.watching import names_in
from covey.worker import pickler

Named = tuple[str, Any]


def tell(error: Exception, function: Any, parts: Iterable[Named]) -> None:
    """Add to the error's message which part caused it, if that is found."""
    words = error.args[0] if len(error.args) == 1 else None
    where = _first(parts) or _inside(function, [])
    if where and isinstance(words, str):
        error.args = (f"{words}: {where}",)


def arguments(args: Iterable[Any], kwargs: dict[str, Any]) -> Iterator[Named]:
    for number, value in enumerate(args, 1):
        yield f"argument {number}", value
    for name, value in kwargs.items():
        yield f"argument {name!r}", value


def _first(parts: Iterable[Named]) -> str:
    return next((_words(name, value) for name, value in parts if _fails(value)), "")


def _words(name: str, value: Any) -> str:
    return f"{name} ({type(value).__qualname__})"


def _fails(value: Any) -> bool:
    try:
        pickler.dumps(value)
    except Exception:
        return True
    return False


def _inside(function: Any, seen: list[Any]) -> str:
    """The innermost part that has a name."""
    for name, value in _reached(function):
        if any(value is other for other in seen) or not _fails(value):
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
                continue  # the cell is empty
        yield "its defaults", (function.__defaults__, function.__kwdefaults__)
