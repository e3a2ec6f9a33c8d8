"""Suggestions for unknown names: "did you mean 'memory'?"."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

LONGEST = 100  # characters: the time to compare two names grows with the product of their lengths
_NONE: dict[str, str] = {}


def nearest(
    name: str,
    known: Iterable[str],
    aliases: Mapping[str, str] = _NONE,
    least: float = 0.6,
) -> str:
    """The known name that is most like this one; "" if no name is like it, or if it is very long.
    `aliases`: other words for known names."""
    lowered = {other.lower(): other for other in known}
    meant = aliases.get(name.lower(), "")
    if meant in lowered:
        return lowered[meant]
    close = get_close_matches(name.lower(), lowered, 1, least) if len(name) <= LONGEST else []
    return lowered[close[0]] if close else ""


def did_you_mean(
    name: str, known: Iterable[str], otherwise: str = "", aliases: Mapping[str, str] = _NONE
) -> str:
    """The end of a message about an unknown name: a suggestion, or `otherwise` if no name is like
    it."""
    near = nearest(name, known, aliases)
    return f"; did you mean '{near}'?" if near else otherwise
