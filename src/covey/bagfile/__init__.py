"""Bag files: reading, checking, and finding the files that belong to a bag."""

from covey.bagfile.description import Description, describe
from covey.bagfile.draft import Draft, Taken, read_draft, read_segment
from covey.bagfile.files import Found
from covey.bagfile.gathering import Gathered, empty_rows, found_rows, gather
from covey.bagfile.json_schema import schema
from covey.bagfile.selection import select
from covey.bagfile.sheet import Sheet, parse_sheet, read_sheet
from covey.bagfile.sources import GONE, LocalInputs, look
from covey.bagfile.starter import example

__all__ = [
    "GONE",
    "Description",
    "Draft",
    "Found",
    "Gathered",
    "LocalInputs",
    "Sheet",
    "Taken",
    "describe",
    "empty_rows",
    "example",
    "found_rows",
    "gather",
    "look",
    "parse_sheet",
    "read_draft",
    "read_segment",
    "read_sheet",
    "schema",
    "select",
]
