"""From keyword arguments to a bag: the keys of a bag file, as Python values.

The keywords of `submit` become the same tree as a bag file, so that the same rules read and check
both, with the same messages. If a bag file is given as well, keywords replace its keys, as the
options of `covey run` do: entries of tables are replaced one by one, inputs and outputs are added.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from inspect import Parameter, Signature
from typing import Any, TypeAlias

from covey.bagfile import Sheet, read_sheet
from covey.bagfile.format.keys import BAG, TOP, BagKeywords
from covey.bagfile.format.kinds import Listing
from covey.bagfile.format.sheet import suggest
from covey.core.errors import InvalidBag

Name: TypeAlias = str | os.PathLike[str]
Words: TypeAlias = str | Sequence[object]
Groups: TypeAlias = bool | Sequence[str] | Sequence[Sequence[str]]
Table: TypeAlias = Mapping[str, object]

MOST_ROWS = 100_000
TABLES = ("parameters", "environment", "labels", "resources", "retries", "validate", "policy")
ADDED = tuple(name for name, key in TOP.items() if isinstance(key.kind, Listing))  # to a file's
TEXTS = ("command", "args")  # whose words may be numbers and paths


class SubmitKeywords(BagKeywords, total=False):
    """What `submit` understands beside the command: the keys of a bag file, and what says which
    bag is meant, and which of its tasks."""

    file: Name | None
    key: str | None
    first: int | None
    where: str | Sequence[str]


SUBMIT_SIGNATURE = Signature(
    [
        Parameter("command", Parameter.POSITIONAL_OR_KEYWORD, default=None),
        *(
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in SubmitKeywords.__annotations__.items()
        ),
    ]
)


def unknown_keyword(name: str) -> str:
    """The error message of submit() for a keyword that it does not have."""
    table, key = BAG.place_of(name)
    if table:
        hint = f"; write: {table}={{'{key}': …}}"
    else:
        hint = suggest(name, SubmitKeywords.__annotations__)
    return f"submit() has no keyword '{name}'{hint}"


def read_keywords(
    keywords: Mapping[str, object],
    file: str | os.PathLike[str] | None = None,
    call: str = "submit()",
) -> Sheet:
    """The sheet with all keywords that are not None. `call` is the function's name, for messages.
    Raises InvalidBag for a value that cannot be read."""
    sheet = Sheet(call) if file is None else read_sheet(file)
    wanted = {name: plain(value) for name, value in keywords.items() if value is not None}
    for name in ("script", *TEXTS):
        _refuse_functions(name, wanted.get(name), call)
    if wanted.keys() & {"command", "script"}:
        for name in ("command", "script", "args"):
            sheet.drop(name)
    if isinstance(wanted.get("zip"), bool):
        sheet.drop("zip")
        own = list(wanted.get("parameters", ())) if wanted.pop("zip") else []
        if len(own) > 1:
            wanted["zip"] = own
    listed = wanted.get("rows")
    if isinstance(listed, list):
        _take_rows(wanted, listed, call)
    if isinstance(wanted.get("retries"), int):
        wanted["retries"] = {"count": wanted["retries"]}
    if isinstance(wanted.get("policy"), str):
        wanted["policy"] = {"preset": wanted["policy"]}
    for name, value in wanted.items():
        _say(sheet, name, _words(value) if name in TEXTS else value, call)
    return sheet


def _say(sheet: Sheet, name: str, value: Any, call: str) -> None:
    if name in TABLES and not isinstance(value, dict):
        sheet.set((name,), {}, call, named=False)
        sheet.complain((name,), f"expected a dictionary of names and values, not {value!r:.60}")
    elif name in TABLES:
        for inner, leaf in value.items():
            sheet.set((name, inner), leaf, call, named=False)
    elif name in ADDED:
        for item in value if isinstance(value, list) else [value]:
            sheet.add((name,), item, call, named=False)
    else:
        sheet.set((name,), value, call, named=False)


def _refuse_functions(name: str, value: Any, call: str) -> None:
    for item in value if isinstance(value, list) else [value]:
        if callable(item):
            raise InvalidBag(
                f"{call}: {name}: {item!r:.60} is a function; a bag runs programs. For functions "
                "there are covey.Executor and @covey.task"
            )


def _words(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [word if isinstance(word, str) else str(word) for word in value]


def _take_rows(wanted: dict[str, Any], rows: list[Any], call: str) -> None:
    """Turn a list of rows into parameters side by side. They come before other parameters."""
    if len(rows) > MOST_ROWS:
        raise InvalidBag(
            f"{call}: rows: a list may have at most {MOST_ROWS:,} rows, not {len(rows):,}; write "
            "them to a file, and give its name: rows='cases.csv' or rows='cases.jsonl'"
        )
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise InvalidBag(
            f"{call}: rows: expected the name of a file, a data frame, or a list of dictionaries "
            "with the same keys, at least one"
        )
    names = list(rows[0])
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise InvalidBag(
                f"{call}: rows: row {number} has {', '.join(map(str, row)) or 'nothing'}, "
                f"the first one {', '.join(map(str, names))}"
            )
    columns = {name: [_cell(row[name]) for row in rows] for name in names}
    wanted["parameters"] = {**columns, **wanted.get("parameters", {})}
    del wanted["rows"]
    if len(names) > 1:
        zipped = wanted.get("zip") or []
        groups = [zipped] if zipped and all(isinstance(name, str) for name in zipped) else zipped
        wanted["zip"] = [names, *groups]


def _cell(value: Any) -> Any:
    """A value as in a file of rows: a missing value is empty text, truth values and dates are
    text."""
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date | time):
        if isinstance(value, datetime) and value.time() == time() and value.tzinfo is None:
            return value.date().isoformat()
        return value.isoformat()
    return value


def plain(value: Any) -> Any:
    """The value as TOML would have it. Arrays, series, ranges, paths and numbers of other libraries
    are converted. Other values stay as they are, and are refused later."""
    if isinstance(value, bool | str | int | float):
        return value if type(value) in (bool, str, int, float) else _bare(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, range):
        return _span(value)
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # a data frame
        return [plain(row) for row in value.to_dict("records")]
    if hasattr(value, "tolist"):  # numbers and arrays of numpy, series of pandas
        return plain(value.tolist())
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [plain(inner) for inner in value]
    return value


def _bare(value: Any) -> Any:
    """The plain value of an enum's member, or of a number of numpy."""
    kind = next(kind for kind in (bool, str, int, float) if isinstance(value, kind))
    return kind.__str__(value) if kind is str else kind(value)


def _span(numbers: range) -> Any:
    """A range as a table, not as a list, so that its length does not matter."""
    if len(numbers) < 2:
        return list(numbers)
    return {"from": numbers[0], "to": numbers[-1], "step": numbers.step}


def in_order(keywords: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
    """The keywords, with parameters and columns of rows in the order of `names`; others come
    last."""

    def sort(table: Any) -> Any:
        if not isinstance(table, Mapping):
            return table
        first = {name: table[name] for name in names if name in table}
        return {**first, **table}

    values = {name: plain(value) for name, value in keywords.items() if value is not None}
    if isinstance(values.get("rows"), list):
        values["rows"] = [sort(row) for row in values["rows"]]
    if "parameters" in values:
        values["parameters"] = sort(values["parameters"])
    return values
