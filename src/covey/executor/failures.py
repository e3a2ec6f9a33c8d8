"""What a future raises, besides what its function raised.

CoveyError
└── CallFailed        there is no value: it was killed, called sys.exit, cannot be pickled, …
    ├── CallTimeout   (a TimeoutError) it took longer than limit_seconds
    ├── CallTooLarge  it was not sent at all
    └── WorkerRefused (a BrokenExecutor) the worker on that host cannot do calls
RemoteTraceback       the cause of an exception: where it was raised, as text
"""

from concurrent.futures import BrokenExecutor

from covey.core.errors import CoveyError


class CallFailed(CoveyError):
    """`bag` and `task` name the call for `covey logs`; `outcome`, `exit_code` and `signal` are
    those of the task; `host` is where it ran."""

    def __init__(
        self,
        words: str,
        *,
        bag: int = 0,
        task: int = -1,
        outcome: str = "failed",
        exit_code: int = -1,
        signal: int = 0,
        host: str = "",
    ) -> None:
        super().__init__(words)
        self.bag = bag
        self.task = task
        self.outcome = outcome
        self.exit_code = exit_code
        self.signal = signal
        self.host = host


class CallTimeout(CallFailed, TimeoutError):
    pass


class CallTooLarge(CallFailed):
    pass


class WorkerRefused(CallFailed, BrokenExecutor):
    pass


class RemoteTraceback(Exception):
    """Shown as the cause of an exception that comes from a host."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'
