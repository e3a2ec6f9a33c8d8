"""The tasks of a draft, one after the other: their values, as the server will number them."""

from collections.abc import Iterator
from itertools import islice

from covey.bagfile.draft.draft import Draft
from covey.bagfile.draft.rowsfile import read_rows
from covey.core.values.space import Scalar, indexer, size


def values_of(draft: Draft, most: int) -> Iterator[list[Scalar]]:
    """Values of the first `most` tasks; the row varies slowest. Raises InvalidBag for a bad row."""
    inner, point = size(draft.spec.space), indexer(draft.spec.space)
    if draft.rows is None:
        yield from (point(index) for index in range(min(inner, most)))
        return
    every = (row + point(index) for row in read_rows(draft.rows) for index in range(inner))
    yield from islice(every, most)


def count_tasks(draft: Draft) -> int:
    """Reads the whole file of rows, if there is one."""
    rows = 1 if draft.rows is None else sum(1 for _ in read_rows(draft.rows))
    return rows * size(draft.spec.space)
