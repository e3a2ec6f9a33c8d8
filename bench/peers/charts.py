"""One bar chart for each case, as SVG: drawn here, with nothing but text."""

from collections.abc import Sequence
from html import escape
from math import log10
from typing import NamedTuple

WIDTH, ROW, LEFT, RIGHT, TOP = 760, 26, 190, 120, 58
OURS, OTHERS, PALE = "#1f6f54", "#8a94a0", "#b3261e"
STYLE = "font-family='system-ui,sans-serif' font-size='13' fill='#24292f'"


class Bar(NamedTuple):
    """`note` stands where there is no value, or after it."""

    name: str
    value: float | None
    note: str = ""
    ours: bool = False


class Chart(NamedTuple):
    title: str
    unit: str
    bars: Sequence[Bar]
    form: str = ",.0f"
    logarithmic: bool = False


def draw(chart: Chart) -> str:
    height = TOP + ROW * len(chart.bars) + 12
    most = max((bar.value for bar in chart.bars if bar.value is not None), default=1.0)
    least = min((bar.value for bar in chart.bars if bar.value), default=1.0)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' "
        f"viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{_safe(chart.title)}'>",
        f"<rect width='{WIDTH}' height='{height}' fill='white'/>",
        f"<text x='12' y='24' {STYLE} font-weight='600'>{_safe(chart.title)}</text>",
        f"<text x='12' y='43' {STYLE} opacity='0.7'>{_safe(_unit(chart))}</text>",
    ]
    for k, bar in enumerate(chart.bars):
        parts += _bar(chart, bar, TOP + ROW * k, least, most)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _unit(chart: Chart) -> str:
    return f"{chart.unit}, logarithmic" if chart.logarithmic else chart.unit


def _bar(chart: Chart, bar: Bar, y: int, least: float, most: float) -> list[str]:
    middle = y + ROW // 2 + 4
    name = f"<text x='{LEFT - 10}' y='{middle}' {STYLE} text-anchor='end'>{_safe(bar.name)}</text>"
    if bar.value is None:
        words = bar.note if len(bar.note) <= 76 else bar.note[:75] + "…"
        gone = f"<text x='{LEFT}' y='{middle}' {STYLE} opacity='0.6'>{_safe(words)}</text>"
        return [name, gone]
    width = length(bar.value, least, most, chart.logarithmic) * (WIDTH - LEFT - RIGHT)
    colour = OURS if bar.ours else OTHERS
    after = f"{bar.value:{chart.form}}" + (f"  {bar.note}" if bar.note else "")
    return [
        name,
        f"<rect x='{LEFT}' y='{y + 4}' width='{width:.1f}' height='{ROW - 8}' fill='{colour}'/>",
        f"<text x='{LEFT + width + 6:.1f}' y='{middle}' {STYLE}>{_safe(after)}</text>",
    ]


def length(value: float, least: float, most: float, logarithmic: bool) -> float:
    """Of a bar, as a part of the longest; the shortest of a logarithmic chart is still seen."""
    if most <= 0 or value <= 0:
        return 0.0
    if not logarithmic or most == least:
        return value / most
    return 0.04 + 0.96 * (log10(value) - log10(least)) / (log10(most) - log10(least))


def _safe(text: str) -> str:
    return escape(text, quote=True)
