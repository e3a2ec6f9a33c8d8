"""The kinds of values that a bag file has: how each is read, and its JSON Schema.

`read` gives the value as covey uses it, or raises Wrong with what was expected. Kinds that contain
other kinds complain to the sheet about each bad value, put `NOTHING` in its place, and go on.
"""

import re
import shlex
from typing import Any, NamedTuple, Protocol

from covey.bagfile.format.lines import KeyPath
from covey.bagfile.format.sheet import MEANT, Sheet, spell, suggest
from covey.core.values.amounts import Amount, BadAmount, show
from covey.core.values.placeholders import names_of
from covey.core.values.space import is_text
from covey.pilot.protocol.placeholders import PLACEHOLDER

Schema = dict[str, Any]

_SHELL_WORDS = ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1")


class Wrong(Exception):
    """The value is not what was expected; the text says what was."""


class Nothing:
    """In place of a value that was complained about."""


NOTHING = Nothing()


class Kind(Protocol):
    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> Any: ...

    def schema(self) -> Schema: ...


class Key(NamedTuple):
    """A key of a table. Its value becomes this `field` of a BagSpec unchanged. Without a field, the
    reader of drafts (`draft`) knows what to do with it."""

    kind: Kind
    text: str  # for the schema
    field: str = ""


def read_at(kind: Kind, sheet: Sheet, path: KeyPath, value: Any) -> Any:
    """NOTHING, after a complaint, if it is wrong."""
    try:
        check_plain(value)
        return kind.read(sheet, path, value)
    except Wrong as wrong:
        sheet.complain(path, str(wrong))
        return NOTHING


def check_plain(value: object) -> None:
    """TOML has numbers of any size; messages and the record take 64 bits. Words of a command line
    need not be UTF-8; what is sent to a server must be."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Wrong("the number is too large; 64 bits are the most")
    if isinstance(value, str) and not is_text(value):
        raise Wrong("it is not text in UTF-8")


def variable_problem(name: str) -> str:
    """Why an environment variable cannot have this name; empty if it can."""
    if name and "=" not in name and "\0" not in name and is_text(name):
        return ""
    return "the name of a variable must be text, not empty, and without ="


class Text:
    """One line, or any text."""

    def __init__(self, *, lines: bool = False, least: int = 0) -> None:
        self.lines, self.least = lines, least

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> str:
        if not isinstance(value, str):
            raise Wrong(f"expected text in quotes, not {show(value)}")
        if "\0" in value:
            raise Wrong("text cannot contain NUL characters")
        if not self.lines and "\n" in value:
            raise Wrong("expected one line of text")
        if len(value.strip()) < self.least:
            raise Wrong("it is empty; leave it out, or write something")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": self.least} if self.least else {"type": "string"}


class AmountOf:
    """A number, a time, a size or a factor, as `amount` reads it."""

    def __init__(self, amount: Amount) -> None:
        self.amount = amount

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> float:
        try:
            return self.amount.read(value)
        except BadAmount as error:
            raise Wrong(str(error)) from None

    def schema(self) -> Schema:
        return self.amount.schema()


class Flag:
    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> bool:
        if not isinstance(value, bool):
            raise Wrong(f"expected true or false, not {show(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}


class Filled(NamedTuple):
    """Text with {NAME}s, in place of an amount: a task's own values say how much."""

    text: str


class PerTask:
    """An amount, or text with {NAME}s that becomes one with the values of a task."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> Any:
        if isinstance(value, str) and names_of(value):
            return Filled(value)
        return self.kind.read(sheet, path, value)

    def schema(self) -> Schema:
        filled: Schema = {"type": "string", "pattern": PLACEHOLDER.pattern}
        return {"anyOf": [self.kind.schema(), filled]}


class OneOf:
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> str:
        if value not in self.words:
            listed = " or ".join(map(repr, self.words))
            raise Wrong(f"expected {listed}, not {show(value)}")
        return str(value)

    def schema(self) -> Schema:
        return {"enum": list(self.words)}


class Words:
    """A command: text that is split as a shell would, or a list of its words."""

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            words = self._split(value)
        elif isinstance(value, list):
            words = [_word(word) for word in value]
        else:
            raise Wrong(f"expected text, or a list of words, not {show(value)}")
        if any("\0" in word for word in words):
            raise Wrong("a command cannot contain NUL characters")
        return tuple(words)

    def _split(self, text: str) -> list[str]:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise Wrong(f"it cannot be split into words: {str(error).lower()}") from None
        for word in words:
            if word in _SHELL_WORDS:
                raise Wrong(
                    f"{word} needs a shell: write script = '''…''' instead, "
                    "or the command as a list of its words"
                )
        return words

    def schema(self) -> Schema:
        word: Schema = {"type": ["string", "number"]}
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": word}]}


def _word(value: Any) -> str:
    check_plain(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Wrong(f"expected a list of words, but one of them is {show(value)}")
    return str(value)


class Listing:
    """A list, or a single element in its place."""

    def __init__(self, kind: Kind, most: int = 10_000, *, single: bool = True) -> None:
        self.kind, self.most, self.single = kind, most, single

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            if not self.single:
                raise Wrong(f"expected tables with the header [[{spell(path)}]]; not {show(value)}")
            return self._good([read_at(self.kind, sheet, path, value)])
        if len(value) > self.most:
            raise Wrong(f"a list of {len(value):,} is too long; at most {self.most:,} are allowed")
        return self._good(
            [
                read_at(self.kind, sheet, (*path, index), element)
                for index, element in enumerate(value)
            ]
        )

    def _good(self, elements: list[Any]) -> tuple[Any, ...]:
        return tuple(element for element in elements if element is not NOTHING)

    def schema(self) -> Schema:
        inner = self.kind.schema()
        listed: Schema = {"type": "array", "items": inner}
        return {"anyOf": [inner, listed]} if self.single else listed


class Table:
    """A table whose keys covey defines."""

    def __init__(self, keys: dict[str, Key]) -> None:
        self.keys = keys

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            header = f"[{spell(path)}], then its keys on lines of their own"
            raise Wrong(f"expected a table: write {header}; not {show(value)}")
        found: dict[str, Any] = {}
        for name, inner in value.items():
            if name in self.keys:
                found[name] = read_at(self.keys[name].kind, sheet, (*path, name), inner)
            else:
                sheet.complain((*path, name), f"there is no such key{self._hint(path, name)}")
        return {name: inner for name, inner in found.items() if inner is not NOTHING}

    def _hint(self, path: KeyPath, name: str) -> str:
        listed = ", ".join(self.keys)
        where = f"[{spell(path)}] has" if path else "a bag file has"
        table, key = self.place_of(name)
        if table:
            return f"; '{key}' belongs in the table [{spell((*path, table))}]"
        return suggest(name, self.keys, f"; {where} {listed}")

    def fields_in(self, found: dict[str, Any]) -> dict[str, Any]:
        """The values that were read, by field of the BagSpec."""
        fields: dict[str, Any] = {}
        for name, value in found.items():
            key = self.keys[name]
            if key.field:
                fields[key.field] = value
            elif isinstance(key.kind, Table):
                fields.update(key.kind.fields_in(value))
        return fields

    def place_of(self, name: str) -> tuple[str, str]:
        """The inner table that has such a key, and how the key is spelt there."""
        meant = MEANT.get(name.lower(), name.lower())
        for table, key in self.keys.items():
            kind = getattr(key.kind, "table", key.kind)
            if isinstance(kind, Table) and meant in kind.keys and meant not in self.keys:
                return table, meant
        return "", name

    def schema(self) -> Schema:
        properties = {
            name: {**key.kind.schema(), "description": key.text} for name, key in self.keys.items()
        }
        return {"type": "object", "properties": properties, "additionalProperties": False}


class Mapping:
    """A table with names of the author's choice."""

    def __init__(self, kind: Kind, names: re.Pattern[str], expected: str) -> None:
        self.kind, self.names, self.expected = kind, names, expected

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(f"expected a table of names and values, not {show(value)}")
        found: dict[str, Any] = {}
        for name, inner in value.items():
            if self.names.fullmatch(name) and is_text(name):
                found[name] = read_at(self.kind, sheet, (*path, name), inner)
            else:
                sheet.complain((*path, name), f"a name must be {self.expected}")
        return {name: inner for name, inner in found.items() if inner is not NOTHING}

    def schema(self) -> Schema:
        pattern = f"^(?:{self.names.pattern})$"
        return {
            "type": "object",
            "propertyNames": {"pattern": pattern},
            "additionalProperties": self.kind.schema(),
        }


class Printable:
    """Text, or a number that becomes text."""

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise Wrong(f"expected text in quotes, not {show(value)}")
        if "\0" in str(value):
            raise Wrong("text cannot contain NUL characters")
        return str(value)

    def schema(self) -> Schema:
        return {"type": ["string", "number"]}
