"""Runs a world file with several seeds, and makes tables of the results."""

from collections.abc import Callable, Iterator
from statistics import fmean, stdev

from msgspec import Struct
from msgspec.structs import replace

from covey.lab import world
from covey.lab.draws import seconds
from covey.lab.figures import COLUMNS, FIGURES, TIME, WORDS, Numbers
from covey.lab.ledger import Account
from covey.lab.world_parts import BagPart, Variant, WorldFile


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
    columns: tuple[str, ...] = COLUMNS


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
        name=name,
        title=file.title,
        about=file.about.strip(),
        seeds=seeds,
        rows=tuple(rows),
        columns=file.columns or COLUMNS,
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
    census = account.census
    assert census is not None
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
        wait=account.waits / max(1, account.done),
        longest_wait=account.longest_wait,
        work=account.work_seconds,
        redundant=account.other_seconds,
        speedup=account.work_seconds / max(1e-9, account.turnaround),
        jobs=census.jobs,
        enrolled=census.enrolled,
        pilots=census.mean_pilots(),
        filling=100.0 * census.filling(),
        core_hours=census.job_core_seconds / 3600.0,
        stopped=account.stopped,
    )


# -- tables ------------------------------------------------------------------------------------


class ResultTable(Struct, frozen=True):
    titles: list[str]
    rows: list[list[str]]


def table(result: Result) -> ResultTable:
    """Our figures (mean and deviation between seeds), each next to the paper's figure, if any."""
    hours = max(row.mean("turnaround") for row in result.rows) >= 2 * 3600
    unit, per = ("h", 3600.0) if hours else ("min", 60.0)
    papers = {name for row in result.rows for name in row.paper}
    titles = [""]
    for name in result.columns:
        measure = unit if FIGURES[name] == TIME else FIGURES[name]
        titles.append(
            f"{name.replace('_', ' ')} ({measure})" if measure else name.replace("_", " ")
        )
        titles += ["paper"] if name in papers else []
    says = WORDS in papers
    titles += ["the paper says"] if says else []
    rows = []
    for row in result.rows:
        cells = [row.name]
        for name in result.columns:
            cells.append(_cell(row, name, per if FIGURES[name] == TIME else 1.0))
            if name in papers:
                cells.append(_paper_cell(row.paper.get(name), name, per))
        cells += [str(row.paper.get(WORDS, ""))] if says else []
        rows.append(cells)
    return ResultTable(titles, rows)


def _cell(row: ResultRow, name: str, per: float) -> str:
    mean, spread = row.mean(name) / per, row.spread(name) / per
    digits = 2 if FIGURES[name] == TIME else 1
    return f"{mean:.{digits}f} ± {spread:.{digits}f}"


def _paper_cell(figure: float | str | None, name: str, per: float) -> str:
    if figure is None:
        return "–"
    if FIGURES[name] == TIME:
        return f"{seconds(figure) / per:.3g}"
    return f"{float(figure):,.4g}" if float(figure) < 1000 else f"{float(figure):.0f}"


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
