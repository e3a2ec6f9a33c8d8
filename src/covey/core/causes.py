"""Why a task failed, in words that are equal for tasks that failed in the same way.

A cause is how the attempt ended, then the last thing it said about it, without what differs from
task to task: numbers become N, and of paths only the last part is kept. So a thousand failures
are a handful of causes, each with a count.
"""

import re

from covey.pilot.messages import FAILED, HOST, LOST, MEMORY, OUTPUT, SETUP, TIMEOUT, End

LONGEST = 120
_RAISED = '{"error":'

_PATH = re.compile(r"https?://\S+|(?:[A-Za-z]:)?(?:/[^\s/:'\",;()\[\]]+)+/?")
_NUMBER = re.compile(
    r"\b0[xX][0-9a-fA-F]+\b|(?<![A-Za-z_])[+-]?\d+(?:[.:,]\d+)*(?:[eE][+-]?\d+)?(?![A-Za-z_])|\d+"
)
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


def cause_of(end: End) -> str:
    """The cause of a failed attempt; those of equal causes are counted together."""
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
    words = normalised(words)
    return f"{how}: {words}" if words else how


def normalised(words: str) -> str:
    """Without what differs from task to task."""
    words = _PATH.sub(_last_part, words)
    words = _NUMBER.sub("N", words)
    return _BLANK.sub(" ", words).strip()[:LONGEST]


def _last_part(match: "re.Match[str]") -> str:
    path, _, _ = match.group().partition("?")  # what follows in a URL may be a secret
    before, _, last = path.rstrip("/").rpartition("/")
    return f"…/{last}" if "://" in before else last


def last_line(text: str) -> str:
    """The last line that says something."""
    text = text.rstrip()
    return text[max(text.rfind("\n"), text.rfind("\r")) + 1 :].strip()
