"""Files whose rows are parameters, as whoever submits them sees them.

The server indexes such a file, by the same rules (`covey.rowfiles`). Here its names are read, so
that mistakes are told before anything is sent, and its rows, for `--dry-run` and to find the files
that tasks need.
"""

from collections.abc import Iterator
from typing import BinaryIO

from covey.bagfile.format.parts import RowsFile
from covey.bagfile.format.sheet import near_files
from covey.core.errors import InvalidBag
from covey.core.values.scalars import is_text_column
from covey.core.values.space import Scalar
from covey.rowfiles.forms import clean_names
from covey.rowfiles.pieces import Pieces


def read_names(rows: RowsFile) -> tuple[str, ...]:
    """From the first rows alone. Raises InvalidBag, with words, if that cannot be."""
    with _opened(rows) as file:
        try:
            pieces = Pieces(file.fileno())
            form = pieces.begin(rows.form)
            names = clean_names(form.columns)
            filled = any(count for _, count in pieces.counts(form))
        except InvalidBag as error:
            raise InvalidBag(f"{rows.told}: {error}") from None
    if not names or not filled:
        raise InvalidBag(f"{rows.told}: there are no rows in it")
    return names


def read_rows(rows: RowsFile) -> Iterator[list[Scalar]]:
    """Every row, in order. Raises InvalidBag where one is not like the first."""
    with _opened(rows) as file:
        pieces = Pieces(file.fileno())
        try:
            yield from pieces.rows(pieces.begin(rows.form))
        except InvalidBag as error:
            raise InvalidBag(f"{rows.told}: {error}") from None


def count_rows(rows: RowsFile, most: int) -> int:
    """How many rows there are; it stops where there are `most`, or some more."""
    count = 0
    with _opened(rows) as file:
        pieces = Pieces(file.fileno())
        try:
            for _, found in pieces.counts(pieces.begin(rows.form)):
                count += found
                if count >= most:
                    break
        except InvalidBag as error:
            raise InvalidBag(f"{rows.told}: {error}") from None
    return count


def text_columns(rows: RowsFile) -> set[int]:
    """The places of columns that are text, though some of their values could be numbers; the server
    finds the same (`store.tables`)."""
    with _opened(rows) as file:
        pieces = Pieces(file.fileno())
        try:
            found = pieces.first_and_last_rows(pieces.begin(rows.form))
        except InvalidBag as error:
            raise InvalidBag(f"{rows.told}: {error}") from None
    columns = enumerate(zip(*found, strict=True))
    return {place for place, values in columns if is_text_column(values)}


def _opened(rows: RowsFile) -> BinaryIO:
    try:
        return open(rows.path, "rb", buffering=0)
    except FileNotFoundError:
        raise InvalidBag(f"there is no file {rows.told}{near_files(rows.path)}") from None
    except OSError as error:
        raise InvalidBag(f"{rows.told}: {error.strerror}") from None
