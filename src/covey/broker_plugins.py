"""Finds the brokers of plugins, by entry points of one group. A broker is an object with one
method, `weigh` (`core.broker.choices`).

A plugin that cannot be loaded is listed with the reason, and does no harm to others. Built-in
algorithms keep their names.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from covey.core.record.broker_rules import ALGORITHMS

GROUP = "covey.brokers"
_MOST_PROBLEM = 300  # characters


class BrokerPlugin(NamedTuple):
    """`broker` is None where `problem` says why. `package` brought it."""

    name: str
    package: str
    broker: Any
    problem: str = ""


def find(points: Iterable[EntryPoint] | None = None) -> dict[str, BrokerPlugin]:
    """All that are installed, by name."""
    found: dict[str, BrokerPlugin] = {}
    for point in entry_points(group=GROUP) if points is None else points:
        package = point.dist.name if point.dist else ""
        if point.name not in found:
            found[point.name] = _loaded(point, package)
    return dict(sorted(found.items()))


def usable(plugins: Mapping[str, BrokerPlugin]) -> dict[str, Any]:
    return {name: plugin.broker for name, plugin in plugins.items() if not plugin.problem}


def _loaded(point: EntryPoint, package: str) -> BrokerPlugin:
    """Other people's code runs here, so anything may come of it."""
    if point.name in ALGORITHMS:
        return BrokerPlugin(point.name, package, None, "covey has an algorithm of this name")
    try:
        broker = point.load()()
    except (Exception, SystemExit) as error:
        problem = f"{type(error).__name__}: {error}"[:_MOST_PROBLEM]
        return BrokerPlugin(point.name, package, None, problem)
    if not callable(getattr(broker, "weigh", None)):
        return BrokerPlugin(point.name, package, None, "it has no method 'weigh'")
    return BrokerPlugin(point.name, package, broker)
