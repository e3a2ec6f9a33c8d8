"""What a function reaches may change in many ways; none of them may be missed."""

import gc
import sys
import types
import weakref
from typing import Any

import cloudpickle
import pytest

from covey.executor.packing import MOST_KEPT, Packer
from covey.executor.watching import MOST_PARTS, watch

CLASS = """
class C:
    alpha = 1
    table = {"a": 1}
    def go(self): return self.alpha
    @staticmethod
    def run(): return C.alpha
    @classmethod
    def made(cls): return cls.alpha
    @property
    def size(self): return self.alpha
class D(C): pass
"""
CACHE = """
import functools
k = 1
@functools.lru_cache
def load(): return k
def f(): return load()
"""
# What is there, and what changes: alone what is pickled afterwards may know of it.
CHANGES = {
    "attribute of a class": (CLASS + "def f(): return C.alpha", "C.alpha = 2"),
    "new attribute": (CLASS + "def f(): return hasattr(C, 'beta')", "C.beta = 2"),
    "attribute that is gone": (CLASS + "def f(): return hasattr(C, 'alpha')", "del C.alpha"),
    "inherited attribute": (CLASS + "def f(): return D.alpha", "C.alpha = 2"),
    "inside an attribute": (CLASS + "def f(): return C.table['a']", "C.table['a'] = 2"),
    "method": (CLASS + "def f(): return C().go()", "C.go = lambda self: 7"),
    "default of a method": (CLASS + "def f(): return C().go()", "C.go.__defaults__ = (C(),)"),
    "static method": (CLASS + "f = C.run", "C.alpha = 2"),
    "class method": (CLASS + "def f(): return C.made()", "C.made = classmethod(lambda cls: 7)"),
    "property": (CLASS + "def f(): return C().size", "C.size = property(lambda self: 7)"),
    "instance": (CLASS + "c = C()\ndef f(): return c.alpha", "c.alpha = 2"),
    "its class": (CLASS + "c = C()\ndef f(): return c.alpha", "C.alpha = 2"),
    "instance with slots": (
        "class S: __slots__ = 'x'\ns = S(); s.x = 1\ndef f(): return s.x",
        "s.x = 2",
    ),
    "method of a dict": ("t = {'a': 1}\nlook = t.get\ndef f(): return look('a')", "t['a'] = 2"),
    "method of an instance": (CLASS + "c = C()\ng = c.go\ndef f(): return g()", "c.alpha = 2"),
    "partial": (
        "import functools\nt = [1]\ng = functools.partial(len, t)\ndef f(): return g()",
        "t.append(2)",
    ),
    "list": ("t = [1]\ndef f(): return t[0]", "t[0] = 2"),
    "list in a tuple": ("t = ([1],)\ndef f(): return t[0]", "t[0].append(2)"),
    "set": ("t = {1}\ndef f(): return sorted(t)", "t.add(2)"),
    "dict": ("t = {'a': 1}\ndef f(): return t['a']", "t['a'] = 2"),
    "keyword default": ("def f(*, k=1): return k", "f.__kwdefaults__['k'] = 2"),
    "new default": ("def f(k=1): return k", "f.__defaults__ = (2,)"),
    "attribute of a function": ("def f(): return f.k\nf.k = 1", "f.k = 2"),
    "code": ("def f(): return 1\ndef g(): return 2", "f.__code__ = g.__code__"),
    "global of a function that it uses": ("k = 1\ndef g(): return k\ndef f(): return g()", "k = 2"),
    "global of a function inside": ("k = 1\ndef f(): return (lambda: k)()", "k = 2"),
    "cell": (
        "def make():\n k = 1\n def put():\n  nonlocal k\n  k = 2\n return lambda: k, put\n"
        "f, put = make()",
        "put()",
    ),
    "what is wrapped": (
        "import functools\nk = 1\ndef wrap(g):\n @functools.wraps(g)\n def w(): return g()\n"
        " return w\n@wrap\ndef f(): return k",
        "k = 2",
    ),
    "function with a cache": (CACHE, "k = 2"),
    "method with a cache": (
        "import functools\nk = 1\nclass C:\n @functools.lru_cache\n def go(self): return k\n"
        "def f(): return C().go()",
        "k = 2",
    ),
    "cached property": (
        "import functools\nk = 1\nclass C:\n @functools.cached_property\n def x(self): return k\n"
        "def f(): return C().x",
        "k = 2",
    ),
    "dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass P:\n x: int = 1\n"
        "def f(): return P().size()\nP.size = lambda self: self.x",
        "P.size = lambda self: -self.x",
    ),
    "named tuple": (
        "import collections\nclass P(collections.namedtuple('P', 'x')):\n __slots__ = ()\n"
        " k = 1\np = P(1)\ndef f(): return p.k",
        "P.k = 2",
    ),
    "tuple with attributes": (
        "class T(tuple): pass\nt = T()\nt.x = 1\ndef f(): return t.x",
        "t.x = 2",
    ),
    "enumeration": (
        "import enum\nclass E(enum.Enum):\n A = 1\n def up(self): return 1\n"
        "def f(): return E.A.up()",
        "E.up = lambda self: 2",
    ),
    "abstract class": (
        "import abc\nclass A(abc.ABC):\n k = 1\ndef f(): return A.k",
        "A.k = 2",
    ),
    "metaclass": (
        "class M(type):\n k = 1\nclass C(metaclass=M): pass\ndef f(): return C.k",
        "M.k = 2",
    ),
    "module that is nowhere": (
        "import types\nm = types.ModuleType('nowhere')\nm.k = 1\ndef f(): return m.k",
        "m.k = 2",
    ),
}
# Of these it can be seen; whoever calls them often does not wait for a pickle each time.
KEPT = {
    "plain": "k = 1\ndef f(x): return x + k",
    "class": CLASS + "def f(): return C.alpha, D",
    "dataclass": CHANGES["dataclass"][0],
    "named tuple": "import typing\nclass P(typing.NamedTuple):\n x: int\np = P(1)\n"
    "def f(): return p, P(2)",
    "cache": CACHE,
    "two that call each other": "def f(): return g()\ndef g(): return f()",
    "generic class": "import typing\nT = typing.TypeVar('T')\nclass B(typing.Generic[T]): pass\n"
    "def f(): return B()",
    "imported": "from pathlib import Path\nfrom collections.abc import Mapping\n"
    "from os.path import join\nimport math\nsin = math.sin\n"
    "def f(): return Path, Mapping, join, sin, math, len",
}


def in_script(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(text, found)  # noqa: S102 # as a notebook does
    return found


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str) -> None:
    text, change = CHANGES[name]
    names, packer = in_script(text), Packer()
    before = packer.function(names["f"])
    assert packer.function(names["f"]) == before
    exec(change, names)  # noqa: S102
    assert packer.function(names["f"]) != before


@pytest.mark.parametrize("name", KEPT)
def test_what_can_be_seen_is_not_pickled_again(name: str) -> None:
    function, packer = in_script(KEPT[name])["f"], Packer()
    assert packer.function(function) is packer.function(function)


def test_a_module_that_travels_by_value_is_no_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("by_value_here")
    monkeypatch.setitem(sys.modules, "by_value_here", module)
    exec("class C: k = 1\ndef f(): return C.k", vars(module))  # noqa: S102
    function = vars(module)["f"]
    assert watch(in_script("def g(): return f")["g"]) is not None
    assert Packer().function(function) == Packer().function(function)
    cloudpickle.register_pickle_by_value(module)
    try:
        packer = Packer()
        before = packer.function(function)
        vars(module)["C"].k = 2
        assert packer.function(function) != before
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_what_is_too_much_to_look_at_is_pickled() -> None:
    assert watch(in_script(f"t = [0] * {MOST_PARTS // 2}\ndef f(): return t")["f"]) is not None
    assert watch(in_script(f"t = [0] * {MOST_PARTS}\ndef f(): return t")["f"]) is None


def test_a_function_that_changes_often_is_kept_once() -> None:
    names, packer = in_script("k = 0\ndef f(): return k"), Packer()
    for names["k"] in range(5):
        packer.function(names["f"])
    assert len(packer._kept) == 1
    assert weakref.getweakrefcount(names["f"]) == 1
    names.clear()
    gc.collect()
    assert not packer._kept


def test_functions_that_hold_themselves_do_not_pile_up() -> None:
    packer = Packer()
    for _ in range(MOST_KEPT + 10):
        packer.function(in_script("class C:\n @staticmethod\n def run(): return C")["C"].run)
    assert len(packer._kept) <= MOST_KEPT
