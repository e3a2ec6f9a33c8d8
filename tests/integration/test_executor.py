"""Functions on a real server: what a person does with an executor, and what can go wrong."""

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from covey.client.embedded import note_stop
from covey.executor import (
    CallFailed,
    CallTimeout,
    Executor,
    RemoteTraceback,
    WorkerRefused,
    task,
    tasks,
)
from covey.python.connection import Connection, connect
from covey.wire import ResultQuery

SECONDS = 60.0


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp("executor")
    with connect(dir=folder / ".covey", slots=2) as found:
        found.server()
        yield found
        found.client().stop()


@pytest.fixture(scope="module")
def executor(connection: Connection) -> Iterator[Executor]:
    with Executor(connection, name="tests") as found:
        yield found


class Unpicklable(Exception):
    """One that pickle takes, and cannot make again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def fails(kind: Callable[..., BaseException], *words: str) -> None:
    raise kind(*words)


def outer() -> None:
    inner()


def inner() -> None:
    raise LookupError("from the depth")


# -- values -------------------------------------------------------------------------------


def test_a_closure_and_a_lambda_are_called_elsewhere(executor: Executor) -> None:
    factor = 6

    def times(number: int, *, plus: int = 0) -> int:
        return factor * number + plus

    assert executor.submit(times, 7, plus=1).result(SECONDS) == 43
    assert executor.submit(lambda: os.getpid()).result(SECONDS) != os.getpid()


def test_a_worker_stays_for_the_next_call(executor: Executor) -> None:
    pids = set(executor.map(lambda _: os.getpid(), range(200)))
    assert 1 <= len(pids) <= 2


def test_a_function_follows_what_it_looks_at(executor: Executor) -> None:
    found = []
    seen: list[int] = []
    for number in range(3):
        seen.append(number)
        found.append(executor.submit(lambda: sum(seen)))
    assert [one.result(SECONDS) for one in found] == [0, 1, 3]


def test_chunks_come_back_in_order(executor: Executor) -> None:
    assert list(executor.map(pow, range(100), [2] * 100, chunksize=7)) == [x**2 for x in range(100)]


def test_a_value_is_there_for_whoever_asks_for_its_task(
    connection: Connection, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"

    def half(number: int) -> float:
        if number % 2 and not mended.exists():
            raise LookupError(number)
        return number / 2

    with Executor(connection) as executor:
        calls: list[tuple[Callable[..., object], int]]
        calls = [(half, 4), (half, 5), (bytes, 100_000), (sys.exit, 3)]
        wait([executor.submit(function, number) for function, number in calls], SECONDS)
        bag = connection.bag(executor.bag)
        assert bag.tasks[0].value() == 2.0
        assert bag.tasks[2].value() == bytes(100_000)
        with pytest.raises(LookupError) as caught:
            bag.tasks[1].value()
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        with pytest.raises(CallFailed, match=r"sys.exit\(3\)"):
            bag.tasks[3].value()
        mended.touch()
        assert bag.retry(tasks=[1]) == 1
    bag.wait(SECONDS)
    assert bag.tasks[1].value() == 2.5
    assert "value" not in bag.results().columns


def test_a_hundred_megabytes_come_back(executor: Executor) -> None:
    found = executor.submit(lambda: b"covey" * 20_000_000).result(SECONDS)
    assert len(found) == 100_000_000
    assert found[-5:] == b"covey"


def test_values_of_every_size_come_back(executor: Executor) -> None:
    sizes = [0, 1, 39_000, 40_001, 200_000, 3_000_000]
    assert [len(one) for one in executor.map(bytes, sizes)] == sizes


# -- failures -----------------------------------------------------------------------------


def test_an_exception_comes_with_the_traceback_from_there(executor: Executor) -> None:
    with pytest.raises(LookupError, match="from the depth") as caught:
        executor.submit(outer).result(SECONDS)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "in outer" in str(cause)
    assert "in inner" in str(cause)
    assert "worker/calls" not in str(cause)


def test_an_exception_that_cannot_travel_is_told_in_words(executor: Executor) -> None:
    with pytest.raises(CallFailed, match="Unpicklable: these words") as caught:
        executor.submit(fails, Unpicklable, "these words", "those").result(SECONDS)
    assert isinstance(caught.value.__cause__, RemoteTraceback)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (functools.partial(sys.exit, 3), r"called sys\.exit\(3\)"),
        (functools.partial(threading.Lock), "value cannot be pickled"),
        (functools.partial(os._exit, 4), "exit code 4|ended with exit|status 4|4"),
    ],
    ids=["sys.exit", "a lock", "os._exit"],
)
def test_what_is_no_value_is_a_clear_error(
    executor: Executor, function: Callable[[], Any], words: str
) -> None:
    with pytest.raises(CallFailed, match=words):
        executor.submit(function).result(SECONDS)
    assert executor.submit(abs, -1).result(SECONDS) == 1


def test_a_killed_worker_fails_its_call_only(executor: Executor) -> None:
    others = [executor.submit(abs, -number) for number in range(20)]
    killed = executor.submit(lambda: os.kill(os.getpid(), signal.SIGKILL))
    others += [executor.submit(abs, -number) for number in range(20)]
    with pytest.raises(CallFailed) as caught:
        killed.result(SECONDS)
    assert caught.value.signal == signal.SIGKILL
    assert [one.result(SECONDS) for one in others] == [*range(20), *range(20)]


def test_an_argument_that_cannot_be_pickled_fails_its_future(executor: Executor) -> None:
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(str, threading.Lock()).result(SECONDS)


def test_what_a_function_prints_is_the_output_of_its_task(
    executor: Executor, connection: Connection
) -> None:
    for words in ("first", "second"):
        with pytest.raises(ValueError) as caught:
            executor.submit(_print_and_fail, words).result(SECONDS)
        assert str(caught.value) == words
    rows = connection.client().results(executor.bag, ResultQuery(failed_only=True))
    outputs = {
        row.message: connection.client().output(executor.bag, row.task)
        for row in rows
        if row.message.startswith("ValueError")
    }
    printed = {message: one.stdout for message, one in outputs.items() if one is not None}
    assert printed == {"ValueError: first": "first\n", "ValueError: second": "second\n"}


def _print_and_fail(words: str) -> None:
    print(words)
    raise ValueError(words)


def test_threads_that_stay_are_in_nobodys_way(executor: Executor) -> None:
    def leaves_one() -> int:
        threading.Thread(target=time.sleep, args=(30,), name="a straggler").start()
        return 1

    assert list(executor.map(lambda _: leaves_one(), range(3))) == [1, 1, 1]
    assert executor.submit(abs, -2).result(SECONDS) == 2


# -- options ------------------------------------------------------------------------------


def test_a_call_over_its_time_is_stopped(executor: Executor) -> None:
    quick = executor.with_options(limit_seconds=1.0)
    assert quick is executor.with_options(limit_seconds=1.0)
    assert executor.with_options() is executor
    began = time.monotonic()
    with pytest.raises(CallTimeout) as caught:
        quick.submit(time.sleep, 30).result(SECONDS)
    assert isinstance(caught.value, TimeoutError)
    assert time.monotonic() - began < 15
    assert quick.submit(abs, -3).result(SECONDS) == 3
    with pytest.raises(TypeError, match="no such option: core"):
        executor.with_options(core=2)


def test_a_failed_call_is_tried_again(executor: Executor, tmp_path: Path) -> None:
    def third_time_lucky(path: Path) -> int:
        with path.open("a") as file:
            file.write("x")
        if path.stat().st_size < 3:
            raise OSError("not yet")
        return path.stat().st_size

    again = executor.with_options(retries=5)
    assert again.submit(third_time_lucky, tmp_path / "tries").result(SECONDS) == 3


def test_an_initializer_runs_once_per_worker(connection: Connection, tmp_path: Path) -> None:
    def begin(path: Path) -> None:
        (path / str(os.getpid())).touch()
        os.environ["PREPARED"] = "yes"

    with Executor(connection, initializer=begin, initargs=(tmp_path,)) as executor:
        found = list(executor.map(lambda _: (os.environ["PREPARED"], os.getpid()), range(50)))
    assert {prepared for prepared, _ in found} == {"yes"}
    assert {pid for _, pid in found} <= {int(one.name) for one in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) <= 2


def test_an_initializer_that_ends_its_process_breaks_the_executor(connection: Connection) -> None:
    executor = Executor(connection, initializer=os._exit, initargs=(5,))
    found = [executor.submit(abs, 1) for _ in range(5)]
    for one in found:
        with pytest.raises(BrokenExecutor, match=r"did not start: exit code 5.*initializer"):
            one.result(SECONDS)
    with pytest.raises(BrokenExecutor, match="did not start"):
        executor.submit(abs, 1)
    executor.shutdown()


def test_a_python_that_no_host_has_is_named(connection: Connection) -> None:
    with (
        Executor(connection, python="python9.9") as executor,
        pytest.raises(WorkerRefused, match=r"did not start: exit code 127: there is no python9\.9"),
    ):
        executor.submit(abs, 1).result(SECONDS)


def test_an_initializer_that_fails_breaks_the_executor(connection: Connection) -> None:
    executor = Executor(connection, initializer=fails, initargs=(ValueError, "no licence"))
    found = [executor.submit(abs, 1) for _ in range(10)]
    for one in found:
        with pytest.raises(BrokenExecutor, match="initializer failed: ValueError: no licence"):
            one.result(SECONDS)
    with pytest.raises(BrokenExecutor, match="no licence"):
        executor.submit(abs, 1)
    executor.shutdown()


def test_another_python_is_refused(connection: Connection) -> None:
    told = {"COVEY_WORKER_PYTHON": "cpython 3.6"}
    words = pytest.raises(WorkerRefused, match=r"pickled with cpython 3\.6, but .*python=")
    with Executor(connection, env=told) as executor, words:
        executor.submit(abs, 1).result(SECONDS)


def test_a_python_that_is_not_there_is_named(connection: Connection) -> None:
    words = pytest.raises(CallFailed, match="127")
    with Executor(connection, python="python9.9") as executor, words as caught:
        executor.submit(abs, 1).result(SECONDS)
    output = connection.client().output(caught.value.bag, caught.value.task)
    assert output is not None
    assert output.stderr == "there is no python9.9\n"


# -- ends ---------------------------------------------------------------------------------


def test_what_is_cancelled_in_time_never_runs(connection: Connection, tmp_path: Path) -> None:
    def mark(name: int) -> None:
        (tmp_path / str(name)).touch()
        time.sleep(0.05)

    with Executor(connection, max_workers=2) as executor:
        found = [executor.submit(mark, number) for number in range(20)]
        cancelled = [number for number, one in enumerate(found) if number >= 5 and one.cancel()]
        wait(found)
    assert len(cancelled) > 10
    ran = {int(one.name) for one in tmp_path.iterdir()}
    assert ran == set(range(20)) - set(cancelled)


def test_its_bag_is_finished_when_it_ends(connection: Connection) -> None:
    with Executor(connection, name="named") as executor:
        assert executor.submit(abs, -1).result(SECONDS) == 1
        view = connection.client().bag(executor.bag)
        assert view is not None
        assert (view.name, view.status, view.open, view.done) == ("named", "running", True, 1)
    view = connection.client().bag(executor.bag, wait_seconds=SECONDS, seen=1)
    assert view is not None
    assert (view.status, view.done) == ("finished", 1)


def test_a_bag_that_somebody_cancels_breaks_its_executor(connection: Connection) -> None:
    executor = Executor(connection)
    slow = executor.submit(time.sleep, 60)
    while not executor.bag or not connection.client().running(executor.bag):
        time.sleep(0.02)
    connection.client().cancel(executor.bag)
    with pytest.raises(BrokenExecutor, match="cancelled"):
        slow.result(SECONDS)
    executor.shutdown()


def test_abort_stops_what_runs(connection: Connection, tmp_path: Path) -> None:
    executor = Executor(connection)
    slow = executor.submit(_mark_late, tmp_path / "ended")
    while not executor.bag or not connection.client().running(executor.bag):
        time.sleep(0.02)
    executor.abort()
    assert slow.done()
    executor.shutdown()
    time.sleep(2.2)
    assert not (tmp_path / "ended").exists()


def _mark_late(path: Path) -> None:
    time.sleep(2)
    path.touch()


def test_calls_survive_the_death_of_the_server(tmp_path: Path) -> None:
    with connect(dir=tmp_path / ".covey", slots=2) as connection:
        with Executor(connection) as executor:
            assert executor.submit(abs, -1).result(SECONDS) == 1
            found = [executor.submit(_slowly, number) for number in range(60)]
            time.sleep(0.5)
            os.kill(connection.server().pid, signal.SIGKILL)
            assert [one.result(SECONDS) for one in found] == list(range(60))
            assert executor.submit(abs, -2).result(SECONDS) == 2
        connection.client().stop()


def _slowly(number: int) -> int:
    time.sleep(0.05)
    return number


def test_a_fork_is_told_to_make_its_own(executor: Executor) -> None:
    assert executor.submit(abs, -1).result(SECONDS) == 1
    child = os.fork()
    if not child:
        try:
            executor.submit(abs, -1)
        except RuntimeError as error:
            os._exit(0 if "make one here" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert executor.submit(abs, -1).result(SECONDS) == 1


# -- tasks --------------------------------------------------------------------------------


@task
def area(radius: float) -> float:
    return 3 * radius**2


@task(limit_seconds=50)
def where() -> int:
    return os.getpid()


def test_a_task_is_a_function_that_can_be_submitted(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_DIR", str(connection.config.directory))
    monkeypatch.setattr(tasks, "_shared", {})
    assert area(2) == 12
    assert where() == os.getpid()
    assert area.submit(2).result(SECONDS) == 12
    assert list(area.map(range(5), chunksize=2)) == [0, 3, 12, 27, 48]
    assert where.submit().result(SECONDS) != os.getpid()
    assert area.__name__ == "area"
    tasks.shared_executor().shutdown()


def test_a_method_may_be_a_task(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    class Circle:
        def __init__(self, radius: float) -> None:
            self.radius = radius

        @task
        def times(self, count: int) -> float:
            return count * self.radius

        def twice(self) -> float:
            return self.times(2)

        @staticmethod
        @task
        def sides() -> int:
            return 0

    monkeypatch.setenv("COVEY_DIR", str(connection.config.directory))
    monkeypatch.setattr(tasks, "_shared", {})
    assert Circle(3).times(2) == 6
    assert Circle.times(Circle(3), 2) == 6
    assert Circle(3).times.submit(2).result(SECONDS) == 6
    assert list(Circle(3).times.map([1, 2])) == [3, 6]
    assert Circle.times.submit(self=Circle(3), count=4).result(SECONDS) == 12
    assert Circle(3).sides.submit().result(SECONDS) == 0
    assert tasks.shared_executor().submit(Circle(3).twice).result(SECONDS) == 6
    tasks.shared_executor().shutdown()


def test_tasks_go_on_after_their_server_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_DIR", str(tmp_path / ".covey"))
    monkeypatch.setattr(tasks, "_shared", {})
    assert where.submit().result(SECONDS) != os.getpid()
    with connect(dir=tmp_path / ".covey") as connection:
        note_stop(connection.config.directory)
        connection.client().stop()
    with pytest.raises(BrokenExecutor, match="the server was stopped; make a new Executor"):
        where.submit().result(SECONDS)
    assert where.submit().result(SECONDS) != os.getpid()
    assert area.submit(2).result(SECONDS) == 12
    tasks.shared_executor().shutdown()
    with connect(dir=tmp_path / ".covey") as connection:
        connection.client().stop()


def test_a_task_is_told_of_wrong_options_at_once() -> None:
    with pytest.raises(TypeError, match="no such option: limit"):
        task(limit=3)


def test_a_task_may_call_another_on_its_host(executor: Executor) -> None:
    assert executor.submit(lambda: area(1) + area(2)).result(SECONDS) == 15
