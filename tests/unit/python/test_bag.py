"""Waiting, following and changing a bag, with a server of known answers."""

import asyncio
import base64
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from covey.core.errors import (
    BagPaused,
    CoveyError,
    InvalidBag,
    InvalidQuery,
    NotFound,
    Refused,
    ServerAway,
    StillRunning,
)
from covey.python.bag import Bag
from covey.python.task import Task
from covey.wire import Estimate, ReturnedFile
from tests.unit.cli.builders import row
from tests.unit.cli.source import piece
from tests.unit.python.fakes import Known, Server, bag_of


@pytest.fixture
def server() -> Server:
    return Server()


def becomes(server: Server, **facts: object) -> Callable[[], None]:
    def change() -> None:
        server.view = structs.replace(server.view, **facts)

    return change


def interrupt() -> None:
    raise KeyboardInterrupt


def nothing() -> None:
    """It stays as it is."""


def test_waiting_ends_with_the_bag(server: Server) -> None:
    over = becomes(server, status="finished", done=8)
    bag = bag_of(server, nothing, becomes(server, done=5), over)
    assert bag.wait() is bag
    assert bag.known.status == "finished"
    assert repr(bag) == "<covey.Bag 3 'fits': finished, 8 of 10 done, 2 failed>"


def test_a_bag_that_was_cancelled_is_over(server: Server) -> None:
    assert bag_of(server, becomes(server, status="cancelled")).wait().known.status == "cancelled"


def test_waiting_has_an_end_if_one_is_given(server: Server) -> None:
    bag = bag_of(server)
    with pytest.raises(TimeoutError, match=r"bag 3 is not over after 0\.05 s: 6 of 10") as caught:
        bag.wait(0.05)
    assert isinstance(caught.value, StillRunning)
    assert caught.value.bag == 3
    assert max(server.waits) <= 0.05
    with pytest.raises(StillRunning):
        bag.wait(0)


def test_a_paused_bag_is_not_waited_for(server: Server) -> None:
    bag = bag_of(server, becomes(server, status="paused", reason="30 failures in a row"))
    with pytest.raises(BagPaused, match=r"PAUSED: 30 failures in a row\. Look: bag\.failures\(\)"):
        bag.wait()


def test_an_interrupt_ends_the_waiting_and_says_that_the_bag_goes_on(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = bag_of(server, interrupt)
    with pytest.raises(KeyboardInterrupt):
        bag.wait()
    assert "covey: bag 3 keeps running; bag.wait() follows it again" in capsys.readouterr().err
    assert server.told == [("hang up",)]


def test_a_bag_that_is_gone_is_said(server: Server) -> None:
    bag = bag_of(server, becomes(server, id=4))
    with pytest.raises(NotFound, match="bag 3 is gone"):
        bag.wait()


def test_progress_is_a_record(server: Server) -> None:
    server.view = structs.replace(
        server.view, running=1, estimate=Estimate(likely=2.0, low=1.0, high=3.0)
    )
    found = bag_of(server).progress()
    assert (found.total, found.done, found.failed, found.running, found.waiting) == (10, 4, 2, 1, 3)
    assert found.fraction == 0.6
    assert not found.over
    assert found.estimate is not None
    assert found.estimate.high == 3.0
    server.view = structs.replace(server.view, status="cancelled", total=0)
    assert bag_of(server).progress().fraction == 1.0
    assert bag_of(server).progress().waiting == 0


def test_results_are_asked_for_as_in_the_command(server: Server) -> None:
    bag = bag_of(server)
    assert [one.task for one in bag.results()] == [0, 1, 2, 3, 4, 5]
    assert [one.task for one in bag.results(failed=True)] == [2, 4]
    assert len(bag.results(limit=2)) == 2
    bag.results(where="x > 1", sort="-x")
    assert (server.asked[-1].where, server.asked[-1].sort) == (("x > 1",), "-x")
    bag.results(where=["x > 1", "x < 5"])
    assert server.asked[-1].where == ("x > 1", "x < 5")


def test_what_the_server_finds_wrong_is_a_mistake_in_the_question(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [Refused(400, "Bad", "there is no column z"), Refused(403, "No", "not yours")]

    def refuse(*given: object) -> object:
        raise refusals.pop(0)

    monkeypatch.setattr(server, "results", refuse)
    with pytest.raises(InvalidQuery, match="there is no column z"):
        bag_of(server).results(sort="z")
    with pytest.raises(Refused, match="not yours"):
        bag_of(server).results()


def test_tasks_are_named_by_numbers_and_slices(server: Server) -> None:
    tasks = bag_of(server).tasks
    assert tasks[-1].number == 9
    assert [task.number for task in tasks[1:3]] == [1, 2]
    assert [task.number for task in tasks[:-20:-4]] == [9, 5, 1]
    with pytest.raises(IndexError, match="has tasks 0 to 9; not 10"):
        tasks[10]
    with pytest.raises(TypeError, match="indices must be integers or slices, not str"):
        tasks["failed"]  # type: ignore[call-overload]


def test_only_calls_have_values(server: Server) -> None:
    with pytest.raises(CoveyError, match=r"bag 3 runs programs, not functions.*task\.result\(\)"):
        bag_of(server).tasks[0].value()
    server.view = structs.replace(server.view, calls=True)
    server.rows[0] = row(0, result={"value": base64.b64encode(pickle.dumps([1, 2])).decode()})
    assert bag_of(server).tasks[0].value() == [1, 2]
    with pytest.raises(NotFound, match="task 9 of bag 3 has not ended yet"):
        bag_of(server).tasks[9].value()
    server.view = structs.replace(server.view, status="cancelled")
    with pytest.raises(NotFound, match="task 9 of bag 3 never ran"):
        bag_of(server).tasks[9].value()


def test_results_come_one_after_another_until_the_bag_is_over(server: Server) -> None:
    first = server.rows[:2]
    server.rows = first

    def more() -> None:
        server.rows = [*first, row(7, result={"late": 1})]

    over = becomes(server, status="finished")
    bag = bag_of(server, nothing, nothing, nothing, more, over)
    found = list(bag)
    assert [one.task for one in found] == [0, 1, 7]
    assert found[-1]["late"] == 1
    assert all(query.by_row for query in server.asked)


def test_the_first_page_of_a_new_bag_needs_no_second_look_at_the_bag(server: Server) -> None:
    server.rows = [row(0)]
    bag = Bag(bag_of(server).connection, server.view, new=True)
    assert next(bag.follow()).task == 0
    assert server.waits == []
    assert next(bag.follow()).task == 0
    assert len(server.waits) == 1


def test_following_ends_where_nothing_more_comes(server: Server) -> None:
    bag = bag_of(server, becomes(server, status="paused"))
    with pytest.raises(BagPaused):
        list(bag.follow())
    bag = bag_of(server, interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(iter(bag))


def test_failures_are_grouped(server: Server) -> None:
    assert [one.cause for one in bag_of(server).failures()] == [
        "exit 1: ValueError: bad",
        "SIGKILL",
    ]
    server.view = structs.replace(server.view, failed=0)
    assert len(bag_of(server).failures()) == 0


def test_what_failed_runs_again_with_more(server: Server) -> None:
    bag = bag_of(server)
    assert bag.retry() == 2
    bag.retry(causes="SIGKILL", memory="+50%", time=2)
    bag.retry(causes=["a", "b"], tasks=iter([1, 2]), memory="x3")
    assert server.told == [
        ("retry", 3, (), None, 1.0, 1.0),
        ("retry", 3, ("SIGKILL",), None, 1.5, 2.0),
        ("retry", 3, ("a", "b"), [1, 2], 3.0, 1.0),
    ]
    with pytest.raises(InvalidQuery, match="memory: expected how much more: 'x2'"):
        bag.retry(memory="lots")


def test_orders_are_passed_on_where_they_change_something(server: Server) -> None:
    bag = bag_of(server)
    bag.resume()
    bag.pause("lunch")
    assert bag.cancel() == 4
    bag.close()
    server.view = structs.replace(server.view, status="paused")
    bag.pause()
    bag.resume()
    server.view = structs.replace(server.view, status="finished")
    assert bag.cancel() == 0
    assert server.told == [("pause", 3, "lunch"), ("cancel", 3), ("close", 3), ("resume", 3)]


def test_appending_needs_tasks(server: Server) -> None:
    with pytest.raises(InvalidBag, match=r"append\(\): say which tasks: parameters="):
        bag_of(server).append()
    with pytest.raises(InvalidBag, match=r"append\(\): parameters.x: a value is text or a number"):
        bag_of(server).append({"x": [None]})


def test_files_are_laid_out(server: Server, tmp_path: Path) -> None:
    server.returned = [
        ReturnedFile(row=task, task=task, values=[task], path="a.txt", size=1, data=b"x")
        for task in (1, 2)
    ]
    assert bag_of(server).pull(tmp_path, layout="{x}").files == 2
    assert (tmp_path / "2" / "a.txt").read_bytes() == b"x"
    assert bag_of(server).pull(tmp_path / "failed", failed=True).files == 1


def test_tasks_are_found_by_their_number(server: Server) -> None:
    tasks = bag_of(server).tasks
    assert len(tasks) == 10
    assert tasks[-1] == tasks[9]
    assert len({tasks[0], tasks[0], tasks[1]}) == 2
    assert [task.number for task in tasks] == list(range(10))
    assert [task.number for task in tasks.where("failed")] == [2, 4]
    assert [task.number for task in tasks.where("waiting")] == [6, 7, 8, 9]
    with pytest.raises(IndexError, match="bag 3 has tasks 0 to 9; not 10"):
        tasks[10]
    with pytest.raises(
        ValueError, match="a task is waiting, sent, running, done, failed; not 'lost'"
    ):
        tasks.where("lost")


def test_a_task_says_how_it_stands(server: Server) -> None:
    tasks = bag_of(server).tasks
    assert (tasks[0].state(), tasks[2].state(), tasks[7].state()) == ("done", "failed", "waiting")
    result = tasks[2].result()
    assert result is not None
    assert result["cause"] == "exit 1: ValueError: bad"
    assert tasks[7].result() is None
    server.view = structs.replace(server.view, status="cancelled")
    assert tasks[7].state() == "not run"
    assert repr(tasks[7]) == "<covey.Task 7 of bag 3 'fits'>"


def test_logs_are_what_was_printed_also_so_far(server: Server) -> None:
    tasks = bag_of(server).tasks
    assert str(tasks[2].logs()) == "out\nTraceback\nValueError: bad\n"
    assert tasks[2].logs().outcome == "failed"
    server.live = [[piece(7, 0, "a"), piece(7, 0, "oops", stream=2), piece(7, 1, "b")]]
    logs = tasks[7].logs()
    assert (logs.stdout, logs.stderr, logs.outcome) == ("ab", "oops", "running")
    with pytest.raises(NotFound, match=r"task 7 of bag 3 has not begun yet; bag\.wait\(\)"):
        tasks[7].logs()
    server.view = structs.replace(server.view, status="cancelled")
    with pytest.raises(NotFound, match="task 7 of bag 3 never ran"):
        tasks[7].logs()


def test_bags_are_equal_by_place_and_number(server: Server) -> None:
    connection = Known(server)
    assert Bag(connection, server.view) == Bag(Known(server), server.view)
    other = structs.replace(server.view, id=4)
    assert len({Bag(connection, server.view), Bag(connection, other)}) == 2
    assert Task(Bag(connection, server.view), 1) != 1


def test_a_bag_whose_server_is_away_is_shown_as_it_was(server: Server) -> None:
    def leave() -> None:
        raise ServerAway("gone")

    assert "6/10" in (bag_of(server, leave)._repr_html_() or "")


def test_all_of_it_can_be_awaited(server: Server) -> None:
    async def use() -> None:
        over = becomes(server, status="finished")
        bag = bag_of(server, nothing, nothing, over)
        assert await bag.aio.wait() is bag
        assert [one.task async for one in bag.aio] == [0, 1, 2, 3, 4, 5]
        assert (await bag.aio.progress()).over
        assert len(await bag.aio.results(failed=True)) == 2
        assert len(await bag.aio.failures()) == 2
        assert await bag.aio.retry(tasks=[2]) == 2
        server.view = structs.replace(server.view, status="running")
        await bag.aio.pause("why")
        await bag.aio.close()
        with pytest.raises(TimeoutError):
            await bag.aio.wait(0.01)
        server.view = structs.replace(server.view, status="paused")
        with pytest.raises(BagPaused):
            await bag.aio.wait()

    asyncio.run(use())
