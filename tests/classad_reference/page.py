"""docs/classad.md, as the tests read it."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "classad.md"
_ROW = re.compile(r"^\| `((?:[^`])+)` \| `([^`]+)` \|", re.M)


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def section(title: str) -> str:
    """What stands below a heading, up to the next of its kind."""
    return text().split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def examples() -> list[tuple[str, str]]:
    """An expression and what it is worth, from the tables with such heads."""
    found = []
    for table in re.findall(r"^\| expression \| is \| \|\n(?:\|.*\n)+", text(), re.M):
        found += [(one.replace("\\|", "|"), other) for one, other in _ROW.findall(table)]
    return found


def python() -> list[str]:
    """The lines of the Python blocks, one block after another."""
    blocks = re.findall(r"^```python\n(.*?)```", text(), re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def functions() -> dict[str, str]:
    """The table of functions: the name, in lower case, and how it is called."""
    rows = re.findall(r"^\| `(\w+)\(([^`]*)\)` \|", section("Functions"), re.M)
    return {name.lower(): arguments for name, arguments in rows}


def deviations() -> dict[str, str]:
    """The names in the list of differences, and what is said of each."""
    found = re.findall(
        r"^- \*\*([^*]+)\.\*\* (.*?)(?=\n- |\n\n|\Z)", section(DIFFERENCES), re.M | re.S
    )
    return {name: " ".join(reason.split()) for name, reason in found}


DIFFERENCES = "Where it differs from HTCondor"
