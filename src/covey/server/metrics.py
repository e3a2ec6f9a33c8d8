"""/metrics, in Prometheus' format: read from the live state when asked, counted nowhere else."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from covey.core.model import PilotStatus
from covey.core.state import State
from covey.server.load import Kind, Load


class _Collector(Collector):
    def __init__(
        self,
        state: Callable[[], State | None],
        backlog: Callable[[], int],
        waiting: Callable[[], int],
        load: Load | None,
    ) -> None:
        self._state = state
        self._backlog = backlog
        self._waiting = waiting
        self._load = load

    def collect(self) -> Iterator[Metric]:
        state = self._state()
        yield _gauge("covey_up", "1 when the server can decide and record", state is not None)
        yield _gauge("covey_writes_queued", "Writes that wait for a commit", self._backlog())
        yield _gauge("covey_requests_waiting", "Requests without an answer", self._waiting())
        if self._load is not None:
            yield from _of_load(self._load)
        if state is not None:
            yield from _of_state(state)


def _of_load(load: Load) -> Iterator[Metric]:
    yield _gauge(
        "covey_loop_lag_seconds", "How late the server gets round to things", load.lag_seconds
    )
    yield _gauge("covey_memory_bytes", "Resident memory, when last measured", load.sample.memory)
    yield _gauge(
        "covey_pressure", "Load; from 1 on enrolments wait, from 2 on syncs", load.pressure
    )
    away = CounterMetricFamily("covey_turned_away", "Told to come again later", labels=["kind"])
    line = GaugeMetricFamily("covey_line", "Who has a place in the line", labels=["kind"])
    for kind in (Kind.ENROL, Kind.ASK, Kind.ENDS):
        away.add_metric([kind.value], load.turned_away[kind])
        line.add_metric([kind.value], len(load.lines[kind]))
    yield away
    yield line


def _of_state(state: State) -> Iterator[Metric]:
    yield _gauge("covey_epoch", "Starts of a server on this store", state.epoch)
    yield CounterMetricFamily("covey_writes", "Durable changes", value=state.durable)
    ends = CounterMetricFamily("covey_attempts_ended", "Ended attempts", labels=["outcome"])
    for outcome, count in sorted(state.ended.items()):
        ends.add_metric([outcome], count)
    yield ends
    tasks = GaugeMetricFamily("covey_tasks", "Tasks of unfinished bags", labels=["state"])
    running = sum(len(bag.live) for bag in state.bags.values())
    tasks.add_metric(["running"], running)
    tasks.add_metric(["waiting"], state.unsent())
    tasks.add_metric(["in_doubt"], sum(len(bag.doubt) for bag in state.bags.values()))
    yield tasks
    pilots = GaugeMetricFamily("covey_pilots", "Pilots", labels=["status"])
    for status in PilotStatus:
        known = sum(1 for pilot in state.pilots.values() if pilot.status is status)
        pilots.add_metric([status.value], known)
    yield pilots
    yield _gauge("covey_slots", "Slots of active pilots", state.slots())


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def renderer(
    state: Callable[[], State | None],
    backlog: Callable[[], int],
    waiting: Callable[[], int],
    load: Load | None = None,
) -> Callable[[], bytes]:
    registry = CollectorRegistry()
    registry.register(_Collector(state, backlog, waiting, load))
    return lambda: generate_latest(registry)
