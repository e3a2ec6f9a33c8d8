"""The house stays in order: packages of a size that one can look over, with signs on their
doors."""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
COVEY = ROOT / "src" / "covey"
EQUIPMENT = (ROOT / "tests" / "memory_store", ROOT / "tests" / "simulator")  # of tests
MOST_MODULES = 16  # of a package, at one level

# Names of classes that modules of one package share: of the rule that private ones are private.
SHARED_NAMES: set[str] = set()
MOST_REPEATED = 49  # names of classes that several packages have; this number only shrinks


def packages() -> dict[str, list[Path]]:
    """By name, the modules of each package: of covey, and of what tests use."""
    found = {}
    for top in (COVEY, *EQUIPMENT):
        base = COVEY if top == COVEY else ROOT
        for init in top.rglob("__init__.py"):
            name = str(init.parent.relative_to(base))
            found[name] = sorted(init.parent.glob("*.py"))
    return found


@cache
def classes() -> dict[str, list[str]]:
    """By name, the modules that define a class of this name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(COVEY.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(COVEY)))
    return found


def test_no_package_is_too_large_to_look_over() -> None:
    sizes = {name: len(modules) - 1 for name, modules in packages().items()}
    large = {name: size for name, size in sizes.items() if size > MOST_MODULES}
    assert not large


def test_every_package_says_what_belongs_there() -> None:
    for name, modules in packages().items():
        [init] = [path for path in modules if path.name == "__init__.py"]
        assert ast.get_docstring(ast.parse(init.read_text())), name


def test_the_architecture_shows_every_package_and_every_module_beside_them() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    names = [name for name in packages() if name != "."]
    names += [path.stem for path in COVEY.glob("*.py") if not path.stem.startswith("_")]
    assert not [name for name in names if f"| `{name}`" not in text and f", `{name}`" not in text]


def test_every_file_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = [path for path in re.findall(r"`([\w/]+\.py)`", text) if "/" in path]
    for package, files in re.findall(r"^\| `([\w/]+)`.*\| (`[^|]+`) \|$", text, re.MULTILINE):
        for file in re.findall(r"`([\w/]+\.py)`", files):
            inside = (COVEY / package / file, ROOT / package / file, COVEY / file)
            assert any(path.is_file() for path in inside), f"{package}: {file}"
    assert not [path for path in named if not ((COVEY / path).is_file() or (ROOT / path).is_file())]


def test_a_class_name_is_used_once_in_a_package() -> None:
    shared = set()
    for name, modules in classes().items():
        counts = Counter(module.partition("/")[0] for module in modules)
        shared |= {f"{package}: {name}" for package, count in counts.items() if count > 1}
    assert shared == SHARED_NAMES


def test_packages_share_few_class_names() -> None:
    repeated = [name for name, modules in classes().items() if len(modules) > 1]
    assert len(repeated) <= MOST_REPEATED, repeated
