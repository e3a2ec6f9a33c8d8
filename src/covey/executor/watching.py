"""Whether a function that was pickled by value would be pickled alike now.

All that it reaches (globals, closure, defaults, and what these consist of) is looked at, and must
be the very same objects in the same places. That is possible for the kinds of things named here;
a function that reaches any other (an object, an array) may change where we cannot see it.
"""

import itertools
import types
from collections.abc import Callable, Iterable, Mapping, Sized
from operator import is_
from typing import Any, NamedTuple

from covey.worker.loading import CACHED, SIMPLE
from covey.worker.pickler import CACHED_PROPERTY, by_name, module_by_name

CONSTANT = SIMPLE | {
    object,
    range,
    types.CodeType,
    types.EllipsisType,
    types.NotImplementedType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    type(NamedTuple("_Example", [("field", int)]).__dict__["field"]),
}
# What describes a class, or is kept there by Python: nobody changes it to change what it does.
DESCRIBING = frozenset(
    {
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__orig_bases__",
        "__parameters__",
        "__slotnames__",
    }
)
MOST_PARTS = 500  # more are sooner pickled than looked at

Look = Callable[[Any], tuple[object, ...]]

_MISSING, _ITSELF = object(), object()
_MISSINGS = itertools.repeat(_MISSING)


class _Function(NamedTuple):
    function: Any  # None: the one that is watched, which must not be held
    code: types.CodeType
    defaults: tuple[object, ...] | None
    keywords: dict[str, object] | None
    attributes: dict[str, object] | None
    names: tuple[str, ...]
    meant: tuple[object, ...]


class _Thing(NamedTuple):
    thing: Any
    look: Look
    meant: tuple[object, ...]


class Watched(NamedTuple):
    functions: tuple[_Function, ...]
    cells: tuple[tuple[types.CellType, object], ...]
    things: tuple[_Thing, ...]


def watch(function: Any) -> Watched | None:
    """None if it reaches something that may change unseen, or too much."""
    functions: list[_Function] = []
    cells: list[tuple[types.CellType, object]] = []
    things: list[_Thing] = []
    seen: set[int] = set()
    left: list[object] = [function]
    count = 0
    while left:
        one = left.pop()
        if id(one) in seen or _stays(one):
            continue
        seen.add(id(one))
        if isinstance(one, types.FunctionType):
            names = tuple(names_in(one.__code__))
            parts = tuple(map(one.__globals__.get, names, _MISSINGS))
            own = one.__code__, one.__defaults__, one.__kwdefaults__, one.__dict__ or None
            meant = _without(function, parts)
            functions.append(_Function(None if one is function else one, *own, names, meant))
            parts += (*own, *(one.__closure__ or ()))
        elif isinstance(one, types.CellType):
            try:
                parts = (one.cell_contents,)
            except ValueError:  # it is empty
                return None
            cells.append((one, _without(function, parts)[0]))
        else:
            look = _look(one)
            if look is None or (isinstance(one, Sized) and len(one) > MOST_PARTS):
                return None
            parts = look(one)
            things.append(_Thing(one, look, _without(function, parts)))
        left += parts
        count += len(parts)
        if count > MOST_PARTS:
            return None
    return Watched(tuple(functions), tuple(cells), tuple(things))


def _without(function: Any, parts: Iterable[object]) -> tuple[object, ...]:
    return tuple(_ITSELF if part is function else part for part in parts)


def unchanged(function: Any, watched: Watched) -> bool:
    """For every call: what most functions need is written out."""
    for one, code, defaults, keywords, attributes, names, meant in watched.functions:
        if one is None:
            one = function
        if (
            one.__code__ is not code
            or one.__defaults__ is not defaults
            or one.__kwdefaults__ is not keywords
            or (one.__dict__ or None) is not attributes
        ):
            return False
        if names and not all(map(is_, map(one.__globals__.get, names, _MISSINGS), meant)):
            parts = _without(function, map(one.__globals__.get, names, _MISSINGS))
            if not all(map(is_, parts, meant)):
                return False
    for cell, content in watched.cells:
        try:
            found = cell.cell_contents
        except ValueError:
            return False
        if found is not content and not (found is function and content is _ITSELF):
            return False
    for thing, look, meant in watched.things:
        parts = look(thing)
        if len(parts) != len(meant) or not all(map(is_, _without(function, parts), meant)):
            return False
    return True


def _stays(one: Any) -> bool:
    """It cannot change, or travels as a name."""
    kind = type(one)
    if kind in CONSTANT:
        return True
    if kind is types.ModuleType:
        return module_by_name(one)
    if kind is types.BuiltinFunctionType:  # or a method, such as that of a list
        owner = one.__self__
        return owner is None or (isinstance(owner, type | types.ModuleType) and _stays(owner))
    return isinstance(one, type | types.FunctionType | CACHED) and by_name(one)


def _look(one: Any) -> Look | None:
    kind = type(one)
    if isinstance(one, tuple) and kind is not tuple:
        return None if kind.__dictoffset__ else _of_named_tuple
    return _LOOKS.get(kind)


def names_in(code: types.CodeType) -> list[str]:
    """Of globals (and attributes, which does no harm), those of functions inside it too."""
    found = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += names_in(constant)
    return found


def _of_class(one: type) -> tuple[object, ...]:
    known = [each for each in vars(one).items() if each[0] not in DESCRIBING]
    return (*one.__bases__, *itertools.chain.from_iterable(known))


def _of_named_tuple(one: tuple[object, ...]) -> tuple[object, ...]:
    return (type(one), *one)


def _of_dict(one: Mapping[Any, object]) -> tuple[object, ...]:
    return (*one, *one.values())


def _of_method(one: Any) -> tuple[object, ...]:
    return (one.__func__,)


_LOOKS: dict[type, Look] = {
    tuple: tuple,
    list: tuple,
    set: tuple,
    frozenset: tuple,
    dict: _of_dict,
    type: _of_class,
    staticmethod: _of_method,
    classmethod: _of_method,
    property: lambda one: (one.fget, one.fset, one.fdel, one.__doc__),
    CACHED: lambda one: _of_dict(vars(one)),
    CACHED_PROPERTY: lambda one: (one.func, one.attrname),
}
