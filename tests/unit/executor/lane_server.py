"""A server that is a list in this process."""

import binascii
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cloudpickle

from covey.core.explain.answers import Reason
from covey.core.record import call_files
from covey.core.record.model import BagSpec, Blob, Segment
from covey.core.values.space import Axis, Values
from covey.executor.stock import Stock
from covey.pilot.calls.call_records import MOST_INLINE
from covey.wire import ResultQuery, ResultRow
from covey.worker.calls import CallRunner
from covey.worker.frames import VALUE

SECONDS = 20.0


class Server:
    """Does every call when it is appended, unless it is held."""

    def __init__(self) -> None:
        self.connection = SimpleNamespace(patience_seconds=0.0)
        self.batches: list[int] = []
        self.rows: list[ResultRow] = []
        self.specs: list[BagSpec] = []
        self.held = False
        self.slots = 2
        self.seconds = 0.0
        self.total = 0
        self.closed = self.cancelled = 0
        self.asked = 0  # for results
        self.status, self.reason = "running", ""
        self.reasons: list[Reason] = []  # that it explains
        self.error: Exception | None = None
        self.uploaded: dict[str, bytes] = {}
        self.uploads: list[int] = []  # how many files each time
        self.files: dict[int, bytes] = {}  # values that are too large for a row
        self._news = threading.Condition()
        self._kept: list[str] = []

    def client(self) -> Any:
        return self

    def close(self) -> None:
        pass

    def missing(self, digests: Any) -> list[str]:
        return []  # the worker's program is here

    def upload(self, stock: Stock, blobs: list[Blob]) -> None:
        """Stands for what a stock does with a real client."""
        self.uploads.append(len(blobs))
        for blob in blobs:
            self.uploaded[blob.digest] = stock._kept[blob.digest].read(0, blob.size)
            stock.drop(blob)

    def server(self) -> Any:
        return SimpleNamespace(slots=self.slots)

    def submit(self, spec: BagSpec) -> Any:
        self.specs.append(spec)
        return SimpleNamespace(bag=7)

    def append(self, bag: int, segment: Segment) -> Any:
        if self.error is not None:
            raise self.error
        assert isinstance(segment.space, Axis)
        assert isinstance(segment.space.values, Values)
        given = [str(one) for one in segment.space.values.items]
        self.batches.append(len(given))
        self.total += len(given)
        with self._news:
            self._kept += given
            if not self.held:
                self._do()
        return SimpleNamespace(total=self.total)

    def release(self) -> None:
        with self._news:
            self.held = False
            self._do()

    def _do(self) -> None:
        for call in self._kept:
            file = call_files.file_of(call)
            given = binascii.a2b_base64(call) if file is None else self.uploaded[file.digest]
            kind, data, proof = CallRunner(cloudpickle.dumps).do(given)
            data += proof
            ok = kind == VALUE
            if ok and len(data) > MOST_INLINE:
                self.files[len(self.rows)] = data
                self.rows.append(row(len(self.rows), self.seconds, {}, ok, files=1))
                continue
            answer = {"value" if ok else "error": binascii.b2a_base64(data).decode()}
            self.rows.append(row(len(self.rows), self.seconds, answer, ok))
        self._kept.clear()
        self._news.notify_all()

    def results(self, bag: int, query: ResultQuery, seconds: float) -> list[ResultRow]:
        with self._news:
            self.asked += 1
            self._news.wait_for(lambda: len(self.rows) > query.after + 1, min(seconds, 0.2))
            return self.rows[query.after + 1 :]

    def bag(self, bag: int) -> Any:
        over = self.status not in ("running", "paused")
        return SimpleNamespace(
            id=bag, status=self.status, over=over, reason=self.reason, running=0, sent=0
        )

    def explain(self, bag: int) -> Any:
        return SimpleNamespace(answer=SimpleNamespace(reasons=self.reasons))

    def close_bag(self, bag: int) -> int:
        self.closed += 1
        return 1

    def cancel(self, bag: int) -> int:
        self.cancelled += 1
        return 1


def row(number: int, seconds: float, answer: dict[str, str], ok: bool, files: int = 0) -> ResultRow:
    return ResultRow(
        row=number,
        task=number,
        values=[],
        outcome="ok" if ok else "failed",
        counted=True,
        exit_code=0 if ok else 1,
        signal=0,
        attempt="1.1",
        pilot=1,
        host="n1",
        sent=0.0,
        fetched=0.0,
        started=0.0,
        ended=0.0,
        delivered=0.0,
        wall_seconds=seconds,
        cpu_seconds=0.0,
        memory_kb=0,
        stdout_bytes=0,
        stderr_bytes=0,
        message="",
        output="",
        result=answer,
        files=files,
    )


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.002)
