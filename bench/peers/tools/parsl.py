"""Parsl: the HighThroughputExecutor with blocks of the local provider; commands as bash apps."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import parsl
from parsl.app.errors import BashExitFailure
from parsl.config import Config
from parsl.dataflow.memoization import BasicMemoizer
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
from parsl.utils import get_all_checkpoints

from bench.peers import tasks
from bench.peers.peer import Peer, Status, fill, serve, tops


class Parsl(Peer):
    replaces_workers = True  # every five seconds its strategy looks at the blocks
    is_program = True

    def start(self, workers: int, slots: int, retries: int, durable: bool) -> None:
        blocks = {"init_blocks": workers, "min_blocks": workers, "max_blocks": workers}
        executor = HighThroughputExecutor(
            address="127.0.0.1",
            max_workers_per_node=slots or 1,
            cores_per_worker=1e-3,
            provider=LocalProvider(**blocks),
        )
        run_dir = str(Path("runinfo").absolute())
        memoizer = None
        if durable:  # its checkpoints
            done = get_all_checkpoints(run_dir)
            memoizer = BasicMemoizer(checkpoint_mode="task_exit", checkpoint_files=done)
        config = Config(executors=[executor], run_dir=run_dir, retries=retries, memoizer=memoizer)
        parsl.load(config)
        self.bash = parsl.bash_app(_bash, cache=durable)
        self.python = parsl.python_app(tasks.nothing)
        while len(executor.connected_managers()) < workers:
            time.sleep(0.1)

    def results(self, argv: list[str], count: int) -> Iterator[Status]:
        futures = [self.bash(fill(argv, i), i) for i in range(1, count + 1)]
        for future in as_completed(futures):
            yield _status(future)

    def calls(self, count: int) -> Iterator[object]:
        futures = [self.python() for _ in range(count)]
        for future in futures:
            yield future.result()

    def submit(self, count: int, distinct: bool) -> None:
        given = (["/bin/true", str(i)] if distinct else ["/bin/true"] for i in range(count))
        self.kept = [self.bash(argv, i) for i, argv in enumerate(given)]

    def workers(self) -> dict[str, int]:
        return tops(os.getppid(), "process_worker_pool")  # they leave their parent

    def stop(self) -> None:
        parsl.dfk().cleanup()
        parsl.clear()


def _bash(argv: list[str], number: int) -> str:
    import shlex

    return shlex.join(argv)


def _status(future: Any) -> Status:
    error = future.exception()
    if error is None:
        return 0
    return error.exitcode if isinstance(error, BashExitFailure) else None


if __name__ == "__main__":
    serve(Parsl())
