"""Unit tests mirror the tree: `core/match/ranking.py` is tested in `core/match/test_ranking.py`.

A file that would be too long is several: `test_overlay.py` and `test_overlay_jobs.py` are both of
`overlay.py`. The lists of exceptions only shrink.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"
CORE = ROOT / "src" / "covey" / "core"

# Tests of pages of the documentation, of what a package exports, and of a plugin for tests.
OF_NO_MODULE = {
    "bagfile/test_policies_page.py",
    "bagfile/test_published.py",
    "python/test_exports.py",
    "test_shuffled.py",
}
# Modules of core that have functions, and are tested through others only.
WITHOUT_TESTS = {
    "bags/output_summary",
    "errors",
    "explain/catalogue",
    "explain/policy_view",
    "match/attributes",
    "match/bag_policy",
    "match/match_cache",
    "protocol/enrolment",
    "protocol/job_secrets",
    "record/model",
    "state/files",
    "state/match_records",
    "state/pilots",
    "state/policy_cache",
    "state/scene",
    "state/sites",
    "turn",
    "values/columns",
}


def modules_beside(test: Path) -> list[str]:
    """Names of the modules in the folder that the folder of this test mirrors."""
    folder = test.parent.relative_to(UNIT)
    places = (ROOT / "src" / "covey" / folder, ROOT / folder)
    return [module.stem for place in places for module in place.glob("*.py")]


def test_a_file_of_tests_is_named_for_a_module() -> None:
    nameless = {
        str(test.relative_to(UNIT))
        for test in UNIT.rglob("test_*.py")
        if not any(
            test.stem == f"test_{name}" or test.stem.startswith(f"test_{name}_")
            for name in modules_beside(test)
        )
    }
    assert nameless == OF_NO_MODULE


def test_modules_of_core_have_tests() -> None:
    modules = {
        str(path.relative_to(CORE).with_suffix(""))
        for path in CORE.rglob("[!_]*.py")
        if any(isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(path.read_text())))
    }
    tested = {
        str(path.relative_to(UNIT / "core").with_name(path.stem.removeprefix("test_")))
        for path in (UNIT / "core").rglob("test_*.py")
    }
    untested = {
        name
        for name in modules
        if not any(test == name or test.startswith(f"{name}_") for test in tested)
    }
    assert untested == WITHOUT_TESTS
