"""Who takes part, and the rounds: every tool once, then every tool again, each run with floors just
before and after it. Tools that are missing, or that lack what a case needs, get a row that says so.
"""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench import rig
from bench.peers.environments import Environment, Missing, Tool, prepare
from bench.peers.link import Link, linked
from bench.peers.peer import NotThere
from bench.report import NOTE, RUN, Column, Row, best_of, good, steady

TOOL = Column("tool", "tool")
AHEAD = Column("ahead", "of the best peer", ".2f")
US = "covey"
LONG_SECONDS = 60.0  # after which a peer is not run again

Once = Callable[[Link], Row]


class Field:
    def __init__(self, where: rig.Rig, tools: Sequence[Tool], runs: int) -> None:
        self.rig = where
        self.tools = tools
        self.runs = 1 if where.quick else runs
        self.quick = where.quick
        self.environments: dict[str, Environment] = {}
        self.missing: dict[str, str] = {}
        for tool in tools:
            try:
                self.environments[tool.name] = prepare(tool)
            except Missing as reason:
                self.missing[tool.name] = str(reason)

    def rounds(self, title: str, once: Once, **facts: Any) -> list[Row]:
        """Rows of all runs of all tools; `facts` are the same in each. A peer that takes long is
        run once: three runs of everybody would take a working day, and change nothing."""
        rows: list[Row] = []
        through: set[str] = set()
        for run in range(1, self.runs + 1):
            for tool in self.tools:
                if tool.name in through:
                    continue
                began = time.monotonic()
                row = self._one(f"{title}, {tool.name}, {run} of {self.runs}", run, tool, once)
                seconds = time.monotonic() - began
                rows.append({"tool": tool.name, **facts, **row})
                if row.get("absent") or (seconds > LONG_SECONDS and tool.name != US):
                    through.add(tool.name)
        return rows

    def _one(self, title: str, run: int, tool: Tool, once: Once) -> Row:
        if tool.name in self.missing:
            return {"absent": True, "note": f"not there: {self.missing[tool.name]}"}

        def guarded(_: int) -> Row:
            with linked(self.rig, tool, self.environments[tool.name]) as link:
                try:
                    return once(link)
                except NotThere as reason:
                    return {"absent": True, "note": f"not there: {reason}"}

        row = self.rig.bounded(title, run, guarded)
        row["note"] = " ".join(str(row.get("note", "")).split())
        if row.get("absent"):
            row["run"] = ""
        print(f"  {row.get('note', '')}", file=sys.stderr, flush=True) if row.get("note") else None
        return row


def bound_again() -> None:
    """The tool is up; what is measured now is bounded by itself."""
    signal.alarm(rig.LONGEST_SECONDS)


def best_rows(
    rows: Sequence[Row], key: str, choose: Callable[..., Row] = max, same: Sequence[str] = ()
) -> list[Row]:
    """The best row of each tool (and each value of `same`), set against the best peer."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in good(rows, key):
        groups.setdefault(tuple(row[name] for name in ("tool", *same)), []).append(row)
    best = [choose(steady(group), key=lambda row: row[key]) for group in groups.values()]
    found = []
    for row in best:
        alike = [one for one in best if all(one[name] == row[name] for name in same)]
        peers = [one[key] for one in alike if one["tool"] not in (US, row["tool"])]
        more = {"run": f"best ({row['run']})"}
        if peers and choose(peers):
            more["ahead"] = row[key] / choose(peers)
        found.append({**row, **more})
    return sorted(found, key=lambda row: [row[name] for name in same])


def ours(rows: Sequence[Row], key: str, choose: Callable[..., Any] = max) -> float | None:
    return best_of([row for row in rows if row["tool"] == US], key, choose)


def theirs(
    rows: Sequence[Row], key: str, names: Sequence[str], choose: Callable[..., Any] = max
) -> float | None:
    return best_of([row for row in rows if row["tool"] in names], key, choose)


__all__ = [
    "AHEAD",
    "NOTE",
    "RUN",
    "TOOL",
    "US",
    "Field",
    "best_rows",
    "bound_again",
    "ours",
    "theirs",
]
