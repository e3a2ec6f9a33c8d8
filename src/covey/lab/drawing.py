"""The table of an experiment as a picture: for each figure a panel, for each row a bar with the
deviation between seeds, and beside it a mark for what the paper has. SVG, made here: it is a few
rectangles, and needs no library."""

from collections.abc import Iterator
from html import escape

from covey.lab.draws import seconds
from covey.lab.experiment import Result, ResultRow
from covey.lab.figures import FIGURES, TIME

WIDTH, BAR, GAP, HEAD = 640, 18, 8, 34
LEFT, RIGHT = 170, 110  # room for names, and for numbers
LETTER = 7.2  # about, in pixels
OURS, PAPER = "#4878a8", "#c44e52"


def svg(result: Result) -> str:
    panels = list(_panels(result))
    height = HEAD + sum(panel_height for panel_height, _ in panels) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(8, 20, result.title or result.name, weight="bold"),
    ]
    top = float(HEAD)
    for panel_height, lines in panels:
        parts.append(f'<g transform="translate(0 {top:g})">')
        parts += lines
        parts.append("</g>")
        top += panel_height
    parts.append(f'<rect x="{LEFT}" y="{top + 4:g}" width="10" height="10" fill="{OURS}"/>')
    parts.append(_text(LEFT + 15, top + 13, f"covey, {result.seeds} seeds"))
    parts.append(_diamond(LEFT + 145, top + 9))
    parts.append(_text(LEFT + 155, top + 13, "the paper"))
    return "\n".join([*parts, "</svg>", ""])


def _panels(result: Result) -> Iterator[tuple[int, list[str]]]:
    """The height of each, and its lines."""
    hours = max(row.mean("turnaround") for row in result.rows) >= 2 * 3600
    unit, per = ("h", 3600.0) if hours else ("min", 60.0)
    for name in result.columns:
        measure, by = (unit, per) if FIGURES[name] == TIME else (FIGURES[name], 1.0)
        title = name.replace("_", " ") + (f" ({measure})" if measure else "")
        yield _height(result), [_text(8, 14, title), *_bars(result, name, by)]


def _height(result: Result) -> int:
    return 22 + len(result.rows) * (BAR + GAP) + 8


def _bars(result: Result, name: str, per: float) -> Iterator[str]:
    papers = [_paper(row, name, per) for row in result.rows]
    ends = [(row.mean(name) + row.spread(name)) / per for row in result.rows]
    most = max([*ends, *(paper for paper in papers if paper is not None)]) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / most
    for place, (row, paper) in enumerate(zip(result.rows, papers, strict=True)):
        top = 22 + place * (BAR + GAP)
        middle = top + BAR / 2
        mean, spread = row.mean(name) / per, row.spread(name) / per
        yield _text(LEFT - 6, middle + 4, _short(row.name), anchor="end")
        yield _bar(top, scale * mean)
        if spread:
            low, high = LEFT + scale * max(0.0, mean - spread), LEFT + scale * (mean + spread)
            yield f'<path d="M{low:.1f} {middle:g}H{high:.1f}" stroke="black"/>'
        words = f"{mean:.3g}"
        if paper is not None:
            yield _diamond(LEFT + scale * paper, middle)
            words += f" (paper {paper:.3g})"
        yield _text(WIDTH - RIGHT + 8, middle + 4, words)


def _bar(top: float, width: float) -> str:
    return f'<rect x="{LEFT}" y="{top:g}" width="{width:.1f}" height="{BAR}" fill="{OURS}"/>'


def _paper(row: ResultRow, name: str, per: float) -> float | None:
    figure = row.paper.get(name)
    if figure is None:
        return None
    return (seconds(figure) if FIGURES[name] == TIME else float(figure)) / per


def _short(name: str) -> str:
    most = int((LEFT - 10) / LETTER)
    return name if len(name) <= most else name[: most - 1] + "…"


def _diamond(x: float, y: float) -> str:
    return f'<path d="M{x:.1f} {y - 6:g}l5 6l-5 6l-5 -6z" fill="{PAPER}"/>'


def _text(x: float, y: float, words: str, anchor: str = "start", weight: str = "normal") -> str:
    where = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}"'
    return f"<text {where}>{escape(words)}</text>"
