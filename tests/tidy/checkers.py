"""What tidy means, as pure functions: text of a file in, list of complaints out."""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import PurePath

MODULE_LINES = 600
FUNCTION_LINES = 70

# Core decides and does nothing: all that could do I/O or read a clock stays out.
CORE_FORBIDDEN = frozenset(
    {
        "asyncio",
        "logging",
        "multiprocessing",
        "os",
        "secrets",
        "select",
        "socket",
        "sqlite3",
        "subprocess",
        "threading",
        "time",
    }
)

# Written in halves, so that this file does not complain about itself.
LEFTOVER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")
REGISTRY = re.compile("py" + r"pi\.(org|python)|python" + "hosted")
MACHINE_PATH = re.compile(r"(?<![\w/.$}~*-])/(" + "|".join(("wo" + "rk", "ro" + "ot")) + ")/")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def long_module(source: str) -> int:
    """Lines of the module if it has too many, else 0."""
    lines = len(source.splitlines())
    return lines if lines > MODULE_LINES else 0


def long_functions(source: str) -> dict[str, int]:
    """Lines of code of each function that has too many, by qualified name."""
    spans = [
        (name, function, range(function.lineno, (function.end_lineno or function.lineno) + 1))
        for name, function in _functions(ast.parse(source))
    ]
    long = [one for one in spans if len(one[2]) > FUNCTION_LINES]
    code = _code_lines(source) if long else set()  # which takes long
    sizes = {}
    for name, function, whole in long:
        size = len(code.intersection(whole).difference(_docstring_lines(function)))
        if size > FUNCTION_LINES:
            sizes[name] = size
    return sizes


def _code_lines(source: str) -> set[int]:
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def _docstring_lines(function: Function) -> range:
    if ast.get_docstring(function, clean=False) is None:
        return range(0)
    first = function.body[0]
    return range(first.lineno, (first.end_lineno or first.lineno) + 1)


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        name = prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}.{node.name}" if prefix else node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node
        yield from _functions(node, name)


def not_in_budget(found: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """What is too long and not allowed to be, and what no longer needs its exception."""
    grown = [f"{name}: {size} lines" for name, size in found.items() if size > allowed.get(name, 0)]
    stale = [f"{name}: take it off the list" for name in allowed if name not in found]
    return grown + stale


def bad_name(path: PurePath) -> list[str]:
    """A module named for being handy gathers everything."""
    bad = {"util", "utils"} & {path.stem, *path.parent.parts}
    return [f"{name}: say what it does" for name in sorted(bad)]


def missing_docstring(source: str) -> list[str]:
    return [] if ast.get_docstring(ast.parse(source)) else ["no module docstring"]


def not_exports(source: str) -> list[str]:
    """What an `__init__.py` holds besides docstring, imports, `__all__` and `__version__`; it may
    export names when they are first used."""

    def is_export(node: ast.stmt) -> bool:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant(str())):
                return True
            case ast.Assign([ast.Name("__all__" | "__version__")]):
                return True
            case ast.FunctionDef("__getattr__" | "__dir__"):
                return True
            case _:
                return False

    body = ast.parse(source).body
    return [f"line {node.lineno}: not an export" for node in body if not is_export(node)]


def imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything imported, anywhere in a module of `package`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def impure_core(source: str, package: str) -> list[str]:
    """I/O, clocks and unseeded randomness in core."""
    found = []
    for line, name in imports(source, package):
        unseeded = name.startswith("random.") and name != "random.Random"
        if name.split(".")[0] in CORE_FORBIDDEN or unseeded:
            found.append(f"line {line}: core imports {name}")
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(ast.Name("random"), attribute) if attribute != "Random":
                found.append(f"line {node.lineno}: core uses random.{attribute}, unseeded")
            case _:
                pass
    return found


def not_standard_library(source: str, package: str) -> list[str]:
    """Imports that would be missing on a host: `package` is one of those that pilots carry."""
    own = ".".join(package.split(".")[:2])
    ours = ("covey.classad", own, "covey.__version__")

    def is_there(name: str) -> bool:
        if name.split(".")[0] in sys.stdlib_module_names:
            return True
        return any(name == allowed or name.startswith(f"{allowed}.") for allowed in ours)

    return [
        f"line {line}: imports {name}"
        for line, name in imports(source, package)
        if not is_there(name)
    ]


def leftovers(text: str) -> list[str]:
    return _matches(LEFTOVER, text)


def addresses(text: str) -> list[str]:
    """Names of package registries and paths of one machine."""
    return _matches(REGISTRY, text) + _matches(MACHINE_PATH, text)


def tabs(text: str) -> list[str]:
    return _matches(re.compile("\t"), text)


def _matches(pattern: re.Pattern[str], text: str) -> list[str]:
    return [
        f"line {number}: {found.group()!r}"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := pattern.search(line))
    ]
