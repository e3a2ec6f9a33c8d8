"""Ray: a head without slots and a node for each worker, started by `ray start`.

Whoever reaches a cluster of Ray can run anything there, so its authentication stays on, as it is by
default. The harness draws a token for each of its runs, and passes it in the environment.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

from bench import processes
from bench.peers import tasks
from bench.peers.peer import Peer, Status, fill, serve

AT_ONCE = 200


class Ray(Peer):
    is_program = True  # without a Redis beside it, the head's end is the end of its programs

    def start(self, workers: int, slots: int, retries: int, durable: bool) -> None:
        self.slots, self.retries = slots, retries
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.temporary = Path("/tmp") / f"covey-bench-ray-{time.monotonic_ns()}"
        if workers == 1 or not workers:  # one node: what ray.init starts by itself
            ray.init(num_cpus=slots if workers else 0, **self._common())
        else:
            options = ["--head", "--port=0", "--num-cpus=0", f"--temp-dir={self.temporary}"]
            self.head = self._node(*options, "--include-dashboard=false")
            self.address = self._wait_address()
            ray.init(address=self.address, log_to_driver=False, logging_level="warning")
            for k in range(workers):  # two that start at once on one machine disturb each other
                self.add_worker()
                while sum(node["Alive"] for node in ray.nodes()) < k + 2:
                    time.sleep(0.05)
        options_ = {"max_retries": retries, "retry_exceptions": True} if retries else {}
        function = tasks.must_succeed if retries else tasks.status_of
        self.process = ray.remote(num_cpus=1, **options_)(function)
        self.nothing = ray.remote(num_cpus=1)(tasks.nothing)

    def _common(self) -> dict[str, Any]:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "warning"}
        return {"address": "local", "_temp_dir": str(self.temporary), **quiet}

    def _node(self, *options: str) -> "subprocess.Popen[bytes]":
        program = str(Path(sys.executable).with_name("ray"))
        common = ["--disable-usage-stats", "--block", "--object-store-memory=80000000"]
        return subprocess.Popen([program, "start", *options, *common])

    def _wait_address(self) -> str:
        """Where the head listens, which it writes into a file."""
        while True:
            for path in self.temporary.glob("ray_current_cluster"):
                if text := path.read_text().strip():
                    return text
            time.sleep(0.1)

    def results(self, argv: list[str], count: int) -> Iterator[Status]:
        refs = [self.process.remote(fill(argv, i)) for i in range(1, count + 1)]
        if self.retries or "{i}" in "".join(argv):
            yield from self._as_they_come(refs)
            return
        for first in range(0, count, AT_ONCE):
            yield from ray.get(refs[first : first + AT_ONCE])

    def _as_they_come(self, refs: list[Any]) -> Iterator[Status]:
        while refs:
            ready, refs = ray.wait(refs, num_returns=min(len(refs), 100), timeout=0.2)
            for ref in ready:
                try:
                    yield ray.get(ref)
                except ray.exceptions.RayError:
                    yield None

    def calls(self, count: int) -> Iterator[object]:
        yield from ray.get([self.nothing.remote() for _ in range(count)])

    def submit(self, count: int, distinct: bool) -> None:
        given = (["/bin/true", str(i)] if distinct else ["/bin/true"] for i in range(count))
        self.kept = [self.process.remote(argv) for argv in given]

    def workers(self) -> dict[str, int]:
        return {str(one.pid): one.pid for one in self.nodes if processes.alive(one.pid)}

    def add_worker(self) -> None:
        node = self._node(f"--address={self.address}", f"--num-cpus={self.slots}")
        self.nodes.append(node)

    def stop(self) -> None:
        ray.shutdown()


if __name__ == "__main__":
    serve(Ray())
