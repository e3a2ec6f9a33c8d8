"""`covey results`: a bag as one table, streamed a page at a time, however long it is."""

import csv
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TextIO

import click
import msgspec

from covey.cli import formats, places
from covey.cli.base import Command, bag_argument, json_option, say, settings
from covey.cli.tables import Column, Table, terminal_width
from covey.wire import BagView, ResultRow

FORMATS = ("table", "csv", "jsonl")
SCREENFUL = 100
OWN = ("task", "state", "exit", "signal", "seconds", "cpu_seconds", "memory_kb", "host", "output")


@click.command(cls=Command)
@bag_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="How to write them.  [default: table; with -o, by the file's name]",
)
@click.option("--failed", is_flag=True, help="Only failed tasks.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@click.option("-o", "--output", "path", metavar="FILE", help="Write to FILE.")
@json_option
def results(
    bag: str, form: str | None, failed: bool, limit: int | None, path: str | None, as_json: bool
) -> None:
    """Print the results of a bag as one table: parameters, how each task ended,
    what it used, and the last line that it printed.

    \b
    covey results
    covey results 3 --format csv -o fits.csv
    covey results --failed --format jsonl | jq .seed
    """
    source = places.reader(settings())
    found = places.find_bag(source, bag)
    form = "json" if as_json else form or _form_of(path)
    shown = limit
    if form == "table" and path is None and limit is None and sys.stdout.isatty():
        shown = SCREENFUL
    rows = places.all_results(source, found.id, failed_only=failed, limit=shown)
    with _destination(path) as file:
        count = _write(form, file, found, rows)
    _say_rest(found, form, count, failed, limit, path)


def _form_of(path: str | None) -> str:
    ending = (path or "").rpartition(".")[2].lower()
    return {"csv": "csv", "jsonl": "jsonl", "ndjson": "jsonl", "json": "json"}.get(ending, "table")


@contextmanager
def _destination(path: str | None) -> Iterator[TextIO]:
    if path is None or path == "-":
        yield sys.stdout
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield file


def _write(form: str, file: TextIO, bag: BagView, rows: Iterator[ResultRow]) -> int:
    if form == "csv":
        return _write_csv(file, bag, rows)
    if form == "jsonl":
        return _write_jsonl(file, bag, rows)
    if form == "json":
        return _write_json(file, bag, rows)
    return _write_table(file, bag, rows)


def fields(bag: BagView) -> list[str]:
    """Column names: the task, its parameters, then ours; one that a parameter has taken is
    prefixed."""
    own = [f"covey_{name}" if name in bag.names else name for name in OWN]
    return [own[0], *bag.names, *own[1:]]


def record(row: ResultRow) -> list[object]:
    return [
        row.task,
        *row.values,
        formats.state(row),
        row.exit_code if row.exit_code >= 0 else None,
        row.signal or None,
        round(row.wall_seconds, 6),
        round(row.cpu_seconds, 6),
        row.memory_kb,
        row.host,
        row.output,
    ]


def _write_csv(file: TextIO, bag: BagView, rows: Iterator[ResultRow]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(fields(bag))
    count = 0
    for row in rows:
        writer.writerow(record(row))
        count += 1
    return count


def _write_jsonl(file: TextIO, bag: BagView, rows: Iterator[ResultRow]) -> int:
    count = 0
    for text in _encoded(bag, rows):
        file.write(text + "\n")
        count += 1
    return count


def _write_json(file: TextIO, bag: BagView, rows: Iterator[ResultRow]) -> int:
    """One JSON value, written as its rows come."""
    count = 0
    for text in _encoded(bag, rows):
        file.write((",\n" if count else "[\n") + text)
        count += 1
    file.write("\n]\n" if count else "[]\n")
    return count


def _encoded(bag: BagView, rows: Iterator[ResultRow]) -> Iterator[str]:
    names = fields(bag)
    for row in rows:
        yield msgspec.json.encode(dict(zip(names, record(row), strict=True))).decode()


def _write_table(file: TextIO, bag: BagView, rows: Iterator[ResultRow]) -> int:
    columns = [
        Column("task", right=True),
        *(Column(name, right=True) for name in bag.names),
        Column("state"),
        Column("exit", right=True),
        Column("time", right=True),
        Column("cpu", right=True),
        Column("memory", right=True),
        Column("host"),
        Column("output"),
    ]
    table = Table(columns, terminal_width() if file is sys.stdout else None)
    count = 0
    while page := [_cells(row) for row in islice(rows, places.PAGE)]:
        count += len(page)
        file.writelines(line + "\n" for line in table.lines(page))
    return count


def _cells(row: ResultRow) -> Sequence[str]:
    code = str(row.exit_code) if row.exit_code >= 0 else ""
    return [
        str(row.task),
        *map(str, row.values),
        formats.state(row),
        formats.signal_name(row.signal) if row.signal else code,
        formats.duration(row.wall_seconds),
        formats.duration(row.cpu_seconds),
        formats.memory(row.memory_kb),
        row.host,
        row.output,
    ]


def _say_rest(
    bag: BagView, form: str, count: int, failed: bool, limit: int | None, path: str | None
) -> None:
    """What is not there, where a person may wonder."""
    ended = bag.failed if failed else bag.done + bag.failed
    if path not in (None, "-"):
        say(f"{formats.count(count, 'result')} of bag {bag.id} in {path}")
    if form != "table":
        return
    if count < ended and limit is None:
        say(f"the first {count:,} of {ended:,}; all: covey results {bag.id} --format csv -o FILE")
    elif not count:
        say(f"bag {bag.id} has no {'failed tasks' if failed else 'results yet'}")
    elif not bag.over and not failed:
        say(f"{bag.total - ended:,} of {bag.total:,} tasks have not ended yet")
