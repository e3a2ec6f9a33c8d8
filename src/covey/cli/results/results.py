"""`covey results`: the results of a bag as one table of any length, read page by page.

The record itself makes whole files in CSV and JSON Lines. Everything else is made here from rows.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import IO, NamedTuple

import click

from covey.cli.shared import parquet, writers
from covey.cli.shared.commands import (
    COLUMN_NAMES,
    FILE_NAME,
    Command,
    bag_argument,
    json_option,
    leave,
    settings,
)
from covey.client.client import Client
from covey.frontend import bag_places, columns, formats, terminal
from covey.frontend.columns import Field
from covey.frontend.tables import terminal_width
from covey.frontend.terminal import say
from covey.wire import BagView, ResultQuery, ResultRow

FORMATS = ("table", "csv", "jsonl", "json", "parquet")
ENDINGS = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "table",
}
READY_MADE = (*writers.CSV, "jsonl")
PIPE_PAGE = 100
SMALLEST_SCREEN = 10
FOLLOW_SECONDS = 10.0
DISPENSABLE = ("cpu_seconds", "memory_kb", "host", "exit")


class Request(NamedTuple):
    """The options of the command, except the bag."""

    form: str
    query: ResultQuery
    limit: int | None
    page: int | None
    wanted: str | None  # columns
    path: str | None

    @property
    def narrowed(self) -> bool:
        return bool(self.query.where or self.query.failed_only)


@click.command(cls=Command)
@bag_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="How to write them.  [default: table; with -o, by the file's name]",
)
@click.option(
    "--where",
    multiple=True,
    metavar="TEST",
    help="Only results for which this is true: 'alpha >= 0.5', 'host = n1 && time > 60'; "
    "repeatable.",
)
@click.option(
    "--sort", default="", metavar="COLUMN", help="Sort by a column; -COLUMN: largest first."
)
@click.option(
    "--columns",
    "wanted",
    metavar="A,B,…",
    type=COLUMN_NAMES,
    help="Only these columns, in this order.",
)
@click.option("--failed", is_flag=True, help="Only failed tasks.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most this many results.")
@click.option("--page", type=click.IntRange(min=1), metavar="N", help="Page N of the table.")
@click.option(
    "--follow", is_flag=True, help="Print new results as they come, until the bag is finished."
)
@click.option(
    "--raw",
    is_flag=True,
    help="CSV: put no ' before text that a spreadsheet would read as a formula.",
)
@click.option("-o", "--output", "path", metavar="FILE", type=FILE_NAME, help="Write to FILE.")
@json_option
def results(
    bag: str,
    form: str | None,
    where: tuple[str, ...],
    sort: str,
    wanted: str | None,
    failed: bool,
    limit: int | None,
    page: int | None,
    follow: bool,
    raw: bool,
    path: str | None,
    as_json: bool,
) -> None:
    """Print the results of a bag as one table: parameters, how each task ended,
    what it used, the values that it reported, and the last line that it printed.

    \b
    covey results
    covey results 3 --where 'alpha >= 0.5' --sort -energy --columns alpha,energy
    covey results 3 -o fits.csv
    covey results --failed --format jsonl | jq .seed
    """
    query = ResultQuery(failed_only=failed, where=where, sort=sort)
    form = "json" if as_json else form or _form_of(path)
    if raw and form != "csv":
        raise click.UsageError("--raw is for CSV: --format csv, or -o FILE.csv")
    form = "csv-raw" if raw else form
    request = Request(form, query, limit, page, wanted, None if path == "-" else path)
    _check(request, follow)
    source = bag_places.reader(settings())
    view = bag_places.find_bag(source, bag)
    if follow:
        leave(_follow(source, view, request))
    _print(source, view, request)


def _form_of(path: str | None) -> str:
    if path is None or path == "-" or _is_special(path):
        return "table"
    form = ENDINGS.get(os.path.splitext(path)[1].lower())
    if form is None:
        raise click.UsageError(
            f"-o {path}: the format is unknown. Use a name that ends with {', '.join(ENDINGS)}, "
            "or add --format"
        )
    return form


def _is_special(path: str) -> bool:
    """Whether the path is not a plain file, such as /dev/stdout: it cannot be replaced then."""
    return os.path.exists(path) and not os.path.isfile(path)


def _check(request: Request, follow: bool) -> None:
    folder = os.path.dirname(request.path or "")
    if folder and not os.path.isdir(folder):
        raise click.UsageError(f"-o {request.path}: there is no directory {folder}")
    if request.form == "parquet":
        if request.path is None:
            raise click.UsageError("a Parquet file needs a name: -o results.parquet")
        parquet.modules()
    if request.page and request.form != "table":
        raise click.UsageError("--page is for tables; use --limit, or write all of it with -o FILE")
    if follow and (request.form not in ("table", *READY_MADE)):
        raise click.UsageError("--follow prints rows as they come: use --format jsonl or csv")
    if follow and (request.query.sort or request.limit or request.page):
        raise click.UsageError(
            "--follow prints all rows as they come: leave out --sort, --limit and --page"
        )


def _print(source: bag_places.BagSource, bag: BagView, request: Request) -> None:
    count = _write(source, bag, request)
    if not request.narrowed:
        for line in formats.ignored_results(bag):
            say(line)
    if request.path is not None:
        size = formats.size(os.path.getsize(request.path))
        say(f"{formats.count(count, 'result')} of bag {bag.id} in {request.path} ({size})")


def _write(source: bag_places.BagSource, bag: BagView, request: Request) -> int:
    """Write the results, and return their number."""
    if request.form == "table":
        return _write_table(source, bag, request)
    if request.form in READY_MADE and not (request.wanted or request.limit):
        with _destination(request.path) as file:
            parts = source.export(bag.id, request.query, request.form)
            return writers.write_ready_made(file, request.form, parts)
    rows = bag_places.all_results(source, bag.id, request.query, limit=request.limit)
    first = list(islice(rows, bag_places.PAGE))
    chosen = _chosen(columns.with_names(bag, first), request)
    rows = chain(first, rows)
    if request.form == "parquet":
        return parquet.write(str(request.path), chosen, rows)
    with _destination(request.path) as file:
        return writers.WRITERS[request.form](file, chosen, rows)


def _chosen(bag: BagView, request: Request) -> list[Field]:
    if request.wanted:
        return columns.choose(bag, request.wanted)
    return columns.seen(bag) if request.form == "table" else columns.fields(bag)


@contextmanager
def _destination(path: str | None, *, whole: bool = True) -> Iterator[IO[bytes]]:
    """The file to write to; standard output if `path` is None. With `whole`, the file appears only
    when it is complete, so that nobody reads half a file."""
    if path is None:
        yield terminal.binary_output()
    elif not whole or _is_special(path):
        with open(path, "wb") as file:
            yield file
    else:
        part = f"{path}.part"
        try:
            with open(part, "wb") as file:
                yield file
            os.replace(part, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.remove(part)
            raise


# -- tables -------------------------------------------------------------------------------------


def _write_table(source: bag_places.BagSource, bag: BagView, request: Request) -> int:
    """Write the whole table to a pipe or a file. On a terminal, write one screenful, and say how
    many results are left."""
    seen = request.path is None and _is_seen()
    size = request.limit
    if size is None and (seen or request.page):
        size = _screenful() if seen else PIPE_PAGE
    first = ((request.page or 1) - 1) * (size or 0)
    query = request.query
    if first:  # only a sorted query may have an offset
        query = ResultQuery(
            failed_only=query.failed_only,
            where=query.where,
            sort=query.sort or "task",
            offset=first,
        )
    more = None if size is None else size + 1
    rows = bag_places.all_results(source, bag.id, query, limit=more)
    page = list(islice(rows, min(size or bag_places.PAGE, bag_places.PAGE)))
    chosen = _chosen(columns.with_names(bag, page), request)
    width = terminal_width() if seen else None
    if width is not None and not request.wanted:
        chosen = _fitting(chosen, page, width)
    shown = islice(chain(page, rows), size)
    with _destination(request.path) as file:
        count = writers.write_table(file, chosen, shown, width)
    left = size is not None and next(rows, None) is not None
    _say_rest(bag, request, first, count, left)
    return count


def _fitting(chosen: list[Field], page: Sequence[ResultRow], width: int) -> list[Field]:
    """The columns that fit. On a narrow terminal, the resources that a task used are left out."""
    for name in DISPENSABLE:
        if writers.width(chosen, page) <= width:
            break
        chosen = [field for field in chosen if field.own != name]
    return chosen


def _is_seen() -> bool:
    return sys.stdout.isatty()


def _screenful() -> int:
    """The rows that fit under the titles, with room for our notes and the next prompt."""
    return max(SMALLEST_SCREEN, shutil.get_terminal_size().lines - 4)


def _say_rest(bag: BagView, request: Request, first: int, count: int, left: bool) -> None:
    """Say which results are not shown, and why."""
    ended = bag.failed if request.query.failed_only else bag.done + bag.failed
    if left and request.limit is None:
        of_all = "" if request.query.where else f" of {ended:,}"
        page = f"--page {(request.page or 1) + 1}"
        say(f"{first + 1:,} to {first + count:,}{of_all}; next: {page}   all: -o FILE.csv")
    elif not count:
        say(_why_none(bag, request, first, ended))
    elif not bag.over and not request.narrowed:
        say(f"{bag.total - ended:,} of {bag.total:,} tasks have not ended yet")


def _why_none(bag: BagView, request: Request, first: int, ended: int) -> str:
    if request.page and first:
        pages = -(-ended // (first // (request.page - 1)))
        last = "" if request.query.where or not ended else f"; the last one is --page {pages:,}"
        return f"there is no page {request.page:,} of these results{last}"
    if request.query.where:
        return f"no results of bag {bag.id} match: {', '.join(request.query.where)}"
    if request.query.failed_only:
        return f"bag {bag.id} has no failed tasks"
    if bag.over:
        return f"bag {bag.id} is {bag.status}, and has no results"
    return f"bag {bag.id} has no results yet"


# -- --follow -----------------------------------------------------------------------------------


def _follow(source: bag_places.BagSource, bag: BagView, request: Request) -> int:
    """Write rows in the order in which their attempts ended, and return the exit status."""
    with _destination(request.path, whole=False) as file:
        stream: writers.Stream | None = None
        try:
            for page in _pages(source, bag, request.query):
                if stream is None:  # the first rows show which values tasks report
                    view = columns.with_names(source.bag(bag.id) or bag, page)
                    width = terminal_width() if request.path is None else None
                    stream = writers.Stream(request.form, _chosen(view, request), width)
                file.writelines(stream.lines(page))
                file.flush()
        except KeyboardInterrupt:
            return 0
    return _say_end(source, bag)


def _pages(
    source: bag_places.BagSource, bag: BagView, query: ResultQuery
) -> Iterator[Sequence[ResultRow]]:
    query = ResultQuery(
        by_row=True, failed_only=query.failed_only, where=query.where, limit=bag_places.PAGE
    )
    while True:
        view = source.bag(bag.id)
        ends = view is None or view.over or view.status == "paused"
        if isinstance(source, Client) and not ends:
            page = source.results(bag.id, query, wait_seconds=FOLLOW_SECONDS)
        else:
            page = source.results(bag.id, query)
        if page:
            yield page
            query = query.behind(page)
        elif ends or not isinstance(source, Client):
            return


def _say_end(source: bag_places.BagSource, bag: BagView) -> int:
    view = source.bag(bag.id)
    if view is not None and view.status == "paused":
        for line in formats.paused(view):
            say(line)
        return 1
    if view is not None and not view.over:
        say(f"no server runs here, so nothing more comes; go on with: covey watch {bag.id}")
    return 0
