"""`python -m bench`: run the cases, print their tables.

    python -m bench                  all of them, about ten minutes
    python -m bench proc latency     some
    python -m bench proc --cpu       with the CPU time of each process
    python -m bench --quick          small, one run each: does the harness still work?
    python -m bench --record         append what was found to bench/RESULTS.md

The exit status is 1 if a run broke; a missed requirement is only said, since a noisy machine
misses them too.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench import (
    classad,
    faults,
    files,
    func,
    help,
    latency,
    machine,
    many_bags,
    memory,
    overlay,
    policy,
    proc,
    questions,
    ranks,
    rest,
    results,
    scale,
    short,
    sites,
    stampede,
    submit,
    sync,
)
from bench.report import Report, render
from bench.rig import Rig

RESULTS = Path(__file__).with_name("RESULTS.md")


class Case(NamedTuple):
    run: Callable[[Rig], Report]
    text: str


CASES = {
    "proc": Case(proc.run, "20,000 × /bin/true on 2 slots, against the floor and xargs -P2"),
    "func": Case(func.run, "5,000 single calls of a Python function that does nothing"),
    "files": Case(files.run, "20,000 tasks with a shared input and an output each"),
    "results": Case(results.run, "the table of a million finished tasks"),
    "submit": Case(submit.run, "ten million tasks as a template, or as lines of a file"),
    "scale": Case(scale.run, "completions per second with up to ten million queued"),
    "latency": Case(latency.run, "one task at a time on an idle system"),
    "short": Case(short.run, "bags of 1 to 5,000 tasks on a warm server, through import covey"),
    "fault-worker": Case(faults.run_worker, "a pilot killed with all below it"),
    "fault-server": Case(faults.run_server, "the server killed half-way"),
    "memory": Case(memory.run, "memory of a running attempt in the server"),
    "sync": Case(sync.run, "parked TLS connections, and durable exchanges per second of a core"),
    "stampede": Case(stampede.run, "1,500 pilots that enrol within a second"),
    "rest": Case(rest.run, "a pilot with nothing to do"),
    "help": Case(help.run, "covey --help"),
    "classad": Case(
        classad.run, "a policy's requirements and rank, host after host, against classad2"
    ),
    "policy": Case(policy.run, "requests among 50 and 1,000 bags with policies; replication"),
    "questions": Case(questions.run, "explain and policy check over 10,000 pilots: do syncs wait?"),
    "overlay": Case(overlay.run, "how many pilots where: 50 bags, 100 sites, 10,000 pilots"),
    "sites": Case(sites.run, "real Slurm and SSH: to the first task, and how full they are"),
    "ranks": Case(ranks.run, "50 bags at once, each with a rank of its own: who ends first?"),
    "many-bags": Case(many_bags.run, "1,000 bags queued, compared with one bag of as many tasks"),
}


def main() -> int:
    given = _arguments()
    if given.list:
        for name, case in CASES.items():
            print(f"{name:14}{case.text}")
        return 0
    json_file = Path(given.json).absolute() if given.json else None
    began = time.monotonic()
    reports: list[Report] = []
    with Rig(quick=given.quick, cpu=given.cpu) as rig:
        facts = machine.describe(rig.workspace)
        print(heading(facts))
        for name in given.cases or list(CASES):
            reports.append(CASES[name].run(rig))
            print(render(reports[-1]), flush=True)
            if given.record:
                record(RESULTS, facts, reports)
        broken = rig.broken
    print(f"{time.monotonic() - began:.0f} s in all", file=sys.stderr)
    if json_file is not None:
        json_file.write_text(json.dumps(as_json(facts, reports), indent=1) + "\n")
    return 1 if broken else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure covey on this machine."
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="which cases; all if none")
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--quick", action="store_true", help="small, and one run each")
    parser.add_argument("--cpu", action="store_true", help="proc: where the CPU time goes")
    parser.add_argument("--json", metavar="FILE", help="write all figures there, too")
    parser.add_argument("--record", action="store_true", help="append to bench/RESULTS.md")
    given = parser.parse_intermixed_args()
    unknown = [name for name in given.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are: {', '.join(CASES)}")
    return given


def heading(facts: dict[str, str]) -> str:
    rest = ", ".join(f"{name} {value}" for name, value in facts.items() if name != "date")
    return f"## {facts['date']}\n\n{rest}\n"


def as_json(facts: dict[str, str], reports: list[Report]) -> object:
    return {
        "machine": facts,
        "cases": {
            report.name: {
                "title": report.title,
                "tables": [table.rows for table in report.tables],
                "verdicts": [verdict._asdict() for verdict in report.verdicts],
                "notes": list(report.notes),
            }
            for report in reports
        },
    }


def record(path: Path, facts: dict[str, str], reports: list[Report]) -> None:
    """Append the last report, after each case: a run that is cut short keeps what it has. The first
    begins a dated section; what stands there is left alone."""
    text = "" if path.exists() else "# Results\n\nAppended by `python -m bench --record`.\n"
    sections = [heading(facts)] if len(reports) == 1 else []
    with open(path, "a", encoding="utf-8") as file:
        file.write(text + "\n" + "\n".join([*sections, render(reports[-1])]))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; everything was cleaned up", file=sys.stderr)
        sys.exit(130)
