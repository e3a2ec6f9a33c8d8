"""What a slot knows about the process that runs its present order."""

import time
from typing import Optional

from covey.pilot.slots import process_tree
from covey.pilot.slots.workspace import GivenOrder

INSPECT_SECONDS = 1.0  # between looks at how much a task has printed


class CurrentTask:
    """``verdict`` is the reason for which we ended the task, or "". ``started`` may be given if it
    was earlier: a short task may be over before whoever started it is back."""

    __slots__ = (
        "deadline", "inspect_at", "kill_at", "order", "pid", "started", "status", "unexecuted",
        "usage", "verdict",
    )  # fmt: skip

    def __init__(
        self, order: GivenOrder, pid: int, limit_seconds: float, started: float = 0.0
    ) -> None:
        self.order = order
        self.pid = pid
        self.started = now = started or time.monotonic()
        self.deadline = now + limit_seconds if limit_seconds > 0 else 0.0
        self.inspect_at = now + INSPECT_SECONDS
        self.kill_at = 0.0
        self.verdict = ""
        self.status: Optional[int] = None
        self.unexecuted = False  # it ended before it executed its program
        self.usage = process_tree.Usage()

    def renew(self, order: GivenOrder, now: float) -> None:
        """The same process has begun another order."""
        self.order = order
        self.started = now
        limit_seconds = order.limit_seconds
        self.deadline = now + limit_seconds if limit_seconds > 0 else 0.0
        self.usage = process_tree.Usage()
