"""classad: what a policy costs when it is asked of one host after another.

GridBot's Figure 3, corrected: requirements and rank, as the dispatcher asks for them, with another
host each time. Ours on its two paths and HTCondor's own engine take turns in the same run, so that
a noisy moment meets them all alike.
"""

import gc
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench import rig
from bench.report import NOTE, RUN, Column, Report, Row, Table, Verdict, at_most, best_of
from covey import classad as engine
from covey.classad import Ad, Policy, parse, parse_ad

BOT = """[
    JobRequirements = !Tail ? true : regexp("myhost", Host.Name) && Host.ErrorRate < 0.1;
    Rank = !Tail ? 1 : Host.JobsToday;
    ReplicationRequirements = Job.NumberOfReplicas < 3 && Job.Replica1.Host.ErrorRate > 0.1;
    Concurrency = 2 * Host.NumCpus;
    Deadline = Concurrency * 2000;
    JobsLeft = 10;
    JobsDone = 5;
    Tail = true;
    Name = "bag";
    Owner = "ann"
]"""
JOB = """[
    Name = "job1"; Executable = "/bin/hostname"; NumberOfReplicas = 2;
    Replica1 = [Name = "job1_1"; Host = [Name = "is3.myhost"; SentTime = 242525; ErrorRate = 0.08]];
    Replica2 = [Name = "job1_2"; Host = [Name = "is2.myhost"; SentTime = 242525; ErrorRate = 0.08]]
]"""
WHOLE = f"[BOT = {BOT}; Job = {JOB}; Queue = [BOTsInQueue = 1]]"
REQUIREMENTS, RANK = "BOT.JobRequirements", "BOT.Rank"
MATCHED = BOT.replace("Host.", "TARGET.")
HOSTS = [
    f'[Name = "is{n}.myhost"; ErrorRate = {n % 12 / 100}; JobsToday = {n}; NumCpus = {n % 8 + 1}]'
    for n in range(32)
]
WORDS = range(60, 600, 20)  # as many parts as may still be compiled, found by trying
HOSTILE = (
    ("||", "n{0}"),
    ("||", "a{0}.b{0}.c > {0}.5"),
    ("||", "(f{0} ? g{0} : h{0})"),
    ("||", 'strcat(n{0}, "x") == m{0}'),
    (",", "n{0} + 1"),
    (",", "[a = n{0}; b = a].b"),
    (",", 'regexp("a{0}?[b-y]*(c|d{{1,3}})$", "aab")'),
    (",", 'regexp(strcat("a", "{0}?[b-y]*(c|d{{1,3}})$"), "aab")'),
)
ROUNDS = 300
FAST, GENERAL = "fast", "general"
THEIRS = {"match": "classad2, MY and TARGET", "nested": "classad2, nested ads, host swapped in"}
COLUMNS = (
    RUN,
    Column("fast", "fast path, µs", ".2f"),
    Column("general", "general path, µs", ".2f"),
    Column("match", "classad2 MY/TARGET, µs", ".2f"),
    Column("nested", "classad2 nested, µs", ".2f"),
    Column("compile", "parse and compile, ms", ".2f"),
    Column("worst", "slowest first evaluation, ms", ".2f"),
    Column("size", "source, KB", ".1f"),
    NOTE,
)
Ask = Callable[[], None]


def run(where: rig.Rig) -> Report:
    rounds = ROUNDS // 10 if where.quick else ROUNDS
    rows = where.repeat("classad", lambda _: once(rounds))
    verdicts = [
        at_most("fast path, median, µs", best_of(rows, "fast", min), 1.3),
        at_most("general path, median, µs", best_of(rows, "general", min), 5.0),
        at_most("parse and compile ten attributes, ms", best_of(rows, "compile", min), 2.0),
        at_most("the slowest first evaluation, ms", best_of(rows, "worst", min), 10.0, ".1f"),
        at_most("source of the package, KB", best_of(rows, "size", min), 60.0, ".1f"),
        *(faster(rows, path, mode) for path in (FAST, GENERAL) for mode in THEIRS),
    ]
    return Report("classad", "requirements and rank of Figure 3", [Table(COLUMNS, rows)], verdicts)


def faster(rows: list[Row], path: str, mode: str) -> Verdict:
    ours, theirs = best_of(rows, path, min), best_of(rows, mode, min)
    text = f"{path} path faster than {THEIRS[mode]}"
    if ours is None or theirs is None:
        return Verdict(f"{text}: not measured", None)
    return Verdict(f"{text}: {ours:.2f} against {theirs:.2f} µs", ours < theirs)


def once(rounds: int) -> Row:
    contenders = {FAST: fast(), GENERAL: general(), **reference()}
    for ask in contenders.values():
        ask()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, ask in contenders.items():
                began = time.perf_counter()
                ask()
                times[name].append((time.perf_counter() - began) / len(HOSTS) * 1e6)
    finally:
        gc.enable()
    found: Row = {name: median(values) for name, values in times.items()}
    note = "" if set(THEIRS) <= set(found) else "classad2 is not installed"
    return {
        **found,
        "compile": compile_ms(),
        "worst": worst_ms(),
        "size": source_kb(),
        "note": note,
    }


def policy() -> tuple[Policy, Ad, list[Ad]]:
    """With the job that is asked for, and the hosts."""
    made = Policy(parse_ad(BOT), ("JobRequirements", "Rank"), ("Host", "Job"))
    return made, parse_ad(JOB), [parse_ad(text) for text in HOSTS]


def fast() -> Ask:
    made, job, hosts = policy()

    def ask() -> None:
        for host in hosts:
            made.evaluate(host, job)

    return ask


def general() -> Ask:
    made, job, hosts = policy()

    def ask() -> None:
        for host in hosts:
            made.general(host, job)

    return ask


def reference() -> dict[str, Ask]:
    try:
        import classad2
    except ImportError:
        return {}
    hosts = [classad2.ClassAd(text) for text in HOSTS]
    bot, whole = classad2.ClassAd(MATCHED), classad2.ClassAd(WHOLE)
    own = bot.lookup("JobRequirements"), bot.lookup("Rank")
    outer = classad2.ExprTree(REQUIREMENTS), classad2.ExprTree(RANK)

    def match() -> None:
        for host in hosts:
            own[0].eval(bot, host)
            own[1].eval(bot, host)

    def nested() -> None:
        for host in hosts:
            whole["Host"] = host
            outer[0].eval(whole)
            outer[1].eval(whole)

    return {"match": match, "nested": nested}


def compile_ms(times: int = 20) -> float:
    """From text to code, for each of the ten attributes of the policy."""
    taken = []
    for number in range(times):
        text = BOT.replace("myhost", f"myhost{number}")  # nothing that was met before
        began = time.perf_counter()
        ad = parse_ad(text)
        made = Policy(ad, tuple(ad), ("Host", "Job"))
        taken.append((time.perf_counter() - began) * 1e3)
        assert made.names
    return median(taken)


def worst_ms() -> float:
    """Of expressions that are as large as can be and made to be slow, when each is first asked."""
    slowest = 0.0
    for operator, part in HOSTILE:
        for parts in WORDS:
            read = parse(joined([part.format(n) for n in range(parts)], operator))
            began = time.perf_counter()
            read.evaluate(Ad())
            slowest = max(slowest, (time.perf_counter() - began) * 1e3)
    return slowest


def joined(parts: list[str], operator: str) -> str:
    """A list, or else a tree as flat as can be."""
    if operator == ",":
        return "{" + ",".join(parts) + "}"
    half = len(parts) // 2
    if not half:
        return parts[0]
    return f"({joined(parts[:half], operator)}) {operator} ({joined(parts[half:], operator)})"


def source_kb() -> float:
    root = Path(engine.__file__).parent
    return sum(path.stat().st_size for path in root.rglob("*.py")) / 1000
