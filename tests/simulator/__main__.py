"""`python -m tests.simulator --seed N [--trace]` repeats one world; `--worlds N` runs many."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.simulator.report import failure, summary
from tests.simulator.world import Report, run


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this world only")
    parser.add_argument("--trace", action="store_true", help="show everything that happens in it")
    parser.add_argument("--worlds", type=int, default=50, help="how many worlds (default 50)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use (default 1)")
    options = parser.parse_args()
    began = time.monotonic()
    if options.seed is not None:
        reports = [run(options.seed, print if options.trace else None)]
    else:
        seeds = range(options.first, options.first + options.worlds)
        reports = list(_with_failures_printed(_run_all(seeds, options.jobs)))
    print(summary(reports))
    print(f"{time.monotonic() - began:.1f} s")
    return 1 if any(report.problem for report in reports) else 0


def _run_all(seeds: Iterable[int], jobs: int) -> Iterator[Report]:
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=4)


def _with_failures_printed(reports: Iterable[Report]) -> Iterator[Report]:
    for report in reports:
        if report.problem:
            print(failure(report), flush=True)
        yield report


if __name__ == "__main__":
    sys.exit(main())
