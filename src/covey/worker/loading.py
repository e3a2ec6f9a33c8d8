"""From the bytes of functions and arguments to themselves.

A function that comes again is not made again, unless it is so large that it would be in the way.
Neither are objects kept with it that a call could change: a method of one is made every time.

Functions that travel by value have globals of their own. What the initializer has changed in its
own is put into theirs, if both are of one module: so it may load a model, say, for all of them. The
same holds for attributes of classes.

A class that travels by value is one and the same for all who bring it. Each call shall find it as
it was when that was submitted: so it is set again when somebody else has brought it since.
"""

import collections
import functools
import hashlib
import io
import pickle
import types
import weakref
from typing import Any, Callable, Dict, List, Mapping, Tuple

MOST_FUNCTIONS = 1000
MOST_KEPT = 1 << 18  # bytes of a function that is kept
SIMPLE = frozenset({type(None), bool, int, float, complex, str, bytes})
SETS_CLASS = "_class_setstate"  # what cloudpickle calls it
IN_BYTES = SETS_CLASS.encode()
CACHED: Any = type(functools.lru_cache(maxsize=None)(len))

Classes = List[Tuple[Any, Any, Any]]  # who sets, the class, its state


class Loader:
    def __init__(self) -> None:
        self._names: Dict[str, Dict[str, Any]] = {}  # of the initializer, by module
        self._attributes: Dict[Any, Dict[str, Any]] = {}  # by class
        self._functions: "collections.OrderedDict[bytes, Tuple[Any, Classes]]" = (
            collections.OrderedDict()
        )
        self._brought: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()
        self._latest: Any = None  # who has set classes

    def prepare(self, packed: bytes) -> None:
        """Run the initializer, a pickle of (function, arguments). Raises whatever it raises."""
        loaded = Unpickler(packed, self._set)
        function, arguments = loaded.load()
        spaces = [_Before(names) for names in loaded.globals]
        classes = [(one, _Before(vars(one))) for _, one, _ in loaded.classes]
        function(*arguments)
        for names, before in zip(loaded.globals, spaces):
            known = self._names.setdefault(names.get("__name__", ""), {})
            known.update(before.changed(names))
        for one, before in classes:
            self._attributes[one] = before.changed(vars(one))

    def function(self, packed: bytes) -> Any:
        small = len(packed) <= MOST_KEPT
        kept = self._functions.get(packed) if small else None
        if kept is not None:
            self._functions.move_to_end(packed)
            function, classes = kept
            if classes and classes is not self._latest:
                for one in classes:
                    self._set(*one)
                self._latest = classes
            return function
        loaded = Unpickler(packed, self._set)
        function = loaded.load()
        for names in loaded.globals:
            names.update(self._names.get(names.get("__name__", ""), {}))
        if loaded.classes:
            self._latest = loaded.classes
        if small and _stays(function):
            self._functions[packed] = function, loaded.classes
            if len(self._functions) > MOST_FUNCTIONS:
                self._functions.popitem(last=False)
        return function

    def arguments(self, packed: bytes) -> Any:
        if IN_BYTES not in packed:
            return pickle.loads(packed)  # noqa: S301 # their owner's own
        self._latest = None
        return Unpickler(packed, self._set).load()

    def _set(self, setstate: Any, one: Any, state: Any) -> Any:
        attributes = state[0]
        for name in self._brought.get(one, ()):
            if name not in attributes and name in vars(one):
                delattr(one, name)
        self._brought[one] = tuple(attributes)
        setstate(one, state)
        for name, value in self._attributes.get(one, {}).items():
            setattr(one, name, value)
        return one


class Unpickler(pickle.Unpickler):
    """Remembers the globals of the functions that it makes, and the classes."""

    def __init__(self, packed: bytes, setting: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__(io.BytesIO(packed))
        self._setting = setting
        self.globals: List[Dict[str, Any]] = []
        self.classes: Classes = []

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if module.startswith("cloudpickle"):
            if name == "_make_function":
                return functools.partial(self._make, found)
            if name == SETS_CLASS:
                return functools.partial(self._set, found)
        return found

    def _make(self, make: Any, code: Any, names: Dict[str, Any], *rest: Any) -> Any:
        if all(one is not names for one in self.globals):
            self.globals.append(names)
        return make(code, names, *rest)

    def _set(self, setstate: Any, one: Any, state: Any) -> Any:
        self.classes.append((setstate, one, state))
        return self._setting(setstate, one, state)


def _stays(found: Any) -> bool:
    """It has nothing of its own that a call could change, but globals, as a module's."""
    if isinstance(found, (types.BuiltinFunctionType, types.MethodType)):
        return isinstance(found.__self__, (type(None), type, types.ModuleType))
    if isinstance(found, functools.partial):
        given = list(found.args) + list(found.keywords.values())
        return _stays(found.func) and all(type(one) in SIMPLE for one in given)
    return isinstance(found, (types.FunctionType, type, CACHED))


class _Before:
    """What names meant, and what was in that."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._old = {name: (value, _digest(value)) for name, value in names.items()}

    def changed(self, names: Mapping[str, Any]) -> Dict[str, Any]:
        return {name: value for name, value in names.items() if not self._same(name, value)}

    def _same(self, name: str, value: Any) -> bool:
        if name == "__builtins__":
            return True
        old, digest = self._old.get(name, (self, b""))
        return old is value and digest == _digest(value) != UNKNOWN


UNKNOWN = b"?"


def _digest(value: Any) -> bytes:
    """UNKNOWN of what cannot be pickled."""
    if type(value) in SIMPLE or _is_definition(value):
        return b""
    found = hashlib.blake2b()
    try:
        _Looking(types.SimpleNamespace(write=found.update), 4).dump(value)
    except Exception:
        return UNKNOWN
    return found.digest()


def _is_definition(one: Any) -> bool:
    return isinstance(one, (type, types.ModuleType)) or hasattr(type(one), "__get__")


class _Looking(pickle.Pickler):
    """Never to be unpickled: functions and classes are not looked into, only which ones they are
    is of interest."""

    def reducer_override(self, one: Any) -> Any:
        return (id, (id(one),)) if _is_definition(one) else NotImplemented
