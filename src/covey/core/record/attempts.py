"""One try of a task, and what tasks get when they are tried again by their owner."""

from msgspec import Struct
from pyroaring import BitMap

from covey.core.record.model import AttemptId, BagId, More, PilotId, TaskNumber


class Attempt(Struct, eq=False):
    """One try of a task, out with a pilot."""

    id: AttemptId
    bag: BagId
    task: TaskNumber
    pilot: PilotId
    sent: float
    kind: int = 0  # its class
    weight: int = 1  # slots of its pilot that it takes
    deadline: float = 0.0  # when it is given up; 0: never
    expired: bool = False  # its deadline has passed
    replica: bool = False  # its task had another attempt when it was sent
    rank: float = 0.0  # that its bag's policy gave to the pilot
    recalled: bool = False
    cancelled: bool = False


class Raised(Struct, frozen=True):
    """Tasks (None: all) that got other memory or time when their owner reopened them."""

    tasks: BitMap | None
    more: More
