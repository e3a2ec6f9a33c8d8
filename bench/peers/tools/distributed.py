"""Dask's distributed: scheduler and workers started by its command lines, one client."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import Client, as_completed

from bench.peers import tasks
from bench.peers.peer import Peer, Status, fill, serve

AT_ONCE = 200


class Distributed(Peer):
    def start(self, workers: int, slots: int, retries: int, durable: bool) -> None:
        self.retries = retries
        self.slots = slots
        self.started: list[subprocess.Popen[bytes]] = []
        self.file = Path("scheduler.json").absolute()
        self._scheduler("0")
        self.client = Client(scheduler_file=str(self.file), timeout=60)
        self.address = self.client.scheduler.address
        for _ in range(workers):
            self.add_worker()
        if workers:
            self.client.wait_for_workers(workers * slots, timeout=120)

    def _scheduler(self, port: str) -> None:
        command = [*_dask("scheduler"), "--host", "127.0.0.1", "--port", port, "--no-dashboard"]
        if self.retries:  # so often may workers die on a task
            flag = "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"
            command = ["env", f"{flag}={self.retries}", *command]
        self.scheduler = subprocess.Popen([*command, "--scheduler-file", str(self.file)])

    def results(self, argv: list[str], count: int) -> Iterator[Status]:
        function = tasks.must_succeed if self.retries else tasks.status_of
        given = [fill(argv, i) for i in range(1, count + 1)]
        more: dict[str, Any] = {"retries": self.retries} if self.retries else {}
        futures = self.client.map(function, given, pure=False, **more)
        if self.retries or "{i}" in "".join(argv):
            for future in as_completed(futures):
                yield None if future.status != "finished" else future.result()
            return
        for first in range(0, count, AT_ONCE):
            yield from self.client.gather(futures[first : first + AT_ONCE])

    def calls(self, count: int) -> Iterator[object]:
        futures = [self.client.submit(tasks.nothing, pure=False) for _ in range(count)]
        yield from self.client.gather(futures)

    def submit(self, count: int, distinct: bool) -> None:
        given = (["/bin/true", str(i)] if distinct else ["/bin/true"] for i in range(count))
        self.kept = self.client.map(tasks.status_of, list(given), pure=False)
        self.client.scheduler_info()  # an answer means that it has read what came before

    def workers(self) -> dict[str, int]:
        return {str(one.pid): one.pid for one in self.started if one.poll() is None}

    def add_worker(self) -> None:
        command = [*_dask("worker"), "--scheduler-file", str(self.file), "--no-dashboard"]
        command += ["--nthreads", "1", "--nworkers", str(self.slots)]
        self.started.append(subprocess.Popen(command))

    def server(self) -> int:
        return self.scheduler.pid

    def restart(self) -> None:
        """The same command line, on the same port."""
        self._scheduler(self.address.rpartition(":")[2])

    def stop(self) -> None:
        self.client.shutdown()


def _dask(what: str) -> list[str]:
    return [sys.executable, "-m", "dask", what]


if __name__ == "__main__":
    dask.config.set({"distributed.comm.timeouts.connect": "30s"})
    serve(Distributed())
