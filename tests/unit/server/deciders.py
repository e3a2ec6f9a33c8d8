"""Deciders for tests, without an engine."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from covey.core.scheduler import Scheduler
from covey.server.decider import Decider


def decider_of(scheduler: Scheduler | None, now: Callable[[], float] = lambda: 0.0) -> Decider:
    """Without a scheduler: while the record is being read."""
    trouble = "" if scheduler is not None else "the store is being opened"
    engine: Any = SimpleNamespace(scheduler=scheduler, trouble=trouble)
    return Decider(engine, now)
