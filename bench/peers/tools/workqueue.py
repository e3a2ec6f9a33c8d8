"""Work Queue: a manager in C (workqueue.c), which is its program and its server, and workers."""

import os
import shlex
import subprocess
from collections.abc import Iterator

from bench.peers.peer import Peer, Status, fill, serve

MANAGER = "BENCH_WORK_QUEUE"  # the variable that names the compiled manager


class WorkQueue(Peer):
    def start(self, workers: int, slots: int, retries: int, durable: bool) -> None:
        self.slots, self.retries = slots, retries
        self.started: list[subprocess.Popen[bytes]] = []
        self._manager()
        for _ in range(workers):
            self.add_worker()

    def _manager(self) -> None:
        command = [os.environ[MANAGER], str(self.retries)]
        self.manager = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
        assert self.manager.stdout is not None
        self.port = self.manager.stdout.readline().strip()

    def results(self, argv: list[str], count: int) -> Iterator[Status]:
        self._tell("run", (shlex.join(fill(argv, i)) for i in range(1, count + 1)), count)
        assert self.manager.stdout is not None
        for _ in range(count):
            text = self.manager.stdout.readline()
            if not text:
                raise RuntimeError("the manager is gone")
            yield int(text) if int(text) >= 0 else None

    def _tell(self, what: str, commands: Iterator[str], count: int) -> None:
        assert self.manager.stdin is not None
        self.manager.stdin.write(f"{what} {count}\n")
        self.manager.stdin.writelines(f"{command}\n" for command in commands)
        self.manager.stdin.flush()

    def submit(self, count: int, distinct: bool) -> None:
        commands = (f"/bin/true {i}" if distinct else "/bin/true" for i in range(count))
        self._tell("queue", commands, count)
        assert self.manager.stdout is not None
        self.manager.stdout.readline()

    def workers(self) -> dict[str, int]:
        return {str(one.pid): one.pid for one in self.started if one.poll() is None}

    def add_worker(self) -> None:
        command = ["work_queue_worker", "--cores", str(self.slots), "127.0.0.1", self.port]
        self.started.append(subprocess.Popen(command))

    def server(self) -> int:
        return self.manager.pid

    def restart(self) -> None:
        """The program is started again; its workers are started for the new port."""
        for one in self.started:
            one.kill()
        self._manager()
        self.add_worker()


if __name__ == "__main__":
    serve(WorkQueue())
