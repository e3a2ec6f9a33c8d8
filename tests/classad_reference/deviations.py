"""Where we differ from the reference on purpose: each with a reason, and as narrow as can be.

Most are held by a rewriting: ours must say of the question what the reference says of the question
put in words that mean to it what they mean to us. Where there are no such words, a predicate on the
question and both answers has to do.

`docs/classad.md` lists them all by these names, and a test compares the lists;
`python -m tests.classad_reference.write_page` writes them there.
"""

import math
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from tests.classad_reference.judge import Answer, Texts
from tests.classad_reference.ours import answer, reasons
from tests.classad_reference.shapes import Shape, same
from tests.classad_reference.trees import Question, all_parts, render

Ask = Callable[[Texts], Answer | None]
Say = Callable[[str], Shape | None]  # of an expression that stands beside the text
Rewrite = Callable[[str, Say], str]
Predicate = Callable[[Question, Shape, Shape], bool]


class Deviation(NamedTuple):
    name: str
    reason: str
    rewrite: Rewrite | None = None
    predicate: Predicate | None = None


def calls(question: Question) -> set[str]:
    return {tree.word.lower() for tree in all_parts(question) if tree.kind == "call"}


def whole_text(question: Question) -> str:
    return " ".join(text for text in question.texts() if text is not None)


WHOLE_AD = re.compile(r"\b(self|my|root|toplevel|parent|other|target)\b(?!\s*\.)", re.I)


def reached_text(question: Question) -> str:
    """The expression and those attributes whose names occur in it, or in one of these, and so on:
    what does not come into it explains nothing."""
    text = render(question.expression)
    ads = [question.ad] if question.target is None else [question.ad, question.target]
    left = [pair for ad in ads for pair in zip(ad.names, ad.children, strict=True)]
    found = True
    while found:
        found = False
        for name, child in list(left):
            word = re.escape(name.strip("'"))
            if WHOLE_AD.search(text) or re.search(rf"(?<!\w){word}(?!\w)", text, re.I):
                text = f"{text} {render(child)}"
                left.remove((name, child))
                found = True
    return text


def code_of(question: Question) -> str:
    """Without the contents of strings, unless they may be evaluated."""
    text = reached_text(question)
    return text if "eval" in text.lower() else re.sub(r'"(\\.|[^"\\])*"', '""', text)


# -- rewritings ----------------------------------------------------------------------------------

_STRING = r'"(?:\\.|[^"\\])*"'
_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
SUFFIXED = re.compile(rf"{_STRING}|(?<![\w.])({_NUMBER})([bkmgtBKMGT])\b")
HEXADECIMAL = re.compile(rf"{_STRING}|(?<![\w.])(0[xX][0-9a-fA-F]+)")
SPAN = re.compile(r'\breltime\(\s*("(?:\\.|[^"\\])*")\s*\)', re.I)
MY = re.compile(rf"{_STRING}|(?<![\w.])(my)\b", re.I)
NOW = re.compile(rf"{_STRING}|(?<![\w.])(currenttime)\b(?!\s*\()", re.I)
SUBSCRIPT = re.compile(r'\["([\w ]+)"\]')
LISTED = re.compile(rf"{_STRING}|{{|(?<![\w.])([A-Za-z_]\w*)(?=\.)", re.I)
SELECTED = re.compile(r"\.\s*(\w+|'[^']*')")
UNPARSE = re.compile(rf"{_STRING}|\b(unparse\([^()]*[^()\s][^()]*\))", re.I)
EACH = re.compile(rf"{_STRING}|\b((?:countmatches|evalineachcontext)\()", re.I)
PIECE = re.compile(rf"{_STRING}|'(?:\\.|[^'\\])*'|.", re.S)
ATTRIBUTE = re.compile(r"\s*(?:([\w.]+)\.)?([A-Za-z_]\w*|'[^']*')\s*", re.I)
# What makes one line, in this order, of the several of the reference: no string has a bare newline,
# and an operator before its operand has a blank before it.
BEFORE = "( [~!+]| -[^0-9.])"
ONE_LINE = (
    ("([{[])\n +([]}])", r"\1  \2"), ("\n +([]}])", r" \1"), ("\n +([{[])", r"\1"),
    ("([{[])\n *" + BEFORE, r"\1 \2"), ("\n *" + BEFORE, r"\1"),
    ("([{[])\n +", r"\1 "), ("\n +", ""),
)  # fmt: skip
UNITS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def _quoted(text: str) -> str:
    for plain, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        text = text.replace(plain, written)
    return f'"{text}"'


def _inside(string: str, rewrite: Callable[[str], str]) -> str:
    """A string as it is, unless what it says would be rewritten."""
    said = re.sub(r'\\([\\"n])', lambda m: m[1] if m[1] != "n" else "\n", string[1:-1])
    again = rewrite(said)
    return string if again == said else _quoted(again)


def _suffixed(text: str, say: Say) -> str:
    def plain(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        number = int(found[1]) if found[1].isdigit() else float(found[1])
        return repr(number * (1 << UNITS[found[2].lower()]))

    return SUFFIXED.sub(plain, text)


def _hexadecimal(text: str, say: Say) -> str:
    return HEXADECIMAL.sub(lambda found: str(int(found[1], 16)) if found[1] else found[0], text)


def _span(text: str, say: Say) -> str:
    def call(found: re.Match[str]) -> str:
        said = say(found[0])
        if said is None or said[0] != "real":
            return found[0]
        return f"relTime(({float.fromhex(said[1])!r}))"

    return SPAN.sub(call, text)


def _my(text: str, say: Say) -> str:
    return MY.sub(lambda found: "self" if found[1] else found[0], text)


def _subscript(text: str, say: Say) -> str:
    return SUBSCRIPT.sub(r".'\1'", text)


def _picked(text: str, say: Say) -> str:
    """The same from each element, which makes a list of expressions, and not of literals."""
    done = ""
    while (found := LISTED.search(text)) is not None:
        done, rest = done + text[: found.start()], text[found.end() :]
        inside = rest
        if found[1] is not None:  # a name, perhaps that of a list
            said = say(f"unparse({found[1]})")
            inside = said[1].strip() if said is not None and said[0] == "string" else ""
            inside = inside[1:] if inside.startswith("{") else ""
        items = _items(inside) if found[0][0] != '"' else None
        if items is not None and found[1] is None:
            rest = rest[sum(map(len, items)) + max(len(items), 1) :]
        name = SELECTED.match(rest)
        if items is None or name is None:
            done, text = done + found[0], text[found.end() :]
            continue
        picked = (f"({item}){name[0]}" for item in items if item.strip())
        done, text = done + "{" + ", ".join(picked) + "}", rest[name.end() :]
    return done + text


def _items(text: str) -> list[str] | None:
    """What is between commas, as far as the brace that ends it; None: it does not."""
    found = [_argument(text)]
    while text[len(found[-1]) :].startswith(","):
        text = text[len(found[-1]) + 1 :]
        found.append(_argument(text))
    return found if text[len(found[-1]) :].startswith("}") else None


def _now(text: str, say: Say) -> str:
    return NOW.sub(lambda found: "time()" if found[1] else found[0], text)


def _one_line(text: str, say: Say) -> str:
    def joined(found: re.Match[str]) -> str:
        whole = found[0]
        for lines, line in ONE_LINE if found[1] else ():
            whole = f"replaceAll({_quoted(lines)}, {whole}, {_quoted(line)})"
        return whole

    return UNPARSE.sub(joined, text)


def _condition(text: str, say: Say) -> str:
    """What is parsed by `eval` in each ad stands there; a name is there for what it is bound to."""
    done = ""
    while (found := EACH.search(text)) is not None:
        done, text = done + text[: found.end()], text[found.end() :]
        if found[1] is None:
            continue
        condition = _argument(text)
        text = text[len(condition) :]
        name = ATTRIBUTE.fullmatch(condition)
        bound: Shape | None = None
        if name is not None:
            asked = f"unparse({name[2]})"
            bound = say(f"evalInEachContext({asked}, {{{name[1]}}})[0]" if name[1] else asked)
        told = bound is not None and bound[0] == "string" and bound[1]
        done += f"eval({_quoted(told or _condition(condition, say))})"
    return done + text


def _argument(text: str) -> str:
    """As far as the comma, or the bracket, that ends it."""
    depth = end = 0
    for piece in PIECE.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        if depth < 0 or (depth == 0 and piece == ","):
            break
        end += len(piece)
    return text[:end]


# -- predicates ----------------------------------------------------------------------------------

TOO_LARGE = re.compile(r"(?<![\w.])0*(9223372036854775808|\d{20,})(?![\w.])")
NO_DAY = re.compile(
    r"\bformattime\(\s*(?!abstime|time\(|currenttime|\))|\bsplittime\(\s*\(?-?\d{15}", re.I
)
FOLLOWED = re.compile(r"[.{\[]\s*[\w'\"{\[]|\b(self|my|target|parent|root|toplevel)\b", re.I)
# As it is written, or as the rewriting writes it, which the text of a list or an ad shows.
SPAN_TEXT = re.compile(r'reltime\((?:\\?"[^"]*"|\([-+.\dE]+\))\)', re.I)
LIMITS = ("more than", "nested", "maximum recursion", "too long", "a string of")
BYTE = re.compile(r"\\[23][0-7][0-7]")
ROOT = re.compile(r"(?<![\w.])(root|toplevel)\b|(?<![\w.)\]}'])\.[A-Za-z_']", re.I)


def _failure_is_error(question: Question, ours: Shape, theirs: Shape) -> bool:
    return theirs[0] == "failed" and "failed to evaluate" in theirs[1]


def _too_large(question: Question, ours: Shape, theirs: Shape) -> bool:
    return TOO_LARGE.search(whole_text(question)) is not None and (
        ours == ["unparsable"] or "eval" in calls(question)
    )


def _root(question: Question, ours: Shape, theirs: Shape) -> bool:
    return question.target is not None and ROOT.search(code_of(question)) is not None


PATTERN_CALL = re.compile(
    r"\b(?:(?:regexp|regexpmember|regexps|replace|replaceall|stringlist_regexpmember)\s*\(\s*"
    r'|unresolved\s*\([^",]*,\s*)(?:"((?:\\.|[^"\\])*)"\s*[,)]|[^"\s)])',
    re.I,
)
# What PCRE knows and a pattern in linear time, or Python's reading of it, does not.
REFUSED = re.compile(
    r"\(\?|\(\||\(\)|\|\)|[*+?}]\+|\[\[?:|\{,|\\[1-9hHvVKRQEGXCNpPzZuoxgk]|\[\]|\*\*|\+\*|\?\*|\}\*|\}\{|\*\{|\+\{"
)
REPEATED = re.compile(r"(\((?:[^()]|\([^()]*\))*\))(?:[*+]|\{\d+,\})")  # a group, without end


def _pattern(question: Question, ours: Shape, theirs: Shape) -> bool:
    """A pattern in it has what is refused, or cannot be read; or it is computed."""
    text = reached_text(question)
    if "eval" in text.lower():
        text = text.replace('\\"', '"')
    for found in PATTERN_CALL.finditer(text):
        pattern = re.sub(r"\\(.)", r"\1", found[1] or "")
        if found[1] is None or REFUSED.search(pattern) or not _readable(pattern):
            return True
        groups = [one[1] for one in REPEATED.finditer(pattern)]
        if any(_readable(one) and re.fullmatch(one, "") is not None for one in groups):
            return True
    return False


def _readable(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _account(question: Question, ours: Shape, theirs: Shape) -> bool:
    return "userhome" in reached_text(question).lower()


def _not_ascii(question: Question, ours: Shape, theirs: Shape) -> bool:
    text = reached_text(question)
    return theirs == ["bytes"] or not text.isascii() or BYTE.search(text) is not None


def _number_of_span(question: Question, ours: Shape, theirs: Shape) -> bool:
    """The same all through, but that a span of ours is a number of theirs, or written otherwise."""
    if ours[0] == theirs[0] == "string":
        return bool(SPAN_TEXT.sub("", ours[1]) == SPAN_TEXT.sub("", theirs[1]))
    if ours[0] == "reltime" and theirs[0] == "real":
        seconds, number = float.fromhex(ours[1]), float.fromhex(theirs[1])
        if not abs(seconds) < 2**31:
            return number == -(2.0**31)
        return number in (seconds, math.trunc(seconds))
    pairs = _pairs(ours, theirs)
    return bool(pairs) and all(same(*pair) or _number_of_span(question, *pair) for pair in pairs)


def _lost(question: Question, ours: Shape, theirs: Shape) -> bool:
    """The same, but that names inside a list or an ad inside are undefined in theirs alone."""
    pairs = _pairs(ours, theirs)
    return bool(pairs) and all(
        same(one, other)
        or other == ["undefined"]
        or (other == ["error"] and question.target is not None)
        or _lost(question, one, other)
        for one, other in pairs
    )


def _unresolved(question: Question, ours: Shape, theirs: Shape) -> bool:
    """The same text, but for case; or there is something that can be followed in two ways."""
    if "unresolved" not in reached_text(question).lower():
        return False
    if ours[0] == theirs[0] == "string":
        return bool(ours[1] == theirs[1].lower()) or FOLLOWED.search(code_of(question)) is not None
    return FOLLOWED.search(code_of(question)) is not None


def _no_day(question: Question, ours: Shape, theirs: Shape) -> bool:
    years = [pair[1] for pair in ours[1] if pair[0] == "year"] if ours[0] == "classad" else []
    far = any(year[0] == "integer" and abs(year[1]) > 999_999 for year in years)
    return far or NO_DAY.search(reached_text(question)) is not None


def _two_dots(question: Question, ours: Shape, theirs: Shape) -> bool:
    return ours == ["unparsable"] and ".." in whole_text(question)


def _limited(question: Question, ours: Shape, theirs: Shape) -> bool:
    return any(reason.startswith(LIMITS) for reason in reasons(question.texts()))


def _pairs(ours: Shape, theirs: Shape) -> list[tuple[Shape, Shape]]:
    """What is inside of both, side by side; nothing where they do not look alike."""
    if ours[0] == theirs[0] == "list" and ours[1] == theirs[1] and len(ours) == len(theirs) == 3:
        return list(zip(ours[2], theirs[2], strict=True))
    if ours[0] == theirs[0] == "classad" and ours[1] and isinstance(ours[1][0], list):
        names = [[pair[0] for pair in shape[1]] for shape in (ours, theirs)]
        if names[0] == names[1]:
            return [(one[1], two[1]) for one, two in zip(ours[1], theirs[1], strict=True)]
    return []


DEVIATIONS = (
    Deviation(
        "A failure is an error",
        "Where the reference gives up with an exception, the value is `error`.",
        predicate=_failure_is_error,
    ),
    Deviation(
        "A span is a span",
        '`relTime("1h")` is a span of time, as `relTime(3600)` is, and stays as it is written; in '
        "the reference a span written in a string is a plain number, and loses its fractions.",
        rewrite=_span,
        predicate=_number_of_span,
    ),
    Deviation(
        "Picking from a list is picking from each",
        "`{[t = relTime(5)]}.t` is `{[t = relTime(5)].t}`; in the reference what is picked from "
        "the ads of a list, or evaluated in each of them, is a copy, which has plain numbers for "
        "spans, and no place for names to be looked up.",
        rewrite=_picked,
    ),
    Deviation(
        "Numbers have suffixes",
        "`10K`, `1.5M`, `2G` and `1T` count in units of 1024, as they did in ClassAds of old; the "
        "reference no longer reads them.",
        rewrite=_suffixed,
    ),
    Deviation(
        "Numbers may be hexadecimal",
        "`0x10` is 16; the reference reads it as 0.",
        rewrite=_hexadecimal,
    ),
    Deviation(
        "Integers that do not fit are refused",
        "`9223372036854775808` does not parse; the reference reads it as 0, which nobody means.",
        predicate=_too_large,
    ),
    Deviation(
        "MY is always there",
        "`MY.Name` works without a `TARGET`, too, and is then the ad itself; in the reference it "
        "is undefined.",
        rewrite=_my,
    ),
    Deviation(
        "CurrentTime is now",
        "`CurrentTime` is `time()`, as it was in ClassAds of old; in the reference it is "
        "undefined.",
        rewrite=_now,
    ),
    Deviation(
        "The root is the ad itself",
        "`.Name`, `root` and `toplevel` mean the outermost ad of the expression, with a `TARGET` "
        "or without; with one they are, in the reference, a wrapper around both.",
        predicate=_root,
    ),
    Deviation(
        "An evaluation has limits",
        "What takes too many steps is an error, and so is what has no end, as `a = {a}`; the "
        "reference goes on for longer, and hands out as much of such a list as is asked for.",
        predicate=_limited,
    ),
    Deviation(
        "What comes out of an ad or a list keeps its place",
        '`Hosts["first"].Name` is `Hosts.first.Name`; in the reference the names inside what a '
        "subscript gave, or a list within a list, are undefined.",
        rewrite=_subscript,
        predicate=_lost,
    ),
    Deviation(
        "A condition stands in the ad that is looked at",
        "`countMatches([].Name == 1, Hosts)` finds `Hosts` where it is called, and `Name` in each "
        "host; in the reference what stands in brackets in the condition does not see the host, "
        "and behind a condition that is a mere name the list is looked for where the search for "
        "that name ended.",
        rewrite=_condition,
    ),
    Deviation(
        "Patterns take linear time",
        "What needs going back (`\\1` in a pattern, `(?=…)`, `a++`, `(a*)*`) and what PCRE alone "
        "knows (`[[:alpha:]]`, `\\h`, `(?<name>…)`) is an error; so is, for `regexpMember`, too, a "
        "pattern that cannot be read.",
        predicate=_pattern,
    ),
    Deviation(
        "`unparse` writes one line",
        "In the reference, lists and ads come out on several.",
        rewrite=_one_line,
    ),
    Deviation(
        "`unresolved` tells what `dependencies` tells",
        "Names in lower case, as far as they can be followed by reading, through lists and ads; "
        "the reference evaluates on its way, and forgets what it meets in odd places.",
        predicate=_unresolved,
    ),
    Deviation(
        "Times keep to the calendar",
        "`formatTime` of an ad that tells no day, as `formatTime([])`, or of a year before 1 or "
        "after 9999 is error; the reference tells of the 0th of January 1900, of wrong days of the "
        "week and, millions of years away, of any day at all, as does its `splitTime`.",
        predicate=_no_day,
    ),
    Deviation(
        "Two dots are one too many",
        "`..Name` does not parse; the reference reads it as `.Name`.",
        predicate=_two_dots,
    ),
    Deviation(
        "Strings are characters",
        'They are Unicode, so `size("é")` is 1; the reference counts bytes.',
        predicate=_not_ascii,
    ),
    Deviation(
        "Nobody's accounts are looked at",
        "`userHome` gives its second argument, or undefined; where people live is not told.",
        predicate=_account,
    ),
)


NEVER = ("two paths", "raised", "raised while parsing")


def explanation(question: Question, ours: Shape, theirs: Shape, ask: Ask) -> str | None:
    """The name of what explains the difference. Rewritings add up: a question may have several."""
    if ours[0] in NEVER:
        return None
    name = _by_predicate(question, ours, theirs)
    for strings in (False, True) if "eval" in whole_text(question).lower() else (False,):
        if name is None:
            name = _by_rewriting(question, ask, strings)
    return name


def _by_predicate(question: Question, ours: Shape, theirs: Shape) -> str | None:
    for deviation in DEVIATIONS:
        if deviation.predicate is not None and deviation.predicate(question, ours, theirs):
            return deviation.name
    return None


def _by_rewriting(question: Question, ask: Ask, strings: bool) -> str | None:
    """By as few as will do: the reference says of the result what ours says of the question."""
    for names, texts in _rewritten(question, ask, strings):
        again = ask(texts)
        if again is None:
            return "(the reference died)"
        ours = answer(question.texts(), again[1])
        if same(ours, again[0]):
            return " and ".join(names)
        if (other := _by_predicate(question, ours, again[0])) is not None:
            return other
    return None


def _rewritten(
    question: Question, ask: Ask, strings: bool
) -> Iterator[tuple[tuple[str, ...], Texts]]:
    """The question in other words, by one rewriting, by two, and so on; with `strings`, also in
    those, as they may be evaluated. Not by all at once: one may spoil what another would mend."""
    asked = question.texts()
    known = [one for one in DEVIATIONS if one.rewrite and (one.rewrite is not _my or not asked[2])]
    useful = [one for one in known if _reworded(asked, one, ask, strings) != asked]
    for count in range(1, len(useful) + 1):
        for chosen in combinations(useful, count):
            texts = asked
            for one in chosen:
                texts = _reworded(texts, one, ask, strings)
            yield tuple(one.name for one in chosen), texts


def _reworded(texts: Texts, by: Deviation, ask: Ask, strings: bool) -> Texts:
    def reworded(text: str, here: str, there: str | None) -> str:
        def say(expression: str) -> Shape | None:
            said = ask((expression, here, there))
            if said is not None and said[0] == ["unparsable"]:
                said = ask((expression, "[]", None))  # it may be the ads that cannot be read
            return None if said is None else said[0]

        def rewrite(text: str) -> str:
            return text if by.rewrite is None else by.rewrite(text, say)

        if strings:
            text = re.sub(_STRING, lambda found: _inside(found[0], rewrite), text)
        return rewrite(text)

    text, ad, target = texts
    other = None if target is None else reworded(target, target, ad)
    return reworded(text, ad, target), reworded(ad, ad, target), other
