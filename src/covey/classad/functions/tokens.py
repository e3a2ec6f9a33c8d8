"""HTCondor's functions for lists in strings, names with an @, arguments and environments."""

import re
from functools import reduce
from operator import add
from typing import Any, Callable, List, Optional

from covey.classad.functions.convert import lower, number_in
from covey.classad.functions.patterns import search
from covey.classad.functions.table import row
from covey.classad.times import truncated
from covey.classad.values import ERROR, UNDEFINED, Context, Value

_SPACE = " \t\n\v\f\r"
_BLANK = " \t\n\r"
_BROKEN_OFF = re.compile(r"[+-]?(?:0x(?![0-9a-f.])|infi(?!nity))", re.I)  # C's scanf stops there


def _pieces(context: Context, text: str, delimiters: str) -> List[str]:
    """The parts between any of the delimiters."""
    context.spend((len(text) >> 3) + 2 * len(delimiters))
    pieces = [text]
    if delimiters:
        first = delimiters[0]
        pieces = text.translate(dict.fromkeys(map(ord, delimiters[1:]), first)).split(first)
    context.spend(len(pieces) >> 1)
    return pieces


def _tokens(context: Context, text: str, delimiters: str = ", ") -> List[str]:
    """The parts between delimiters without blanks around them; empty ones are left out."""
    pieces = (piece.strip(_SPACE) for piece in _pieces(context, text, delimiters))
    return [token for token in pieces if token]


def _summary(names: str, empty: Value, how: Callable[[List[float]], Value]) -> None:
    """A function from a list of numbers to a number: an integer if all of them are."""

    def call(context: Context, *values: str) -> Value:
        items = _tokens(context, *values)
        numbers: List[Any] = [
            ERROR if _BROKEN_OFF.match(token) else number_in(token) for token in items
        ]
        if any(number is ERROR for number in numbers):
            return ERROR
        if not items:
            return empty
        return how(numbers) if "".join(items).strip("+-0123456789") else truncated(how(numbers))

    row(names, "s|s", call)


def _membership(names: str, subset: bool, fold: Callable[[str], str]) -> None:
    def call(context: Context, *values: Value) -> Value:
        if values[0] is UNDEFINED and values[1] is UNDEFINED:
            return UNDEFINED if values[-1].__class__ is str or values[-1] is UNDEFINED else ERROR
        texts = ["" if value is UNDEFINED else value for value in values]
        if any(value.__class__ is not str for value in texts):
            return ERROR
        delimiters = texts[2] if values[2:] and values[2] is not UNDEFINED else ", \t\r\n"
        item, members = fold(texts[0]), _tokens(context, fold(texts[1]), delimiters)
        if not subset or not item:
            return subset or item in members
        wanted = _tokens(context, item, delimiters)
        return wanted != [] and set(wanted).issubset(members)

    row(names, "vv|v", call)


def _intersect(context: Context, left: str, right: str, delimiters: str = "") -> Value:
    sets = (set(_pieces(context, text, delimiters or " ,")) for text in (left, right))
    return set.intersection(*sets) - {""} != set()


def _regexp_member(context: Context, text: str, *more: str) -> Value:
    members = _tokens(context, *more[:2])
    result = search(context, text, members, lower(more[2]) if more[2:] else "")
    return result if members or result is ERROR else UNDEFINED


def _split(context: Context, text: str, delimiters: str = ", \t") -> Value:
    """Splits at each delimiter; between two equal ones that are not blanks is an empty text."""
    parts, place, last = [], 0, ""
    *pieces, end = _pieces(context, text, delimiters)
    for piece in pieces:
        place += len(piece) + 1
        delimiter = text[place - 1]
        if piece or delimiter == last:
            parts.append(piece)
        last = last if delimiter in _SPACE else delimiter
    return parts + [end] * (end != "")


def _split_at(context: Context, text: str, slot: bool = False) -> Value:
    first, sign, second = text.partition("@")
    return ["", first] if slot and not sign else [first, second]


def _quoted(context: Context, arguments: List[str]) -> str:
    """Arguments as one string: blanks and quotes are quoted, and a quote is doubled."""
    context.spend(sum(map(len, arguments)) >> 4)
    quoted = [re.sub("([ \t\n\r']+)", r"'\1'", word.replace("'", "''")) for word in arguments]
    return " ".join(word or "''" for word in quoted)


def _unquoted(context: Context, text: str) -> Optional[List[str]]:
    """The arguments in one string; None if a quote is not closed."""
    context.spend(len(text) >> 1)
    segments = text.split("'")
    words: List[str] = []
    word: Optional[str] = None
    for place, segment in enumerate(segments):
        if place % 2:
            word = (word or "") + segment
        elif not segment and 0 < place < len(segments) - 1:
            word = (word or "") + "'"  # a doubled quote inside quotes
        else:
            for number, part in enumerate(re.split("[ \t\n\r]+", segment)):
                if number and word is not None:
                    words.append(word)
                    word = None
                word = (word or "") + part if part else word
    return None if len(segments) % 2 == 0 else words if word is None else [*words, word]


def _to_list(context: Context, text: str, version: int = 2) -> Value:
    version &= 0xFFFFFFFF  # a C int
    words = _unquoted(context, text) if version == 2 else _pieces(context, text, _BLANK)
    if words is None or version not in (1, 2):
        return ERROR
    return words if version == 2 else [word for word in words if word]


def _to_arguments(context: Context, items: List[Value], version: int = 2) -> Value:
    version &= 0xFFFFFFFF  # a C int
    if version not in (1, 2) or any(item.__class__ is not str for item in items):
        return ERROR
    if version == 2:
        return _quoted(context, items)
    return ERROR if any(set(_BLANK) & set(item) for item in items) else " ".join(items).lstrip(" ")


def _merged(context: Context, entries: List[str]) -> Value:
    """An environment from `name=value` entries: the last one for each name, sorted by name."""
    by_name = {entry.partition("=")[0]: entry for entry in entries}
    if "" in by_name or any("=" not in entry and "$$" not in entry for entry in entries):
        return ERROR
    return _quoted(context, [by_name[name] for name in sorted(by_name)])


def _merge(context: Context, *values: Value) -> Value:
    entries: List[str] = []
    for value in values:
        if value is not UNDEFINED:
            more = _unquoted(context, value) if value.__class__ is str else None
            if more is None:
                return ERROR
            entries += more
    return _merged(context, entries)


def _environment(context: Context, text: str) -> Value:
    delimiter = ";"
    if text[:1] and text[0] in "!#$%&*+,-/:;<>?@^`|~\x1f":
        delimiter, text = text[0], text[1:]
    entries = (entry.lstrip(_BLANK) for entry in _pieces(context, text, delimiter + "\n"))
    return _merged(context, [entry for entry in entries if entry])


def _user_home(context: Context, name: Value, home: Value = "") -> Value:
    """As on a host that does not reveal accounts: the second argument, or undefined."""
    if home.__class__ is str and home:
        return home
    return UNDEFINED if name.__class__ is str or name is UNDEFINED else ERROR


def _user_map(context: Context, name: Value, user: Value, *more: Value) -> Value:
    """As on a host without maps: the fourth argument, or undefined."""
    return ERROR if name is ERROR or user is ERROR else (*more, UNDEFINED, UNDEFINED)[1]


row("stringListSize", "s|s", lambda *values: len(_tokens(*values)))
# Added one after the other: `sum` of newer Pythons is more exact than the reference.
_summary("stringListSum", 0.0, lambda numbers: reduce(add, numbers, 0.0))
_summary("stringListAvg", 0.0, lambda numbers: reduce(add, numbers, 0.0) / len(numbers))
# From the largest and the smallest positive number of single precision, as in the reference.
_summary("stringListMin", UNDEFINED, lambda numbers: min((2 - 2.0**-23) * 2.0**127, *numbers))
_summary("stringListMax", UNDEFINED, lambda numbers: max(2.0**-126, *numbers))
_membership("stringListMember", False, str)
_membership("stringListIMember", False, lower)
_membership("stringListSubsetMatch", True, str)
_membership("stringListISubsetMatch", True, lower)
row("stringListsIntersect", "!SS|S", _intersect)
row("stringList_regexpMember", "ss|ss", _regexp_member)
row("split", "s|s", _split)
row("splitUserName", "s", _split_at)
row("splitSlotName", "s", lambda context, text: _split_at(context, text, True))
row("argsToList", "s|i", _to_list)
row("listToArgs", "l|i", _to_arguments)
row("mergeEnvironment", "*", _merge)
row("envV1ToV2", "S", _environment)
row("userHome", "v|v", _user_home)
row("userMap", "vv|vv", _user_map)
