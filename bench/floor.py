"""The machine's floor: how many `/bin/true` two processes spawn and wait for in a second.

Each process calls `posix_spawn` with `os.environ`, which Python converts at every call, as a
plain program would. So it is no ceiling: a small prepared environment is about a tenth faster.
Run as a script, this is one of the two processes: it begins when a line comes, counts for the
given seconds, and prints spawns per second and the CPU microseconds of one, child included.
"""

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.measures import Floor

PROCESSES = 2
SECONDS = 1.0
TRUE = "/bin/true"


def measure(seconds: float = SECONDS) -> "Floor":
    """Of all processes together."""
    from bench.measures import Floor  # the script below runs without our package

    command = [sys.executable, "-I", "-S", __file__, str(seconds)]
    probes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        for probe in probes:
            assert probe.stdout is not None
            probe.stdout.readline()  # ready
        for probe in probes:
            assert probe.stdin is not None
            probe.stdin.write("\n")
            probe.stdin.flush()
        pairs = [probe.communicate()[0].split() for probe in probes]
        micros = sum(float(one) for _, one in pairs) / len(pairs)
        return Floor(sum(float(rate) for rate, _ in pairs), micros)
    finally:
        for probe in probes:
            if probe.poll() is None:
                probe.kill()
                probe.wait()


def spawn_for(seconds: float) -> tuple[float, float]:
    count = 0
    cpu = sum(os.times()[:4])
    began = time.monotonic()
    until = began + seconds
    while time.monotonic() < until:
        os.waitpid(os.posix_spawn(TRUE, [TRUE], os.environ), 0)
        count += 1
    rate = count / (time.monotonic() - began)
    return rate, (sum(os.times()[:4]) - cpu) / count * 1e6


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    print(*spawn_for(float(sys.argv[1])))
