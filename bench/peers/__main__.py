"""`python -m bench.peers`: covey and its peers, side by side.

    python -m bench.peers                          every case, every tool: hours
    python -m bench.peers proc --peer dask         one case, covey and one peer
    python -m bench.peers --quick                  small, one run each: does it all still work?
    python -m bench.peers --record                 write RESULTS.md, docs/benchmarks.md, charts

Environments are made in the cache directory (~/.cache/covey-bench) at the first run.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from bench import machine
from bench.__main__ import RESULTS, as_json, heading, record
from bench.peers import pages, speed, trouble
from bench.peers.environments import BY_NAME, TOOL_LIST, Tool
from bench.peers.field import US, Field
from bench.report import Report, render
from bench.rig import Rig

CASES = {
    "proc": speed.proc,
    "func": speed.func,
    "submit": speed.submit,
    "latency": speed.latency,
    "scale": speed.scale,
    "fault-worker": trouble.fault_worker,
    "fault-server": trouble.fault_server,
    "flaky": trouble.flaky,
}


def main() -> int:
    given = _arguments()
    json_file = Path(given.json).absolute() if given.json else None
    began = time.monotonic()
    reports: list[Report] = []
    with Rig(quick=given.quick) as rig:
        facts = machine.describe(rig.workspace)
        field = Field(rig, _tools(given.peer), given.runs)
        facts |= _versions(field)
        print(heading(facts))
        for name in given.cases or list(CASES):
            reports.append(CASES[name](field))
            print(render(reports[-1]), flush=True)
            if json_file is not None:
                json_file.write_text(json.dumps(as_json(facts, reports), indent=1) + "\n")
            if given.record:
                record(RESULTS, {**facts, "date": f"{facts['date']}, peers"}, reports)
                pages.write(facts, reports[-1:])
        broken = rig.broken
    print(f"{time.monotonic() - began:.0f} s in all", file=sys.stderr)
    return 1 if broken else 0


def _tools(names: list[str]) -> list[Tool]:
    """covey is always there; without names, everybody."""
    wanted = {BY_NAME[name].name for name in names} | {US}
    return [tool for tool in TOOL_LIST if not names or tool.name in wanted]


def _versions(field: Field) -> dict[str, str]:
    found = {name: one.version for name, one in field.environments.items()}
    return found | {name: f"not there ({reason})" for name, reason in field.missing.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="Measure covey and its peers on this machine."
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument(
        "--peer", action="append", default=[], choices=sorted(BY_NAME), help="only these peers"
    )
    parser.add_argument("--runs", type=int, default=3, help="of each tool in each case")
    parser.add_argument("--quick", action="store_true", help="small, and one run each")
    parser.add_argument("--json", metavar="FILE", help="write all figures there, too")
    parser.add_argument(
        "--record", action="store_true", help="bench/RESULTS.md, docs/benchmarks.md and charts"
    )
    given = parser.parse_intermixed_args()
    unknown = [name for name in given.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are: {', '.join(CASES)}")
    return given


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; everything was cleaned up", file=sys.stderr)
        sys.exit(130)
