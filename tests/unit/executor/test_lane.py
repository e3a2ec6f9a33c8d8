"""Calls through a lane whose server is a list in this process."""

import sys
import threading
import time
from concurrent.futures import BrokenExecutor, CancelledError, Future, wait
from typing import Any

import pytest

from covey.core.errors import ServerAway
from covey.core.explain.answers import Reason
from covey.core.record.model import Blob
from covey.executor import lane
from covey.executor.executor import Executor
from covey.executor.packing import Large, Small
from covey.executor.stock import Stock
from tests.unit.executor.lane_server import SECONDS, Server, eventually


def test_a_function_that_would_take_the_executor_along_is_told(executor: Executor) -> None:
    with pytest.raises(TypeError, match="an executor cannot be sent to another process"):
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


def test_a_few_quick_calls_say_little_about_those_to_come(
    executor: Executor, server: Server
) -> None:
    for number in range(10):
        executor.submit(abs, number).result(SECONDS)
    server.held = True
    found = [executor.submit(abs, number) for number in range(100)]
    eventually(lambda: server.total >= 10 + 20)
    time.sleep(0.05)
    assert server.total == 10 + 20
    assert found[-1].cancel()
    server.release()
    assert [one.result(SECONDS) for one in found[:-1]] == list(range(99))


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


def test_why_calls_wait_is_told_once(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    def asked_again() -> None:
        asked = server.asked
        eventually(lambda: server.asked >= asked + 3)

    server.held, server.reason = True, "no connected pilot has 64 cores for a task"
    with Executor(server) as executor:
        found = executor.submit(abs, 1)
        asked_again()
        server.reason = ""
        server.reasons = [Reason(kind="starting", text="soon"), Reason(kind="no site", text="none")]
        asked_again()
        server.status = "paused"
        asked_again()
        server.release()
        found.result(SECONDS)
    assert capsys.readouterr().err.splitlines() == [
        "covey: bag 7, of an executor, waits: no connected pilot has 64 cores for a task",
        "covey: bag 7, of an executor, waits: none",
        "covey: bag 7, of an executor, is paused; go on with: covey resume 7",
    ]


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
    executor: Executor, server: Server, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.held = True  # a callback of a future that is done is called by whoever adds it
    found = [executor.submit(bytes, size) for _ in range(5)]
    for one in found:
        one.add_done_callback(lambda _: sys.exit(1))
    server.release()
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


def test_a_map_that_is_over_its_time_takes_back_what_it_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.held = True
    chunks: list[Future[Any]] = []
    with Executor(server, 1) as executor:
        first = executor.submit(abs, 1)
        submit = executor._lane.submit

        def remember(call: Small | Large, function: Any) -> Future[Any]:
            chunks.append(submit(call, function))
            return chunks[-1]

        monkeypatch.setattr(executor._lane, "submit", remember)
        found = executor.map(abs, range(4), timeout=0.05, chunksize=2)
        with pytest.raises(TimeoutError):
            next(found)
        assert [one.cancelled() for one in chunks] == [True, True]
        server.release()
        first.result(SECONDS)


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
