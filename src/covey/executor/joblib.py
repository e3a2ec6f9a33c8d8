"""covey for joblib, and so for scikit-learn: importing this module registers the backend.

    import covey.executor.joblib

    with joblib.parallel_config(backend="covey", n_jobs=-1):
        joblib.Parallel()(joblib.delayed(f)(x) for x in xs)

More keywords (`connection`, `python`, `initializer`, `memory_mb`, …) are those of `covey.Executor`.
joblib must be installed on the hosts, too. An executor whose Parallel is over is kept for a later
one with the same keywords: its workers are warm. Two that overlap have two: one may be aborted.
"""

import os
import threading
from typing import Any

from joblib._parallel_backends import FallbackToBackend, SequentialBackend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, register_parallel_backend

from covey.executor.executor import Executor

NAME = "covey"
BATCH_BYTES = 8 << 20  # more than that in one call gains nothing
# What joblib says to every backend, of memory-mapped arrays and multiprocessing.
IGNORED = ("context", "max_nbytes", "mmap_mode", "temp_folder", "timeout", "verbose")

_guard = threading.Lock()
_idle: dict[tuple[Any, ...], list[Executor]] = {}
_alive: dict[tuple[Any, ...], dict[str, Any]] = {}  # so that no other object has their ids


class CoveyBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, nesting_level: int | None = None, **options: Any) -> None:
        super().__init__(nesting_level=nesting_level, **options)
        self._workers: Executor | None = None
        self._key: tuple[Any, ...] = ()
        self._most_batch = 0  # items in a call; 0: not known to be large

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Negative: of all slots that the server has now."""
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
        told = {**self.backend_kwargs, **options}
        told = {name: value for name, value in told.items() if name not in IGNORED}
        self.terminate()
        self._key = (os.getpid(), count, *((name, id(told[name])) for name in sorted(told)))
        self._workers = _executor(self._key, count, told)
        self._told = told
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
        """Short calls travel together, but not more of them than is good when they are large."""
        size: int = super().compute_batch_size()
        return min(size, self._most_batch) if self._most_batch else size

    def retrieve_result_callback(self, out: Any) -> Any:
        return out.result()

    def terminate(self) -> None:
        """The workers stay for later calls."""
        workers, self._workers = self._workers, None
        if workers is not None:
            with _guard:
                _idle.setdefault(self._key, []).append(workers)
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """What runs is stopped: its values are of no use to anybody."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.abort()
        if ensure_ready and self._key:
            self._workers = _executor(self._key, self._key[1], self._told)


def _executor(key: tuple[Any, ...], most: int, options: dict[str, Any]) -> Executor:
    with _guard:
        idle = _idle.get(key, [])
        while idle:
            found = idle.pop()
            if found._is_usable:
                return found
        _alive[key] = options
    return Executor(max_workers=most, **{"name": "joblib", **options})


register_parallel_backend(NAME, CoveyBackend)
