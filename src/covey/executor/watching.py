"""Whether a function that was pickled by value would be pickled in the same way now.

All that it reaches (globals, closure, defaults, and their parts) is compared: it must be the very
same objects in the same places. That works for the types named here; a function that reaches any
other object (an instance, an array) may change unnoticed.
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
# Attributes that describe a class, or that Python keeps there: changing them changes no behaviour.
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
MOST_PARTS = 500  # with more parts, pickling is faster than comparing

Look = Callable[[Any], tuple[object, ...]]

_MISSING, _ITSELF = object(), object()
_MISSINGS = itertools.repeat(_MISSING)


class _Function(NamedTuple):
    function: Any  # None: the watched function itself, which must not be kept alive
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
    """None if the function reaches something that may change unnoticed, or too much."""
    functions: list[_Function] = []
    cells: list[tuple[types.CellType, object]] = []
    things: list[_Thing] = []
    seen: set[int] = set()
    left: list[object] = [function]
    count = 0
    while left:
        reached = left.pop()
        if id(reached) in seen or _stays(reached):
            continue
        seen.add(id(reached))
        if isinstance(reached, types.FunctionType):
            names = tuple(names_in(reached.__code__))
            parts = tuple(map(reached.__globals__.get, names, _MISSINGS))
            own = (
                reached.__code__,
                reached.__defaults__,
                reached.__kwdefaults__,
                reached.__dict__ or None,
            )
            meant = _without(function, parts)
            itself = None if reached is function else reached
            functions.append(_Function(itself, *own, names, meant))
            parts += (*own, *(reached.__closure__ or ()))
        elif isinstance(reached, types.CellType):
            try:
                parts = (reached.cell_contents,)
            except ValueError:  # the cell is empty
                return None
            cells.append((reached, _without(function, parts)[0]))
        else:
            look = _look(reached)
            if look is None or (isinstance(reached, Sized) and len(reached) > MOST_PARTS):
                return None
            parts = look(reached)
            things.append(_Thing(reached, look, _without(function, parts)))
        left += parts
        count += len(parts)
        if count > MOST_PARTS:
            return None
    return Watched(tuple(functions), tuple(cells), tuple(things))


def _without(function: Any, parts: Iterable[object]) -> tuple[object, ...]:
    return tuple(_ITSELF if part is function else part for part in parts)


def unchanged(function: Any, watched: Watched) -> bool:
    """This runs for every call, so the usual case is written out."""
    for other, code, defaults, keywords, attributes, names, meant in watched.functions:
        if other is None:
            other = function
        if (
            other.__code__ is not code
            or other.__defaults__ is not defaults
            or other.__kwdefaults__ is not keywords
            or (other.__dict__ or None) is not attributes
        ):
            return False
        if names and not all(map(is_, map(other.__globals__.get, names, _MISSINGS), meant)):
            parts = _without(function, map(other.__globals__.get, names, _MISSINGS))
            if not all(map(is_, parts, meant)):
                return False
    for cell, content in watched.cells:
        try:
            now = cell.cell_contents
        except ValueError:
            return False
        if now is not content and not (now is function and content is _ITSELF):
            return False
    for thing, look, meant in watched.things:
        parts = look(thing)
        if len(parts) != len(meant) or not all(map(is_, _without(function, parts), meant)):
            return False
    return True


def _stays(thing: Any) -> bool:
    """Whether the object cannot change, or is pickled as a name."""
    kind = type(thing)
    if kind in CONSTANT:
        return True
    if kind is types.ModuleType:
        return module_by_name(thing)
    if kind is types.BuiltinFunctionType:  # or a method, such as one of a list
        owner = thing.__self__
        return owner is None or (isinstance(owner, type | types.ModuleType) and _stays(owner))
    return isinstance(thing, type | types.FunctionType | CACHED) and by_name(thing)


def _look(thing: Any) -> Look | None:
    kind = type(thing)
    if isinstance(thing, tuple) and kind is not tuple:
        return None if kind.__dictoffset__ else _of_named_tuple
    return _LOOKS.get(kind)


def names_in(code: types.CodeType) -> list[str]:
    """Names of globals (and of attributes, which does no harm), also in functions inside it."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += names_in(constant)
    return names


def _of_class(class_: type) -> tuple[object, ...]:
    behaviour = [item for item in vars(class_).items() if item[0] not in DESCRIBING]
    return (*class_.__bases__, *itertools.chain.from_iterable(behaviour))


def _of_named_tuple(values: tuple[object, ...]) -> tuple[object, ...]:
    return (type(values), *values)


def _of_dict(items: Mapping[Any, object]) -> tuple[object, ...]:
    return (*items, *items.values())


def _of_method(method: Any) -> tuple[object, ...]:
    return (method.__func__,)


_LOOKS: dict[type, Look] = {
    tuple: tuple,
    list: tuple,
    set: tuple,
    frozenset: tuple,
    dict: _of_dict,
    type: _of_class,
    staticmethod: _of_method,
    classmethod: _of_method,
    property: lambda own: (own.fget, own.fset, own.fdel, own.__doc__),
    CACHED: lambda cached: _of_dict(vars(cached)),
    CACHED_PROPERTY: lambda cached: (cached.func, cached.attrname),
}
