"""What is known of a site and of its jobs, as people read it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from covey.core.sites.site_figures import COUNT, FIGURES, SECONDS, SHARE, SiteFigure
from covey.frontend import formats
from covey.frontend.tables import Column

if TYPE_CHECKING:
    from covey.core.sites.measures import SiteMeasures
    from covey.wire import SiteJobView

UNKNOWN = "-"
JOB_COLUMNS = (
    Column("job"),
    Column("at the site"),
    Column("owner"),
    Column("slots", right=True),
    Column("state"),
    Column("submitted"),
    Column("waited", right=True),
    Column("start-up", right=True),
    Column("lived", right=True),
    Column("pilot", right=True),
    Column("host"),
    Column("log"),
    Column("end"),
)
NAMES = {
    "wait_median": "wait",
    "wait_p90": "longest waits",
    "wait_trend": "wait grows by",
    "start_overhead": "start-up",
    "lifetime": "a pilot stays",
    "failure_rate": "jobs failed",
    "preemption_rate": "jobs preempted",
    "speed": "speed",
    "filling_rate": "slots filled",
}
MORE = {
    "wait_p90": " (one in ten waits longer)",
    "wait_trend": " in an hour",
    "speed": " times the average site's",
}


def wait(measures: "SiteMeasures") -> str:
    if measures.wait_median is None:
        return UNKNOWN
    bound = "> " if measures.wait_at_least else ""
    return bound + formats.duration(measures.wait_median)


def share(part: float | None) -> str:
    return UNKNOWN if part is None else f"{100 * part:.0f} %"


def cores(measures: "SiteMeasures") -> str:
    """Free ones, or nodes where the batch system tells of these only."""
    for free, total, unit in (
        (measures.free_cores, measures.total_cores, ""),
        (measures.free_nodes, measures.total_nodes, " nodes"),
    ):
        if free is not None:
            return f"{free:,}" + (f" of {total:,}" if total is not None else "") + unit
    return UNKNOWN


def lines(measures: "SiteMeasures") -> Iterator[tuple[str, str]]:
    """A name and a value for each figure that is known."""
    for figure in FIGURES:
        value = getattr(measures, figure.field)
        if value is not None and figure.kind != COUNT:
            bound = "> " if figure.field == "wait_median" and measures.wait_at_least else ""
            yield NAMES[figure.field], bound + _shown(figure, value) + MORE.get(figure.field, "")
    if measures.measured_at:
        jobs = formats.count(measures.jobs, "job")
        verb = "waits" if measures.waiting == 1 else "wait"
        still = f", {measures.waiting:,} of which still {verb}" if measures.waiting else ""
        yield "measured", f"from {jobs}{still}; the last news {formats.ago(measures.measured_at)}"
    if measures.capacity_at:
        unit = " cores" if measures.free_cores is not None else ""
        yield "free there", f"{cores(measures)}{unit}, {formats.ago(measures.capacity_at)}"
        if measures.queue_length is not None:
            yield "queue there", f"{formats.count(measures.queue_length, 'job')} of everybody"


def _shown(figure: SiteFigure, value: float) -> str:
    if figure.kind == SECONDS:
        sign = "-" if value < 0 else ""
        return sign + formats.duration(abs(value))
    return share(value) if figure.kind == SHARE else f"{value:.2g}"


def job_row(view: "SiteJobView") -> list[str]:
    since = view.requeued or view.submitted
    began = min((at for at in (view.started, view.enrolled) if at), default=0.0)
    over = view.goodbye or view.ended
    again = f", requeued {view.requeues:,} times" if view.requeues else ""
    return [
        view.id,
        view.handle,
        view.owner,
        str(view.slots),
        view.state + (" (trial)" if view.trial else ""),
        formats.ago(view.submitted),
        _span(since, began or view.ended),
        _span(view.started, view.enrolled),
        _span(view.enrolled, over),
        str(view.pilot or ""),
        view.host,
        view.log,
        view.reason + again,
    ]


def _span(first: float, last: float) -> str:
    return formats.duration(last - first) if first and last >= first else ""
