"""The hosts of a world: each has a site and tags, and outlives the pilots that run on it.

Hosts that `stay` are there again whenever the world is calm: so what one of them has will be
available in the end, whatever a policy asks for.
"""

from random import Random

from msgspec import Struct
from msgspec.structs import replace

SITES = ("north", "south", "east")
MHZ = ("1200", "1800", "2400", "3000")


class Place(Struct, frozen=True):
    host: str
    site: str = "hand"
    tags: dict[str, str] = {}
    stays: bool = False

    def of(self, owner: str) -> "Place":
        """A machine for this owner's pilots. A machine that works for several owners is several
        hosts to core (`core.protocol.hosts`), so here each owner has separate machines."""
        return replace(self, host=f"{self.host}-{owner}") if owner else self


def draw(random: Random) -> tuple[Place, ...]:
    """One that stays for every site, and some others."""
    sites = [*SITES, *(random.choice(SITES) for _ in range(random.randint(1, 5)))]
    places = []
    for number, site in enumerate(sites):
        tags = {"arch": random.choice(("x86", "arm")), "mhz": random.choice(MHZ)}
        if random.random() < 0.3:
            tags["scratch"] = "fast"
        places.append(Place(f"host-{number}", site, tags, number < len(SITES)))
    return tuple(places)
