"""When text is a number. One rule for command lines, bag files and tables, so that a value is the
same task wherever it was written.
"""

from covey.core.space import Scalar

_LARGEST = 2**63


def scalar(text: str) -> Scalar:
    """A number only if it would be written in just this way, so that nothing changes."""
    if not text or text[0] not in "-0123456789":
        return text
    try:
        number = float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        return text
    return number if abs(number) < _LARGEST and str(number) == text else text
