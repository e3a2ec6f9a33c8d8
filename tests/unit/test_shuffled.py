"""`--shuffle` runs every test once, in an order that its seed decides."""

import itertools
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
MODULE = "import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_{}(n): pass\n"


def order(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    result = pytester.runpytest_inprocess("--collect-only", "-q", *arguments)
    return [line for line in result.outlines if "::" in line]


def test_tests_are_shuffled_by_seed_and_modules_stay_together(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    for name in ("one", "two", "three"):
        pytester.path.joinpath(f"test_{name}.py").write_text(MODULE.format(name))
    plugin = ("-p", "tests.shuffled")
    plain = order(pytester, *plugin)
    first, again = (order(pytester, *plugin, "--shuffle", "1") for _ in range(2))
    other = order(pytester, *plugin, "--shuffle", "2")
    assert first == again
    assert sorted(first) == sorted(other) == sorted(plain)
    assert len({tuple(plain), tuple(first), tuple(other)}) == 3
    modules = [line.partition("::")[0] for line in first]
    changes = sum(before != after for before, after in itertools.pairwise(modules))
    assert changes == 2
