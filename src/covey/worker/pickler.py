"""cloudpickle, and what it leaves out: functions that keep their values, of a program or notebook.

This part needs cloudpickle's Python: it is imported when it is known that ours will do.
"""

import collections
import functools
import importlib
import io
import sys
from typing import Any, Tuple

from .loading import CACHED

cloudpickle: Any = importlib.import_module("cloudpickle")
CACHED_PROPERTY: Any = getattr(functools, "cached_property")  # noqa: B009 # newer than we promise


def by_name(one: Any) -> bool:
    """A class or function that travels as the name of what hosts can import, too."""
    module = sys.modules.get(getattr(one, "__module__", None) or "__main__")
    if module is None or not module_by_name(module):
        return False
    found: Any = module
    for part in getattr(one, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is one


def module_by_name(module: Any) -> bool:
    name = module.__name__
    if name == "__main__" or name not in sys.modules:
        return False
    by_value = cloudpickle.list_registry_pickle_by_value()
    return not any(name == one or name.startswith(one + ".") for one in by_value)


class _Cache:
    """Travels as what `functools.lru_cache(...)` is: it makes one with an empty cache."""

    def __init__(self, one: Any) -> None:
        told = one.cache_parameters()
        self._told = told["maxsize"], told["typed"]

    def __call__(self, function: Any) -> Any:
        raise NotImplementedError  # pickle wants it to be there

    def __reduce__(self) -> Tuple[Any, ...]:
        return functools.lru_cache, self._told


def _cached(one: Any) -> Any:
    if by_name(one):
        return one.__qualname__
    return _Cache(one), (one.__wrapped__,), vars(one)


def _cached_property(one: Any) -> Tuple[Any, ...]:
    """Some have a lock. The name would be told by the body of a class."""
    return CACHED_PROPERTY, (one.func,), {"attrname": one.attrname}


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table = collections.ChainMap(
        {CACHED: _cached, CACHED_PROPERTY: _cached_property}, cloudpickle.Pickler.dispatch_table
    )


def dumps(value: Any, protocol: "int | None" = None) -> bytes:
    with io.BytesIO() as file:
        Pickler(file, protocol).dump(value)
        return file.getvalue()
