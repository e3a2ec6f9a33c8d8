"""One try of a task, and what tasks get when they are tried again by their owner."""

from msgspec import Struct
from pyroaring import BitMap

from covey.core.record.model import AttemptId, BagId, PilotId, TaskNumber


class Attempt(Struct, eq=False):
    """One try of a task, out with a pilot."""

    id: AttemptId
    bag: BagId
    task: TaskNumber
    pilot: PilotId
    sent: float
    kind: int = 0  # its class
    weight: int = 1  # slots of its pilot that it takes
    deadline: float = 0.0  # when it is no longer waited for; 0: never
    expired: bool = False  # … which has happened
    replica: bool = False  # its task was out already
    rank: float = 0.0  # what its bag's policy thought of the host
    recalled: bool = False
    cancelled: bool = False


class Raised(Struct, frozen=True):
    """Tasks (None: all) whose owner gave them more when they were reopened: so many times as
    much, or an amount (0: none was named)."""

    tasks: BitMap | None
    memory: float
    time: float
    memory_mb: int = 0
    limit_seconds: float = 0.0
