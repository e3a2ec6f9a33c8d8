"""From a row of the results to what its future says."""

import binascii
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from covey.client.client import Client
from covey.core.errors import CoveyError
from covey.executor import packing
from covey.executor.failures import CallFailed, CallTimeout, WorkerRefused
from covey.pilot.calling import NOT_STARTED, REFUSED, VALUE_FILE
from covey.pilot.messages import OK, TIMEOUT
from covey.wire import ResultRow
from covey.worker.main import INITIALIZER_FAILED


class Broken(Exception):
    """No call of this bag will ever be done."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def settle(
    future: "Future[Any]",
    row: ResultRow,
    bag: int,
    data: bytes | None = None,
    *,
    prepares: bool = False,
) -> None:
    """`data` is the value if that came by file; with `prepares` workers run an initializer. Raises
    Broken, after all, if others fare alike."""
    if data is None and "value" in row.result:
        data = binascii.a2b_base64(row.result["value"])
    if row.outcome == OK and data is not None:
        try:
            future.set_result(packing.value(data))
        except packing.Unreadable as unreadable:
            future.set_exception(failed(row, bag, str(unreadable)))
        return
    error = _error(row, bag, prepares)
    future.set_exception(error)
    if isinstance(error, WorkerRefused) and _in_initializer(row, prepares):
        raise Broken(error)


def value(row: ResultRow, bag: int, client: Callable[[], Client]) -> Any:
    """For whoever has no future: what it would return, or raise. Raises CoveyError if a value that
    came by file is not there any more."""
    data = fetched(client(), bag, row) if row.outcome == OK and row.files else None
    future: Future[Any] = Future()
    with suppress(Broken):
        settle(future, row, bag, data)
    return future.result()


def _in_initializer(row: ResultRow, prepares: bool) -> bool:
    """Where it failed; or may have, if its process ended."""
    return row.message.startswith((INITIALIZER_FAILED, NOT_STARTED) if prepares else ())


def _error(row: ResultRow, bag: int, prepares: bool) -> BaseException:
    if "error" in row.result:
        words, raised, where = packing.exception(binascii.a2b_base64(row.result["error"]))
        found = raised or failed(row, bag, words)
        found.__cause__ = where
        return found
    if row.exit_code == REFUSED and row.message:
        ended = prepares and row.message.startswith(NOT_STARTED)
        hint = " (perhaps its initializer ended it)" if ended else ""
        return failed(row, bag, row.message + hint, WorkerRefused)
    words = row.message or f"the call ended with {row.outcome}"
    if row.outcome == TIMEOUT:
        return failed(row, bag, words, CallTimeout)
    return failed(row, bag, f"{words} ('covey logs {bag} {row.task}' shows what it printed)")


def failed(row: ResultRow, bag: int, words: str, kind: type[CallFailed] = CallFailed) -> CallFailed:
    return kind(
        words,
        bag=bag,
        task=row.task,
        outcome=row.outcome,
        exit_code=row.exit_code,
        signal=row.signal,
        host=row.host,
    )


def fetched(client: Client, bag: int, row: ResultRow) -> bytes:
    """The value of a call that came by file."""
    for one in client.files(bag, after=row.row - 1, limit=10):
        if one.row == row.row and one.path == VALUE_FILE:
            if not one.digest:
                return one.data
            return b"".join(client.read_file(one.digest))
    raise CoveyError("the value is not there any more; was the bag purged?")
