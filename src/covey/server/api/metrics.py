"""/metrics, in Prometheus' format: read from the decider at each request, counted nowhere else."""

from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from covey.core.sites.site_figures import FIGURES, SECONDS
from covey.questions.server_questions import AllFigures, Figures
from covey.server.decider import Decider
from covey.server.web.connections import Connections
from covey.server.web.load import Load, RequestKind
from covey.server.web.refusals import Refusals


class ServerFacts(NamedTuple):
    """`certificate_expires`: seconds since 1970; 0: there is no certificate."""

    version: str
    disk_free_bytes: int
    certificate_expires: float


class _Collector(Collector):
    def __init__(
        self,
        backlog: Callable[[], int],
        waiting: Callable[[], int],
        load: Load | None,
        refusals: Refusals | None,
        connections: Connections | None,
        server_facts: Callable[[], ServerFacts] | None,
    ) -> None:
        self._server_facts = server_facts
        self._refusals = refusals
        self._connections = connections
        self._backlog = backlog
        self.figures: Figures | None = None  # None: the server cannot decide now
        self._waiting = waiting
        self._load = load

    def collect(self) -> Iterator[Metric]:
        up = self.figures is not None
        yield _gauge("covey_up", "1 when the server can decide and record", up)
        yield _gauge("covey_writes_queued", "Writes that are not committed yet", self._backlog())
        yield _gauge(
            "covey_requests_waiting", "Requests that are not answered yet", self._waiting()
        )
        if self._load is not None:
            yield from _of_load(self._load)
        if self._refusals is not None:
            refused = CounterMetricFamily("covey_refused", "Refused requests", labels=["kind"])
            for kind, count in self._refusals.counts.items():
                refused.add_metric([kind], count)
            yield refused
        if self._connections is not None:
            open_ = GaugeMetricFamily("covey_connections", "Open connections", labels=["of"])
            open_.add_metric(["strangers"], self._connections.strangers())
            open_.add_metric(["known"], self._connections.known.used)
            yield open_
        if self._server_facts is not None:
            yield from _of_server(self._server_facts())
        if self.figures is not None:
            yield from _of_core(self.figures)


def _of_server(facts: ServerFacts) -> Iterator[Metric]:
    version = GaugeMetricFamily(
        "covey_version", "Always 1; the label has the version", labels=["version"]
    )
    version.add_metric([facts.version], 1)
    yield version
    yield _gauge(
        "covey_disk_free_bytes", "Free space where the record is kept", facts.disk_free_bytes
    )
    if facts.certificate_expires:
        words = "When the server's certificate expires, in seconds since 1970"
        yield _gauge("covey_certificate_expires_seconds", words, facts.certificate_expires)


def _of_load(load: Load) -> Iterator[Metric]:
    yield _gauge("covey_loop_lag_seconds", "Delay of the server's event loop", load.lag_seconds)
    yield _gauge("covey_memory_bytes", "Resident memory of the server", load.sample.memory)
    yield _gauge(
        "covey_pressure",
        "Load; from 1 on enrolments have to wait, from 2 on syncs too",
        load.pressure,
    )
    away = CounterMetricFamily(
        "covey_turned_away", "Requests that were told to come again later", labels=["kind"]
    )
    line = GaugeMetricFamily(
        "covey_line", "Requests that have a place in the line", labels=["kind"]
    )
    for kind in (RequestKind.ENROL, RequestKind.ASK, RequestKind.ENDS):
        away.add_metric([kind.value], load.turned_away[kind])
        line.add_metric([kind.value], len(load.lines[kind]))
    yield away
    yield line


def _of_core(figures: Figures) -> Iterator[Metric]:
    yield _gauge("covey_epoch", "How often a server was started on this record", figures.epoch)
    yield CounterMetricFamily("covey_writes", "Changes that are on disk", value=figures.durable)
    ends = CounterMetricFamily("covey_attempts_ended", "Ended attempts", labels=["outcome"])
    for outcome, count in sorted(figures.ended.items()):
        ends.add_metric([outcome], count)
    yield ends
    tasks = GaugeMetricFamily("covey_tasks", "Tasks of unfinished bags", labels=["state"])
    tasks.add_metric(["running"], figures.running)
    tasks.add_metric(["sent"], figures.sent)
    tasks.add_metric(["waiting"], figures.waiting)
    tasks.add_metric(["in_doubt"], figures.in_doubt)
    yield tasks
    words = "Bags that the server cannot handle (quarantined)"
    yield _gauge("covey_bags_quarantined", words, figures.quarantined)
    words = "Times that an owner's policies needed more work than allowed"
    yield CounterMetricFamily("covey_policy_overruns", words, value=figures.overruns)
    pilots = GaugeMetricFamily("covey_pilots", "Pilots", labels=["status"])
    for status, count in figures.pilots.items():
        pilots.add_metric([status], count)
    yield pilots
    yield _gauge("covey_pilots_short_of_disk", "Pilots that wait for disk space", figures.short)
    words = "Slots' worth of attempts that wait for input files or a setup, and take no slot"
    yield _gauge("covey_attempts_waiting_for_files", words, figures.aside)
    yield _gauge("covey_slots", "Slots of active pilots", figures.slots)
    yield from _of_sites(figures)


def _of_sites(figures: Figures) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("covey_site_jobs", "Jobs of a site", labels=["site", "state"])
    failures = GaugeMetricFamily(
        "covey_site_failures", "Failures of a site in a row; 0 if it works", labels=["site"]
    )
    rest = GaugeMetricFamily(
        "covey_site_rests_until_seconds",
        "Unix time at which a failed site is tried again; 0 if it need not wait",
        labels=["site"],
    )
    weight = GaugeMetricFamily(
        "covey_site_weight",
        "What a site is worth to the server's broker, looked at every five minutes",
        labels=["site"],
    )
    for name, site in figures.sites.items():
        if site.weight is not None:
            weight.add_metric([name], site.weight)
        jobs.add_metric([name, "running"], site.running - site.suspended)
        jobs.add_metric([name, "suspended"], site.suspended)
        jobs.add_metric([name, "waiting"], site.waiting)
        failures.add_metric([name], site.failures)
        rest.add_metric([name], site.rests_until)
    yield jobs
    yield failures
    yield rest
    yield weight
    for figure in FIGURES:
        unit = "_seconds" if figure.kind == SECONDS else ""
        gauge = GaugeMetricFamily(f"covey_site_{figure.field}{unit}", figure.text, labels=["site"])
        for name, site in figures.sites.items():
            if (value := getattr(site.measures, figure.field)) is not None:
                gauge.add_metric([name], value)
        yield gauge


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def renderer(
    decider: Decider,
    backlog: Callable[[], int],
    waiting: Callable[[], int],
    load: Load | None = None,
    refusals: Refusals | None = None,
    connections: Connections | None = None,
    server_facts: Callable[[], ServerFacts] | None = None,
) -> Callable[[], Awaitable[bytes]]:
    collector = _Collector(backlog, waiting, load, refusals, connections, server_facts)

    async def render() -> bytes:
        collector.figures = await decider.ask_long(AllFigures()) if decider.ready else None
        registry = CollectorRegistry()
        registry.register(collector)
        return generate_latest(registry)

    return render
