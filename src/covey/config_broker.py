"""The broker as people write it: `[broker]` in covey.toml.

`docs/configuration.md` is made from these words.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta, Struct

from covey.core.errors import BadConfig
from covey.core.record.broker_rules import (
    ALGORITHMS,
    MEASURED,
    RANDOM,
    ROOM,
    STATIC,
    BrokerRules,
    WeightService,
)
from covey.core.values.amounts import BadAmount, Seconds
from covey.core.values.suggestions import nearest
from covey.core.values.type_problems import plain


class BrokerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How pilots are split over sites (docs/sites.md)."""

    algorithm: Annotated[
        str,
        Meta(
            min_length=1,
            description="What splits pilots over sites, for bags that name nothing else: room, "
            "static, measured, random, least-loaded, price, or the broker of a plugin.",
        ),
    ] = ROOM
    log_base: Annotated[
        float,
        Meta(
            gt=1,
            description="measured: the base of the logarithm in f = 1 - log(wait in minutes) / "
            "log_divisor.",
        ),
    ] = 10.0
    log_divisor: Annotated[
        float, Meta(gt=0, description="measured: the divisor of the logarithm in f.")
    ] = 5.0
    nearest: Annotated[
        int,
        Meta(ge=1, description="least-loaded: how many sites, those with the shortest wait."),
    ] = 3
    draw_by: Annotated[
        str,
        Meta(
            description="random: the algorithm whose weights are drawn by: static, measured or "
            "room."
        ),
    ] = STATIC
    probes: Annotated[
        int,
        Meta(
            ge=1,
            description="Pilots that may wait at a site where none has started yet, at most.",
        ),
    ] = 2
    probe_percent: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="… at most this part of the pilots that the site may have, but one always.",
        ),
    ] = 10.0

    def rules(
        self, plugins: Mapping[str, Any], services: tuple[WeightService, ...] = ()
    ) -> BrokerRules:
        return BrokerRules(
            algorithm=self.algorithm,
            log_base=self.log_base,
            log_divisor=self.log_divisor,
            nearest=self.nearest,
            draw_by=self.draw_by,
            probes=self.probes,
            probe_percent=self.probe_percent,
            services=services,
            plugins=plugins,
        )


class ServiceTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A resource priority service, in the keys of `[broker.services.NAME]`."""

    url: Annotated[
        str,
        Meta(
            description="Address that is asked for weights (http or https); empty: the service "
            "sends its weights to the API."
        ),
    ] = ""
    every: Annotated[float | str, Meta(description="Time between two questions.")] = "1m"
    timeout: Annotated[float | str, Meta(description="Time for an answer, at most.")] = "5s"
    age: Annotated[float | str, Meta(description="Weights that are older are not used.")] = "10m"
    fallback: Annotated[
        str,
        Meta(
            description="What splits pilots while there are no weights: room, static, measured, "
            "least-loaded or price."
        ),
    ] = MEASURED


_TIME = Seconds(high=10**8)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
SERVICE_KEYS: Mapping[str, str] = {
    name: kind.__metadata__[0].description
    for name, kind in get_type_hints(ServiceTable, include_extras=True).items()
}
_TIMES = ("every", "timeout", "age")
_SPLITTING = tuple(name for name in ALGORITHMS if name != RANDOM)


def services(tables: object, place: str) -> tuple[WeightService, ...]:
    """Those of `[broker.services]`. Raises BadConfig."""
    if not isinstance(tables, Mapping):
        raise BadConfig(f"{place}: services have names: write [broker.services.NAME]")
    return tuple(_service(name, table, place) for name, table in tables.items())


def _service(name: str, table: object, place: str) -> WeightService:
    where = f"{place}: [broker.services.{name}]"
    if not _NAME.fullmatch(name) or name in ALGORITHMS:
        words = "a service's name has letters, digits, '-', '_' and '.', 40 at most"
        raise BadConfig(f"{where}: {words}, and is no algorithm's")
    if not isinstance(table, Mapping):
        raise BadConfig(f"{where}: this must be a table: write [broker.services.{name}]")
    for key in table:
        if key not in SERVICE_KEYS:
            near = nearest(key, SERVICE_KEYS)
            hint = f"did you mean {near!r}?" if near else f"the keys are {', '.join(SERVICE_KEYS)}"
            raise BadConfig(f"{where}: unknown key {key[:80]!r}; {hint}")
    try:
        read = msgspec.convert(table, ServiceTable)
    except msgspec.ValidationError as error:
        raise BadConfig(f"{where}: {plain(error)}") from None
    times = [_seconds(where, key, getattr(read, key)) for key in _TIMES]
    if read.url and not read.url.startswith(("http://", "https://")):
        raise BadConfig(f"{where}: url = {read.url[:80]!r}: it must begin with http:// or https://")
    if read.fallback not in _SPLITTING:
        words = f"there are {', '.join(_SPLITTING)}"
        raise BadConfig(f"{where}: fallback = {read.fallback[:80]!r}: {words}")
    return WeightService(
        name=name,
        url=read.url,
        every_seconds=times[0],
        timeout_seconds=times[1],
        most_age_seconds=times[2],
        fallback=read.fallback,
    )


def _seconds(where: str, key: str, value: float | str) -> float:
    try:
        seconds = _TIME.read(value)
    except BadAmount as error:
        raise BadConfig(f"{where}: {key}: {error}") from None
    if seconds <= 0:
        raise BadConfig(f"{where}: {key} must be longer than 0")
    return seconds


def table_of(service: WeightService) -> dict[str, object]:
    """The service as a person would write it; each key that is not set has its default."""
    return {
        "url": service.url,
        "every": f"{service.every_seconds:g}s",
        "timeout": f"{service.timeout_seconds:g}s",
        "age": f"{service.most_age_seconds:g}s",
        "fallback": service.fallback,
    }
