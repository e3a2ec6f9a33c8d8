"""Causes of failures: texts that are equal for tasks that failed in the same way.

A cause is how the attempt ended, then its last message, without the parts that differ from task to
task: numbers become N, and of absolute paths and URLs only the last part is kept. Relative
paths are kept, and so are the names of programs (`python3`, and every word of the bag's command).
So a thousand failures are a handful of causes, each with a count.
"""

import re
from collections.abc import Iterable

from covey.pilot.protocol.messages import FAILED, HOST, LOST, MEMORY, OUTPUT, SETUP, TIMEOUT, End

LONGEST = 120
MOST_READ = 2000  # characters of a line: later ones would not be kept anyway
MOST_WORDS = 100  # of a command
IGNORED = " was ignored: "  # in the message of a pilot: a result that cannot be kept
IGNORED_RESULT = "result ignored"  # begins the cause of a task that is done
_RAISED = '{"error":'

# A path that begins with /, or a URL. The / of a relative path has a name, a dot or ~ before it.
_PATH = re.compile(r"https?://\S+|(?<![\w.~*+@%-])(?:[A-Za-z]:)?(?:/[^\s/:'\",;()\[\]]+)+/?")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")
_INTERPRETER = re.compile(
    r"(?:python|pypy|perl|ruby|php|lua|node|java|julia|gcc|clang|tclsh|sqlite|bzip)"
    r"[0-9]{1,3}(?:\.[0-9]{1,3}){0,2}"
)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|[+-]?\d+(?:[.:,]\d+)*(?:[eE][+-]?\d+)?")
_DIGITS = re.compile(r"\d+")
_BLANK = re.compile(r"\s+")
_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
_WORDS = {
    TIMEOUT: "time limit",
    MEMORY: "memory limit",
    OUTPUT: "output",
    SETUP: "setup",
    HOST: "host",
    LOST: "lost",
}


def cause_of(end: End, argv: Iterable[str] = ()) -> str:
    """The cause of a failed attempt. `argv`: the bag's command, whose words are kept as they
    are."""
    if end.outcome in (TIMEOUT, MEMORY):
        return _WORDS[end.outcome]
    if end.outcome == FAILED:
        how = f"exit {end.exit_code}"
        if end.signal:
            how = _SIGNALS.get(end.signal, f"signal {end.signal}")
        words = last_line(end.stderr)
        if end.result.startswith(_RAISED) and end.message != f"exit code {end.exit_code}":
            words = end.message  # of a call: what it raised
    else:
        how = _WORDS.get(end.outcome, end.outcome)
        words = end.message
    words = normalised(words, argv)
    return f"{how}: {words}" if words else how


def ignored_result(end: End) -> str:
    """Why the reported values of a successful task were not kept, as its pilot says; "" if they
    were."""
    _, ignored, why = end.message.partition(IGNORED)
    return f"{IGNORED_RESULT}: {why}"[:LONGEST] if ignored else ""


def normalised(words: str, argv: Iterable[str] = ()) -> str:
    """The text without the parts that differ from task to task."""
    words = _PATH.sub(_last_part, words[:MOST_READ])
    kept = _command_names(argv)
    parts, start = [], 0
    for match in _NAME.finditer(words):
        name = match.group().rstrip(".+-")
        joined = words[match.start() - 1 : match.start()].isalnum()
        if not joined and (name in kept or _INTERPRETER.fullmatch(name)):
            parts += [_NUMBER.sub(_number, words[start : match.start()]), name]
            start = match.start() + len(name)
    parts.append(_NUMBER.sub(_number, words[start:]))
    return _BLANK.sub(" ", "".join(parts)).strip()[:LONGEST]


def _command_names(argv: Iterable[str]) -> set[str]:
    """Names of programs and files in a command, without their directories."""
    words = (word.rstrip("/").rpartition("/")[2] for word in list(argv)[:MOST_WORDS])
    return {word for word in words if _NAME.fullmatch(word)}


def _number(match: "re.Match[str]") -> str:
    """N for a number that stands alone; in a word such as v1.5x, N for each of its digits' runs."""
    text, start, end = match.string, match.start(), match.end()
    alone = not (_in_word(text[start - 1 : start]) or _in_word(text[end : end + 1]))
    return "N" if alone else _DIGITS.sub("N", match.group())


def _in_word(letter: str) -> bool:
    return letter == "_" or (letter.isascii() and letter.isalpha())


def _last_part(match: "re.Match[str]") -> str:
    path, _, _ = match.group().partition("?")  # what follows in a URL may be a secret
    before, _, last = path.rstrip("/").rpartition("/")
    return f"…/{last}" if "://" in before else last


def last_line(text: str) -> str:
    """The last line that says something."""
    text = text.rstrip()
    return text[max(text.rfind("\n"), text.rfind("\r")) + 1 :].strip()
