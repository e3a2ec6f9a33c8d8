"""Reports about worlds: what failed and how to repeat it, and what a number of worlds had."""

from statistics import median

from tests.simulator.world import Report


def failure(report: Report) -> str:
    repeat = f"repeat: python -m tests.simulator --seed {report.seed} --trace"
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
    starts = sum(report.starts for report in reports)
    repeats = sum(report.repeats for report in reports)
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
