"""One bar chart for each case, as PNG."""

from collections.abc import Iterator, Sequence
from io import BytesIO
from math import log10
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

WIDTH, ROW, LEFT, RIGHT, TOP = 760, 26, 130, 150, 58
OURS, OTHERS, INK, FAINT = "#1f6f54", "#8a94a0", "#24292f", "#6a7178"
SHARP = 2  # pixels for each unit: read on good screens, too
SIZE, TITLE_SIZE = 13, 14
MOST_WORDS = 84
_DRAWN = str.maketrans({"×": "x", "…": "...", "–": "-"})  # what the font does not have


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


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    colour: str


class Text(NamedTuple):
    """`x` is where it begins, or where it ends."""

    x: float
    y: float
    words: str
    colour: str = INK
    size: int = SIZE
    ends: bool = False


def draw(chart: Chart) -> bytes:
    size = (WIDTH * SHARP, _height(chart) * SHARP)
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    for one in layout(chart):
        if isinstance(one, Box):
            corners = (one.x, one.y, one.x + one.width, one.y + one.height)
            pen.rectangle([corner * SHARP for corner in corners], fill=one.colour)
        else:
            font = ImageFont.load_default(one.size * SHARP)
            place = (one.x * SHARP, one.y * SHARP)
            words = one.words.translate(_DRAWN)
            pen.text(place, words, one.colour, font, "rm" if one.ends else "lm")
    made = BytesIO()
    image.quantize(64).save(made, "PNG", optimize=True)
    return made.getvalue()


def layout(chart: Chart) -> Iterator[Box | Text]:
    """Everything that is to be seen, and where."""
    unit = f"{chart.unit}, logarithmic" if chart.logarithmic else chart.unit
    yield Text(12, 20, _short(chart.title, 110), size=TITLE_SIZE)
    yield Text(12, 41, unit, FAINT)
    values = [bar.value for bar in chart.bars if bar.value is not None]
    most, least = max(values, default=1.0), min(filter(None, values), default=1.0)
    for k, bar in enumerate(chart.bars):
        y = TOP + ROW * k
        middle = y + ROW / 2
        yield Text(LEFT - 10, middle, bar.name, ends=True)
        if bar.value is None:
            yield Text(LEFT, middle, _short(bar.note, MOST_WORDS), FAINT)
            continue
        width = length(bar.value, least, most, chart.logarithmic) * (WIDTH - LEFT - RIGHT)
        yield Box(LEFT, y + 4, width, ROW - 8, OURS if bar.ours else OTHERS)
        words = f"{bar.value:{chart.form}}" + (f"  {bar.note}" if bar.note else "")
        yield Text(LEFT + width + 6, middle, words)


def length(value: float, least: float, most: float, logarithmic: bool) -> float:
    """Of a bar, as a part of the longest; the shortest of a logarithmic chart is still seen."""
    if most <= 0 or value <= 0:
        return 0.0
    if not logarithmic or most == least:
        return value / most
    return 0.04 + 0.96 * (log10(value) - log10(least)) / (log10(most) - log10(least))


def _height(chart: Chart) -> int:
    return TOP + ROW * len(chart.bars) + 12


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"
