"""Charts can be looked at, and show who is missing."""

from io import BytesIO

from PIL import Image

from bench.peers.charts import OURS, SHARP, WIDTH, Bar, Box, Chart, Text, draw, layout, length


def texts(chart: Chart) -> list[str]:
    return [one.words for one in layout(chart) if isinstance(one, Text)]


def test_names_and_figures_are_shown() -> None:
    found = texts(Chart("proc", "per second", [Bar("us", 2000.0, ours=True)]))
    assert "us" in found
    assert "2,000" in found


def test_a_tool_without_a_figure_says_why() -> None:
    bars = [Bar("us", 1.0), Bar("them", None, "not there: no workers")]
    assert "not there: no workers" in texts(Chart("t", "u", bars))


def test_what_is_laid_out_is_drawn() -> None:
    chart = Chart("proc", "per second", [Bar("us", 2000.0, ours=True), Bar("them", 1.0)])
    image = Image.open(BytesIO(draw(chart))).convert("RGB")
    assert image.width == WIDTH * SHARP
    (box,) = [one for one in layout(chart) if isinstance(one, Box) and one.colour == OURS]
    middle = (int((box.x + box.width / 2) * SHARP), int((box.y + box.height / 2) * SHARP))
    red, green, blue = image.getpixel(middle)  # type: ignore[misc]
    assert f"#{red:02x}{green:02x}{blue:02x}" == OURS


def test_the_longest_bar_is_the_largest_value() -> None:
    assert length(5.0, 1.0, 10.0, logarithmic=False) == 0.5
    assert length(10.0, 1.0, 10.0, logarithmic=True) == 1.0


def test_the_least_of_a_logarithmic_chart_can_be_seen() -> None:
    assert 0 < length(0.001, 0.001, 1000.0, logarithmic=True) < 0.1


def test_nothing_has_no_length() -> None:
    assert length(0.0, 1.0, 10.0, logarithmic=True) == 0.0
    assert length(0.0, 0.0, 0.0, logarithmic=False) == 0.0
