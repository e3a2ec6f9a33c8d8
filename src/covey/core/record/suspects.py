"""Suspects: bags that core could not handle in this turn. When it ends they are quarantined
(`quarantine`; docs/decisions/0018-quarantine.md)."""

from traceback import format_exception

from msgspec import Struct

from covey.core.errors import CoveyError

MARK = "quarantined: "  # the reason of a quarantined bag begins with this
LONGEST_REASON = 300  # characters of an exception's text that people are shown
LONGEST_TRACE = 6000  # … of its traceback, in the log


class Suspect(Struct, frozen=True):
    """Why a bag is to be quarantined: in words for its owner, and with a traceback for the log."""

    reason: str
    trace: str = ""


def suspect(what: str, error: Exception) -> Suspect:
    """`what` could not be done with a bag, because of this error."""
    expected = isinstance(error, CoveyError)  # its text is enough
    return Suspect(f"{what}: {brief(error)}", "" if expected else trace(error))


def brief(error: Exception) -> str:
    """The exception in one line."""
    words = " ".join(str(error).split())
    if not isinstance(error, CoveyError):
        words = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return words if len(words) <= LONGEST_REASON else words[:LONGEST_REASON] + "…"


def trace(error: Exception) -> str:
    """Where it was raised; the end of it, if it is long."""
    return "".join(format_exception(error))[-LONGEST_TRACE:]
