"""cloudpickle, and what it does not pickle: cached functions of a program or notebook.

This module needs cloudpickle's Python, so it is imported only after the check of ours.
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


def by_name(value: Any) -> bool:
    """Whether a class or function is pickled as a name that hosts can import, too."""
    module = sys.modules.get(getattr(value, "__module__", None) or "__main__")
    if module is None or not module_by_name(module):
        return False
    named: Any = module
    for part in getattr(value, "__qualname__", "").split("."):
        named = getattr(named, part, None)
    return named is value


def module_by_name(module: Any) -> bool:
    name = module.__name__
    if name == "__main__" or name not in sys.modules:
        return False
    by_value = cloudpickle.list_registry_pickle_by_value()
    return not any(name == other or name.startswith(other + ".") for other in by_value)


class _Cache:
    """Is pickled as `functools.lru_cache(...)`, which makes a function with an empty cache."""

    def __init__(self, cached: Any) -> None:
        parameters = cached.cache_parameters()
        self._parameters = parameters["maxsize"], parameters["typed"]

    def __call__(self, function: Any) -> Any:
        raise NotImplementedError  # pickle requires this method

    def __reduce__(self) -> Tuple[Any, ...]:
        return functools.lru_cache, self._parameters


def _cached(cached: Any) -> Any:
    if by_name(cached):
        return cached.__qualname__
    return _Cache(cached), (cached.__wrapped__,), vars(cached)


def _cached_property(cached: Any) -> Tuple[Any, ...]:
    """Some have a lock, which cannot be pickled. The name is usually set by the class body."""
    return CACHED_PROPERTY, (cached.func,), {"attrname": cached.attrname}


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table = collections.ChainMap(
        {CACHED: _cached, CACHED_PROPERTY: _cached_property}, cloudpickle.Pickler.dispatch_table
    )


def dumps(value: Any, protocol: "int | None" = None) -> bytes:
    with io.BytesIO() as file:
        Pickler(file, protocol).dump(value)
        return file.getvalue()
