"""Regular expressions for other people's patterns: with PCRE's meaning, in linear time.

The dialect is what both PCRE and Python's `re` support with the same meaning, without constructs
that need backtracking. Python's parser reads a pattern. If Python's engine cannot take long for a
subject (see `_ways`), it is used. Otherwise the pattern becomes a program for Pike's virtual
machine: all threads take one character at a time, with priorities, so that they find what a
backtracking engine finds.
"""

import re
import warnings
from functools import lru_cache
from typing import Any, FrozenSet, List, Optional, Set, Tuple

from covey.classad.values import ClassAdError, Context

MOST_CHARACTERS, MOST_GROUPS, MOST_INSTRUCTIONS = 500, 30, 1000  # of one pattern
MOST_STEPS = 100000  # for Python's engine, which does about a hundred in a microsecond
_PARSER = getattr(re, "_parser", None) or __import__("sre_parse")
# Escapes that both engines read alike; and constructs that they do not: POSIX classes, `{,n}`,
# options that are not at the start or unknown, and all groups except plain and named ones.
_ALIKE = re.compile(r"(?:[^\\]|\\(?:[^A-Za-z0-9]|[dDsSwWbBAnrtfa]|x[0-9a-fA-F]{2}))*\Z", re.DOTALL)
_UNLIKE = re.compile(
    r"\[\[?:|\{,|.\(\?[a-z-]+\)|\(\?(?!P<|#|[imsx]+\)|[isx]*(-[isx]+)?:)", re.DOTALL
)
_DIGIT = frozenset("0123456789")
_WORD = _DIGIT.union("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_CATEGORIES = {"DIGIT": _DIGIT, "SPACE": frozenset(" \t\n\r\f\v"), "WORD": _WORD}
_ONE = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
Threads = List[Tuple[int, Tuple[int, ...]]]


class Unsupported(ClassAdError):
    """Not a pattern, or not one that runs in linear time."""


def _characters(op: str, value: Any, flags: int) -> Tuple[bool, FrozenSet[str]]:
    """The characters that a one-character piece matches, or (True) does not match."""
    if op == "ANY":
        return True, frozenset("" if flags & re.DOTALL else "\n")
    negated = op == "NOT_LITERAL"
    characters: Set[str] = set()
    for kind, what in value if op == "IN" else [("LITERAL", value)]:
        name = str(what).replace("CATEGORY_", "")
        if str(kind) == "NEGATE":
            negated = True
        elif str(kind) == "CATEGORY":
            if name[:4] == "NOT_" and len(value) > 1 + negated:
                raise Unsupported("a complement inside brackets")
            negated ^= name[:4] == "NOT_"
            characters |= _CATEGORIES[name.replace("NOT_", "")]
        else:
            low, high = what if str(kind) == "RANGE" else (what, what)
            if high - low > 1000:
                raise Unsupported("a range of more than a thousand characters")
            characters.update(map(chr, range(low, high + 1)))
    if flags & re.IGNORECASE:
        letters = characters & _WORD
        characters.update(map(str.lower, letters), map(str.upper, letters))
    return negated, frozenset(characters)


def _ways(parsed: Any, length: int) -> float:
    """How many ways a backtracking engine tries, at most, from one place of such a subject."""
    ways = 1.0
    for op, value in parsed:
        if str(op) == "BRANCH":
            ways *= sum(_ways(branch, length) for branch in value[1])
        elif str(op) == "SUBPATTERN":
            ways *= _ways(value[-1], length)
        elif str(op).endswith("REPEAT"):
            least, most, body = value
            if most * (most - least) < 20 and body.getwidth()[0]:
                ways *= _ways(body, length) ** most * (1 + most - least)
            else:
                single = len(body) == 1 and str(body[0][0]) in _ONE
                ways *= 1 + length if single else float("inf")
    return ways


class Pattern:
    """What a call spends depends only on pattern and subject, not on what was compiled before.

    Instructions: ("set", negated, characters, next), ("split", first, second), ("save", slot,
    next), ("assert", kind, next) and ("match",)."""

    def __init__(self, text: str, options: str = "") -> None:
        if len(text) > MOST_CHARACTERS or not _ALIKE.match(text) or _UNLIKE.search(text):
            raise Unsupported("a pattern that is too long, or not in covey's dialect")
        flags = re.ASCII
        for option, flag in (("i", re.I), ("m", re.M), ("s", re.S), ("x", re.X)):
            flags |= flag if option in options else re.ASCII
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parsed, python = _PARSER.parse(text, flags), re.compile(text, flags)
            if python.groups > MOST_GROUPS:
                raise Unsupported("more than %d groups" % MOST_GROUPS)
            self._code: List[Tuple[Any, ...]] = [("match", 0, 0, 0)]
            self._start = self._sequence(parsed, 0, python.flags)
            self.cost = 10 + len(text) + len(self._code) // 2
            self.search, self._groups = python.search, python.groups
            # The longest subject for Python's engine, and its steps for each character.
            self.longest, self.rate = -1, 0.0
            unlike = r"\B" in text or (python.flags & re.M and "^" in text)
            for length in (20, 80, 320, 1280, 5120, 20480) if not unlike else ():
                steps = _ways(parsed, length) * (1 + len(text))
                if steps * length <= MOST_STEPS:
                    self.longest, self.rate = length, steps / 100
            if all(str(op) == "LITERAL" for op, _ in parsed) and not python.flags & re.I:
                self.longest, self.rate = 1 << 30, 0.01  # it is searched for as a string
        except (re.error, OverflowError, RecursionError) as problem:
            raise Unsupported(str(problem)) from problem

    def _add(self, kind: str, one: Any, two: Any, three: int = 0) -> int:
        self._code.append((kind, one, two, three))
        if len(self._code) > MOST_INSTRUCTIONS:
            raise Unsupported("more than %d instructions" % MOST_INSTRUCTIONS)
        return len(self._code) - 1

    def _sequence(self, parsed: Any, after: int, flags: int) -> int:
        """The entry point of code that continues at `after`."""
        for op, value in reversed(list(parsed)):
            after = self._emit(str(op), value, after, flags)
        return after

    def _emit(self, op: str, value: Any, after: int, flags: int) -> int:
        if op in _ONE:
            return self._add("set", *_characters(op, value, flags), after)
        if op == "AT":
            return self._add("assert", str(value) + "_MANY" * bool(flags & re.M), after)
        if op == "BRANCH":
            *entries, entry = [self._sequence(branch, after, flags) for branch in value[1]]
            for other in reversed(entries):
                entry = self._add("split", other, entry)
            return entry
        if op == "SUBPATTERN":
            number, on, off, body = value
            if number is None:
                return self._sequence(body, after, (flags | on) & ~off)
            close = self._add("save", 2 * number + 1, after)
            return self._add("save", 2 * number, self._sequence(body, close, flags))
        if op not in ("MAX_REPEAT", "MIN_REPEAT"):
            raise Unsupported(
                "a look-around, back-reference or other construct without linear time"
            )
        return self._repeat(op == "MIN_REPEAT", value, after, flags)

    def _repeat(self, lazy: bool, value: Any, after: int, flags: int) -> int:
        least, most, body = value
        leave = after
        if most == _PARSER.MAXREPEAT:
            if not body.getwidth()[0]:
                raise Unsupported("an unbounded repeat of a part that can be empty")
            head = self._add("split", 0, 0)
            again = self._sequence(body, head, flags)
            self._code[head] = ("split", leave, again, 0) if lazy else ("split", again, leave, 0)
            after, least, most = (again, least - 1, 0) if least else (head, 0, 0)
        for number in range(max(least, most)):
            after = self._sequence(body, after, flags)
            if number < most - least:
                after = self._add("split", *((leave, after) if lazy else (after, leave)))
        return after

    def occurs(self, context: Context, subject: str, empty: bool = True) -> bool:
        """Whether it matches anywhere; without `empty`, whether it matches a text that is not
        empty."""
        if not empty:
            return any(self.match(context, subject, at, True) for at in range(len(subject)))
        if len(subject) > self.longest:
            return self.simulate(context, subject) is not None
        context.spend(1 + int(len(subject) * self.rate))
        return self.search(subject) is not None

    def match(
        self, context: Context, subject: str, start: int = 0, only_here: bool = False
    ) -> Optional[List[int]]:
        """Where the first match from `start` on, and its groups, begin and end; -1 for groups that
        took no part. `only_here`: it must begin at `start`, and not be empty."""
        if only_here or len(subject) > self.longest:
            return self.simulate(context, subject, start, only_here)
        context.spend(1 + int(len(subject) * self.rate))
        match = self.search(subject, start)
        spans = map(match.span, range(self._groups + 1)) if match else ()
        return [place for span in spans for place in span] or None

    def simulate(
        self, context: Context, subject: str, start: int = 0, only_here: bool = False
    ) -> Optional[List[int]]:
        code, nothing = self._code, (-1,) * (2 * self._groups + 1)
        threads: Threads = []
        best: Tuple[int, ...] = ()
        context.spend(4)
        for place in range(start, len(subject) + 1):
            character = subject[place : place + 1]
            if not best and (place == start or not only_here):
                threads.append((self._start, (place, *nothing)))
            if not threads:
                break
            seen = set()
            after: Threads = []
            threads.reverse()
            while threads:
                at, slots = threads.pop()
                if at in seen:
                    continue
                seen.add(at)
                kind, one, two, three = code[at]
                if kind == "set":
                    if character and (character in two) != one:
                        after.append((three, slots))
                elif kind == "split":
                    threads.append((two, slots))
                    threads.append((one, slots))
                elif kind == "save":
                    threads.append((two, (*slots[:one], place, *slots[one + 1 :])))
                elif kind == "assert":
                    if _holds(one, subject, place):
                        threads.append((two, slots))
                elif not (only_here and place == start):
                    best = (slots[0], place, *slots[2:])
                    break  # the remaining threads have a lower priority
            context.spend(1 + len(seen) // 2)
            threads = after
        return list(best) or None


def _holds(kind: str, subject: str, place: int) -> bool:
    """Whether the assertion holds between two characters."""
    before, after = subject[place - 1 : place] if place else "", subject[place : place + 1]
    many = kind.endswith("MANY") and "STRING" not in kind
    if "BOUNDARY" in kind:
        return ((before in _WORD) != (after in _WORD)) != ("NON" in kind)
    if "BEGINNING" in kind:  # not after the newline that ends the subject
        return not before or (many and before == "\n" and after != "")
    return not after or (after == "\n" and (many or place == len(subject) - 1))


compiled = lru_cache(maxsize=64)(Pattern)
