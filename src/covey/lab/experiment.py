"""Runs a world file with several seeds, and makes tables of the results."""

from collections.abc import Callable, Iterator
from statistics import fmean, stdev

from msgspec import Struct
from msgspec.structs import replace

from covey.lab import world
from covey.lab.draws import seconds
from covey.lab.ledger import Account
from covey.lab.worldfile import BagPart, Variant, WorldFile


class Numbers(Struct, frozen=True, kw_only=True):
    """The figures of one bag in one run: times in seconds, the rest in percent of its tasks."""

    seed: int
    turnaround: float
    tail: float  # the time of the last tenth of the tasks
    replicas: float  # attempts that were sent while another attempt was still expected
    waste: float  # attempts that were stopped, or ended too late: another had the result
    discarded: float  # the part of the waste that ran to its end
    repeats: float  # attempts that were sent after a deadline
    lost: float
    failed: float
    given_up: int  # tasks without a result
    stopped: str = ""  # why the bag did not finish


class ResultRow(Struct, frozen=True, kw_only=True):
    """The figures of one bag under one policy."""

    name: str
    about: str = ""
    paper: dict[str, float | str] = {}
    runs: tuple[Numbers, ...] = ()

    def mean(self, what: str) -> float:
        return fmean(getattr(numbers, what) for numbers in self.runs)

    def spread(self, what: str) -> float:
        """The deviation between seeds."""
        values = [getattr(numbers, what) for numbers in self.runs]
        return stdev(values) if len(values) > 1 else 0.0


class Result(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    about: str
    seeds: int
    rows: tuple[ResultRow, ...]


class Progress(Struct, frozen=True, kw_only=True):
    run: int  # from 1
    runs: int
    name: str  # of the variant
    seed: int
    done: int = 0
    tasks: int = 0


def run(
    name: str, file: WorldFile, seeds: int, tell: Callable[[Progress], None] = lambda _: None
) -> Result:
    """Run all variants with all seeds, one run after the other."""
    figures: dict[tuple[int, int], list[Numbers]] = {}  # by variant and bag
    variants = file.variants or (None,)
    count = 0
    for place, variant in enumerate(variants):
        for seed in range(1, seeds + 1):
            count += 1
            label = variant.name if variant is not None else ""
            now = Progress(run=count, runs=len(variants) * seeds, name=label, seed=seed)
            tell(now)
            accounts = world.run(file, variant, seed, _telling(tell, now))
            for nth, account in enumerate(accounts):
                figures.setdefault((place, nth), []).append(_numbers(account, seed))
    rows = [
        _row(file, variant, bag, tuple(figures[place, nth]))
        for place, variant in enumerate(variants)
        for nth, bag in enumerate(file.bags)
        if bag.shown
    ]
    return Result(
        name=name, title=file.title, about=file.about.strip(), seeds=seeds, rows=tuple(rows)
    )


def _telling(tell: Callable[[Progress], None], now: Progress) -> Callable[[float, int, int], None]:
    def progress(_: float, done: int, tasks: int) -> None:
        tell(replace(now, done=done, tasks=tasks))

    return progress


def _row(
    file: WorldFile, variant: Variant | None, bag: BagPart, runs: tuple[Numbers, ...]
) -> ResultRow:
    if variant is None:
        return ResultRow(name=bag.name, paper=bag.paper, runs=runs)
    several = sum(part.shown for part in file.bags) > 1
    name = f"{variant.name}/{bag.name}" if several else variant.name
    return ResultRow(
        name=name, about=variant.about, paper={**bag.paper, **variant.paper}, runs=runs
    )


def _numbers(account: Account, seed: int) -> Numbers:
    return Numbers(
        seed=seed,
        turnaround=account.turnaround,
        tail=account.tail,
        replicas=account.percent(account.replicas),
        waste=account.percent(account.discarded + account.cancelled),
        discarded=account.percent(account.discarded),
        repeats=account.percent(account.repeats),
        lost=account.percent(account.lost),
        failed=account.percent(account.failures),
        given_up=account.given_up,
        stopped=account.stopped,
    )


# -- tables ------------------------------------------------------------------------------------

TIMES = ("turnaround", "tail")
SHARES = ("replicas", "waste", "repeats", "failed")


class ResultTable(Struct, frozen=True):
    titles: list[str]
    rows: list[list[str]]


def table(result: Result) -> ResultTable:
    """Our figures (mean and deviation between seeds), each next to the paper's figure, if any."""
    hours = max(row.mean("turnaround") for row in result.rows) >= 2 * 3600
    unit, per = ("h", 3600.0) if hours else ("min", 60.0)
    papers = {name for row in result.rows for name in row.paper}
    titles = [""]
    for name in (*TIMES, *SHARES):
        titles.append(f"{name} ({unit})" if name in TIMES else f"{name} (%)")
        titles += ["paper"] if name in papers else []
    says = "says" in papers
    titles += ["the paper says"] if says else []
    rows = []
    for row in result.rows:
        cells = [row.name]
        for name in (*TIMES, *SHARES):
            cells.append(_cell(row, name, per if name in TIMES else 1.0))
            if name in papers:
                cells.append(_paper_cell(row.paper.get(name), name, per))
        cells += [str(row.paper.get("says", ""))] if says else []
        rows.append(cells)
    return ResultTable(titles, rows)


def _cell(row: ResultRow, name: str, per: float) -> str:
    mean, spread = row.mean(name) / per, row.spread(name) / per
    digits = 2 if name in TIMES else 1
    return f"{mean:.{digits}f} ± {spread:.{digits}f}"


def _paper_cell(figure: float | str | None, name: str, per: float) -> str:
    if figure is None:
        return "–"
    value = seconds(figure) / per if name in TIMES else float(figure)
    return f"{value:.3g}"


def troubles(result: Result) -> Iterator[str]:
    """A line for each bag that did not finish, or has tasks without a result."""
    for row in result.rows:
        for numbers in row.runs:
            if numbers.stopped:
                yield f"{row.name}, seed {numbers.seed}: {numbers.stopped}"
            elif numbers.given_up:
                yield f"{row.name}, seed {numbers.seed}: {numbers.given_up} tasks were given up"


def markdown(result: Result) -> str:
    shown = table(result)
    lines = [
        "| " + " | ".join(shown.titles) + " |",
        "|" + "---|" + "---:|" * (len(shown.titles) - 1),
        *("| " + " | ".join(cells) + " |" for cells in shown.rows),
    ]
    notes = [f"{row.name}: {row.about}." for row in result.rows if row.about]
    seeds = f"Means and deviations of {result.seeds} seeds."
    head = [f"# {result.title or result.name}", "", result.about, ""]
    tail = ["", " ".join([*notes, seeds]), *(f"- {line}" for line in troubles(result)), ""]
    return "\n".join([*head, *lines, *tail])
