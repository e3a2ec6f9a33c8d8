"""executorlib: SingleNodeExecutor with workers that stay (`block_allocation`); no server."""

import os
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

from executorlib import SingleNodeExecutor

from bench.peers import tasks
from bench.peers.peer import NotThere, Peer, Status, fill, serve, tops


class Executorlib(Peer):
    replaces_workers = True  # up to `restart_limit` times each, when told so
    is_program = True

    def start(self, workers: int, slots: int, retries: int, durable: bool) -> None:
        if not workers:
            raise NotThere("it has no queue without workers")
        self.retries = retries
        self.executor = SingleNodeExecutor(
            max_workers=workers * slots,
            block_allocation=True,
            restart_limit=retries,
            cache_directory=str(Path("cache").absolute()) if durable else None,
        )

    def results(self, argv: list[str], count: int) -> Iterator[Status]:
        function = tasks.must_succeed if self.retries else tasks.status_of
        submit = self.executor.submit
        futures = [submit(function, fill(argv, i)) for i in range(1, count + 1)]
        for future in as_completed(futures):
            yield _status(future)

    def calls(self, count: int) -> Iterator[object]:
        futures = [self.executor.submit(tasks.nothing) for _ in range(count)]
        for future in futures:
            yield future.result()

    def workers(self) -> dict[str, int]:
        return tops(os.getpid(), "executorlib")

    def stop(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)


def _status(future: Any) -> Status:
    return future.result() if future.exception() is None else None


if __name__ == "__main__":
    serve(Executorlib())
