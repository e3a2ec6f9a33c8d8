"""Pictures of results: a bar for each figure of each row, and a mark for the paper's."""

from xml.etree import ElementTree

from covey.lab import experiment
from covey.lab.drawing import OURS, PAPER, svg
from covey.lab.worldfile import parse

WORLD = """
title = "A < B & C"
columns = ["turnaround", "failed"]
[[sites]]
name = "a"
pilots = 4
[[bags]]
name = "x"
tasks = 8
time = "1m"
[[variants]]
name = "first"
paper = { turnaround = "4m" }
[[variants]]
name = "second, with a name that is far too long for a picture"
"""
SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_has_what_the_table_has() -> None:
    result = experiment.run("tiny", parse(WORLD, "w"), 2)
    root = ElementTree.fromstring(svg(result))
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert "A < B & C" in texts
    assert {"turnaround (min)", "failed (%)", "covey, 2 seeds", "the paper"} <= set(texts)
    assert "2.01 (paper 4)" in texts
    assert "second, with a name th…"[:10] in " ".join(texts)
    bars = [one for one in root.iter(f"{SVG}rect") if one.get("fill") == OURS]
    assert len(bars) == 4 + 1  # and one in the legend
    marks = [one for one in root.iter(f"{SVG}path") if one.get("fill") == PAPER]
    assert len(marks) == 1 + 1
    widths = [float(bar.get("width", "0")) for bar in bars[:2]]
    assert widths[0] == widths[1] > 100


def test_a_figure_that_is_zero_everywhere_has_bars_of_no_width() -> None:
    result = experiment.run("tiny", parse(WORLD, "w"), 1)
    bars = list(ElementTree.fromstring(svg(result)).iter(f"{SVG}rect"))
    assert "0.0" in [bar.get("width") for bar in bars]
