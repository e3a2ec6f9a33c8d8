"""What splits pilots over the sites of a world: the server's broker, those that bags name, and what
the configuration says of sites to them. Every second world has them, those with odd seeds; in the
others all is split by room."""

from random import Random

from msgspec.structs import replace

from covey.core.record.broker_rules import ALGORITHMS, BrokerRules
from covey.core.record.model import BagSpec, SiteSpec
from tests.simulator.plan.site_plans import Grounds

WEIGHTS = (0.5, 1.0, 1.0, 3.0)
PRICES = (0.0, 0.0, 1.0, 2.0)


def _has_brokers(seed: int) -> bool:
    return seed % 2 == 1


def rules(seed: int) -> BrokerRules:
    if not _has_brokers(seed):
        return BrokerRules()
    random = Random(f"{seed}/broker")
    return BrokerRules(
        algorithm=random.choice(ALGORITHMS),
        log_base=random.choice((2.0, 10.0)),
        nearest=random.randint(1, 3),
        draw_by=random.choice(("static", "measured", "room")),
        probes=random.randint(1, 4),
        probe_percent=random.choice((0.0, 10.0, 50.0)),
    )


def named(seed: int, number: int, spec: BagSpec) -> BagSpec:
    """The bag, perhaps with a broker of its own."""
    random = Random(f"{seed}/broker/{number}")
    if not _has_brokers(seed) or random.random() < 0.6:
        return spec
    return replace(
        spec,
        broker=random.choice(ALGORITHMS),
        finish_seconds=random.choice((0.0, random.uniform(10.0, 200.0))),
    )


def weighed(seed: int, grounds: Grounds) -> tuple[SiteSpec, ...]:
    """The sites of the configuration with weights and prices. Of those that are of no use, some
    have weight 0."""
    if not _has_brokers(seed):
        return grounds.sites
    random = Random(f"{seed}/weights")
    found = []
    for spec in grounds.sites:
        useless = grounds.natures[spec.name].kind not in ("sound", "slow")
        excluded = useless and random.random() < 0.3
        weight = 0.0 if excluded else random.choice(WEIGHTS)
        found.append(replace(spec, weight=weight, price=random.choice(PRICES)))
    return tuple(found)
