"""Charts are well-formed, and show who is missing."""

from xml.etree import ElementTree

from bench.peers.charts import Bar, Chart, draw, length


def texts(drawn: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(drawn).iter() if one.text]


def test_names_and_figures_are_shown() -> None:
    found = texts(draw(Chart("proc", "per second", [Bar("us", 2000.0, ours=True)])))
    assert "us" in found
    assert "2,000" in found


def test_a_tool_without_a_figure_says_why() -> None:
    bars = [Bar("us", 1.0), Bar("them", None, "not there: no <workers> & so on")]
    assert "not there: no <workers> & so on" in texts(draw(Chart("t", "u", bars)))


def test_the_longest_bar_is_the_largest_value() -> None:
    assert length(5.0, 1.0, 10.0, logarithmic=False) == 0.5
    assert length(10.0, 1.0, 10.0, logarithmic=True) == 1.0


def test_the_least_of_a_logarithmic_chart_can_be_seen() -> None:
    assert 0 < length(0.001, 0.001, 1000.0, logarithmic=True) < 0.1


def test_nothing_has_no_length() -> None:
    assert length(0.0, 1.0, 10.0, logarithmic=True) == 0.0
    assert length(0.0, 0.0, 0.0, logarithmic=False) == 0.0
