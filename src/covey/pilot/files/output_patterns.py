"""Patterns of the files that a task returns: what they may be, and what they match.

A pattern is a path below the task's directory. ``*`` and ``?`` stay within a name, ``[a-z]`` is one
of these letters and ``[!a-z]`` any other; at the beginning of a name they do not match a dot. The
name ``**`` stands for any number of directories that are not hidden; at the end of a pattern it
stands for everything below. A pattern that matches a directory means all files in it.

The rule: only this module says which patterns are valid. The server refuses others when a bag is
submitted, and hosts match with the same code. Matching never backtracks: a name is read once for
each part of the pattern that may begin there. So the time is at most the length of the name times
the length of the pattern.
"""

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

MOST_CHARACTERS = 1024  # of a pattern
MOST_PATTERNS = 1000  # of a bag

_SPAN = "**"
_MAGIC = re.compile(r"[*?\[]")


class InvalidPattern(ValueError):
    """The message says what is wrong with a pattern."""


class _Piece(NamedTuple):
    """A part of a name without ``*``, which matches exactly ``size`` letters. It is a ``text``, or
    an ``expression`` of that many single letters, without repetition."""

    size: int
    text: str
    expression: Optional["re.Pattern[str]"]

    def begins(self, name: str, at: int) -> bool:
        """Whether the piece matches there."""
        if self.expression is None:
            return name.startswith(self.text, at)
        return self.expression.match(name, at) is not None

    def search(self, name: str, start: int, end: int) -> int:
        """Where the first match ends; -1 if there is none."""
        if self.expression is None:
            begin = name.find(self.text, start, end)
        else:
            match = self.expression.search(name, start, end)
            begin = match.start() if match else -1
        return begin + self.size if begin >= 0 else -1


class _Name:
    """One name of a pattern: pieces with any text between them."""

    __slots__ = ("_first", "_last", "_least", "_middle", "_visible")

    def __init__(self, text: str) -> None:
        pieces = _pieces(text)
        self._visible = text[0] in "*?["
        self._first = pieces[0]
        self._last = pieces[-1] if len(pieces) > 1 else None
        self._middle = [piece for piece in pieces[1:-1] if piece.size]
        self._least = sum(piece.size for piece in pieces)

    def match(self, name: str) -> bool:
        """Each piece is matched as early as possible: if any way to match exists, this finds it."""
        if len(name) < self._least or (self._visible and name[0] == "."):
            return False
        if not self._first.begins(name, 0):
            return False
        if self._last is None:
            return len(name) == self._least
        at, end = self._first.size, len(name) - self._last.size
        if not self._last.begins(name, end):
            return False
        for piece in self._middle:
            at = piece.search(name, at, end)
            if at < 0:
                return False
        return True


def _pieces(text: str) -> List[_Piece]:
    """The text between the stars, which may be empty. Raises InvalidPattern."""
    pieces: List[_Piece] = []
    words: List[str] = []  # the present piece, as one regular expression for each letter
    plain = ""
    index = 0
    while index < len(text):
        letter = text[index]
        index += 1
        if letter == "*":
            pieces.append(_piece(words, plain))
            words, plain = [], ""
        elif letter == "?":
            words.append(".")
        elif letter == "[" and "]" in text[index + 1 :]:
            end = text.index("]", index + 1)
            words.append(_one_of(text[index:end]))
            index = end + 1
        else:
            words.append(re.escape(letter))
            plain += letter
    pieces.append(_piece(words, plain))
    return pieces


def _piece(words: Sequence[str], plain: str) -> _Piece:
    if len(words) == len(plain):
        return _Piece(len(plain), plain, None)
    return _Piece(len(words), "", re.compile("".join(words), re.DOTALL))


def _one_of(inner: str) -> str:
    """The regular expression for the text inside brackets. Raises InvalidPattern."""
    if inner.startswith("[:"):
        raise InvalidPattern("[{}]] is not supported; write characters, as in [0-9]".format(inner))
    no = inner[0] in "!^" and len(inner) > 1
    letters = inner[1:] if no else inner
    text = "[^" if no else "["
    index = 0
    while index < len(letters):
        first, last = letters[index], letters[index]
        if letters[index + 1 : index + 2] == "-" and index + 2 < len(letters):
            last = letters[index + 2]
            index += 2
        index += 1
        if first > last:
            words = "[{}]: the range {}-{} is backwards; write {}-{}"
            raise InvalidPattern(words.format(inner, first, last, last, first))
        text += re.escape(first) + "-" + re.escape(last)
    return text + "]"


class Pattern:
    """A compiled pattern. Raises InvalidPattern.

    A path is matched name by name. ``step`` takes the set of places in the pattern that the names
    so far may have reached (one bit each) and the next name, and returns the next set. A walk
    through directories keeps the set, and need not enter a directory whose set is empty.
    """

    __slots__ = ("_after", "_names", "literal", "matched", "prefix", "start", "text")

    def __init__(self, text: str) -> None:
        parts = _parts(text)
        plain = 0
        while plain < len(parts) and not _MAGIC.search(parts[plain]):
            plain += 1
        self.text = text
        self.literal = plain == len(parts)
        self.prefix = "/".join(parts[:plain])  # up to the first name with a wildcard
        try:
            names = [None if part == _SPAN else _Name(part) for part in parts]
        except InvalidPattern as error:
            words = "the output pattern {!r} is not valid: {}".format(text, error)
            raise InvalidPattern(words) from None
        self._names = names
        self.matched = 1 << len(names)  # the bit that is set if the whole pattern is matched
        # For each place, the places that are reached with it: ** may stand for no directory.
        self._after = [1 << index for index in range(len(names) + 1)]
        for index in range(len(names) - 2, -1, -1):
            if names[index] is None:
                self._after[index] |= self._after[index + 1]
        self.start = self._after[0]

    def step(self, places: int, name: str) -> int:
        """The places after one more name; 0 if neither this path nor any path below can match."""
        if places & self.matched:
            return self.matched
        reached = 0
        last = len(self._names) - 1
        for index, part in enumerate(self._names):
            if not places >> index & 1:
                continue
            if part is not None:
                if part.match(name):
                    reached |= self._after[index + 1]
            elif index == last:
                reached |= self.matched
            elif name[0] != ".":
                reached |= self._after[index]
        return self.matched if reached & self.matched else reached

    def after(self, path: str) -> int:
        """The places after all names of a path."""
        places = self.start
        for name in path.split("/") if path else ():
            places = self.step(places, name)
        return places

    def match(self, path: str) -> bool:
        """Whether the pattern matches the file with this path."""
        return self.after(path) == self.matched


def _parts(text: str) -> List[str]:
    """The names of a pattern. Raises InvalidPattern."""
    if len(text) > MOST_CHARACTERS:
        words = "the output pattern {:.50}… has {} characters, more than {}"
        raise InvalidPattern(words.format(text, len(text), MOST_CHARACTERS))
    if "\0" in text:
        raise InvalidPattern("the output pattern {!r} has a NUL character".format(text))
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if text.startswith("/") or ".." in parts:
        words = "the output pattern {!r} leads out of the task's directory; write a path below it"
        raise InvalidPattern(words.format(text))
    if not parts:
        words = "the output pattern {!r} matches no file; for all files write **"
        raise InvalidPattern(words.format(text))
    return [
        part
        for index, part in enumerate(parts)
        if part != _SPAN or parts[index - 1 : index] != [_SPAN]  # one span is as good as two
    ]


Patterns = Tuple[Pattern, ...]


def compiled(texts: Sequence[str]) -> Patterns:
    """Raises InvalidPattern."""
    return tuple(Pattern(text) for text in texts)
