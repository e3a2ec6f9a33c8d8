"""Settles the future of a call from its row of the results."""

import binascii
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from covey.client.client import Client
from covey.core.errors import CoveyError
from covey.executor import unpacking
from covey.executor.failures import CallFailed, CallTimeout, WorkerRefused
from covey.pilot.calls.call_records import ERROR, NOT_STARTED, REFUSED, VALUE, VALUE_FILE
from covey.pilot.protocol.messages import OK, TIMEOUT
from covey.wire import ResultRow
from covey.worker.main import INITIALIZER_FAILED

UNPROVEN = "the answer does not come from a worker that had this call, so it was not unpickled"


class Broken(Exception):
    """No call of this bag can ever be done."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Origin:
    """What the futures of one bag share: its number and its name."""

    bag = 0  # not opened yet
    name = ""


class CallRow(Future[Any]):
    """The future of a call. Its creator sets the attributes (`__init__` would cost more)."""

    key = b""  # proves the call's answer
    task = -1  # its number, once it is sent
    origin = Origin()

    @classmethod
    def kind_of(cls, origin: Origin) -> type["CallRow"]:
        """A class for the calls of one bag, so that no call needs an attribute for its origin."""
        return type("Call", (cls,), {"origin": origin})

    def __repr__(self) -> str:
        origin = self.origin
        where = f" bag {origin.bag} {origin.name!r}" if origin.bag else ""
        task = f" task {self.task} of" if where and self.task >= 0 else ""
        return f"<covey call{task}{where}: {self._progress()}>"

    def _progress(self) -> str:
        if not self.done():
            return "sent" if self.running() else "waiting in this program"
        if self.cancelled():
            return "cancelled"
        error = self.exception()
        if error is not None:
            return f"raised {type(error).__name__}"
        return f"returned {type(self.result()).__name__}"


def settle(
    future: "Future[Any]",
    row: ResultRow,
    bag: int,
    data: bytes | None,
    key: bytes | None,
    trust: str,
    prepares: bool = False,
) -> None:
    """`data` is the value if it came by file; without a `key` no proof is required; with `prepares`
    workers run an initializer. Raises Broken, after settling, if all other calls would fail, too.
    """
    if data is None and "value" in row.result:
        data = binascii.a2b_base64(row.result["value"])
    if row.outcome == OK and data is not None:
        if key is not None and not unpacking.is_proven(key, VALUE, data):
            future.set_exception(failed(row, bag, UNPROVEN))
            return
        try:
            future.set_result(unpacking.value(data, trust))
        except unpacking.Unreadable as unreadable:
            future.set_exception(failed(row, bag, str(unreadable)))
        return
    error = _error(row, bag, key, trust, prepares)
    future.set_exception(error)
    if isinstance(error, WorkerRefused) and _in_initializer(row, prepares):
        raise Broken(error)


def value(row: ResultRow, bag: int, client: Callable[[], Client], trust: str) -> Any:
    """What the future would return or raise, for callers without a future, and so without a key.
    Raises CoveyError if a value that came by file does not exist any more, ValueError for an
    unknown `trust`."""
    unpacking.check_trust(trust)
    data = fetched(client(), bag, row) if row.outcome == OK and row.files else None
    future: Future[Any] = Future()
    with suppress(Broken):
        settle(future, row, bag, data, None, trust)
    return future.result()


def _in_initializer(row: ResultRow, prepares: bool) -> bool:
    """Whether the call failed in the initializer, or may have, because its process ended."""
    return row.message.startswith((INITIALIZER_FAILED, NOT_STARTED) if prepares else ())


def _error(
    row: ResultRow, bag: int, key: bytes | None, trust: str, prepares: bool
) -> BaseException:
    if "error" in row.result:
        data = binascii.a2b_base64(row.result["error"])
        if key is not None and not unpacking.is_proven(key, ERROR, data):
            return failed(row, bag, f"{unpacking.words_of(data)} ({UNPROVEN})")
        words, raised, where = unpacking.exception(data, trust)
        error = raised or failed(row, bag, words)
        error.__cause__ = where
        return error
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
    """The value of a call that was returned as a file."""
    for file in client.files(bag, after=row.row - 1, limit=10):
        if file.row == row.row and file.path == VALUE_FILE:
            if not file.digest:
                return file.data
            return b"".join(client.read_file(file.digest))
    raise CoveyError("the value does not exist any more; was the bag purged?")
