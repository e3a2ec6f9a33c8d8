"""Bag files as text, read in a directory of their own."""

from pathlib import Path

from covey.bagfile import Draft, Gathered, gather, parse_sheet, read_draft

ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/home/me", "LANG": "C", "SECRET": "x"}


def draft(text: str, here: Path | None = None, told: list[str] | None = None) -> Draft:
    heard = [] if told is None else told
    sheet = parse_sheet(text, "bag.toml", str(here or Path("/nowhere")))
    return read_draft(sheet, ENVIRON, heard.append)


def gathered(text: str, here: Path, told: list[str] | None = None) -> Gathered:
    heard = [] if told is None else told
    return gather(draft(text, here, heard), heard.append)
