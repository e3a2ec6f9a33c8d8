"""Lists kept in strings, names with an @, arguments and environments: HTCondor's layer."""

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
_BROKEN_OFF = re.compile(r"[+-]?(?:0x(?![0-9a-f.])|infi(?!nity))", re.I)  # C's scanf reads no more


def _pieces(context: Context, text: str, delimiters: str) -> List[str]:
    """What is between any of the delimiters."""
    context.spend((len(text) >> 3) + 2 * len(delimiters))
    found = [text]
    if delimiters:
        first = delimiters[0]
        found = text.translate(dict.fromkeys(map(ord, delimiters[1:]), first)).split(first)
    context.spend(len(found) >> 1)
    return found


def _tokens(context: Context, text: str, delimiters: str = ", ") -> List[str]:
    """What is between delimiters, without blanks around it, unless it is empty."""
    found = (piece.strip(_SPACE) for piece in _pieces(context, text, delimiters))
    return [token for token in found if token]


def _summary(names: str, empty: Value, how: Callable[[List[float]], Value]) -> None:
    """A number for a list of numbers: whole if all of them are."""

    def call(context: Context, *values: str) -> Value:
        found = _tokens(context, *values)
        numbers: List[Any] = [
            ERROR if _BROKEN_OFF.match(token) else number_in(token) for token in found
        ]
        if any(number is ERROR for number in numbers):
            return ERROR
        if not found:
            return empty
        return how(numbers) if "".join(found).strip("+-0123456789") else truncated(how(numbers))

    row(names, "s|s", call)


def _membership(names: str, subset: bool, fold: Callable[[str], str]) -> None:
    def call(context: Context, *values: Value) -> Value:
        if values[0] is UNDEFINED and values[1] is UNDEFINED:
            return UNDEFINED if values[-1].__class__ is str or values[-1] is UNDEFINED else ERROR
        given = ["" if value is UNDEFINED else value for value in values]
        if any(value.__class__ is not str for value in given):
            return ERROR
        delimiters = given[2] if values[2:] and values[2] is not UNDEFINED else ", \t\r\n"
        item, found = fold(given[0]), _tokens(context, fold(given[1]), delimiters)
        if not subset or not item:
            return subset or item in found
        wanted = _tokens(context, item, delimiters)
        return wanted != [] and set(wanted).issubset(found)

    row(names, "vv|v", call)


def _intersect(context: Context, left: str, right: str, delimiters: str = "") -> Value:
    found = (set(_pieces(context, text, delimiters or " ,")) for text in (left, right))
    return set.intersection(*found) - {""} != set()


def _regexp_member(context: Context, text: str, *more: str) -> Value:
    found = _tokens(context, *more[:2])
    result = search(context, text, found, lower(more[2]) if more[2:] else "")
    return result if found or result is ERROR else UNDEFINED


def _split(context: Context, text: str, delimiters: str = ", \t") -> Value:
    """At each delimiter; two of the same that is no blank have an empty text between them."""
    found, place, last = [], 0, ""
    *pieces, end = _pieces(context, text, delimiters)
    for piece in pieces:
        place += len(piece) + 1
        delimiter = text[place - 1]
        if piece or delimiter == last:
            found.append(piece)
        last = last if delimiter in _SPACE else delimiter
    return found + [end] * (end != "")


def _split_at(context: Context, text: str, slot: bool = False) -> Value:
    first, sign, second = text.partition("@")
    return ["", first] if slot and not sign else [first, second]


def _quoted(context: Context, arguments: List[str]) -> str:
    """Arguments in one string: blanks and quotes in quotes, a quote doubled."""
    context.spend(sum(map(len, arguments)) >> 4)
    quoted = [re.sub("([ \t\n\r']+)", r"'\1'", one.replace("'", "''")) for one in arguments]
    return " ".join(one or "''" for one in quoted)


def _unquoted(context: Context, text: str) -> Optional[List[str]]:
    """The arguments in one string; None where a quote is not closed."""
    context.spend(len(text) >> 1)
    segments = text.split("'")
    words: List[str] = []
    word: Optional[str] = None
    for place, segment in enumerate(segments):
        if place % 2:
            word = (word or "") + segment
        elif not segment and 0 < place < len(segments) - 1:
            word = (word or "") + "'"  # a doubled one, within quotes
        else:
            for number, part in enumerate(re.split("[ \t\n\r]+", segment)):
                if number and word is not None:
                    words.append(word)
                    word = None
                word = (word or "") + part if part else word
    return None if len(segments) % 2 == 0 else words if word is None else [*words, word]


def _to_list(context: Context, text: str, version: int = 2) -> Value:
    version &= 0xFFFFFFFF  # a C int
    found = _unquoted(context, text) if version == 2 else _pieces(context, text, _BLANK)
    if found is None or version not in (1, 2):
        return ERROR
    return found if version == 2 else [one for one in found if one]


def _to_arguments(context: Context, items: List[Value], version: int = 2) -> Value:
    version &= 0xFFFFFFFF  # a C int
    if version not in (1, 2) or any(one.__class__ is not str for one in items):
        return ERROR
    if version == 2:
        return _quoted(context, items)
    return ERROR if any(set(_BLANK) & set(one) for one in items) else " ".join(items).lstrip(" ")


def _merged(context: Context, entries: List[str]) -> Value:
    """An environment from `name=value`s, the last one for each name, in order of names."""
    found = {entry.partition("=")[0]: entry for entry in entries}
    if "" in found or any("=" not in entry and "$$" not in entry for entry in entries):
        return ERROR
    return _quoted(context, [found[name] for name in sorted(found)])


def _merge(context: Context, *values: Value) -> Value:
    entries: List[str] = []
    for value in values:
        if value is not UNDEFINED:
            found = _unquoted(context, value) if value.__class__ is str else None
            if found is None:
                return ERROR
            entries += found
    return _merged(context, entries)


def _environment(context: Context, text: str) -> Value:
    delimiter = ";"
    if text[:1] and text[0] in "!#$%&*+,-/:;<>?@^`|~\x1f":
        delimiter, text = text[0], text[1:]
    found = (one.lstrip(_BLANK) for one in _pieces(context, text, delimiter + "\n"))
    return _merged(context, [one for one in found if one])


def _user_home(context: Context, name: Value, home: Value = "") -> Value:
    """As where nobody may ask for accounts: the second argument, or nothing."""
    if home.__class__ is str and home:
        return home
    return UNDEFINED if name.__class__ is str or name is UNDEFINED else ERROR


def _user_map(context: Context, name: Value, user: Value, *more: Value) -> Value:
    """As where there are no maps: the fourth argument, or undefined."""
    return ERROR if name is ERROR or user is ERROR else (*more, UNDEFINED, UNDEFINED)[1]


row("stringListSize", "s|s", lambda *values: len(_tokens(*values)))
# One after the other, for newer Pythons' `sum` is more exact than the reference.
_summary("stringListSum", 0.0, lambda found: reduce(add, found, 0.0))
_summary("stringListAvg", 0.0, lambda found: reduce(add, found, 0.0) / len(found))
# From the largest and the smallest positive number of single precision, as in the reference.
_summary("stringListMin", UNDEFINED, lambda found: min((2 - 2.0**-23) * 2.0**127, *found))
_summary("stringListMax", UNDEFINED, lambda found: max(2.0**-126, *found))
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
