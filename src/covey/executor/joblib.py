"""covey for joblib, and so for scikit-learn: importing this module registers the backend.

    import covey.executor.joblib

    with joblib.parallel_config(backend="covey", n_jobs=-1):
        joblib.Parallel()(joblib.delayed(f)(x) for x in xs)

More keywords (`connection`, `python`, `initializer`, `memory_mb`, …) are those of `covey.Executor`.
joblib must be installed on the hosts, too. The executor of a finished Parallel is kept for a later
one with the same keywords, because its workers are warm. Two Parallels that overlap have two
executors, because one of them may be aborted.
"""

import os
import threading
from typing import Any

from joblib._parallel_backends import FallbackToBackend, SequentialBackend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, register_parallel_backend

from covey.executor.executor import Executor

NAME = "covey"
BATCH_BYTES = 8 << 20  # larger calls gain nothing
# Keywords that joblib gives to every backend, for memory-mapped arrays and multiprocessing.
IGNORED = ("context", "max_nbytes", "mmap_mode", "temp_folder", "timeout", "verbose")

_guard = threading.Lock()
_idle: dict[tuple[Any, ...], list[Executor]] = {}
_alive: dict[tuple[Any, ...], dict[str, Any]] = {}  # keeps the options, because keys have their ids


class CoveyBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, nesting_level: int | None = None, **options: Any) -> None:
        super().__init__(nesting_level=nesting_level, **options)
        self._workers: Executor | None = None
        self._key: tuple[Any, ...] = ()
        self._most_batch = 0  # items in a call; 0: items are not known to be large

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """A negative number counts from all slots that the server has now, as joblib defines it."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs < 0:
            return max(self._slots() + 1 + n_jobs, 1)
        return n_jobs

    def _slots(self) -> int:
        return Executor(self.backend_kwargs.get("connection"))._max_workers

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: Any = None,
        require: Any = None,
        **options: Any,
    ) -> int:
        count = self.effective_n_jobs(n_jobs)
        if count == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        chosen = {**self.backend_kwargs, **options}
        chosen = {name: value for name, value in chosen.items() if name not in IGNORED}
        self.terminate()
        self._key = (os.getpid(), count, *((name, id(chosen[name])) for name in sorted(chosen)))
        self._workers = _executor(self._key, count, chosen)
        self._chosen = chosen
        return count

    def submit(self, func: Any, callback: Any = None) -> Any:
        assert self._workers is not None
        lane = self._workers._lane
        lane.latest_bytes = 0
        future = self._workers.submit(func)
        if lane.latest_bytes:
            each = lane.latest_bytes // max(1, len(func) if hasattr(func, "__len__") else 1)
            self._most_batch = max(1, BATCH_BYTES // max(1, each))
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def compute_batch_size(self) -> int:
        """Short calls are sent together, but fewer of them if they are large."""
        size: int = super().compute_batch_size()
        return min(size, self._most_batch) if self._most_batch else size

    def retrieve_result_callback(self, out: Any) -> Any:
        return out.result()

    def terminate(self) -> None:
        """Keep the workers for later calls."""
        workers, self._workers = self._workers, None
        if workers is not None:
            with _guard:
                _idle.setdefault(self._key, []).append(workers)
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Stop the running calls: nobody needs their values."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.abort()
        if ensure_ready and self._key:
            self._workers = _executor(self._key, self._key[1], self._chosen)


def _executor(key: tuple[Any, ...], most: int, options: dict[str, Any]) -> Executor:
    with _guard:
        idle = _idle.get(key, [])
        while idle:
            executor = idle.pop()
            if executor._is_usable:
                return executor
        _alive[key] = options
    return Executor(max_workers=most, **{"name": "joblib", **options})


register_parallel_backend(NAME, CoveyBackend)
