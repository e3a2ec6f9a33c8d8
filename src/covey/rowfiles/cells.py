"""Text in cells of CSV files: quoted where that is needed, and never a formula.

A spreadsheet runs a cell that begins with =, +, - or @, also after a tab or a carriage return. The
output of a task, or the name of a host, could be such a formula. So this text gets a ' in front,
which tells spreadsheets that it is text. A number such as -1.5 stays as it is.
"""

import re

RISKY = "=+-@\t\r"
_ANY = re.compile(r"\n[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


_SPECIAL = re.compile(r'[",\r\n]')


def in_quotes(text: str) -> str:
    """The text, quoted if that is needed."""
    if _SPECIAL.search(text) is None:
        return text
    return '"' + text.replace('"', '""') + '"'


def all_in_quotes(texts: list[str]) -> list[str]:
    """`in_quotes` of each text. One search over all of them finds out if there is nothing to do."""
    return texts if _SPECIAL.search("".join(texts)) is None else list(map(in_quotes, texts))


def disarmed(text: str) -> str:  # with a ' if a spreadsheet could take it for a formula
    if text[:1] in RISKY and text and _NUMBER.fullmatch(text) is None:
        return f"'{text}"
    return text


def all_disarmed(texts: list[str]) -> list[str]:
    """`disarmed` of each text. One search over all of them finds out if there is nothing to do."""
    if _ANY.search("\n".join(["", *texts])) is None:
        return texts
    return list(map(disarmed, texts))
