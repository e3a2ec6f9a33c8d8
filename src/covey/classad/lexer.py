"""Splits text into tokens: (kind, value, position), where kind is `name`, `value`, `end`, or the
operator itself."""

import re
from typing import Any, List, Tuple

from covey.classad.values import ERROR, UNDEFINED, SyntaxProblem

Token = Tuple[str, Any, int]

SPACE = r"[ \t\r\n\f\v]"
TOKENS = re.compile(
    r"(?P<space>" + SPACE + r"+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r'|(?P<text>"[^"\\]*(?:\\.[^"\\]*)*")'
    r"|(?P<quoted>'[^'\\]*(?:\\.[^'\\]*)*')"
    r"|(?P<default>\?" + SPACE + r"*:)"
    r"|(?P<op>>>>|=\?=|=!=|<<|>>|<=|>=|==|!=|&&|\|\||/(?!\*)|[-+*%<>=!~&|^?:;,.(){}\[\]])",
    re.DOTALL,
)
WORDS = {"true": True, "false": False, "undefined": UNDEFINED, "error": ERROR}
SIGNS = {"is": "is", "isnt": "isnt", "=?=": "is", "=!=": "isnt"}
ENDS_VALUE = frozenset(["name", "value", ".", ")", "]", "}"])
SUFFIXES = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
ESCAPES = dict(zip([b"a", b"b", b"t", b"n", b"v", b"f", b"r"], map(bytes, zip(range(7, 14)))))
BEHIND = {'"': re.compile(SPACE + '*"'), "'": re.compile(SPACE + "*'")}
LONGEST_NUMBER = 400  # characters: no integer of 64 bits and no float needs so many
ESCAPE = re.compile(rb"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)


def tokens(text: str) -> List[Token]:
    """All tokens of `text`; the last one has the kind `end`."""
    result: List[Token] = []
    at, last = 0, ""
    while at < len(text):
        match = TOKENS.match(text, at)
        if match is None:
            raise SyntaxProblem(text, at, _missing(text, at))
        kind, start, word, at = str(match.lastgroup), at, match.group(), match.end()
        value: Any = word
        if kind == "space":
            continue
        if kind == "op":
            kind = SIGNS.get(word, word)
            number = TOKENS.match(text, at) if word == "-" and last not in ENDS_VALUE else None
            if number and number.lastgroup == "number":
                kind, at = "number", number.end()
        elif kind == "name":
            kind = SIGNS.get(word.lower(), "name")
            if word.lower() in WORDS:
                kind, value = "value", WORDS[word.lower()]
        elif kind == "default":
            kind = "?:"
        elif kind != "number":
            value, at = _string(text, start, at)
            kind = "value" if kind == "text" else "name"
        if kind == "number":
            value, at = _number(text, start, at)
            kind = "value"
        result.append((kind, value, start))
        last = kind
    result.append(("end", "", len(text)))
    return result


def _missing(text: str, at: int) -> str:
    for opening, closing in (('"', '"'), ("'", "'"), ("/*", "*/")):
        if text.startswith(opening, at):
            return "a closing " + closing
    return "an expression, not %r" % text[at]


def _number(text: str, start: int, end: int) -> Tuple[Any, int]:
    """The number in text[start:end] with its suffix, if any; and where it ends."""
    digits = text[start:end].lstrip("-").lower()
    value: Any
    if len(digits) > LONGEST_NUMBER:  # Python refuses to read some, and takes long for others
        raise SyntaxProblem(text, start, "a number of at most %d characters" % LONGEST_NUMBER)
    if digits.startswith("0x"):
        value = int(digits, 16)
    elif "." in digits or "e" in digits:
        value = float(digits)
    elif digits.startswith("0") and digits.strip("01234567"):
        raise SyntaxProblem(text, start, "a number that does not begin with 0")
    else:
        value = int(digits)
    if text[end : end + 1].lower() in SUFFIXES:
        value *= SUFFIXES[text[end].lower()]
        end += 1
    if text[start] == "-":
        value = -value
    if value.__class__ is int and text[end : end + 1] == ".":
        raise SyntaxProblem(text, end, "an operator after the number")
    if value.__class__ is int and not -(1 << 63) <= value < 1 << 63:
        raise SyntaxProblem(text, start, "an integer of 64 bits")
    return value, end


def _string(text: str, start: int, end: int) -> Tuple[str, int]:
    """The string in text[start:end] with the strings directly after it; and where they end."""
    parts = [text[start + 1 : end - 1]]
    quote = text[start]
    again = BEHIND[quote].match(text, end)
    while again:
        match = TOKENS.match(text, again.end() - 1)
        if match is None:
            raise SyntaxProblem(text, again.end() - 1, _missing(text, again.end() - 1))
        parts.append(match.group()[1:-1])
        end = match.end()
        again = BEHIND[quote].match(text, end)
    inside = "".join(parts)
    if "\\" in inside or "\0" in inside:
        raw = ESCAPE.sub(_escaped, inside.encode("utf-8", "surrogateescape"))
        if b"\0" in raw:
            raise SyntaxProblem(text, start, "a string without a NUL character")
        inside = raw.decode("utf-8", "surrogateescape")
    return inside, end


def _escaped(match: Any) -> bytes:
    which: bytes = match.group(1)
    return bytes([int(which, 8)]) if b"0" <= which < b"8" else ESCAPES.get(which, which)
