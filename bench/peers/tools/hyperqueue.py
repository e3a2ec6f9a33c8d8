"""HyperQueue, as PyPI has it: a library with server and workers in the submitting process."""

import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

from bench.peers import tasks
from bench.peers.peer import Peer, Status, fill, serve

LARGEST_JOB = 100_000  # one of a million is refused


class HyperQueue(Peer):
    is_program = True

    def start(self, workers: int, slots: int, retries: int, durable: bool) -> None:
        self.cluster = LocalCluster(str(Path("hq").absolute()))
        for _ in range(workers):
            self.cluster.start_worker(WorkerConfig(cores=slots))
        self.client = self.cluster.client()
        self.retries = retries

    def results(self, argv: list[str], count: int) -> Iterator[Status]:
        jobs = []
        for first in range(1, count + 1, LARGEST_JOB):
            job = self._job()
            for i in range(first, min(first + LARGEST_JOB, count + 1)):
                job.program(fill(argv, i), stdout=None, stderr=None)
            jobs.append(self.client.submit(job))
        yield from self._finished(jobs, count)

    def calls(self, count: int) -> Iterator[object]:
        job = self._job()
        for _ in range(count):
            job.function(tasks.nothing, stdout=None, stderr=None)
        for status in self._finished([self.client.submit(job)], count):
            if status != 0:
                raise RuntimeError("a call has failed")
            yield None

    def _finished(self, jobs: list[Any], count: int) -> Iterator[Status]:
        """The callback of its own progress bar says how many have finished."""
        told: queue.Queue[Any] = queue.Queue()
        ids = tuple(job.id for job in jobs)
        arguments = (ids, lambda states: told.put(sum(s["finished"] for s in states.values())))

        def wait() -> None:
            try:
                told.put(list(self.client.connection.wait_for_jobs(*arguments)))
            except BaseException as error:
                told.put(error)

        threading.Thread(target=wait, daemon=True).start()
        seen = 0
        while not isinstance(found := told.get(), list):
            if isinstance(found, BaseException):
                raise found
            yield from [0] * (found - seen)
            seen = max(seen, found)
        failed = self.client.connection.get_failed_tasks(found) if found else {}
        statuses = [_status(one.error) for tasks_ in failed.values() for one in tasks_.values()]
        yield from [0] * (count - seen - len(statuses))
        yield from statuses

    def _job(self) -> Any:
        return Job(max_fails=None)

    def submit(self, count: int, distinct: bool) -> None:
        for first in range(0, count, LARGEST_JOB):
            job = self._job()
            for i in range(first, min(first + LARGEST_JOB, count)):
                args = ["/bin/true", str(i)] if distinct else ["/bin/true"]
                job.program(args, stdout=None, stderr=None)
            self.client.submit(job)

    def stop(self) -> None:
        self.cluster.stop()
        time.sleep(0.1)


def _status(error: str) -> Status:
    """Its words are 'Program terminated with exit code 3'."""
    last = error.strip().rpartition(" ")[2].rstrip(".")
    return int(last) if last.isdigit() else None


if __name__ == "__main__":
    serve(HyperQueue())
