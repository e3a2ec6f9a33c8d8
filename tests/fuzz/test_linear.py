"""Every parser of text that others choose takes time in proportion to the text, not more.

Each parser is declared once, with the functions that make a text of about n letters meant to be
hard for it. What it answers, or raises on purpose, does not matter here. The time is the processor
time of this thread, the best of several, and sizes grow until there is something to measure.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from covey.bagfile.format import kinds, lines, values
from covey.bagfile.format.sheet import parse_sheet
from covey.classad import ClassAdError, Context, jsonform, parse, parse_ad
from covey.classad.functions.tokens import _split, _unquoted
from covey.classad.times import parse_absolute, parse_relative
from covey.cli.results import tail
from covey.cli.shared.classad_findings import has_comments
from covey.client import download
from covey.core.errors import CoveyError
from covey.core.protocol import tokens
from covey.core.record import call_files
from covey.core.record.model import SiteSpec
from covey.core.values import amounts, causes, placeholders
from covey.core.values.columns import scalar
from covey.frontend import terminal
from covey.pilot.calls.call_records import BY_FILE
from covey.pilot.host import tags
from covey.pilot.protocol import connection
from covey.rowfiles.forms import BEGIN
from covey.server.web.auth import PilotSecrets
from covey.sites import plugins
from covey.sites.commands import Output
from covey.sites.errors import Refused, Unclear
from covey.store import filesystem
from covey.store.results import columns, queries
from covey.store.results.export import NEEDED
from covey.store.results.export import ExportedTable as Export
from covey.store.sqlite import rows
from covey.wire import ResultQuery

ENOUGH_SECONDS = 0.005  # for a measurement
LONGEST_SECONDS = 2.0
FIRST, MOST = 1 << 10, 1 << 18  # letters; the head of a request has at most 1 << 16
FACTOR = 10  # four times the text takes four times as long; with a square, sixteen times
HARMLESS = (
    *(CoveyError, ClassAdError, Refused, Unclear, kinds.Wrong),
    *(ValueError, LookupError, OverflowError, RecursionError),
)

Make = Callable[[int], str]


def same(text: str) -> Make:
    return lambda n: text * (n // len(text))


def around(before: str, text: str, after: str = "") -> Make:
    return lambda n: before + text * (n // len(text)) + after


COMMON: list[Make] = [
    same(" "), same("\t\n"), same("9"), same("a"), same("'"), same('"'), same("\\"), same("'\""),
    same("("), same("[{"), same("{a"), same("{a}"), same(","), same(", "), same("a,"), same("=a"),
    same("/*"), same("//"), same("-"), same("."), same("1."), same("a."), same("\n"), same("\r"),
    same("\x1b["), same("é"), same("\0"), same("0x"), same("1e1"), same("\\'"), same('\\"'),
    same(" and "), same("in "), same("a=b;"), same("..."), same("$"), same("%"), same("\udc80"),
    around('"', "a"), around("'", "\\'"), around("", "a", "!"), around("", " ", "x"),
    around("", "1", "x"), around("(", " ", ")"), around("a ", "'b' ", "'"), around("/*", "*"),
]  # fmt: skip

# What drivers read to learn how much of a site is free: hard lines, many different ones.
CAPACITIES: list[Make] = [
    lambda n: "n1\n\n" + "".join(f"Que {number}\n" for number in range(n // 10)),
    lambda n: "n1\n np = 4\n state = free\n\n" + "".join(f"Que {x}\n" for x in range(n // 10)),
    around("n1\n np = 4\n jobs = ", "0-9/1.a,", "\n\nQue"), around("n1\n", " np = 4\n"),
    around("a*|0/1/0/1|0/1/0/1\n\n", "1 a,\n"), around("", "a*|0/1/0/1|0/1/0/1\n"),
    around("HOST_NAME MAX NJOBS STATUS\n", "a 1 1 ok\n"), around("HOST_NAME ", "MAX "),
    around("", "1 Unclaimed 1\n", "\n\nidle"), around("1 Unclaimed 1\n\n", "0 idle, "),
    around("<a>", "<cluster_queue_summary/>", "</a>\n\n1"),
]  # fmt: skip

TABLE = columns.columns(["alpha", "x y"], ["loss", "a" * 90])


def where(text: str) -> None:
    queries.understand(ResultQuery(where=(text,)), TABLE)


def sort(text: str) -> None:
    queries.understand(ResultQuery(sort=text), TABLE)


def cells(text: str) -> None:
    page: list[Sequence[Any]] = [[0] for _ in NEEDED]
    for name in ("host", "cause", "output"):
        page[NEEDED.index(name)] = [text]
    page[NEEDED.index("result")] = [None]
    Export(columns.columns([], []), "csv", lambda tasks: []).page(page)


def reported(text: str) -> None:
    scalar(rows.reported(text))


def in_file(form: str) -> Callable[[str], None]:
    def read(text: str) -> None:
        data = text.encode("utf-8", "replace")
        begun = BEGIN[form](data, True)
        if begun is not None:
            begun[0].count(data[begun[1] :], 0, True)

    return read


def bag_file(text: str) -> None:
    parse_sheet(text, "x.toml", "/")


def of_amount(amount: amounts.Amount) -> Callable[[str], None]:
    def read(text: str) -> None:
        with suppress(amounts.BadAmount):
            amount.read(text)

    return read


def tag_lines(text: str) -> None:
    for line in text.splitlines():
        tags._LINE.fullmatch(line.strip())


def credential(text: str) -> None:
    class Record:
        id = 5
        credential = "x"

    secrets: Any = PilotSecrets("secret", time.time)
    secrets.left_seconds(Record(), text.encode("utf-8", "replace"))


def driver_reads(name: str) -> Callable[[str], None]:
    """All that a driver makes of a command's output."""
    driver: Any = plugins.find()[name].driver
    spec = SiteSpec(name="there", driver=name)
    batch: Any = SimpleNamespace(names=("a0",), title="a")

    def read(text: str) -> None:
        for output in (Output(0, text, text), Output(1, "", text)):
            with suppress(*HARMLESS):
                driver.submitted(spec, batch, output)
            with suppress(*HARMLESS):
                driver.listed(spec, "a", output)
            with suppress(*HARMLESS):
                driver.accounted(spec, output)
            with suppress(*HARMLESS):
                driver.measured(spec, output)

    return read


PARSERS: dict[str, tuple[Callable[[str], Any], Sequence[Make]]] = {
    "where": (
        where,
        [
            *(around(f"{name} {op} ", text) for name, op in (("loss", "="), ("loss", "in"))
              for text in (" ", ",", "' ", "'\"", " and ", ", loss", "9", "= ", "a in ", "'a',")),
            around("loss = '", "' "), around("", "a ", "= 1"), around("loss = '", "',", "'"),
        ],
    ),
    "sort": (sort, []),
    "cause": (causes.normalised, [same("/a"), same("1,"), same("0xg"), same("1e"), same("a1.")]),
    "last line": (causes.last_line, []),
    "template of a bag": (lambda text: placeholders.filler(text, ["a"])([1], 0, 0), []),
    "template with values": (lambda text: placeholders.fill(text, {"a": 1}), []),
    "name of a folder": (download.safe, []),
    "call": (call_files.file_of, [around(BY_FILE, "a")]),
    "job of a hand-made pilot": (tokens.read_hand_job, [around(tokens.HAND, "-")]),
    "credential": (credential, [around("5.", "9", ".x"), around("5.", "1.")]),
    "policy": (parse, [same("1+"), same("a?"), same("-"), same("!"), same('"a" '), same("{1},")]),
    "ad": (parse_ad, [around("[", "a=1;", "]"), around("[a=", "[a=")]),
    "ad in JSON": (jsonform.from_json, [around('{"a":"', '\\"'), around('{"a":', '{"a":')]),
    "comments of an expression": (has_comments, []),
    "moment": (lambda text: parse_absolute(text, 0), [around("2000", "-", "Z"), around("", "z ")]),
    "span": (parse_relative, [around("", "1 "), around("1:", " ")]),
    "list in a string": (lambda text: _split(Context(), text, text[:2000] or ","), []),
    "arguments": (lambda text: _unquoted(Context(), text), [same("' ")]),
    "values": (values.split_items, [same("\\ "), around("\\ " * 100, "'"), around("x", "'")]),
    "range": (values.parse_values, [around("1..", "9"), same("1.."), around("0", "0", "..9")]),
    "bag file": (bag_file, [around("a = [", "[ "), around("a = '", "b", "'"), around("", "a=1\n"),
                            around("a = {", "b={")]),
    "lines of a bag file": (lambda text: lines.find_lines(f"a = '''{text.replace(chr(39), '')}'''"),
                            []),
    "duration": (of_amount(amounts.Seconds()), [around("", "9", "h"), around("1", " ", "h")]),
    "size": (of_amount(amounts.Size("m", "1TB")), [around("", "9", "GB"), around("1", " ", "GB")]),
    "growth": (of_amount(amounts.Factor(1, 100)), [around("x", " ", "2"), around("+", "9", "%")]),
    "rows, csv": (in_file("csv"), [around("a,b\n", "1,2\n"), around('a\n"', "b\n")]),
    "rows, jsonl": (in_file("jsonl"), [same('{"a":1}\n'), same("["), same('{"a":')]),
    "rows, lines": (in_file("lines"), []),
    "tags": (tag_lines, [around("a=", "="), same("a=b\n")]),
    "address": (connection.split, [around("http://", "a"), around("http://[", ":")]),
    "cell of an export": (cells, []),
    "reported value": (reported, [around("{", '"a":{'), same("["), around('{"a":', "9", "}")]),
    "mounts": (lambda text: filesystem.kind(Path("/x"), text), [same("a \\040 b\n")]),
    "end of a stream": (
        lambda text: tail.parts_of(text, 7), [same("\n[... 5 bytes left out ...]\n")]),
    "cell of a table": (terminal.clean, []),
    "text for a terminal": (terminal.clean_output, [same("\x1b[0"), same("\x1b[31m")]),
    "JSON for a terminal": (terminal.clean_json, [same("\x9b"), same("\u202e")]),
    **{f"output of {name}": (driver_reads(name), [same(" |"), same("\n\n"), same("    a = b\n"),
        same("Job Id: 5\n"), same("5_[1-9,1-9]"), same("<a>"), same("Job <5> is submitted\n"),
        *CAPACITIES])
       for name in ("slurm", "pbs", "lsf", "gridengine", "htcondor")},
}  # fmt: skip


def seconds(parser: Callable[[str], Any], text: str, times: int = 1) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.thread_time()
        with suppress(*HARMLESS):
            parser(text)
        best = min(best, time.thread_time() - began)
    return best


def complaint(parser: Callable[[str], Any], make: Make) -> str:
    """What is wrong with the time that it takes, if anything."""
    size, before = FIRST, seconds(parser, make(FIRST))
    while size < MOST:
        after = seconds(parser, make(4 * size))
        if before >= ENOUGH_SECONDS:
            if after > FACTOR * before:  # once more: the machine may be busy
                before, after = seconds(parser, make(size), 3), seconds(parser, make(4 * size), 2)
            if after <= FACTOR * before:
                return ""
            return f"{size:,} letters take {before:.3f} s, {4 * size:,} take {after:.3f} s"
        size, before = 4 * size, after
    return "" if before < LONGEST_SECONDS else f"{size:,} letters take {before:.3f} s"


@pytest.mark.parametrize("name", PARSERS)
def test_time_grows_with_the_text(name: str) -> None:
    parser, own = PARSERS[name]
    found = [
        f"{make(30)!r}…: {words}" for make in [*own, *COMMON] if (words := complaint(parser, make))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("power", [2, 3])
def test_a_slow_parser_is_found(power: int) -> None:
    def slow(text: str) -> None:
        for _ in range(len(text) ** power >> (7 if power == 2 else 17)):
            pass

    assert complaint(slow, same("a"))
    assert not complaint(list, same("a"))
