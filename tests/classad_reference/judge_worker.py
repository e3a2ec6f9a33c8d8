"""What the judge runs: a line with questions in, a line with answers out."""

import json
import resource
import signal
import sys
import time
from datetime import datetime
from typing import Any

import classad2

from tests.classad_reference.looking import look
from tests.classad_reference.shapes import Shape

SECONDS = 2.0  # for one question; then SIGALRM ends this process: only that ends a loop in C++
MEMORY = 2 << 30
TICK = 0.02  # seconds


class Reference:
    def __init__(self, ad: str, target: str | None) -> None:
        self._ad = classad2.ClassAd(ad)
        self._target = None if target is None else classad2.ClassAd(target)

    def evaluate(self, text: str) -> Any:
        return parsed(text).eval(self._ad, self._target)

    def scalar(self, text: str, value: Any) -> Shape | None:
        """A relative time comes out as a number, and a moment without its zone."""
        if isinstance(value, classad2.Value):
            return ["undefined" if value == classad2.Value.Undefined else "error"]
        if isinstance(value, bool):
            return ["boolean", value]
        if isinstance(value, int):
            return ["integer", value]
        if isinstance(value, float):
            span = self.evaluate(f"isReltime({text}\n)") is True
            return ["reltime" if span else "real", value.hex()]
        if isinstance(value, str):
            return ["string", value]
        if isinstance(value, datetime):
            offset = self.evaluate(f"splitTime({text}\n).Offset")
            return ["abstime", self.evaluate(f"int({text}\n)"), offset]
        return None

    def names(self, value: Any) -> list[str] | None:
        return None if isinstance(value, list) else list(value)


def parsed(text: str) -> Any:
    """It is put in an ad to be parsed, and must not end that: the last attribute says so."""
    ad = classad2.ClassAd(f"[expression = ({text}\n); last = 1]")
    if list(map(str.lower, ad)) not in (["last", "expression"], ["expression", "last"]):
        raise SyntaxError(text)
    return ad.lookup("expression")


def answer(text: str, ad: str, target: str | None) -> Shape:
    """Never raises: what the reference refuses is a shape, too."""
    try:
        engine = Reference(ad, target)
        parsed(text)
    except (classad2.ClassAdException, ValueError, SyntaxError):
        return ["unparsable"]
    try:
        return look(engine, text)
    except UnicodeDecodeError:
        return ["bytes"]
    except Exception as problem:
        return ["failed", f"{type(problem).__name__}: {problem}"[:200]]


def within_a_second(text: str, ad: str, target: str | None) -> tuple[Shape, int]:
    """The answer, and the second in which it was found, from beginning to end. The reference
    asks a clock of the kernel that may be a tick behind ours."""
    while True:
        now = int(time.time() - TICK)
        found = answer(text, ad, target)
        if int(time.time()) == now:
            return found, now


def main() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    classad2.ExprTree("[]").eval()  # only what gives an ad brings the functions of HTCondor's layer
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        found = []
        for text, ad, target in json.loads(line):
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            found.append(within_a_second(text, ad, target))
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
