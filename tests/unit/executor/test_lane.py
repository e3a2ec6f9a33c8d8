"""Calls through a lane whose server is a list in this process."""

import binascii
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, wait
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from covey.core import calls
from covey.core.errors import InvalidBag, ServerAway
from covey.core.model import BagSpec, Blob, PolicySpec, Segment
from covey.core.space import Axis, Values
from covey.executor import answers, lane
from covey.executor.executor import Executor
from covey.executor.stock import Stock
from covey.pilot.calling import MOST_INLINE
from covey.wire import ResultQuery, ResultRow
from covey.worker.calls import Doer
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
        self.status = "running"
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
            file = calls.file_of(call)
            given = binascii.a2b_base64(call) if file is None else self.uploaded[file.digest]
            kind, data = Doer(cloudpickle.dumps).do(given)
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
            self._news.wait_for(lambda: len(self.rows) > query.after + 1, min(seconds, 0.2))
            return self.rows[query.after + 1 :]

    def bag(self, bag: int) -> Any:
        return SimpleNamespace(status=self.status, over=self.status != "running")

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


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(Stock, "send", lambda stock, client, blobs: found.upload(stock, blobs))
    monkeypatch.setattr(answers, "fetched", lambda client, bag, row: found.files[row.task])
    return found


@pytest.fixture
def executor(server: Server) -> Iterator[Executor]:
    with Executor(server) as found:
        yield found
    assert server.closed + server.cancelled == len(server.specs)


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.002)


def test_what_makes_no_sense_is_refused_at_once(server: Server) -> None:
    with pytest.raises(TypeError, match=r"covey\.connect"):
        Executor("localhost:8300")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="initializer"):
        Executor(server, initializer=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="chunksize"):
        Executor(server).map(abs, [1], chunksize=0)


def test_a_function_that_would_take_the_executor_along_is_told(executor: Executor) -> None:
    with pytest.raises(TypeError, match="an executor stays in the process"):
        executor.submit(lambda: executor.bag).result(SECONDS)


def test_nothing_is_opened_for_an_executor_without_calls(
    executor: Executor, server: Server
) -> None:
    executor.shutdown()
    assert not server.specs


def test_calls_come_back(executor: Executor, server: Server) -> None:
    assert list(executor.map(abs, range(-100, 0))) == list(range(100, 0, -1))
    assert len(server.specs) == 1
    assert server.specs[0].calls
    assert server.specs[0].open
    assert executor.bag == 7


def test_many_calls_are_few_requests(executor: Executor, server: Server) -> None:
    executor.submit(abs, 1).result(SECONDS)
    wait([executor.submit(abs, number) for number in range(2000)])
    assert sum(server.batches) == 2001
    assert len(server.batches) < 100


def test_no_more_is_out_than_keeps_the_slots_busy(executor: Executor, server: Server) -> None:
    server.seconds = 0.1
    executor.submit(abs, 1).result(SECONDS)
    server.held = True
    found = [executor.submit(abs, number) for number in range(100)]
    eventually(lambda: server.total >= 17)
    time.sleep(0.05)
    assert server.total <= 1 + 20
    assert found[-1].cancel()
    assert not found[0].cancel()
    assert found[0].running()
    server.release()
    assert [one.result(SECONDS) for one in found[:-1]] == list(range(99))
    assert server.total == 100


def test_max_workers_is_the_most_that_is_out(server: Server) -> None:
    server.held = True
    with Executor(server, 3) as executor:
        found = [executor.submit(abs, number) for number in range(10)]
        eventually(lambda: server.total >= 3)
        time.sleep(0.05)
        assert server.total == 3
        server.release()
        wait(found)


def test_shutdown_cancels_what_was_not_to_go_next(server: Server) -> None:
    server.held = True
    executor = Executor(server, 3)
    found = [executor.submit(abs, number) for number in range(10)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert [one.cancelled() for one in found] == [False] * 3 + [True] * 7
    eventually(lambda: server.total == 3)
    server.release()
    executor.shutdown()
    assert [one.result() for one in found[:3]] == [0, 1, 2]
    assert server.closed == 1


def test_a_server_that_stays_away_breaks_the_executor(server: Server) -> None:
    server.error = ServerAway("the server is away")
    executor = Executor(server)
    with pytest.raises(BrokenExecutor, match="the server is away"):
        executor.submit(abs, 1).result(SECONDS)
    with pytest.raises(BrokenExecutor, match="the server is away"):
        executor.submit(abs, 1)
    executor.shutdown()


def test_a_bag_that_is_over_before_its_calls_are_breaks_the_executor(server: Server) -> None:
    server.held, server.status = True, "cancelled"
    executor = Executor(server)
    with pytest.raises(BrokenExecutor, match="bag 7 of this executor is cancelled"):
        executor.submit(abs, 1).result(SECONDS)
    executor.shutdown()


def test_abort_cancels_the_bag(server: Server) -> None:
    server.held = True
    executor = Executor(server)
    found = executor.submit(abs, 1)
    eventually(lambda: server.total == 1)
    executor.abort()
    with pytest.raises(CancelledError):
        found.result(SECONDS)
    executor.shutdown()
    assert (server.cancelled, server.closed) == (1, 0)


@pytest.mark.parametrize("size", [100, 100_000])
def test_abort_in_a_callback_ends_all_others(server: Server, size: int) -> None:
    server.held = True
    executor = Executor(server, 8)
    found = [executor.submit(bytes, size + number) for number in range(12)]
    eventually(lambda: server.total == 8)
    found[0].add_done_callback(lambda _: executor.abort())
    server.release()
    assert not wait(found, SECONDS).not_done
    assert found[0].result() == bytes(size)
    assert isinstance(found[-1].exception(), CancelledError)
    executor.shutdown()


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_callback_that_exits_harms_nobody(
    executor: Executor, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    found = [executor.submit(bytes, size) for _ in range(5)]
    for one in found:
        one.add_done_callback(lambda _: sys.exit(1))
    assert [one.result(SECONDS) for one in found] == [bytes(size)] * 5
    assert executor.submit(bytes, size).result(SECONDS) == bytes(size)
    assert "SystemExit" in caplog.text


@pytest.mark.parametrize("how", ["abort", "shutdown"])
def test_callbacks_that_exit_keep_nobody_from_hearing_of_the_end(server: Server, how: str) -> None:
    server.held = True
    executor = Executor(server, 2)
    found = [executor.submit(abs, number) for number in range(6)]
    for one in found:
        one.add_done_callback(lambda _: sys.exit(1))
    if how == "abort":
        executor.abort()
    else:
        executor.shutdown(wait=False, cancel_futures=True)
        eventually(lambda: server.total == 2)
        server.release()
    assert not wait(found, SECONDS).not_done
    executor.shutdown()


def test_an_executor_may_be_forgotten_in_the_middle_of_our_own_work(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector of garbage runs anywhere."""
    monkeypatch.setattr(lane, "FORGOTTEN_SECONDS", 0.05)
    executor = Executor(server)
    assert executor.submit(abs, -5).result(SECONDS) == 5
    ours, held = executor._lane, [executor]
    del executor

    def forget() -> None:
        with ours._news:
            held.clear()

    thread = threading.Thread(target=forget, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()
    ours.join()
    assert server.closed == 1


def test_a_forgotten_executor_ends_when_its_calls_have(server: Server) -> None:
    server.held = True
    executor = Executor(server)
    found, threads = executor.submit(abs, -5), executor._lane._threads
    del executor
    eventually(lambda: server.total == 1)
    server.release()
    assert found.result(SECONDS) == 5
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert server.closed == 1


def test_other_options_are_another_bag(executor: Executor, server: Server) -> None:
    other = executor.with_options(cores=2, env={"A": "b"})
    assert other is executor.with_options(env={"A": "b"}, cores=2)
    assert executor.submit(abs, -1).result(SECONDS) == 1
    assert server.specs[0].need.cores == 1
    server.total = 0
    server.rows.clear()
    assert other.submit(abs, -2).result(SECONDS) == 2
    assert server.specs[1].need.cores == 2
    assert server.specs[1].env["A"] == "b"


def test_calls_have_a_policy(executor: Executor, server: Server) -> None:
    there = executor.with_options(policy={"only_sites": ("lab",), "deadline": 60})
    assert there is executor.with_options(policy={"deadline": 60, "only_sites": ["lab"]})
    assert there.submit(abs, -1).result(SECONDS) == 1
    assert server.specs[0].policy == PolicySpec(only_sites=("lab",), deadline="60")
    assert Executor(server, policy="frugal")._options.policy == PolicySpec(preset="frugal")
    with pytest.raises(InvalidBag, match=r"^Executor\(\): policy: there is no preset 'fast'"):
        executor.with_options(policy="fast")


# -- large calls --------------------------------------------------------------------------


def test_large_calls_come_back_among_small_ones(executor: Executor, server: Server) -> None:
    sizes = [10, 400_000, 20, 3_000_000, 400_000, 30]
    assert list(executor.map(len, map(bytes, sizes))) == sizes
    assert len(server.uploaded) == 2
    assert list(executor.map(len, [bytes(400_000)] * 5, chunksize=5)) == [400_000] * 5
    assert not executor._lane._heavy
    assert not len(executor._lane._stock)


def test_what_large_calls_are_is_released_when_they_are_sent_or_cancelled(server: Server) -> None:
    server.held = True
    with Executor(server, 2) as executor:
        stock = executor._lane._stock
        found = [executor.submit(len, bytes(300_000 + number)) for number in range(10)]
        eventually(lambda: server.total == 2 and len(stock) == 8)
        assert all(one.cancel() for one in found[6:])
        server.release()
        assert [one.result(SECONDS) for one in found[:6]] == list(range(300_000, 300_006))
    assert not len(stock)
    assert len(server.uploaded) == 6


@pytest.mark.parametrize("how", ["abort", "shutdown"])
def test_nothing_of_them_is_left_at_the_end(server: Server, how: str) -> None:
    server.held = True
    executor = Executor(server, 2)
    found = [executor.submit(len, bytes(300_000 + number)) for number in range(10)]
    eventually(lambda: server.total == 2)
    if how == "abort":
        executor.abort()
    else:
        executor.shutdown(wait=False, cancel_futures=True)
        server.release()
    executor.shutdown()
    assert not len(executor._lane._stock)
    assert all(one.done() for one in found)
    with pytest.raises((RuntimeError, CancelledError)):
        executor.submit(len, bytes(300_000))
    assert not len(executor._lane._stock)


def test_a_batch_is_no_larger_than_can_be_uploaded_soon(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "MOST_BATCH_CHARACTERS", 100_000)
    server.seconds = 0.0
    with Executor(server) as executor:
        executor.submit(abs, 1).result(SECONDS)
        wait([executor.submit(len, bytes(600_000 + number)) for number in range(12)])
    assert sum(server.uploads) == 12
    assert max(server.uploads) <= 3


def test_not_too_many_bytes_are_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "MOST_OUT_BYTES", 10_000_000)
    with Executor(server) as executor:
        executor.submit(abs, 1).result(SECONDS)  # so short that thousands would be out
        server.held = True
        found = [executor.submit(len, bytes(1_000_000 + number)) for number in range(40)]
        eventually(lambda: server.total >= 17)
        time.sleep(0.05)
        assert server.total < 40
        server.release()
        wait(found)


def test_a_call_that_finds_no_place_to_wait_is_told(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Blob:
        raise OSError(28, "No space left on device")

    with Executor(server) as executor:
        with monkeypatch.context() as patch:
            patch.setattr(Stock, "put", full)
            with pytest.raises(OSError, match="No space"):
                executor.submit(len, bytes(1_000_000))
        assert executor.submit(len, bytes(1_000_000)).result(SECONDS) == 1_000_000
