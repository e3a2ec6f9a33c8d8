"""The kinds of values that only bags have: parameters, rows, inputs, conditions on parameters."""

import math
import os
import re
from typing import Any, NamedTuple

from covey.bagfile.format.kinds import (
    NOTHING,
    Key,
    Listing,
    Printable,
    Schema,
    Text,
    Wrong,
    check_plain,
    read_at,
    variable_problem,
)
from covey.bagfile.format.lines import KeyPath
from covey.bagfile.format.sheet import Sheet, spell, suggest
from covey.bagfile.format.values import parse_values, read_values, split_items
from covey.core.bags.bag_check import URLS
from covey.core.errors import InvalidBag
from covey.core.record.model import Condition
from covey.core.values.amounts import show
from covey.core.values.scalars import scalar
from covey.core.values.space import Range, Scalar, Values
from covey.pilot.protocol.placeholders import NUMBERS

FORMS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "lines",
    ".lines": "lines",
}

ROW_FORMS = ("csv", "tsv", "semicolons", "jsonl", "lines")
_FIRST_LINE_BYTES = 65536

_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?"
_INTERVAL = re.compile(rf"({_NUMBER})?\.\.({_NUMBER})?")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class RowsFile(NamedTuple):
    """A file whose rows are parameters."""

    path: str
    form: str
    written: str  # the path as it was written


class Wanted(NamedTuple):
    """An input as it was written."""

    at: KeyPath
    base: str
    source: str = ""  # a path, with wildcards or {NAME}s or neither
    url: str = ""
    to: str = ""
    copy: bool = False
    sha256: str = ""
    executable: bool = False


def literal(value: Any) -> Scalar:
    """A value in a list is taken literally: "1..3" is text there."""
    check_plain(value)
    if isinstance(value, bool):
        raise Wrong(f"a value is text or a number; write '{show(value)}' in quotes")
    if isinstance(value, float) and not math.isfinite(value):
        raise Wrong(f"{value} is not a finite number; write it in quotes")
    if not isinstance(value, str | int | float):
        raise Wrong(f"a value is text or a number, not {show(value)}")
    return value


class ValuesOf:
    """The values of one parameter."""

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> Range | Values:
        base = sheet.origin(path).base
        try:
            if isinstance(value, str):
                return parse_values(value, base)
            if isinstance(value, list):
                return Values(tuple(literal(item) for item in value))
            if isinstance(value, dict):
                return self._table(value, base)
        except InvalidBag as error:
            raise Wrong(str(error)) from None
        return Values((literal(value),))

    def _table(self, value: dict[str, Any], base: str) -> Range | Values:
        if set(value) == {"file"} and isinstance(value["file"], str):
            return read_values(os.path.join(base, os.path.expanduser(value["file"])))
        if {"from", "to"} <= set(value) <= {"from", "to", "step"}:
            ends = [literal(value[name]) for name in ("from", "to", "step") if name in value]
            if not any(isinstance(end, str) for end in ends):
                return parse_values("..".join(str(end) for end in ends))
        raise Wrong("expected {from = 0, to = 1, step = 0.1} or {file = 'values.txt'}")

    def schema(self) -> Schema:
        item: Schema = {"type": ["string", "number"]}
        span = {name: {"type": "number"} for name in ("from", "to", "step")}
        return {
            "anyOf": [
                item,
                {"type": "array", "items": item},
                {
                    "type": "object",
                    "properties": span,
                    "required": ["from", "to"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "properties": {"file": {"type": "string"}},
                    "required": ["file"],
                    "additionalProperties": False,
                },
            ]
        }


class Parameters:
    """All parameters: names to values."""

    kind = ValuesOf()

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> dict[str, Range | Values]:
        if not isinstance(value, dict):
            raise Wrong(f"expected a table: write [parameters], then NAME = …; not {show(value)}")
        found: dict[str, Any] = {}
        for name, inner in value.items():
            wrong = bad_name(name)
            if wrong:
                sheet.complain((*path, name), wrong)
            else:
                found[name] = read_at(self.kind, sheet, (*path, name), inner)
        return {name: inner for name, inner in found.items() if inner is not NOTHING}

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": {"pattern": "^[^\\W\\d]\\w*$", "not": {"enum": list(NUMBERS)}},
            "additionalProperties": self.kind.schema(),
        }


def bad_name(name: str) -> str:
    """Why a parameter cannot have this name; empty if it can."""
    if not (name.isidentifier() and name.isascii()):
        return f"{name!r} is not a name for a parameter: use letters, digits and _"
    if name in NUMBERS:
        return f"{{{name}}} is the {name}'s number; choose another name"
    return ""


class Groups:
    """Parameters whose values are paired (`zip`): one list of names, or a list of such lists."""

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> tuple[tuple[str, ...], ...]:
        expected = 'expected names of parameters, ["a", "b"], or lists of them'
        if not isinstance(value, list):
            raise Wrong(f"{expected}; not {show(value)}")
        groups = [value] if all(isinstance(item, str) for item in value) else value
        for group in groups:
            named = isinstance(group, list) and all(isinstance(name, str) for name in group)
            if not named or len(group) < 2:
                raise Wrong(f"{expected}, each with two or more; not {show(group)}")
        names = [name for group in groups for name in group]
        for name in names:
            if names.count(name) > 1:
                raise Wrong(f"{name} is named twice")
        return tuple(tuple(group) for group in groups)

    def schema(self) -> Schema:
        group: Schema = {"type": "array", "items": {"type": "string"}, "minItems": 2}
        return {"anyOf": [group, {"type": "array", "items": group, "minItems": 1}]}


class RowsOf:
    """A file of rows. Its form follows from the file's name, or is written next to it."""

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> RowsFile:
        expected = "expected the name of a file, or {file = 'x.dat', form = 'csv'}"
        form = ""
        name = value
        if isinstance(value, dict):
            if set(value) - {"file", "form"} or "file" not in value:
                raise Wrong(expected)
            name, form = value["file"], value.get("form", "")
        if not isinstance(name, str) or not name or "\0" in name:
            raise Wrong(f"{expected}; not {show(name)}")
        form = form or FORMS.get(os.path.splitext(name)[1].lower(), "")
        if form not in ROW_FORMS:
            raise Wrong(
                f"the name {name} does not say what is in the file. Call it .csv, .tsv, .jsonl or "
                f".txt, or write {{file = {name!r}, form = 'csv'}} (or 'tsv', 'semicolons', "
                "'jsonl', 'lines')"
            )
        place = os.path.join(sheet.origin(path).base, os.path.expanduser(name))
        given = isinstance(value, dict) and "form" in value
        if form == "csv" and not given and _has_semicolons(place):
            form = "semicolons"
        return RowsFile(place, form, name)

    def schema(self) -> Schema:
        form: Schema = {"enum": list(ROW_FORMS)}
        text: Schema = {"type": "string", "minLength": 1}
        table: Schema = {
            "type": "object",
            "properties": {"file": text, "form": form},
            "required": ["file"],
            "additionalProperties": False,
        }
        return {"anyOf": [text, table]}


def _has_semicolons(path: str) -> bool:
    """Whether the first line of a CSV file has semicolons and no commas: spreadsheets write that
    where the comma is the decimal point. A file that cannot be read is complained about later."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb", buffering=0) as file:
            first = (file.read(_FIRST_LINE_BYTES) or b"").lstrip(b"\r\n").partition(b"\n")[0]
    except OSError:
        return False
    return b";" in first and b"," not in first


class InputOf:
    """A path, a URL, or a table that says more about one."""

    texts = ("from", "url", "to", "sha256")
    flags = ("copy", "executable")

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> Wanted:
        given = {"url" if _is_url(value) else "from": value} if isinstance(value, str) else value
        if not isinstance(given, dict):
            raise Wrong(f"expected a path, a URL or {{from = …, to = …}}, not {show(value)}")
        self._check(given)
        if _is_url(given.get("from", "")):
            raise Wrong(f"{given['from']} is a URL: write {{url = …}}")
        wanted = Wanted(
            path,
            sheet.origin(path).base,
            given.get("from", ""),
            given.get("url", ""),
            given.get("to", ""),
            given.get("copy", False),
            given.get("sha256", "").lower(),
            given.get("executable", False),
        )
        if wanted.url:
            return _checked_url(wanted)
        if wanted.sha256 or "executable" in given:
            raise Wrong("sha256 and executable are for a url only; covey reads them from a file")
        return wanted

    def _check(self, given: dict[str, Any]) -> None:
        known = [*self.texts, *self.flags]
        for name, value in given.items():
            if name not in known:
                hint = suggest(name, known, f"; there are {', '.join(known)}")
                raise Wrong(f"an input has no key '{name}'{hint}")
            if name in self.flags and not isinstance(value, bool):
                raise Wrong(f"{name} is true or false, not {show(value)}")
            if name in self.texts and (not isinstance(value, str) or not value or "\0" in value):
                raise Wrong(f"{name} is text in quotes, not {show(value)}")
        if ("from" in given) == ("url" in given):
            raise Wrong("an input has either from = 'PATH' or url = 'https://…'")

    def schema(self) -> Schema:
        text: Schema = {"type": "string", "minLength": 1}
        common: Schema = {"to": text, "copy": {"type": "boolean"}}
        fetched: Schema = {
            "url": {"type": "string", "pattern": "^https?://"},
            "sha256": {"type": "string", "pattern": f"^{_SHA256.pattern}$"},
            "executable": {"type": "boolean"},
        }
        tables = [
            {
                "type": "object",
                "properties": {**own, **common},
                "required": [next(iter(own))],
                "additionalProperties": False,
            }
            for own in ({"from": text}, fetched)
        ]
        return {"anyOf": [text, *tables]}


def _is_url(text: object) -> bool:
    return isinstance(text, str) and _URL.fullmatch(text) is not None


def _checked_url(wanted: Wanted) -> Wanted:
    if not wanted.url.startswith(URLS):
        raise Wrong(f"{wanted.url}: hosts can fetch http:// and https:// only")
    if wanted.sha256 and not _SHA256.fullmatch(wanted.sha256):
        raise Wrong("sha256 is 64 hexadecimal digits; 'sha256sum FILE' prints them")
    name = re.split(r"[?#]", wanted.url.split("://", 1)[1])[0].rpartition("/")[2]
    if not wanted.to and not name:
        raise Wrong(f"{wanted.url} has no name for the file; write {{url = …, to = 'NAME'}}")
    to = wanted.to + name if wanted.to.endswith("/") else wanted.to or name
    return wanted._replace(to=to)


class RuleOf(NamedTuple):
    """One [[resources.when]]: the conditions and the resources that it changes."""

    at: KeyPath
    when: tuple[Condition, ...]
    changes: dict[str, Any]


class RuleKind:
    def __init__(self, keys: dict[str, Key]) -> None:
        self.keys = keys

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> RuleOf:
        if not isinstance(value, dict):
            raise Wrong(f"expected a table [[{spell(path[:-1])}]], not {show(value)}")
        changes: dict[str, Any] = {}
        when: list[Condition] = []
        for name, inner in value.items():
            at = (*path, name)
            if name in self.keys:
                changes[name] = read_at(self.keys[name].kind, sheet, at, inner)
            else:
                condition = read_at(_ConditionOf(name), sheet, at, inner)
                if condition is not NOTHING:
                    when.append(condition)
        if not changes or len(changes) == len(value):
            raise Wrong(
                "expected a condition on a parameter (model = 'large') and a resource that "
                f"then differs ({', '.join(self.keys)})"
            )
        good = {name: inner for name, inner in changes.items() if inner is not NOTHING}
        return RuleOf(path, tuple(when), good)

    def schema(self) -> Schema:
        properties = {
            name: {**key.kind.schema(), "description": key.text} for name, key in self.keys.items()
        }
        condition = _ConditionOf("").schema()
        return {
            "type": "object",
            "properties": properties,
            "minProperties": 2,
            "additionalProperties": condition,
        }


class _ConditionOf:
    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> Condition:
        if isinstance(value, list):
            if not value:
                raise Wrong("the list is empty")
            return Condition(name=self.name, values=tuple(literal(item) for item in value))
        if not isinstance(value, str):
            return Condition(name=self.name, values=(literal(value),))
        match = _INTERVAL.fullmatch(value.strip())
        if match is None:
            return Condition(name=self.name, values=self._values(value))
        low, high = (None if end is None else float(end) for end in match.groups())
        if low is None and high is None:
            raise Wrong("a range needs an end: '1000..5000', '1000..' or '..5000'")
        if any(end is not None and not math.isfinite(end) for end in (low, high)):
            raise Wrong(f"{value}: the number is too large")
        if low is not None and high is not None and low > high:
            raise Wrong(f"no number is in {value}: write '{match[2]}..{match[1]}'")
        return Condition(name=self.name, low=low, high=high)

    def _values(self, text: str) -> tuple[Scalar, ...]:
        try:
            items = split_items(text)
        except InvalidBag as error:
            raise Wrong(str(error)) from None
        return tuple(item.text if item.quoted else scalar(item.text) for item in items)

    def schema(self) -> Schema:
        item: Schema = {"type": ["string", "number"]}
        return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]}


class Environment(NamedTuple):
    inherit: tuple[str, ...]
    values: dict[str, str]


class Variables:
    """Names and values; `inherit` lists variables of this process that are passed on."""

    value = Printable()
    inherit = Listing(Text(least=1))

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> Environment:
        if not isinstance(value, dict):
            raise Wrong(f"expected a table: write [environment], then NAME = …; not {show(value)}")
        inherit: Any = ()
        values: dict[str, Any] = {}
        for name, inner in value.items():
            at = (*path, name)
            if name == "inherit":
                inherit = read_at(self.inherit, sheet, at, inner)
            elif problem := variable_problem(name):
                sheet.complain(at, problem)
            else:
                values[name] = read_at(self.value, sheet, at, inner)
        good = {name: inner for name, inner in values.items() if inner is not NOTHING}
        return Environment(() if inherit is NOTHING else inherit, good)

    def schema(self) -> Schema:
        return {
            "type": "object",
            "properties": {"inherit": self.inherit.schema()},
            "propertyNames": {"pattern": "^[^=]+$"},
            "additionalProperties": self.value.schema(),
        }
