"""The progress of a bag during `bag.wait`: a bar in a terminal or in a notebook, else nothing.

In a notebook, one piece of HTML is replaced again and again. That needs IPython but no widgets.
"""

import sys
import time
from html import escape
from typing import Any, Protocol

from covey.frontend import formats
from covey.frontend.progress import (
    ProgressLines,
    ProgressMeter,
    Silent,
    describe,
    for_stream,
    percent,
    remarks,
    summary,
)
from covey.frontend.terminal import clean
from covey.wire import BagView

BAR = "display:inline-block;width:16em;height:.8em;background:#ddd;vertical-align:middle"
COLOURS = {"finished": "#2a8c4a", "running": "#3572b0", "paused": "#c98a00", "cancelled": "#888"}
FAILED = "#b8352b"


class Shown(Protocol):
    """Shows the progress of a bag. `close` removes a bar from the terminal, `end` prints the
    summary."""

    poll_seconds: float
    wait_seconds: float

    def show(self, bag: BagView) -> None: ...

    def close(self) -> None: ...

    def end(self, bag: BagView) -> None: ...


class Quiet(Silent):
    def end(self, bag: BagView) -> None:
        """Print nothing."""


class OnStream:
    """The bar, or the lines, of `covey watch`."""

    def __init__(self) -> None:
        self._inner = for_stream(sys.stderr)
        self.poll_seconds = self._inner.poll_seconds
        self.wait_seconds = self._inner.wait_seconds

    @property
    def is_plain(self) -> bool:
        return isinstance(self._inner, ProgressLines)

    def show(self, bag: BagView) -> None:
        self._inner.show(bag)

    def close(self) -> None:
        self._inner.close()

    def end(self, bag: BagView) -> None:
        print(clean(summary(bag)), file=sys.stderr, flush=True)


class InNotebook:
    """One output of a cell. `display` is IPython's function; it returns a handle that can replace
    the output. All waits for one bag in one cell share the output, so there is only one bar."""

    poll_seconds = 0.25
    wait_seconds = 1.0

    def __init__(self, display: Any, cell: int) -> None:
        self._display = display
        self.cell = cell  # the cell's execution count
        self._handle: Any = None
        self._last: dict[str, str] = {}
        self._meter = ProgressMeter()

    def show(self, bag: BagView) -> None:
        self._meter.update(time.monotonic(), bag.done + bag.failed)
        self._draw(bag_html(bag, self._meter), formats.title(bag))

    def end(self, bag: BagView) -> None:
        self._draw(bag_html(bag, self._meter), summary(bag))

    def close(self) -> None:
        """The bar stays in the cell."""

    def _draw(self, html: str, text: str) -> None:
        data = {"text/html": html, "text/plain": text}
        if data == self._last:
            return
        self._last = data
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def choose(wanted: bool | None, before: Shown | None = None) -> Shown:
    """How to show progress. `wanted` True: always, in a pipe as lines; False: never; None: only in
    a terminal or a notebook. `before` is what showed the same bag the last time."""
    if wanted is False:
        return Quiet()
    shell = _notebook()
    if shell is not None:
        if is_of_this_cell(before):
            assert before is not None
            return before
        from IPython.display import display

        return InNotebook(display, _cell(shell))
    on_stream = OnStream()
    return Quiet() if wanted is None and on_stream.is_plain else on_stream


def is_of_this_cell(shown: Shown | None) -> bool:
    """Whether `shown` is a bar in the notebook cell that runs now."""
    shell = _notebook()
    if shell is None or not isinstance(shown, InNotebook):
        return False
    return shown.cell == _cell(shell)


def _cell(shell: Any) -> int:
    return int(getattr(shell, "execution_count", 0))


def _notebook() -> Any:
    """IPython's shell if this is a notebook; None in a terminal, where IPython has no kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


def bag_html(bag: BagView, meter: ProgressMeter | None = None) -> str:
    ended = bag.done + bag.failed
    width = percent(ended, bag.total)
    colour = FAILED if bag.failed else COLOURS.get(bag.status, "#888")
    bar = f"<span style='{BAR}'><span style='display:block;width:{width}%;height:100%;"
    bar += f"background:{colour}'></span></span>"
    facts = [*describe(bag, meter or ProgressMeter()), *([bag.status] if bag.over else [])]
    words = " · ".join(escape(fact) for fact in facts)
    reason = f"paused: {bag.reason}" if bag.status == "paused" and bag.reason else ""
    more = "".join(f"<br>{escape(line)}" for line in [reason, *remarks(bag).values()] if line)
    return f"<div><b>{escape(formats.title(bag))}</b> {bar} {words}{more}</div>"
