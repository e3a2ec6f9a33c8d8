"""Bag files: from the text that somebody wrote, in three steps (`format`, `draft`, `inputs`), to a
bag that can be sent. Commands and `import covey` use the names below. Sending a bag, and asking
questions on a terminal, do not belong here.
"""

from covey.bagfile.description import Description, describe
from covey.bagfile.draft.draft import Draft, Taken, read_draft, read_segment
from covey.bagfile.draft.selection import select
from covey.bagfile.format.json_schema import schema
from covey.bagfile.format.sheet import Sheet, parse_sheet, read_sheet
from covey.bagfile.format.starter import example
from covey.bagfile.inputs.files import Found
from covey.bagfile.inputs.gathering import Gathered, empty_rows, found_rows, gather
from covey.bagfile.inputs.sources import GONE, LocalInputs, look

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
