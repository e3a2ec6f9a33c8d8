"""Files whose rows are parameters, on the machine that submits them.

The server indexes such a file by the same rules (`covey.rowfiles`). Here the names of its columns
are read, so that mistakes are shown before anything is sent; and its rows, for `--dry-run` and to
find the files that tasks need.
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
    """The names of the columns; only the first rows are read. Raises InvalidBag, with words."""
    with _opened(rows) as file:
        try:
            pieces = Pieces(file.fileno())
            form = pieces.begin(rows.form)
            names = clean_names(form.columns)
            filled = any(count for _, count in pieces.counts(form))
        except InvalidBag as error:
            raise InvalidBag(f"{rows.written}: {error}") from None
    if not names or not filled:
        raise InvalidBag(f"{rows.written}: there are no rows in it")
    return names


def read_rows(rows: RowsFile) -> Iterator[list[Scalar]]:
    """Every row, in order. Raises InvalidBag at a row whose columns differ from the first row's."""
    with _opened(rows) as file:
        pieces = Pieces(file.fileno())
        try:
            yield from pieces.rows(pieces.begin(rows.form))
        except InvalidBag as error:
            raise InvalidBag(f"{rows.written}: {error}") from None


def count_rows(rows: RowsFile, most: int) -> int:
    """How many rows there are. Counting ends at `most` rows, or a few later."""
    count = 0
    with _opened(rows) as file:
        pieces = Pieces(file.fileno())
        try:
            for _, rows_of_piece in pieces.counts(pieces.begin(rows.form)):
                count += rows_of_piece
                if count >= most:
                    break
        except InvalidBag as error:
            raise InvalidBag(f"{rows.written}: {error}") from None
    return count


def text_columns(rows: RowsFile) -> set[int]:
    """The places of columns whose values are text, though some could be numbers. The server has the
    same rule (`store.results.row_tables`)."""
    with _opened(rows) as file:
        pieces = Pieces(file.fileno())
        try:
            examples = pieces.first_and_last_rows(pieces.begin(rows.form))
        except InvalidBag as error:
            raise InvalidBag(f"{rows.written}: {error}") from None
    columns = enumerate(zip(*examples, strict=True))
    return {place for place, values in columns if is_text_column(values)}


def _opened(rows: RowsFile) -> BinaryIO:
    try:
        return open(rows.path, "rb", buffering=0)
    except FileNotFoundError:
        raise InvalidBag(f"there is no file {rows.written}{near_files(rows.path)}") from None
    except OSError as error:
        raise InvalidBag(f"{rows.written}: {error.strerror}") from None
