"""Literals: those at the borders, those with escapes, and those that functions read."""

import random

BORDERS = (0, 1, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63 - 2)
REALS = (
    "0.0", "0.5", "1.0", ".25", "1.5", "2.5", "3.14159", "1e3", "1E-3", "1.5e300", "1e308",
    "5e-324", "0.1", "0.08", "1e15", "9007199254740993.0", "123456789.125", "1e-10", "9.3e18",
    "1e19", "2.0E0",
)  # fmt: skip
ODD_NUMBERS = (
    "017", "00", "0X1F", "0x10", "08", "10K", "1.5M", "2G", "5.", "1e400", "9223372036854775808",
)  # fmt: skip
WORDS = (
    "", "a", "A", "b", "ab", "aB", "abc", "ABC", "is3.myhost", "IS2.MYHOST", "x86_64", "linux",
    "true", "TRUE", "false", "3.9", " 5 ", "1e-10", "-3.7", "42", "0x1F", "017", "1.9abc",
    "undefined", "error", "a,b,c", "hello world", "user@site.org", "slot1@host", "2004-01-01",
    "01:00:01", "%d", "5s",
)  # fmt: skip
ESCAPED = (
    r"a\nb", r"a\tb", r"\"quoted\"", r"back\\slash", r"\101\102", r"\44", r"\7", r"\'", r"\q",
    r"\b\f\r", r"\1018", r"a\400b", r"tab\011.", r"\\n", "tab\there", "it's", r"\x41", r"A",
    "a//b", "/*c*/", "naïve", r"\303\251", "ÉA",
)  # fmt: skip
SLIPS = (
    "(", ")", "[", "]", "{", "}", ",", ";", ".", "=", "==", "!", "?", ":", "?:", "-", "--", "+",
    "*", "/", "//", "/*", "*/", '"', "'", "&", "|", "<", ">>>", "=?=", "=!", "is ", " isnt ",
    "\\", "0", "1e", " ", "\n", "a", "_", "@", "#", "$", "true ", "error", "undefined", "x y",
)  # fmt: skip
LOCAL_NAMES = ("a", "b", "c", "d", "Name", "ErrorRate", "Tail", "Hosts", "'odd name'")
SCOPES = ("Host", "Job", "BOT", "Queue")
TIMES = (
    "2003-09-03T", "2004-01-01", "1997-08-30T16:04:05-0500", "1970-01-01T00:00:01Z",
    "1970-01-02T:03:04:05Z", "2024-02-29T23:59:60+05:30", "20040101T120000Z", "2004",
    "2004-01-01 12:00:00", "2038-01-19T03:14:08Z", "2004-01-01T12:00",
)  # fmt: skip
ODD_TIMES = ("2026-02-29", "1969-12-31T23:59:59-01:00", "garbage", "2004-13-01", "", "10:00:00")
SPANS = (
    "2+25:14:16.123", "01:00:01", "1d2h3m4.5s", "5", "-5", "-01:00", "1+00:00:00", "3m", "0.5",
    "90", "1d", "-1+02:03:04",
)  # fmt: skip
ODD_SPANS = ("x", "", "1:2:3:4", "2h 3m", "1e3", "5x")
FORMATS = (
    "%m %d %Y", "%H:%M:%S", "%A %a %B %b", "%j %U %w %y", "%c", "%%", "", "%I %p", "%Y-%m-%dT%H",
    "%x %X", "%q",
)  # fmt: skip
VERSIONS = (
    "1.10", "1.9", "25.12.0", "25.12.1", "1.2", "1", "", "a012", "a12", "1.0rc1", "10", "010",
    "8.9.13", "abc",
)  # fmt: skip
STRING_LISTS = (
    "a,b,c", "a b", "1,2,3", "1.5, 2", "", " ", ",", "A;b", "a,,b", "x", "3", "1,x", " a , b ",
    "b,a", "-1 2.5e1",
)  # fmt: skip
ENVIRONMENTS = (
    "A=1;B=2", "A=1 B=2", "", "A='x y' B=\\\"q\\\"", "'it''s' two", "A", "one two 'three four'",
    "=x", "A=;B=1", "'a",
)  # fmt: skip
OPTIONS = ("", "i", "I", "m", "s", "x", "f", "g", "im", "ig", "q")
REPLACEMENTS = (
    "", r"\\0", r"\\1", r"<\\1>", r"\\2", r"x\\0y\\0", "plain", r"\\9", r"\\\\", r"a\\",
)  # fmt: skip
COMPARISONS = ("<", "<=", "==", "!=", ">", ">=", "=?=", "=!=", "is", "isnt", "IS", "~", "")
PIECES = (
    "a", "b", "[abc]", "[^a-c]", ".", r"\\d", r"\\w", r"\\s", "(ab)", "(a|b)", "is", r"\\.", "x",
    "[0-9]", "(?:b)", "A",
)  # fmt: skip
REPEATS = ("", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,}", "*?", "+?")
ODD_PATTERNS = (
    "(", "[a", "*", r"(a)\\1", "(?=a)b", "(?<!a)b", "a++", "(?i)A", "a{2", "x{1,2", ")", "[]a]",
    r"\\bA\\b", "[[:alpha:]]+", "(?P<n>a)",
)  # fmt: skip


def quoted(text: str) -> str:
    return f'"{text}"'


def integer(chance: random.Random) -> str:
    """Mostly small; what is negative is an operator and a literal, and may need parentheses."""
    drawn = chance.random()
    if drawn < 0.7:
        number = chance.randrange(0, 12)
    elif drawn < 0.85:
        number = chance.choice(BORDERS)
    elif drawn < 0.99:
        number = chance.randrange(0, 10 ** chance.randrange(1, 19))
    else:
        return chance.choice(ODD_NUMBERS)
    return f"(-{number})" if chance.random() < 0.2 else str(number)


def real(chance: random.Random) -> str:
    drawn = chance.random()
    if drawn < 0.7:
        return chance.choice(REALS)
    if drawn < 0.8:
        return chance.choice(('real("NaN")', 'real("INF")', 'real("-INF")', "(-0.0)", "(-2.5)"))
    return repr(round(chance.uniform(-100, 100), chance.randrange(0, 6))).replace("-", "")


def pattern(chance: random.Random) -> str:
    if chance.random() < 0.08:
        return quoted(chance.choice(ODD_PATTERNS))
    parts = [chance.choice(PIECES) + chance.choice(REPEATS) for _ in range(chance.randrange(1, 4))]
    if chance.random() < 0.15:
        parts.insert(chance.randrange(len(parts) + 1), "|")
    start = "^" if chance.random() < 0.15 else ""
    end = "$" if chance.random() < 0.15 else ""
    return quoted(start + "".join(parts) + end)


def time(chance: random.Random) -> str:
    return quoted(chance.choice(TIMES if chance.random() < 0.95 else ODD_TIMES))


def span(chance: random.Random) -> str:
    return quoted(chance.choice(SPANS if chance.random() < 0.95 else ODD_SPANS))


def string(chance: random.Random) -> str:
    drawn = chance.random()
    if drawn < 0.75:
        return quoted(chance.choice(WORDS))
    if drawn < 0.9:
        return quoted(chance.choice(ESCAPED))
    letters = "abAB01 .,;-_@/"
    return quoted("".join(chance.choice(letters) for _ in range(chance.randrange(0, 9))))
