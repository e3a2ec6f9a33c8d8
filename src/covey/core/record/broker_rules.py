"""How the broker splits pilots over sites: what the server's configuration says of it, and the
weights that services give."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

ROOM, STATIC, MEASURED = "room", "static", "measured"
RANDOM, LEAST_LOADED, PRICE = "random", "least-loaded", "price"
MOST_WEIGHT = 1e12  # that a service or a plugin may give to a site
ALGORITHMS = (ROOM, STATIC, MEASURED, RANDOM, LEAST_LOADED, PRICE)
DRAWABLE = (STATIC, MEASURED, ROOM)  # algorithms by whose weights `random` draws


class WeightService(Struct, frozen=True, kw_only=True):
    """A resource priority service: a program that says what each site is worth. A bag names it as
    its broker. Without a `url` it is not asked; it sends its weights to the API."""

    name: str
    url: str = ""
    every_seconds: float = 60.0  # between two questions
    timeout_seconds: float = 5.0  # for one answer
    most_age_seconds: float = 600.0  # of weights that are used
    fallback: str = MEASURED  # algorithm that is used while there are no such weights


class BrokerRules(Struct, frozen=True, kw_only=True):
    algorithm: str = ROOM  # for bags that name none
    log_base: float = 10.0  # f(x) = 1 - log(x) / log_divisor, of a wait of x minutes
    log_divisor: float = 5.0
    nearest: int = 3  # least-loaded: the sites with the shortest wait
    draw_by: str = STATIC  # random: the algorithm whose weights are drawn by
    probes: int = 2  # pilots that may wait at a site about which nothing is known
    probe_percent: float = 10.0  # … at most this part of the pilots that it may have
    services: tuple[WeightService, ...] = ()
    plugins: Mapping[str, Any] = {}  # other people's algorithms, by name (`core.broker.choices`)

    def names(self) -> tuple[str, ...]:
        """What a bag may name as its broker."""
        services = (service.name for service in self.services)
        return tuple(dict.fromkeys((*ALGORITHMS, *services, *self.plugins)))

    def unknown(self, named: str) -> str:
        """Words for people who name a broker that the server does not have."""
        return f"there is no broker {named!r}; there are {', '.join(self.names())}"


class GivenWeights(Struct, frozen=True, kw_only=True):
    """What a service said last. `source`: where that came from, for people."""

    weights: dict[str, float]
    at: float
    source: str
