"""The machine's floor: how many `/bin/true` two processes spawn and wait for in a second.

Each process calls `posix_spawn` with `os.environ`, which Python converts at every call, as a
plain program would. So it is no ceiling: a small prepared environment is about a tenth faster.
Run as a script, this is one of the two processes: it begins when a line comes, counts for the
given seconds, and prints spawns per second.
"""

import os
import subprocess
import sys
import time

PROCESSES = 2
SECONDS = 1.0
TRUE = "/bin/true"


def measure(seconds: float = SECONDS) -> float:
    """Spawns per second, of all processes together."""
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
        return sum(float(probe.communicate()[0]) for probe in probes)
    finally:
        for probe in probes:
            if probe.poll() is None:
                probe.kill()
                probe.wait()


def spawn_for(seconds: float) -> float:
    count = 0
    began = time.monotonic()
    until = began + seconds
    while time.monotonic() < until:
        os.waitpid(os.posix_spawn(TRUE, [TRUE], os.environ), 0)
        count += 1
    return count / (time.monotonic() - began)


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    print(spawn_for(float(sys.argv[1])))
