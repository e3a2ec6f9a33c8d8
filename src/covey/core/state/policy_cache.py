"""The ads that a bag's policy reads, and its answers, until they change (`match_cache`)."""

from msgspec import Struct, field

from covey.classad import Ad
from covey.core.match.policies import Compiled
from covey.core.record.model import PilotId
from covey.core.state.match_records import Suits


class Unfit(Struct, eq=False):
    """Pilots of a site where this policy refused a class of a bag. It allowed none of them."""

    policy: Compiled
    pilots: dict[PilotId, None] = field(default_factory=dict)
    at: float = 0.0  # the latest


class PolicyCache(Struct, eq=False):
    stamp: int = 0  # grows when the bag's ads change
    renewed: int = 0  # the stamp with which the present policy came
    dirty: bool = True  # the ads may be out of date
    scene: int = -1  # the scene's stamp when they were last up to date
    at: float = -1.0  # the time of that
    jobs: list[Ad] = field(default_factory=list)  # the ads of the first classes, by class
    suits: Suits | None = None  # sites at which the policy lets the bag have pilots
    unfit: dict[tuple[int, str], Unfit] = field(default_factory=dict)  # by class and site
    expense: float = 0.0  # work of the policy for one pilot, in units (`policy_budget`)

    def renew(self) -> None:
        """The bag has another policy: make all ads again."""
        self.jobs.clear()
        self.dirty = True
        self.stamp += 1
        self.renewed = self.stamp

    def check(self, classes: int) -> None:
        assert len(self.jobs) <= classes, "an ad of a class that does not exist"
