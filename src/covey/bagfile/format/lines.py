"""On which line of a TOML text each key stands.

`tomllib` gives the line of a mistake in TOML, but not the lines of the values in a good file. This
scan finds the line of every key, table and element of an array, by its path: ("resources", "when",
0, "memory"). It knows strings, comments, dotted keys, inline tables and arrays of tables. It checks
nothing: tomllib has read the text before.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]

_BLANK = re.compile(r"[ \t]*").match
_REST = re.compile(r"[ \t\r\n]*(?:#[^\n]*\n[ \t\r\n]*)*(?:#[^\n]*)?").match
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]*").match
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


def find_lines(text: str) -> dict[KeyPath, int]:
    """The first line of each key, in a text that tomllib accepts."""
    scan = _Scan(text.replace("\r\n", "\n"))
    scan.document()
    return scan.lines


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self._lengths: dict[KeyPath, int] = {}  # how many tables each array of tables has so far
        self._counted = (0, 1)  # a position, and its line

    def document(self) -> None:
        table: KeyPath = ()
        while True:
            self._skip(_REST)
            if self.at >= len(self.text):
                return
            if self.text.startswith("[[", self.at):
                table = self._header(2)
            elif self.text.startswith("[", self.at):
                table = self._header(1)
            else:
                self._pair(table)

    def _header(self, brackets: int) -> KeyPath:
        line = self._line()
        self.at += brackets
        key = self._key()
        self._skip(_BLANK)
        self.at += brackets
        table: KeyPath = ()
        for part in key[:-1]:
            table = self._latest((*table, part))
            self.lines.setdefault(table, line)
        table = (*table, key[-1])
        self.lines.setdefault(table, line)
        if brackets == 2:
            index = self._lengths.get(table, 0)
            self._lengths[table] = index + 1
            table = (*table, index)
        self.lines.setdefault(table, line)
        return table

    def _latest(self, path: KeyPath) -> KeyPath:
        """A key under an array of tables belongs to the array's latest table."""
        return (*path, self._lengths[path] - 1) if path in self._lengths else path

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        path = table
        for part in self._key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self._skip(_BLANK)
        self.at += 1  # =
        self._skip(_BLANK)
        self._value(path)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip(_BLANK)
            if self.text[self.at : self.at + 1] in ('"', "'"):
                parts.append(self._string())
            else:
                match = _BARE_KEY.match(self.text, self.at)
                assert match is not None, "tomllib has read this"
                parts.append(match[0])
                self.at = match.end()
            self._skip(_BLANK)
            if self.text[self.at : self.at + 1] != ".":
                return parts
            self.at += 1

    def _value(self, path: KeyPath) -> None:
        first = self.text[self.at : self.at + 1]
        if first in ('"', "'"):
            self._string()
        elif first == "[":
            self._array(path)
        elif first == "{":
            self._inline(path)
        else:
            self._skip(_BARE_VALUE)

    def _array(self, path: KeyPath) -> None:
        self.at += 1
        index = 0
        while True:
            self._skip(_REST)
            if self.text[self.at] == "]":
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self.lines.setdefault((*path, index), self._line())
            self._value((*path, index))
            index += 1

    def _inline(self, path: KeyPath) -> None:
        self.at += 1
        while True:
            self._skip(_REST)
            if self.text[self.at] == "}":
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._pair(path)

    def _string(self) -> str:
        quote = self.text[self.at]
        fence = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        start = at = self.at + len(fence)
        while not self.text.startswith(fence, at):
            at += 2 if quote == '"' and self.text[at] == "\\" else 1
        self.at = at + len(fence)
        while len(fence) == 3 and self.text.startswith(quote, self.at):
            self.at += 1  # quotes that end the text itself
        inner = self.text[start:at]
        return _ESCAPE.sub(_unescaped, inner) if quote == '"' else inner

    def _skip(self, matched: Callable[[str, int], re.Match[str] | None]) -> None:
        match = matched(self.text, self.at)
        if match is not None:
            self.at = match.end()

    def _line(self) -> int:
        before, line = self._counted
        line += self.text.count("\n", before, self.at)
        self._counted = (self.at, line)
        return line


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else _ESCAPED.get(match[3], match[3])
