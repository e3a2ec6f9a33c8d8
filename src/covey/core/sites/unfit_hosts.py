"""What is remembered of hosts that could not run tasks; `site_fit` has the rules."""

from msgspec import Struct, field

from covey.core.match.policies import Compiled
from covey.core.record.model import PilotId


class Unfit(Struct, eq=False):
    """Pilots of a site that cannot run a class of a bag, by this policy; none of them could."""

    policy: Compiled
    pilots: dict[PilotId, None] = field(default_factory=dict)
    at: float = 0.0  # the latest


class HostShown(Struct, frozen=True):
    """What a host of a site had when a pilot last enrolled there, and how many pilots did."""

    at: float
    memory_mb: int
    disk_mb: int
    pilots: int
