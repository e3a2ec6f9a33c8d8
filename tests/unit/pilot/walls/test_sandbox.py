"""What tasks behind walls see, before any walls are built. See tests/integration for real ones."""

from pathlib import Path

from covey.pilot.walls.sandbox import survey


def test_the_cache_is_hidden_though_it_is_made_later(tmp_path: Path) -> None:
    cache, desk = tmp_path / "cache", tmp_path / "desk"
    fixed = survey([str(tmp_path)], [str(desk), str(cache), "/elsewhere"])
    assert str(tmp_path) in fixed.shown
    assert fixed.hidden == (str(desk), str(cache))


def test_what_lies_in_something_hidden_is_hidden_with_it(tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    fixed = survey([str(tmp_path)], [str(desk), str(desk / "cache")])
    assert fixed.hidden == (str(desk),)
