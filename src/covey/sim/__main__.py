"""`python -m covey.sim --seed N [--trace]` repeats one world; `--worlds N` runs many."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from statistics import median

from covey.sim.world import Report, run


def main() -> int:
    parser = argparse.ArgumentParser("python -m covey.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this world only")
    parser.add_argument("--trace", action="store_true", help="show all that happens in it")
    parser.add_argument("--worlds", type=int, default=50, help="how many worlds (default 50)")
    parser.add_argument("--first", type=int, default=0, help="the first one's seed (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use (default 1)")
    options = parser.parse_args()
    began = time.monotonic()
    if options.seed is not None:
        reports = [run(options.seed, print if options.trace else None)]
    else:
        seeds = range(options.first, options.first + options.worlds)
        reports = list(_told(_run_all(seeds, options.jobs)))
    print(summary(reports))
    print(f"{time.monotonic() - began:.1f} s")
    return 1 if any(report.problem for report in reports) else 0


def _run_all(seeds: Iterable[int], jobs: int) -> Iterator[Report]:
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=4)


def _told(reports: Iterable[Report]) -> Iterator[Report]:
    for report in reports:
        if report.problem:
            print(failure(report), flush=True)
        yield report


def failure(report: Report) -> str:
    repeat = f"repeat: python -m covey.sim --seed {report.seed} --trace"
    return f"seed {report.seed} failed: {report.problem}; {repeat}"


def summary(reports: list[Report]) -> str:
    lines = [failure(report) for report in reports if report.problem]
    lines.append(f"{len(reports)} worlds, {len(lines)} failed")
    for what, values in (
        ("tasks", [report.tasks for report in reports]),
        ("pilots", [report.pilots for report in reports]),
        ("faults", [sum(report.faults.values()) for report in reports]),
        ("faulty messages", [sum(report.messages.values()) for report in reports]),
        ("server processes", [report.servers for report in reports]),
        ("virtual seconds", [round(report.virtual_seconds) for report in reports]),
    ):
        lines.append(f"  {what}: median {median(values):g}, {min(values)} to {max(values)}")
    starts, repeats = (
        sum(report.starts for report in reports),
        sum(report.repeats for report in reports),
    )
    lines.append(f"  {starts} starts of tasks, {repeats} repeated, each for a good reason")
    for group in ([report.faults for report in reports], [report.messages for report in reports]):
        lines.append("  " + ", ".join(f"{count} {kind}" for kind, count in _totals(group).items()))
    lines.append("  digest of all traces: " + _digest(reports))
    return "\n".join(lines)


def _totals(groups: list[dict[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for group in groups:
        for kind, count in group.items():
            totals[kind] = totals.get(kind, 0) + count
    return dict(sorted(totals.items()))


def _digest(reports: list[Report]) -> str:
    combined = 0
    for report in reports:
        combined = (combined * 31 + int(report.digest, 16)) % 2**64
    return f"{combined:016x}"


if __name__ == "__main__":
    sys.exit(main())
