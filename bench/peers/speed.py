"""proc, func, latency, submit, scale: how fast, and how large."""

import time

from bench import processes, rig
from bench.measures import middle, percentile, quiet_at, window_rates
from bench.peers.environments import TOOL_LIST
from bench.peers.field import AHEAD, NOTE, RUN, TOOL, US, Field, best_rows, ours, theirs
from bench.peers.link import Link
from bench.peers.peer import NotThere
from bench.report import (
    FLOORS,
    Column,
    Report,
    Row,
    Table,
    Verdict,
    at_least,
    at_most,
    floor_cells,
    unless_noisy,
)

PROC, PROC_SLOW = 20_000, 5_000
CALLS = 5_000
LATENCIES = 200
WINDOW, WINDOW_SLOW, WINDOWS = 5_000, 1_000, 3
SIZES = (6_000, 105_000)
OUR_SIZE = 10_000_000
QUIET_SECONDS = 0.2
QUIET_CPU = 0.021  # two ticks of the clock
QUIET_AFTER = 20.0  # some are never quiet
SERVERS = [tool.name for tool in TOOL_LIST if tool.has_server and tool.name != US]
OTHERS = [tool.name for tool in TOOL_LIST if not tool.has_server]
RATES = (
    TOOL,
    RUN,
    Column("tasks", "tasks", ",d"),
    Column("rate", "per second", ",.0f"),
    Column("ratio", "of the floor", ".3f"),
    AHEAD,
    *FLOORS,
    NOTE,
)


def join(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


# -- proc, func ----------------------------------------------------------------------------


def proc(field: Field) -> Report:
    def once(link: Link) -> Row:
        count = PROC_SLOW if link.tool.slow else PROC
        count = count // 50 if field.quick else count
        link.start(workers=1, slots=2)
        status = link.ask("check")["status"]
        found, floors = field.rig.with_floors(lambda: link.ask("proc", count=count))
        if found["ok"] != count:
            raise rig.Broken(f"{found['ok']} of {count} tasks have succeeded")
        rate = count / found["seconds"]
        cells = floor_cells(floors)
        said = "" if status == 3 else f"'exit 3' came back as {status or 'no status'}"
        cells["note"] = join(cells["note"], said)
        return {"tasks": count, "rate": rate, "ratio": floors.ratio(rate), **cells}

    rows = field.rounds("proc", once)
    mine = ours(rows, "rate")
    verdicts = [
        _times("proc, against the best peer with a server", mine, theirs(rows, "rate", SERVERS), 3),
        _times("proc, against the best of the others", mine, theirs(rows, "rate", OTHERS), 1),
    ]
    best = best_rows(rows, "rate")
    tables = [Table(RATES, rows + best)]
    return Report("proc", "/bin/true as a process task, 2 slots", tables, verdicts)


def _times(what: str, mine: float | None, other: float | None, bound: float) -> Verdict:
    found = mine / other if mine is not None and other is not None else None
    return at_least(what, found, bound)


def func(field: Field) -> Report:
    count = CALLS // 25 if field.quick else CALLS

    def once(link: Link) -> Row:
        link.start(workers=1, slots=2)
        found, floors = field.rig.with_floors(lambda: link.ask("func", count=count))
        rate = count / found["seconds"]
        return {
            "tasks": count,
            "rate": rate,
            "ratio": floors.ratio(rate),
            **floor_cells(floors),
        }

    rows = field.rounds("func", once)
    mine = ours(rows, "rate")
    verdicts = [
        unless_noisy(at_least("func, calls per second", mine, 8_000, ",.0f"), rows),
        _times("func, against the best peer", mine, theirs(rows, "rate", SERVERS + OTHERS), 2.5),
    ]
    title = "a Python function that does nothing, in single calls, 2 slots"
    return Report("func", title, [Table(RATES, rows + best_rows(rows, "rate"))], verdicts)


# -- latency -------------------------------------------------------------------------------

LATENCY_COLUMNS = (
    TOOL,
    Column("kind", "task"),
    RUN,
    Column("median", "median, ms", ".2f"),
    Column("p95", "p95, ms", ".2f"),
    Column("worst", "worst, ms", ".1f"),
    Column("spawns", "median, in spawns", ".1f"),
    AHEAD,
    *FLOORS,
    NOTE,
)


def latency(field: Field) -> Report:
    count = LATENCIES // 10 if field.quick else LATENCIES
    rows: list[Row] = []
    for kind in ("process", "function"):

        def once(link: Link, kind: str = kind) -> Row:
            link.start(workers=1, slots=2)
            slowly = link.tool.module == "hyperqueue"  # its client asks once a second
            asked = {"kind": kind, "count": count // 4 if slowly else count}
            found, floors = field.rig.with_floors(lambda: link.ask("latency", **asked))
            times = [seconds * 1e3 for seconds in found["times"]]
            median = percentile(times, 50)
            return {
                "median": median,
                "p95": percentile(times, 95),
                "worst": max(times),
                "spread": percentile(times, 95) / median,
                "spawns": floors.spawns(median / 1e3),
                **floor_cells(floors),
            }

        rows += field.rounds(f"latency of a {kind}", once, kind=kind)
    verdicts = []
    for kind, bound in (("process", 5.0), ("function", 4.0)):
        some = [row for row in rows if row["kind"] == kind]
        verdicts.append(at_most(f"median, {kind}, ms", ours(some, "median", min), bound))
        verdicts.append(at_most(f"p95 over median, {kind}", ours(some, "spread", min), 2.0))
    best = best_rows(rows, "median", min, ("kind",))
    tables = [Table(LATENCY_COLUMNS, rows + best)]
    return Report("latency", f"{count} × one task on an idle system", tables, verdicts)


# -- submit --------------------------------------------------------------------------------

SUBMIT_COLUMNS = (
    TOOL,
    Column("given", "given"),
    Column("tasks", "tasks", ",d"),
    RUN,
    Column("accepted", "accepted, s", ",.3f"),
    Column("quiet", "quiet, s", ",.3f"),
    Column("client", "client grew, MB", ",.1f"),
    Column("server", "server grew, MB", ",.1f"),
    Column("bytes", "bytes per task", ",.0f"),
    AHEAD,
    *FLOORS,
    NOTE,
)


def submit(field: Field) -> Report:
    sizes = (10_000,) if field.quick else (100_000, 1_000_000)
    rows: list[Row] = []
    for distinct in (False, True):
        given = "distinct commands" if distinct else "one command"
        for size in (*sizes, OUR_SIZE):
            some = Field.rounds if size != OUR_SIZE else _ours_alone
            rows += some(
                field,
                f"submit {size:,}, {given}",
                lambda link, size=size, distinct=distinct: _submit(field, link, size, distinct),  # type: ignore[misc]
                given=given,
                tasks=size,
            )
    best = best_rows(rows, "quiet", min, ("given", "tasks"))
    tables = [Table(SUBMIT_COLUMNS, rows + best)]
    notes = ["Durable once accepted: covey alone. The others keep what they were given in memory."]
    return Report("submit", "no workers; until accepted and quiet", tables, notes=notes)


def _ours_alone(field: Field, title: str, once, **facts: object) -> list[Row]:  # type: ignore[no-untyped-def]
    """Sizes that only covey is asked for."""
    tools = [tool for tool in field.tools if tool.name == US]
    alone = Field(field.rig, tools, field.runs) if tools else None
    return alone.rounds(title, once, **facts) if alone is not None else []


def _submit(field: Field, link: Link, size: int, distinct: bool) -> Row:
    link.start(workers=0, slots=1)
    time.sleep(0.5)
    tree = [link.pid, *processes.descendants(link.pid)]
    before = {pid: processes.memory(pid).now for pid in tree}

    def action() -> tuple[dict[str, float], float | None]:
        said = link.ask("submit", count=size, distinct=distinct)
        return said, _quiet(tree)

    (said, quiet), floors = field.rig.with_floors(action)
    grown = {p: processes.memory(p).now - before[p] for p in tree if processes.alive(p)}
    client = grown.pop(link.pid)
    seconds = said["seconds"] if quiet is None else max(quiet - said["began"], said["seconds"])
    cells = floor_cells(floors)
    cells["note"] = join(cells["note"], "never quiet" if quiet is None else "")
    return {
        "accepted": said["seconds"],
        "quiet": seconds,
        "client": client / 1e6,
        "server": sum(grown.values()) / 1e6 if grown else None,
        "bytes": (client + sum(grown.values())) / size,
        **cells,
    }


def _quiet(pids: list[int]) -> float | None:
    samples: list[tuple[float, float]] = []
    until = time.monotonic() + QUIET_AFTER
    while time.monotonic() < until:
        samples.append((time.monotonic(), processes.cpu(*pids)))
        found = quiet_at(samples, QUIET_SECONDS, QUIET_CPU)
        if found is not None:
            return found
        time.sleep(0.02)
    return None


# -- scale ---------------------------------------------------------------------------------

SCALE_COLUMNS = (
    TOOL,
    Column("queued", "queued", ",d"),
    RUN,
    Column("first", "first window, tasks/s", ",.0f"),
    Column("later", "later windows"),
    Column("first_ratio", "first of the floor", ".3f"),
    Column("later_ratio", "later of the floor", ".3f"),
    AHEAD,
    *FLOORS,
    NOTE,
)


def scale(field: Field) -> Report:
    sizes = (600, 3_000) if field.quick else SIZES
    rows: list[Row] = []
    for size in (*sizes, OUR_SIZE):
        some = Field.rounds if size != OUR_SIZE else _ours_alone
        rows += some(
            field,
            f"scale {size:,}",
            lambda link, size=size: _scale(field, link, size),  # type: ignore[misc]
            queued=size,
        )
    best = best_rows(rows, "first", max, ("queued",))
    notes = [
        "From the first submit call: where tasks are submitted one by one, that is in the first"
        " window. HyperQueue's client asks once a second.",
        "parsl's later windows are no rates: its program submits for so long that those results are"
        " there before it looks.",
    ]
    title = "completions per second with a long queue"
    return Report("scale", title, [Table(SCALE_COLUMNS, rows + best)], notes=notes)


def _scale(field: Field, link: Link, size: int) -> Row:
    if link.tool.module == "xargs":
        raise NotThere("it says nothing before its end, and keeps no queue")
    window = WINDOW_SLOW if link.tool.slow else WINDOW
    window = window // 25 if field.quick else window
    wanted = min(size // window, WINDOWS) * window
    link.start(workers=1, slots=2)
    link.ask("check")
    found, floors = field.rig.with_floors(lambda: link.ask("scale", count=size, wanted=wanted))
    rates = window_rates(0.0, found["stamps"], window)
    later = {"later_ratio": floors.ratio(middle(rates[1:]))} if rates[1:] else {}
    return {
        "first": rates[0],
        "later": " ".join(f"{rate:,.0f}" for rate in rates[1:]),
        "first_ratio": floors.ratio(rates[0]),
        **later,
        **floor_cells(floors),
    }
