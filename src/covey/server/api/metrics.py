"""/metrics, in Prometheus' format: read from the live state when asked, counted nowhere else."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from covey.core.bags.estimate import in_slots
from covey.core.record.model import PilotStatus
from covey.core.state import State
from covey.server.web.connections import Connections
from covey.server.web.load import Load, RequestKind
from covey.server.web.refusals import Refusals


class Surroundings(NamedTuple):
    """`certificate_expires`: seconds since 1970; 0: there is no certificate."""

    version: str
    disk_free_bytes: int
    certificate_expires: float


class _Collector(Collector):
    def __init__(
        self,
        state: Callable[[], State | None],
        backlog: Callable[[], int],
        waiting: Callable[[], int],
        load: Load | None,
        refusals: Refusals | None,
        connections: Connections | None,
        surroundings: Callable[[], Surroundings] | None,
    ) -> None:
        self._surroundings = surroundings
        self._refusals = refusals
        self._connections = connections
        self._state = state
        self._backlog = backlog
        self._waiting = waiting
        self._load = load

    def collect(self) -> Iterator[Metric]:
        state = self._state()
        yield _gauge("covey_up", "1 when the server can decide and record", state is not None)
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
        if self._surroundings is not None:
            yield from _of_surroundings(self._surroundings())
        if state is not None:
            yield from _of_state(state)


def _of_surroundings(found: Surroundings) -> Iterator[Metric]:
    version = GaugeMetricFamily(
        "covey_version", "Always 1; the label has the version", labels=["version"]
    )
    version.add_metric([found.version], 1)
    yield version
    yield _gauge(
        "covey_disk_free_bytes", "Free space where the record is kept", found.disk_free_bytes
    )
    if found.certificate_expires:
        words = "When the server's certificate expires, in seconds since 1970"
        yield _gauge("covey_certificate_expires_seconds", words, found.certificate_expires)


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


def _of_state(state: State) -> Iterator[Metric]:
    yield _gauge("covey_epoch", "How often a server was started on this record", state.epoch)
    yield CounterMetricFamily(
        "covey_writes", "Changes that are on disk", value=state.journal.durable
    )
    ends = CounterMetricFamily("covey_attempts_ended", "Ended attempts", labels=["outcome"])
    for outcome, count in sorted(state.counters.ended.items()):
        ends.add_metric([outcome], count)
    yield ends
    tasks = GaugeMetricFamily("covey_tasks", "Tasks of unfinished bags", labels=["state"])
    live = sum(len(bag.places.live) for bag in state.bags.values())
    started = (one for pilot in state.pilots.values() for one in in_slots(pilot))
    running = len({(attempt.bag, attempt.task) for attempt in started})
    tasks.add_metric(["running"], running)
    tasks.add_metric(["sent"], max(0, live - running))
    tasks.add_metric(["waiting"], state.unsent())
    tasks.add_metric(["in_doubt"], sum(len(bag.places.doubt) for bag in state.bags.values()))
    yield tasks
    quarantined = sum(1 for bag in state.bags.values() if bag.quarantine.reason)
    yield _gauge(
        "covey_bags_quarantined", "Bags that the server cannot handle (quarantined)", quarantined
    )
    words = "Times that an owner's policies needed more work than allowed"
    yield CounterMetricFamily("covey_policy_overruns", words, value=state.budget.overruns)
    pilots = GaugeMetricFamily("covey_pilots", "Pilots", labels=["status"])
    for status in PilotStatus:
        known = sum(1 for pilot in state.pilots.values() if pilot.status is status)
        pilots.add_metric([status.value], known)
    yield pilots
    short = sum(1 for pilot in state.pilots.values() if pilot.shortage)
    yield _gauge("covey_pilots_short_of_disk", "Pilots that wait for disk space", short)
    aside = sum(pilot.aside for pilot in state.pilots.values())
    words = "Slots' worth of attempts that wait for input files or a setup, and take no slot"
    yield _gauge("covey_attempts_waiting_for_files", words, aside)
    yield _gauge("covey_slots", "Slots of active pilots", state.slots())
    yield from _of_sites(state)


def _of_sites(state: State) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("covey_site_jobs", "Jobs of a site", labels=["site", "state"])
    failures = GaugeMetricFamily(
        "covey_site_failures", "Failures of a site in a row; 0 if it works", labels=["site"]
    )
    rest = GaugeMetricFamily(
        "covey_site_rests_until_seconds",
        "Unix time at which a failed site is tried again; 0 if it need not wait",
        labels=["site"],
    )
    for name, site in state.sites.items():
        running = sum(state.jobs[id_].running for id_ in site.jobs)
        suspended = sum(state.jobs[id_].suspended for id_ in site.jobs)
        jobs.add_metric([name, "running"], running - suspended)
        jobs.add_metric([name, "suspended"], suspended)
        jobs.add_metric([name, "waiting"], len(site.jobs) - running)
        failures.add_metric([name], site.failures)
        rest.add_metric([name], site.rests_until)
    yield jobs
    yield failures
    yield rest


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def renderer(
    state: Callable[[], State | None],
    backlog: Callable[[], int],
    waiting: Callable[[], int],
    load: Load | None = None,
    refusals: Refusals | None = None,
    connections: Connections | None = None,
    surroundings: Callable[[], Surroundings] | None = None,
) -> Callable[[], bytes]:
    registry = CollectorRegistry()
    registry.register(
        _Collector(state, backlog, waiting, load, refusals, connections, surroundings)
    )
    return lambda: generate_latest(registry)
