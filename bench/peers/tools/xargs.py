"""xargs -P: no server, no record; its exit status says only whether all commands succeeded."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.peers.peer import Peer, Status, serve
from bench.peers.tools.parallel import in_slots

SLOT = "BENCH_SLOT"


class Xargs(Peer):
    first_slot = 0
    replaces_workers = True
    running: "subprocess.Popen[bytes] | None" = None

    def start(self, workers: int, slots: int, retries: int, durable: bool) -> None:
        self.slots = workers * slots

    def results(self, argv: list[str], count: int) -> Iterator[Status]:
        given = Path("arguments")
        given.write_text("".join(f"{i}\n" for i in range(1, count + 1)))
        one = ["-I{i}"] if "{i}" in "".join(argv) else ["-n1"]
        command = ["xargs", f"-P{self.slots}", f"--process-slot-var={SLOT}", *one, *argv]
        with given.open() as lines:
            self.running = subprocess.Popen(command, stdin=lines)
        status = self.running.wait()
        yield from [0 if status == 0 else None] * count

    def workers(self) -> dict[str, int]:
        return in_slots(self.running.pid, SLOT) if self.running is not None else {}

    def server(self) -> int:
        return self.running.pid


if __name__ == "__main__":
    serve(Xargs())
