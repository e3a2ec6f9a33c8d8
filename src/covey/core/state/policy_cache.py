"""What a bag's policy sees, and what it said, until that changes (`match_cache`)."""

from msgspec import Struct, field

from covey.classad import Ad
from covey.core.match.policies import Compiled
from covey.core.record.model import PilotId
from covey.core.state.match_records import Suits


class Unfit(Struct, eq=False):
    """Pilots of a site that cannot run a class of a bag, by this policy; none of them could."""

    policy: Compiled
    pilots: dict[PilotId, None] = field(default_factory=dict)
    at: float = 0.0  # the latest


class PolicyCache(Struct, eq=False):
    stamp: int = 0  # grows when the bag's ads change
    dirty: bool = True  # the ads may no longer be true
    scene: int = -1  # the scene's stamp when they last were
    at: float = -1.0  # … and the time
    jobs: list[Ad] = field(default_factory=list)  # the ads of the first classes, by class
    suits: Suits | None = None  # at which sites the policy lets the bag have pilots
    unfit: dict[tuple[int, str], Unfit] = field(default_factory=dict)  # by class and site
    expense: float = 0.0  # what the policy costs for one pilot, in units of work (`policy_budget`)

    def renew(self) -> None:
        """Another policy looks at the bag: all ads are made again."""
        self.jobs.clear()
        self.dirty = True
        self.stamp += 1

    def check(self, classes: int) -> None:
        assert len(self.jobs) <= classes, "an ad of a class that does not exist"
