"""Many small bags, one after the other, with a real server and pilot, whose memory must be flat.

    python -m tests.soak [SECONDS]        (make soak)

Bags that are over are purged, so that what is kept is bounded. The first third is warm-up. Then the
median of the last third may not be above that of the second by more than `GROWTH` and `GROWTH_KB`.
The exit status is 1 if it is. Figures are printed all the while. A run of fewer than `ENOUGH_BAGS`
prints its figures and judges nothing: in its second third the server's cache of bags still fills.
"""

import statistics
import sys
import time
from pathlib import Path

from covey.client.client import Client
from covey.core.record.model import BagSpec
from covey.core.values.space import Axis, Values
from tests.faults.world import open_world

SAMPLES = 60
BAGS_AT_ONCE = 4
TASKS = 5
KEPT_BAGS = 20
GROWTH = 0.02
GROWTH_KB = 512
ENOUGH_BAGS = 33_000  # a third of them fills the server's cache of 10,000


def resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


def run_bags(client: Client, until: float) -> int:
    """How many were over by then."""
    count = 0
    spec = BagSpec(name="soak", argv=("echo", "{x}"), space=Axis("x", Values(tuple(range(TASKS)))))
    while time.monotonic() < until:
        bags = [client.submit(spec).bag for _ in range(BAGS_AT_ONCE)]
        for bag in bags:
            while (view := client.bag(bag)) is not None and not view.over:
                time.sleep(0.01)
        for old in client.bags()[KEPT_BAGS:]:
            client.purge(old.id, "all")
        count += len(bags)
    return count


def is_flat(name: str, sizes: list[int], bags: int) -> bool:
    third = len(sizes) // 3
    middle, last = statistics.median(sizes[third : 2 * third]), statistics.median(sizes[-third:])
    flat = last <= middle * (1 + GROWTH) + GROWTH_KB
    verdict = "flat" if flat else "GROWS"
    if bags < ENOUGH_BAGS:
        verdict, flat = "too few bags to judge", True
    per_bag = (last - middle) / (bags / 3)
    thirds = f"second third {middle:,.0f} kB, last third {last:,.0f} kB"
    print(f"{name}: {thirds}, {per_bag:+.2f} kB a bag: {verdict}")
    return flat


def main(seconds: float) -> int:
    sizes: dict[str, list[int]] = {"server": [], "pilot": []}
    bags = 0
    with open_world() as world:
        server = world.serve("--slots", "2")
        client = world.client()
        print("   seconds     bags  server kB   pilot kB", flush=True)
        began = time.monotonic()
        for sample in range(1, SAMPLES + 1):
            bags += run_bags(client, began + seconds * sample / SAMPLES)
            (pilot,) = children(server.pid)
            for name, pid in (("server", server.pid), ("pilot", pilot)):
                sizes[name].append(resident_kb(pid))
            figures = f"{sizes['server'][-1]:>10,} {sizes['pilot'][-1]:>10,}"
            print(f"{time.monotonic() - began:>10.0f} {bags:>8,} {figures}", flush=True)
        client.close()
    flat = [is_flat(name, found, bags) for name, found in sizes.items()]
    return 0 if all(flat) else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0))
