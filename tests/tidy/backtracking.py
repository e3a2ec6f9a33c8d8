"""Finds regular expressions whose matching may take more than linear time.

Python's matcher tries one way after another. If a long text can be read in many ways, and all of
them fail in the end, then it tries them all: `(a+)+b` needs 2**n steps for n letters, and
`\\s*.*?\\s*=` needs n**3. A pattern can do that only if it has two different loops, P and Q, and
one text that leads from P to P, from P to Q and from Q to Q (Weber and Seidl, 1991; Weideman and
others, 2016).
Searching is such a loop too: it tries every start.

So a pattern is turned into an automaton without capturing groups, and its loops are looked at in
pairs. The answer errs on the safe side: a pattern that is refused may be harmless (it can be
rewritten, or its length bounded and declared), but one that is accepted is linear. A repetition
with a high bound counts as a loop without one.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import product
from typing import Any

# Python's own, which has no types.
parser: Any = import_module("re._parser")
compiler: Any = import_module("re._compiler")
codes: Any = import_module("re._constants")

MOST_WAYS = 100_000
SMALL = 3  # a repetition up to this bound is written out
# What a method of a pattern looks at: the first match or, everywhere, all of them.
WHOLE, START, ANYWHERE, EVERYWHERE = "whole", "start", "anywhere", "everywhere"
METHODS = {
    "fullmatch": WHOLE,
    "match": START,
    "search": ANYWHERE,
    "sub": EVERYWHERE,
    "subn": EVERYWHERE,
    "split": EVERYWHERE,
    "findall": EVERYWHERE,
    "finditer": EVERYWHERE,
}

# Some letters of each kind that a pattern can tell apart.
_LETTERS = [chr(code) for code in range(128)] + list("\x85\xa0éßµ×ſK٣²\u2028漢😀\udc80")
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_SINGLE = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN)


class Unknown(Exception):
    """The pattern uses something that is not looked through here."""


class _Automaton:
    """States are numbers. `steps` read a letter; `jumps` read none, and `conditional` jumps ask for
    something (an end of line, a lookahead)."""

    def __init__(self, bytes_: bool, flags: int) -> None:
        self.steps: list[list[tuple[frozenset[int], int]]] = []
        self.jumps: list[list[int]] = []
        self.conditional: list[list[int]] = []
        self._bytes = bytes_
        self._flags = flags

    def new(self) -> int:
        self.steps.append([])
        self.jumps.append([])
        self.conditional.append([])
        return len(self.steps) - 1

    def add(self, items: Iterable[Any], start: int) -> int:
        """Append a sequence behind this state; the state that is reached."""
        for code, value in items:
            start = self._one(code, value, start)
        return start

    def _one(self, code: Any, value: Any, start: int) -> int:
        if code in _SINGLE:
            end = self.new()
            self.steps[start].append((self._letters(code, value), end))
            return end
        if code in _REPEATS:
            return self._repeat(value[0], value[1], value[2], start)
        if code is codes.BRANCH:
            end = self.new()
            for branch in value[1]:
                self.jumps[self.add(branch, start)].append(end)
            return end
        if code is codes.SUBPATTERN:
            return self.add(value[3], start)
        if code is codes.ATOMIC_GROUP:
            return self.add(value, start)
        if code in (codes.ASSERT, codes.ASSERT_NOT):
            self.add(value[1], start)  # looks, and comes back: a dead end
        elif code is not codes.AT:
            raise Unknown(f"{code} is not known to this check")
        end = self.new()
        self.conditional[start].append(end)
        return end

    def _repeat(self, least: int, most: Any, inner: Any, start: int) -> int:
        for _ in range(least):
            start = self.add(inner, start)
        if most is codes.MAXREPEAT or most - least > SMALL:
            loop = self.new()
            self.jumps[start].append(loop)
            self.jumps[self.add(inner, loop)].append(loop)
            return loop
        end = self.new()
        for _ in range(most - least):
            self.jumps[start].append(end)
            start = self.add(inner, start)
        self.jumps[start].append(end)
        return end

    def _letters(self, code: Any, value: Any) -> frozenset[int]:
        state = parser.State()
        state.flags, state.str = self._flags, ""
        pattern = compiler.compile(parser.SubPattern(state, [(code, value)]), self._flags)
        found = set()
        for number, letter in enumerate(_LETTERS):
            if not self._bytes:
                text: Any = letter
            elif number < 256 and ord(letter) < 256:
                text = letter.encode("latin-1")
            else:
                continue
            if pattern.fullmatch(text):
                found.add(number)
        return frozenset(found)


def _silent_ways(automaton: _Automaton, start: int) -> dict[int, int]:
    """Which states are reached without reading, and in how many ways (2: or more). No jump is
    taken twice: Python leaves a loop that reads nothing."""
    found: dict[int, int] = {}
    todo: list[tuple[int, frozenset[tuple[int, int]]]] = [(start, frozenset())]
    for _ in range(MOST_WAYS):
        if not todo:
            return found
        state, taken = todo.pop()
        found[state] = min(2, found.get(state, 0) + 1)
        for then in automaton.jumps[state] + automaton.conditional[state]:
            if (state, then) not in taken:
                todo.append((then, taken | {(state, then)}))
    raise Unknown("there are too many ways to read nothing")


def _accepting(automaton: _Automaton, end: int) -> set[int]:
    """States in which the whole pattern has matched, whatever comes: no further way is tried."""
    found = {end}
    while True:
        more = {
            state
            for state, jumps in enumerate(automaton.jumps)
            if state not in found and found.intersection(jumps)
        }
        if not more:
            return found
        found |= more


def ambiguity(pattern: str | bytes, flags: int, method: str) -> str:
    """What is wrong with using this pattern in this way, or an empty text. Raises Unknown."""
    parsed = parser.parse(pattern, flags)
    automaton = _Automaton(isinstance(pattern, bytes), parsed.state.flags)
    first = automaton.new()
    end = automaton.add(parsed, _start(automaton, parsed, first, METHODS[method]))
    steps = _letter_steps(automaton)
    if METHODS[method] is not WHOLE:
        _end_where_it_matches(steps, _accepting(automaton, end) - {first}, METHODS[method])
    loops = [state for state in sorted(_reachable(steps, first)) if _comes_back(steps, state)]
    for one in loops:
        if _twice(steps, one):
            return "a loop can read the same text in two ways (exponential time)"
    for one, other in product(loops, loops):
        if one != other and _both(steps, one, other):
            how = "the search" if one == first and METHODS[method] is not START else "a loop"
            return f"{how} and a later loop can divide the same text in many ways"
    return ""


def _start(automaton: _Automaton, parsed: Any, first: int, method: str) -> int:
    """The state in which the pattern itself begins. A search reads any letters before it; if it
    begins with ^, the last of these letters ends a line."""
    begins = parsed.data and parsed.data[0] == (codes.AT, codes.AT_BEGINNING)
    lines = begins and parsed.state.flags & codes.SRE_FLAG_MULTILINE
    if method in (WHOLE, START) or (begins and not lines):
        return first
    automaton.steps[first].append((frozenset(range(len(_LETTERS))), first))
    if not lines:
        return first
    started = automaton.new()
    automaton.steps[first].append((frozenset({_LETTERS.index("\n")}), started))
    return started


Steps = list[dict[int, list[int]]]  # by state and letter


def _letter_steps(automaton: _Automaton) -> Steps:
    """By state: which states a letter leads to, one entry for each way. Letters that no step
    tells apart are one."""
    sets = sorted({letters for steps in automaton.steps for letters, _ in steps}, key=sorted)
    kinds = {
        tuple(number in letters for letters in sets): number for number in range(len(_LETTERS))
    }
    found: Steps = []
    for state in range(len(automaton.steps)):
        row: dict[int, list[int]] = {}
        for via, count in _silent_ways(automaton, state).items():
            for letters, then in automaton.steps[via]:
                for letter in letters.intersection(kinds.values()):
                    row.setdefault(letter, []).extend([then] * count)
        found.append(row)
    return found


def _end_where_it_matches(steps: Steps, accepting: set[int], method: str) -> None:
    """Where the whole pattern has matched, no further way is tried, so nothing leads further.
    When all matches are wanted, that is so only if what was read belongs to the match: a loop that
    may read far ahead in vain reads there again for the next match."""
    ended = accepting
    if method is EVERYWHERE:
        inner: Steps = [
            {} if state in accepting else _without(row, accepting)
            for state, row in enumerate(steps)
        ]
        vain = {state for state in range(len(inner)) if _comes_back(inner, state)}
        ended = {state for state in accepting if not vain & _reachable(steps, state)}
    for state, row in enumerate(steps):
        steps[state] = {} if state in ended else _without(row, ended)


def _without(row: dict[int, list[int]], states: set[int]) -> dict[int, list[int]]:
    left = {letter: [then for then in ways if then not in states] for letter, ways in row.items()}
    return {letter: ways for letter, ways in left.items() if ways}


def _reachable(steps: Steps, start: int) -> set[int]:
    reached, todo = {start}, [start]
    while todo:
        for ways in steps[todo.pop()].values():
            for then in ways:
                if then not in reached:
                    reached.add(then)
                    todo.append(then)
    return reached


def _comes_back(steps: Steps, state: int) -> bool:
    return any(state in _reachable(steps, then) for ways in steps[state].values() for then in ways)


def _both(steps: Steps, one: int, other: int) -> bool:
    """Whether one text leads from `one` to both, and from `other` to itself."""
    return _leads(steps, (one, one, other), lambda state: state == (one, other, other))


def _twice(steps: Steps, state: int) -> bool:
    """Whether a text leads from a state back to it in two ways."""
    if any(len(ways) != len(set(ways)) for ways in steps[state].values()):
        doubled = [
            then for ways in steps[state].values() for then in set(ways) if ways.count(then) > 1
        ]
        if any(state in _reachable(steps, then) for then in doubled):
            return True
    first = (state, state)
    seen, todo = {first}, [first]
    while todo:
        left, right = todo.pop()
        for letter, ways in steps[left].items():
            for pair in product(ways, steps[right].get(letter, ())):
                if pair not in seen:
                    seen.add(pair)
                    todo.append(pair)
    apart = [pair for pair in seen if pair[0] != pair[1]]
    return any(_leads(steps, pair, lambda now: now == first) for pair in apart)


def _leads(steps: Steps, start: tuple[int, ...], wanted: Callable[[tuple[int, ...]], bool]) -> bool:
    """Whether one text leads all these states at once to what is wanted."""
    seen, todo = {start}, [start]
    while todo:
        now = todo.pop()
        for letter in steps[now[0]]:
            for then in product(*(steps[state].get(letter, ()) for state in now)):
                if wanted(then):
                    return True
                if then not in seen:
                    seen.add(then)
                    todo.append(then)
    return False
