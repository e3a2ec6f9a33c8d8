"""Each checker finds what it is for, and leaves the rest alone."""

from pathlib import PurePath

import pytest

from tests.tidy import checkers


def test_long_module() -> None:
    assert checkers.long_module("x = 1\n" * 600) == 0
    assert checkers.long_module("x = 1\n" * 601) == 601


def test_long_functions_count_code_alone() -> None:
    padding = '    """One.\n\n    Two.\n    """\n    # why\n\n'
    assert checkers.long_functions("def f():\n" + padding + "    x = 1\n" * 69) == {}
    assert checkers.long_functions("def f():\n" + padding + "    x = 1\n" * 70) == {"f": 71}


def test_long_functions_are_found_inside_classes_and_blocks() -> None:
    source = "class A:\n    if True:\n        async def f(self):\n" + "            x = 1\n" * 70
    assert checkers.long_functions(source) == {"A.f": 71}


def test_the_budget_only_shrinks() -> None:
    assert not checkers.not_in_budget({"a": 700}, {"a": 700})
    assert checkers.not_in_budget({"a": 701}, {"a": 700}) == ["a: 701 lines"]
    assert checkers.not_in_budget({"a": 601}, {}) == ["a: 601 lines"]
    assert checkers.not_in_budget({}, {"a": 700}) == ["a: take it off the list"]


def test_bad_name() -> None:
    assert checkers.bad_name(PurePath("src/covey/core/utils.py"))
    assert checkers.bad_name(PurePath("src/covey/utils/text.py"))
    assert not checkers.bad_name(PurePath("src/covey/core/record/model.py"))


def test_missing_docstring() -> None:
    assert checkers.missing_docstring("import os\n")
    assert not checkers.missing_docstring('"""Why."""\n')


@pytest.mark.parametrize("line", ["x = 1", "def f(): ...", "print()", "if True: import os"])
def test_not_exports(line: str) -> None:
    exports = '"""Why."""\nfrom a import b\nimport c\n__all__ = ["b"]\n__version__ = "1"\n'
    assert not checkers.not_exports(exports)
    assert not checkers.not_exports(exports + "def __getattr__(name): ...\ndef __dir__(): ...")
    assert checkers.not_exports(exports + line) == ["line 6: not an export"]


def test_imports_are_absolute() -> None:
    source = "import a.b\nfrom c import d\nfrom . import e\nfrom .f import g\nfrom ..h import i\n"
    names = [name for _, name in checkers.imports(source, "covey.pilot")]
    assert names == ["a.b", "c.d", "covey.pilot.e", "covey.pilot.f.g", "covey.h.i"]


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from asyncio import sleep",
        "def f():\n    import socket",
        "from random import choice",
        "import random\nx = random.random()",
    ],
)
def test_impure_core(source: str) -> None:
    assert checkers.impure_core(source, "covey.core")


def test_pure_core() -> None:
    source = "import random, msgspec\nfrom random import Random\nx = random.Random(1)\n"
    assert not checkers.impure_core(source, "covey.core")


@pytest.mark.parametrize(
    "source", ["import click", "from covey.core.record import model", "from ..core import model"]
)
def test_not_standard_library(source: str) -> None:
    assert checkers.not_standard_library(source, "covey.pilot")


@pytest.mark.parametrize(
    "source",
    [
        "import os.path",
        "from covey.classad import parse",
        "from covey import classad, __version__",
        "from covey.pilot.protocol.messages import Sync",
        "from . import messages",
        "from .. import classad",
    ],
)
def test_standard_library(source: str) -> None:
    assert not checkers.not_standard_library(source, "covey.pilot")


def test_leftovers() -> None:
    assert checkers.leftovers("x = 1  # " + "TO" + "DO: more") == [f"line 1: {'TO' + 'DO'!r}"]
    assert not checkers.leftovers("TO" + "DOS " + "X" * 6)


@pytest.mark.parametrize(
    "text", ["https://py" + "pi.org/simple", "cd /wo" + "rk/main", '"/ro' + 'ot/x"']
)
def test_addresses(text: str) -> None:
    assert checkers.addresses(text)


@pytest.mark.parametrize("before", ["scratch", "$HOME", "~", "/net"])
def test_no_addresses(before: str) -> None:
    assert not checkers.addresses(before + "/wo" + "rk/x")
    assert not checkers.addresses("/working/x")


def test_tabs() -> None:
    assert checkers.tabs("if x:\n\ty = 1\n") == [r"line 2: '\t'"]
    assert not checkers.tabs("x = '\\t'\n")
