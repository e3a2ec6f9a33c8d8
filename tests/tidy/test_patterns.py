"""No regular expression in the sources can take more than linear time.

Whoever sends a text chooses it: a pattern that needs n**2 steps for n letters lets a stranger hold
the server, or somebody's terminal, for minutes.
"""

from pathlib import Path

import pytest

from tests.tidy import patterns
from tests.tidy.backtracking import Unknown, ambiguity

ROOT = Path(__file__).parents[2] / "src"

# Patterns that cannot be looked at here, or are refused and harmless, each with the reason.
# Do not add one that reads what a request, a bag, a task or a batch system says.
DECLARED = {
    "covey.bagfile.inputs.files:fits": "a person's own folder; names of at most 255 bytes",
    "covey.classad.regex:(parsed, python)": "used only for texts whose steps are counted before",
    "covey.cli.shared.commands:_RANGE": "the text of covey's own options",
    "covey.pilot.files.output_patterns:''.join(words)": "letters and sets of letters, no loop",
}

SLOW = [  # pattern, flags, method
    (r"(a+)+b", "match"),
    (r"(a*)*b", "match"),
    (r"(a?b?)*c", "match"),
    (r"(ab|a|b)*c", "match"),
    (r"(?s)\s*(.*?)\s*(?:=|\sin\s)(.*)", "fullmatch"),  # froze the server for 41 seconds
    (r"\s+$", "search"),
    (r"\s*x", "search"),
    (r"a{1,50}a{1,50}b", "match"),
    (r'"(?:[^"\\]|\\.)*"', "sub"),
    (r"a.*?b|a", "sub"),
    (r"a*(?=a*b)", "match"),
    (r"(?i)k+K+x", "match"),
]
QUICK = [
    (r"[0-9]+", "search"),
    (r"[0-9]+", "sub"),
    (r"\d+(?:\.\d+)?\s*[smhd]", "fullmatch"),
    (r'"[^"]*"', "search"),
    (r'"(?:[^"\\]|\\.)*"', "match"),
    (r"(?m)^=+$", "split"),
    (r"(x?)*y", "match"),
    (r"a.*?b|a", "search"),
    (r"\{([A-Za-z_]\w*)\}", "findall"),
]


@pytest.mark.parametrize(("pattern", "method"), SLOW)
def test_a_slow_pattern_is_found(pattern: str, method: str) -> None:
    assert ambiguity(pattern, 0, method)


@pytest.mark.parametrize(("pattern", "method"), QUICK)
def test_a_quick_pattern_is_accepted(pattern: str, method: str) -> None:
    assert ambiguity(pattern, 0, method) == ""


def all_uses() -> list[patterns.Use]:
    paths = sorted(path for path in ROOT.rglob("*.py") if "import re\n" in path.read_text())
    called = patterns.methods_by_name(sorted(ROOT.rglob("*.py")))
    return [
        use
        for path in paths
        for use in patterns.uses(
            path, ".".join(path.relative_to(ROOT).with_suffix("").parts), called
        )
    ]


def test_no_pattern_backtracks() -> None:
    found, declared = [], set()
    for use in all_uses():
        for method in use.methods:
            try:
                if use.pattern is None:
                    raise Unknown("the pattern is made while the program runs")
                why = ambiguity(use.pattern, use.flags, method)
            except Unknown as error:
                why = str(error)
            if why and use.place in DECLARED:
                declared.add(use.place)
            elif why:
                found.append(f"{use.place} (line {use.line}, {method}): {why}")
    assert not found, "\n" + "\n".join(found)
    assert declared == DECLARED.keys(), "take those that are not needed any more out of DECLARED"


def test_every_use_is_seen() -> None:
    """Nobody imports functions or classes from `re` under names of their own."""
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "from re import" not in text, path
        assert "import re as" not in text, path
        assert ("re.compile(" not in text) or "import re\n" in text, path
