"""Unpickles functions and arguments.

A function that comes again is not unpickled again, unless it is too large to be kept. Objects that
a call could change are not kept with it: a method of an object is unpickled every time.

Functions that are pickled by value have their own globals. What the initializer has changed in its
globals is copied into theirs, if both are of one module: so it may load a model, for example, for
all of them. The same holds for attributes of classes.

A class that is pickled by value is one object for all pickles that bring it. But each call must
find it as it was when the call was submitted: so its state is set again if another pickle has
brought it since.
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
SETS_CLASS = "_class_setstate"  # the name in cloudpickle of the function that sets a class's state
IN_BYTES = SETS_CLASS.encode()
CACHED: Any = type(functools.lru_cache(maxsize=None)(len))

Classes = List[Tuple[Any, Any, Any]]  # the function that sets it, the class, its state


class Loader:
    def __init__(self) -> None:
        self._names: Dict[str, Dict[str, Any]] = {}  # changed by the initializer, by module
        self._attributes: Dict[Any, Dict[str, Any]] = {}  # by class
        self._functions: "collections.OrderedDict[bytes, Tuple[Any, Classes]]" = (
            collections.OrderedDict()
        )
        self._brought: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()
        self._latest: Any = None  # the pickle that set classes last

    def prepare(self, packed: bytes) -> None:
        """Run the initializer, a pickle of (function, arguments). Raises whatever it raises."""
        loaded = Unpickler(packed, self._set)
        function, arguments = loaded.load()
        spaces = [_Before(names) for names in loaded.globals]
        classes = [(class_, _Before(vars(class_))) for _, class_, _ in loaded.classes]
        function(*arguments)
        for names, before in zip(loaded.globals, spaces):
            changed = self._names.setdefault(names.get("__name__", ""), {})
            changed.update(before.changed(names))
        for class_, before in classes:
            self._attributes[class_] = before.changed(vars(class_))

    def function(self, packed: bytes) -> Any:
        small = len(packed) <= MOST_KEPT
        kept = self._functions.get(packed) if small else None
        if kept is not None:
            self._functions.move_to_end(packed)
            function, classes = kept
            if classes and classes is not self._latest:
                for setting in classes:
                    self._set(*setting)
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
            return pickle.loads(packed)  # noqa: S301 # sent by the bag's owner
        self._latest = None
        return Unpickler(packed, self._set).load()

    def _set(self, setstate: Any, class_: Any, state: Any) -> Any:
        attributes = state[0]
        for name in self._brought.get(class_, ()):
            if name not in attributes and name in vars(class_):
                delattr(class_, name)
        self._brought[class_] = tuple(attributes)
        setstate(class_, state)
        for name, value in self._attributes.get(class_, {}).items():
            setattr(class_, name, value)
        return class_


class Unpickler(pickle.Unpickler):
    """Remembers the globals of the functions that it makes, and the classes."""

    def __init__(self, packed: bytes, setting: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__(io.BytesIO(packed))
        self._setting = setting
        self.globals: List[Dict[str, Any]] = []
        self.classes: Classes = []

    def find_class(self, module: str, name: str) -> Any:
        attribute = super().find_class(module, name)
        if module.startswith("cloudpickle"):
            if name == "_make_function":
                return functools.partial(self._make, attribute)
            if name == SETS_CLASS:
                return functools.partial(self._set, attribute)
        return attribute

    def _make(self, make: Any, code: Any, names: Dict[str, Any], *rest: Any) -> Any:
        if all(other is not names for other in self.globals):
            self.globals.append(names)
        return make(code, names, *rest)

    def _set(self, setstate: Any, class_: Any, state: Any) -> Any:
        self.classes.append((setstate, class_, state))
        return self._setting(setstate, class_, state)


def _stays(function: Any) -> bool:
    """Whether a call can change nothing of it except globals, as those of a module."""
    if isinstance(function, (types.BuiltinFunctionType, types.MethodType)):
        return isinstance(function.__self__, (type(None), type, types.ModuleType))
    if isinstance(function, functools.partial):
        arguments = list(function.args) + list(function.keywords.values())
        return _stays(function.func) and all(type(value) in SIMPLE for value in arguments)
    return isinstance(function, (types.FunctionType, type, CACHED))


class _Before:
    """The values of names before the initializer ran, with digests of their content."""

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
    """A digest of the content; UNKNOWN if the value cannot be pickled."""
    if type(value) in SIMPLE or _is_definition(value):
        return b""
    digest = hashlib.blake2b()
    try:
        _Looking(types.SimpleNamespace(write=digest.update), 4).dump(value)
    except Exception:
        return UNKNOWN
    return digest.digest()


def _is_definition(value: Any) -> bool:
    return isinstance(value, (type, types.ModuleType)) or hasattr(type(value), "__get__")


class _Looking(pickle.Pickler):
    """Its output is never unpickled. Functions and classes are not pickled by content; only their
    identity matters."""

    def reducer_override(self, value: Any) -> Any:
        return (id, (id(value),)) if _is_definition(value) else NotImplemented
