"""covey from Python, with a real server and real pilots."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.utils.capture import capture_output

import covey
from covey.client.embedded import is_held
from tests.integration.python_place import Place, ipython, wait_until, working_in

SWEEP = """
import covey
bag = covey.submit(["sh", "-c", "sleep 0.1; echo {x}"], parameters={"x": range(6)}, name="six")
"""
REPORT = ["sh", "-c", """echo '{"square": '$(({x} * {x}))'}'"""]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield from working_in(tmp_path, monkeypatch)


def test_a_sweep_becomes_a_frame(place: Place) -> None:
    bag = covey.submit(REPORT, parameters={"x": range(1, 5)}, name="squares").wait(60)
    frame = bag.results(sort="-x").frame()
    assert frame["square"].tolist() == [16, 9, 4, 1]
    assert frame["x"].tolist() == [4, 3, 2, 1]
    assert bag.results(where="square >= 9")[0].reported == {"square": 9}
    assert bag.results(where=["square >= 4", "x < 4"]).column("x") == [2, 3]
    with pytest.raises(covey.InvalidQuery, match="Write several tests as a list"):
        bag.results(where="square >= 4 and x < 4")
    assert bag.progress().status == "finished"
    assert len(bag.failures()) == 0
    assert bag.tasks[3].logs().stdout == '{"square": 16}\n'
    found = covey.connect().bag()
    assert found == bag
    assert found.name == "squares"
    assert place.covey("results", "--format", "csv").count("\n") == 5


def test_inputs_rows_and_files_go_in_and_come_out(place: Place) -> None:
    (place.here / "twice.py").write_text(
        "import sys\nopen('out.txt', 'w').write(sys.argv[1] * 2)\nprint(sys.argv[2])\n"
    )
    bag = covey.submit(
        [sys.executable, "twice.py", "{word}", "{n}"],
        inputs=Path("twice.py"),
        rows=[{"word": "ab", "n": 1}, {"word": "c", "n": 2}],
        outputs="out.txt",
    )
    assert bag.wait(60).results().column("output") == ["1", "2"]
    assert bag.pull("got", layout="{word}").files == 2
    assert (place.here / "got" / "ab" / "out.txt").read_text() == "abab"


def test_a_bag_file_is_submitted_with_keywords_before_it(place: Place) -> None:
    (place.here / "sweep.toml").write_text(
        "command = 'echo {x} {y}'\n[parameters]\nx = '1..3'\ny = 'a,b'\n"
    )
    bag = covey.connect().submit(file="sweep.toml", parameters={"y": "c"}, name="mine").wait(60)
    assert bag.results().column("output") == ["1 c", "2 c", "3 c"]
    assert bag.known.name == "mine"


def test_what_failed_is_explained_and_repeated(place: Place) -> None:
    flag = place.here / "fixed"
    bag = covey.submit(
        ["sh", "-c", f"test {{x}} = 1 || test -e {flag} || {{ echo no luck >&2; exit 3; }}"],
        parameters={"x": [1, 2, 3]},
    ).wait(60)
    (group,) = bag.failures()
    assert (group.cause, group.count) == ("exit 3: no luck", 2)
    assert [task.number for task in bag.tasks.where("failed")] == [1, 2]
    assert bag.tasks[2].logs().stderr == "no luck\n"
    flag.touch()
    assert bag.retry(causes="exit 3") == 2
    assert [result.ok for result in bag.wait(60).results()] == [True] * 3
    assert len(bag.tasks[1].attempts()) == 2


def test_an_open_bag_grows_until_it_is_closed(place: Place) -> None:
    bag = covey.submit("echo {x} {y}", parameters={"x": [1], "y": [2]}, open=True)
    assert bag.append({"y": [5, 6], "x": 3}) == 3  # in any order
    (place.here / "more.csv").write_text("x,y\n7,8\n")
    assert bag.append(rows="more.csv") == 4
    with pytest.raises(covey.StillRunning):
        bag.wait(0.2)
    bag.close()
    assert bag.wait(60).results().column("output") == ["1 2", "3 5", "3 6", "7 8"]


def test_a_bag_is_paused_resumed_and_cancelled(place: Place) -> None:
    bag = covey.submit("sleep {x}", parameters={"x": [0.2] * 8})
    bag.pause("lunch")
    with pytest.raises(covey.BagPaused, match="lunch") as caught:
        bag.wait(60)
    assert caught.value.reason == "lunch"
    bag.resume()
    assert bag.progress().status == "running"
    assert bag.cancel() > 0
    assert bag.wait(60).known.status == "cancelled"


def test_results_come_while_the_bag_runs(place: Place) -> None:
    bag = covey.submit(["sh", "-c", "sleep {x}; echo {x}"], parameters={"x": ["0", "0.1", "3"]})
    came = iter(bag)
    early = [next(came)["output"], next(came)["output"]]
    assert sorted(early) == ["0", "0.1"]
    assert not bag.progress().over
    assert bag.tasks[2].state() == "running"
    assert [result["output"] for result in came] == ["3"]


def test_waiting_outlives_the_death_of_the_server(place: Place) -> None:
    bag = covey.submit(["sh", "-c", "sleep 0.2; echo {x}"], parameters={"x": range(20)})
    waiting = threading.Thread(target=bag.wait, args=(90,))
    waiting.start()
    wait_until(lambda: bag.progress().done >= 2)
    first = place.server_pid()
    os.kill(first, signal.SIGKILL)
    waiting.join(90)
    assert not waiting.is_alive()
    assert place.server_pid() != first
    assert bag.known.status == "finished"
    assert sorted(bag.results().column("x")) == list(range(20))


def test_a_server_that_died_is_no_zombie_of_a_long_session(place: Place) -> None:
    covey.submit("true").wait(60)
    process = Path("/proc") / str(place.server_pid())
    assert process.exists()
    place.kill_server()
    wait_until(lambda: not process.exists())
    covey.submit("true").wait(60)  # by another, which sends the pilots home


def test_results_are_followed_across_the_death_of_the_server(place: Place) -> None:
    bag = covey.submit(["sh", "-c", "sleep 0.1; echo {x}"], parameters={"x": range(12)})
    found = []
    for result in bag:
        found.append(result["x"])
        if len(found) == 3:
            place.kill_server()
    assert sorted(found) == list(range(12))


def test_a_server_that_was_stopped_is_not_started_by_those_who_wait(place: Place) -> None:
    bag = covey.submit("sleep 1000")
    failed: list[BaseException] = []
    attached = threading.Event()

    def wait() -> None:
        bag.poll()  # who asks for the first time may start one
        attached.set()
        try:
            bag.wait()
        except covey.ServerAway as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert attached.wait(60)
    place.covey("stop")
    waiting.join(60)
    assert "the server was stopped" in str(failed[0])
    assert bag.progress().status == "running"  # the record says so, without a server
    assert not is_held(place.directory)
    assert bag.cancel() == 1  # starts one
    assert bag.wait(60).known.status == "cancelled"


def test_what_is_known_is_read_without_a_server(place: Place) -> None:
    connection = covey.connect()
    bag = connection.submit("echo {x}", parameters={"x": [1, 2]}).wait(60)
    place.covey("stop")
    assert bag.results().column("output") == ["1", "2"]
    assert str(bag.tasks[1].logs()) == "2\n"
    assert [one.id for one in connection.bags()] == [bag.id]
    assert len(connection.hosts()) == 1
    assert len(connection.pilots()) == 0
    assert not is_held(place.directory)
    again = connection.submit("echo again").wait(60)
    assert again.results()[0]["output"] == "again"
    assert [one.status for one in connection.pilots()] == ["active"]


def test_a_server_that_went_home_is_started_when_it_is_needed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the second after which a client asks a starting server again.
    monkeypatch.setenv("COVEY_SERVE_IDLE_EXIT_SECONDS", "3")
    monkeypatch.setenv("COVEY_SERVE_PILOT_IDLE_SECONDS", "1")
    connection = covey.connect()
    connection.submit("echo 1").wait(60)
    wait_until(lambda: not is_held(place.directory))
    assert connection.submit("echo 2").wait(60).results()[0]["output"] == "2"


def test_two_threads_share_a_connection(place: Place) -> None:
    connection = covey.connect()
    outputs: dict[int, list[str]] = {}

    def work(number: int) -> None:
        bag = connection.submit("echo {x}", parameters={"x": range(number, number + 5)})
        outputs[number] = bag.wait(60).results().column("output")

    threads = [threading.Thread(target=work, args=(number,)) for number in (100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in (100, 200):
        assert outputs[number] == [str(number + index) for index in range(5)]


def test_bags_are_awaited_side_by_side(place: Place) -> None:
    async def use() -> None:
        connection = covey.connect()
        bags = [
            await connection.aio.submit("echo {x}", parameters={"x": [number, number + 1]})
            for number in (10, 20)
        ]
        await asyncio.gather(*(bag.aio.wait(60) for bag in bags))
        assert [one["output"] for one in await bags[1].aio.results()] == ["20", "21"]
        assert sorted([one["output"] async for one in bags[0].aio]) == ["10", "11"]
        long = await connection.aio.submit("sleep 30")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await long.aio.wait()
        assert (await long.aio.progress()).status == "running"
        assert await long.aio.cancel() == 1

    asyncio.run(use())


def test_a_pipe_gets_only_what_the_program_prints(place: Place) -> None:
    assert place.python(SWEEP + "print(len(bag.wait().results()))") == ("6\n", "")
    out, err = place.python(SWEEP + "bag.wait(progress=True)")
    assert out == ""
    assert err.splitlines()[-1].startswith("bag 2 six finished: 6 tasks done in ")


def test_a_terminal_gets_a_bar(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    outer, inner = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", SWEEP + "bag.wait()"], cwd=place.here, stderr=inner
    )
    os.close(inner)
    shown = b""
    try:
        while part := os.read(outer, 4096):
            shown += part
    except OSError:
        pass  # the last one has left the terminal
    os.close(outer)
    assert child.wait(60) == 0
    assert "bag 1 six finished: 6 tasks done in " in shown.decode()
    assert "░" in shown.decode()


def test_ctrl_c_leaves_the_bag_running_and_says_so(place: Place) -> None:
    program = SWEEP.replace("sleep 0.1", "sleep 2") + "print('waiting', flush=True); bag.wait()"
    child = place.start(program)
    assert child.stdout is not None
    assert child.stdout.readline() == "waiting\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    err = child.communicate(timeout=30)[1]
    assert child.returncode != 0
    assert "covey: bag 1 keeps running; bag.wait() follows it again" in err
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert covey.connect().bag().wait(60).progress().done == 6


def test_a_notebook_shows_progress_bags_and_results(place: Place) -> None:
    """IPython's shell with the display of a notebook: what would be sent to the browser."""
    with ipython(kernel=object()) as shell:
        with capture_output(display=True) as cell:
            ran = shell.run_cell(SWEEP + "bag.wait()\nbag.results()", store_history=True)
        ran.raise_error()
        bars = [output.data["text/html"] for output in cell.outputs]
        assert "six</b>" in bars[0]
        assert "width:100%" in bars[-1]
        assert [output.update for output in cell.outputs] == [False] + [True] * (len(bars) - 1)
        assert len({output.transient["display_id"] for output in cell.outputs}) == 1
        table = shell.display_formatter.format(ran.result)[0]["text/html"]
        assert table.count("<tr>") == 7
        shell.run_cell("None", store_history=True)  # the next cell
        assert "6/6" in shell.display_formatter.format(shell.user_ns["bag"])[0]["text/html"]
        assert cell.stderr == ""


def test_a_cell_of_a_notebook_has_one_bar(place: Place) -> None:
    """Also if it waits several times, and if the bag is what the cell ends with."""
    waits = (
        "for seconds in (0.01, 0.01, 60):\n"
        "    try:\n        bag.wait(seconds)\n    except covey.StillRunning:\n        pass\n"
    )
    with ipython(kernel=object()) as shell:
        with capture_output(display=True) as cell:
            shown = "print(get_ipython().display_formatter.format(bag)[0].keys())"
            shell.run_cell(SWEEP + waits + shown, store_history=True).raise_error()
        assert [output.update for output in cell.outputs].count(False) == 1
        assert "text/html" not in cell.stdout
        assert "text/plain" in cell.stdout
        with capture_output(display=True) as other:
            shell.run_cell("bag.wait()\nNone", store_history=True).raise_error()
        assert [output.update for output in other.outputs].count(False) == 1


def test_a_server_elsewhere_is_used_with_a_token(place: Place) -> None:
    other = place.here / "other"
    other.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "covey", "serve", "--port", "0"], cwd=other
    )
    try:
        wait_until(lambda: is_held(other / ".covey") and (other / ".covey/server.json").exists())
        theirs = Place(other)
        token = theirs.covey("token", "create", "ann").split()[-1]
        address = covey.connect(dir=other / ".covey").client().connection.endpoint.address
        connection = covey.connect(server=address, token=token)
        bag = connection.submit("echo {x}", parameters={"x": [1, 2]}).wait(60)
        assert bag.results().column("output") == ["1", "2"]
        assert not place.directory.exists()
        with pytest.raises(covey.Refused):
            covey.connect(server=address, token="wrong")
    finally:
        child.terminate()
        child.wait(30)


def test_a_few_tasks_from_python(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    more: dict[str, Any] = {"parameters": {"x": range(10_000_000), "y": ["a", "b"]}}
    bag = covey.submit(["echo", "{x}{y}"], first=3, **more).wait()
    assert bag.results().column("output") == ["0a", "0b", "1a"]
    assert "submitting 3 of 20,000,000 tasks" in capsys.readouterr().err
    bag = covey.submit(["echo", "{x}{y}"], where=["x > 9999998", "y = b"], **more).wait()
    assert bag.results().column("output") == ["9999999b"]
    bag = covey.submit(["echo", "{x}{y}"], where="x == 7 && y != a", **more).wait()
    assert (bag.results().column("output"), bag.results()[0].task) == (["7b"], 0)
    with pytest.raises(covey.InvalidBag, match="where: there is no parameter 'z'"):
        covey.submit(["echo", "{x}{y}"], where="z = 1", **more)
