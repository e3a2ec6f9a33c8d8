"""What there is in `covey`, for those who check types; `__init__.py` fetches it when it is used."""

from covey.core.errors import (
    BadConfig,
    BadFile,
    BagPaused,
    CoveyError,
    InsideTask,
    InvalidBag,
    InvalidQuery,
    NotFound,
    Refused,
    ServerAway,
    StillRunning,
    Unconfirmed,
)
from covey.executor import Executor, task
from covey.python.bag import Bag, Progress
from covey.python.connection import Connection, connect, submit
from covey.python.results import Failures, Result, Results
from covey.python.task import Logs, Task, Tasks

__all__ = [
    "BadConfig",
    "BadFile",
    "Bag",
    "BagPaused",
    "Connection",
    "CoveyError",
    "Executor",
    "Failures",
    "InsideTask",
    "InvalidBag",
    "InvalidQuery",
    "Logs",
    "NotFound",
    "Progress",
    "Refused",
    "Result",
    "Results",
    "ServerAway",
    "StillRunning",
    "Task",
    "Tasks",
    "Unconfirmed",
    "__version__",
    "connect",
    "submit",
    "task",
]

__version__: str
