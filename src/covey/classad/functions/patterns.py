"""Functions with regular expressions."""

from typing import Any, Callable, Iterable, List, Optional, Sequence

from covey.classad.functions.table import FUNCTIONS, row
from covey.classad.regex import Pattern, Unsupported, compiled
from covey.classad.values import ERROR, UNDEFINED, Context, Value


def _pattern(context: Context, text: str, options: str = "") -> Optional[Pattern]:
    """Costs the same whether the pattern was compiled before or not."""
    try:
        pattern = compiled(text, options)
    except Unsupported as problem:
        context.spend(1000)
        context.reason = str(problem)
        return None
    key = (text, options) if options else text
    if key not in context.made:
        context.once(key, None, pattern.cost)
    context.spend(4)
    return pattern


def search(
    context: Context, text: str, subjects: Iterable[str], options: str = "", empty: bool = True
) -> Value:
    """Whether the pattern occurs in any of the subjects; ERROR if it is not supported."""
    pattern = _pattern(context, text, options)
    return ERROR if pattern is None else any(pattern.occurs(context, s, empty) for s in subjects)


def _member(context: Context, text: str, subjects: List[Value], options: str = "") -> Value:
    strings = []
    for subject in subjects:
        if subject.__class__ is str:
            strings.append(subject)
        elif subject is not UNDEFINED:  # a string before it may match
            return search(context, text, strings, options) is True or ERROR
    result = search(context, text, strings, options)
    return UNDEFINED if result is False and len(strings) < len(subjects) else result


def _filled(template: str, subject: str, spans: List[int]) -> Optional[str]:
    """The template with groups for \\0 to \\9; None if it refers to a group after the last one that
    took part, as in the reference. Other groups that took no part are empty."""
    while spans[-1] < 0:
        spans = spans[:-2]
    filled, *parts = template.split("\\")
    for part in parts:
        number = "0123456789".find(part[:1]) * 2 if part else -1
        if number >= len(spans):
            return None
        group = subject[max(0, spans[number]) : max(0, spans[number + 1])]
        filled += group + part[1:] if number >= 0 else "\\" + part
    return filled


def _replaced(context: Context, text: str, subject: str, template: str, options: str = "") -> Value:
    """As in the reference: after an empty match, the next matches must begin there and not be
    empty, until there is none; an empty match at the very end is an error."""
    pattern = _pattern(context, text, options)
    result, place, empty = "", 0, False
    while pattern is not None and place <= len(subject):
        spans = pattern.match(context, subject, place, empty)
        if spans is None and empty:
            result, place, empty = result + subject[place : place + 1], place + 1, False
            continue
        if spans is not None:
            filled = _filled(template, subject, spans)
            if filled is None:
                return ERROR
            result += (subject[place : spans[0]] if "f" in options else "") + filled
            place, empty = spans[1], empty or spans[0] == spans[1]
            context.spend(1 + len(filled) // 16)
        if spans is None or "g" not in options or len(result) > context.length:
            return result + (subject[place:] if "f" in options else "")
    return ERROR


def _bind(constants: Sequence[Any]) -> Optional[Callable[..., Value]]:
    """A regexp with a literal pattern, for subjects on which Python's own engine is fast enough."""
    if len(constants) != 2 or constants[0].__class__ is not str or constants[1] is not None:
        return None
    text: str = constants[0]
    made: List[Optional[Pattern]] = []

    def call(subject: str, context: Optional[Context] = None) -> bool:
        if not made:
            made.append(_pattern(Context(), text))
        pattern = made[0]
        if pattern is None or len(subject) > pattern.longest:
            raise ValueError("use the general path")
        if context is not None and text not in context.made:
            context.once(text, None, pattern.cost)
        return pattern.search(subject) is not None

    return call


row("regexp", "!SS|S", lambda c, text, s, *options: search(c, text, [s], *options), bind=_bind)
_general = FUNCTIONS["regexp"].call


def _regexp(context: Context, values: List[Value]) -> Value:
    """A fast path for the usual case."""
    if len(values) == 2 and values[0].__class__ is str and values[1].__class__ is str:
        pattern = _pattern(context, values[0])
        return ERROR if pattern is None else pattern.occurs(context, values[1])
    return _general(context, values)


FUNCTIONS["regexp"] = FUNCTIONS["regexp"]._replace(call=_regexp)
row("regexpMember", "!SL|S", _member)
row("regexps", "!SSS|S", _replaced)
row("replace", "!SSS|S", lambda c, text, s, by, o="": _replaced(c, text, s, by, o + "f"))
row("replaceAll", "!SSS|S", lambda c, text, s, by, o="": _replaced(c, text, s, by, o + "fg"))
