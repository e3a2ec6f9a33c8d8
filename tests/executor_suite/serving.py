"""One server for the suites of others, with as many slots as they expect workers."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from covey.executor import Executor
from covey.python.connection import Connection, connect

WORKERS = 5


class Served:
    """Where a `CoveyExecutor` is made; the suites make them without a word about it."""

    connection: Connection | None = None


class CoveyExecutor(Executor):
    def __init__(self, max_workers: int | None = None, **options: Any) -> None:
        super().__init__(Served.connection, max_workers, **options)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Connection]:
    with connect(dir=folder / ".covey", slots=WORKERS) as connection:
        Served.connection = connection
        connection.server()
        try:
            yield connection
        finally:
            connection.client().stop()
            Served.connection = None
