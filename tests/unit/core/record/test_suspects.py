"""What is said of a bag that could not be handled: words for its owner, a traceback for the log."""

from covey.core.errors import InvalidBag
from covey.core.record.suspects import LONGEST_REASON, LONGEST_TRACE, suspect


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_our_own_errors_need_no_traceback() -> None:
    found = suspect("it cannot be read", raised(InvalidBag("no\nsuch parameter")))
    assert (found.reason, found.trace) == ("it cannot be read: no such parameter", "")


def test_others_have_one_and_their_name() -> None:
    found = suspect("it cannot be sent", raised(ZeroDivisionError()))
    assert found.reason == "it cannot be sent: ZeroDivisionError"
    assert found.trace.rstrip().endswith("ZeroDivisionError")


def test_both_are_bounded() -> None:
    found = suspect("it", raised(ValueError("x" * 100_000)))
    assert len(found.reason) < LONGEST_REASON + 20
    assert len(found.trace) == LONGEST_TRACE
