"""A task of the case flaky: sleeps of 10 ms that add up to the seconds of its line in a file.

flaky_task.py DIRECTORY NUMBER. In a black hole it fails at once. Standard library only; it is run
as a script with `-I -S`, to be small.
"""

import os
import sys
import time

STEP = 0.01
SEEN_STEPS = 10


def in_black_hole(names: list[str]) -> bool:
    slot = os.environ.get("PARALLEL_JOBSLOT") or os.environ.get("BENCH_SLOT")
    if slot:
        return slot in names
    pid = os.getpid()
    while pid > 1:
        if str(pid) in names:
            return True
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def main() -> None:
    directory, number = sys.argv[1], int(sys.argv[2])
    if in_black_hole(os.listdir(os.path.join(directory, "black"))):
        sys.exit(1)
    with open(os.path.join(directory, "durations")) as file:
        steps = round(float(file.read().split()[number - 1]) / STEP)
    path = os.path.join(directory, "attempts", f"{number}-{os.getpid()}")
    with open(path, "w") as file:
        file.write(f"{time.time():.3f}\n")
        file.flush()
        for step in range(steps):
            time.sleep(STEP)
            if step % SEEN_STEPS == 0:
                os.utime(path)
        file.write("end\n")


if __name__ == "__main__":
    main()
