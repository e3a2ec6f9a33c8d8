"""Finds every use of a regular expression in the sources, and how it is used."""

import ast
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.tidy.backtracking import METHODS


class Use(NamedTuple):
    """`pattern` is None if the text is not known before the program runs."""

    place: str  # module and name, or module and text of the expression
    line: int
    pattern: str | bytes | None
    flags: int
    methods: tuple[str, ...]


def uses(path: Path, module: str, called: dict[str, set[str]]) -> Iterator[Use]:
    """`called` are the methods that anybody calls, by the name on which they are called. A name
    that begins with _ is used in its own module only."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    own = methods_by_name([path])
    bound = {  # re.compile(…).match
        id(node.value): (node.attr,)
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in METHODS
    }
    names = {
        id(inner): ast.unparse(node.targets[0])
        for node in nodes
        if isinstance(node, ast.Assign)
        for inner in ast.walk(node.value)
    }
    for node in nodes:
        what = _function_of_re(node)
        if what is None:
            continue
        assert isinstance(node, ast.Call)
        name = names.get(id(node), "")
        bare = name.removeprefix("self.")
        known = own if bare.startswith("_") else called
        methods = tuple(sorted(known.get(bare, METHODS))) if what == "compile" else (what,)
        methods = bound.get(id(node), methods)
        yield Use(
            f"{module}:{name if what == 'compile' and name else ast.unparse(node.args[0])}",
            node.lineno,
            _value(node.args[0], module),
            int(_value(_flags(node, what), module) or 0),
            methods,
        )


def methods_by_name(paths: Iterable[Path]) -> dict[str, set[str]]:
    """The methods of patterns that these modules call, by the name on which they are called."""
    found: dict[str, set[str]] = {}
    for path in paths:
        for name, method in _calls(path):
            found.setdefault(name, set()).add(method)
    return found


def _calls(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            owner = node.value
            while isinstance(owner, ast.Subscript):
                owner = owner.value
            if isinstance(owner, ast.Attribute):
                yield owner.attr, node.attr
            elif isinstance(owner, ast.Name):
                yield owner.id, node.attr


def _function_of_re(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
    return node.func.attr if of_re and node.func.attr in {"compile", *METHODS} else None


def _flags(node: ast.Call, what: str) -> ast.expr | None:
    place = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(what, 2)
    given = [keyword.value for keyword in node.keywords if keyword.arg == "flags"]
    return given[0] if given else (node.args[place] if len(node.args) > place else None)


def _value(node: ast.expr | None, module: str) -> Any:
    """What an expression of constants is, else None."""
    if node is None:
        return None
    names = vars(importlib.import_module(module))
    try:
        return eval(compile(ast.Expression(node), module, "eval"), dict(names))  # noqa: S307
    except NameError:
        return None
