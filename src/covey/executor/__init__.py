"""Python functions as tasks: `covey.Executor`, a `concurrent.futures.Executor`, and `covey.task`.

An executor is an open bag of calls (`covey.pilot.calls.call_records`); every call is a task of it.
"""

from covey.executor.executor import Executor
from covey.executor.failures import (
    CallFailed,
    CallTimeout,
    CallTooLarge,
    RemoteTraceback,
    WorkerRefused,
)
from covey.executor.tasks import TaskFunction, task

__all__ = [
    "CallFailed",
    "CallTimeout",
    "CallTooLarge",
    "Executor",
    "RemoteTraceback",
    "TaskFunction",
    "WorkerRefused",
    "task",
]
