"""The command line with a real server and real pilots, as a person uses it."""

import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.client.embedded import is_held, read_record

Ran = subprocess.CompletedProcess[str]


class Place:
    """A directory in which somebody works."""

    def __init__(self, here: Path) -> None:
        self.here = here
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COVEY_")}
        self.env = {**kept, "HOME": str(here), "XDG_CONFIG_HOME": str(here), "NO_COLOR": "1"}
        self.directory = here / ".covey"

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "covey", *words],
            cwd=self.here, env=self.env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def covey(self, *words: str, status: int = 0) -> Ran:
        child = self.start(*words)
        out, err = child.communicate(timeout=60)
        assert child.returncode == status, f"{words}\n{out}\n{err}\n{self.log()}"
        return subprocess.CompletedProcess(words, child.returncode, out, err)

    def log(self) -> str:
        path = self.directory / "server.log"
        return path.read_text() if path.exists() else ""

    def server_pid(self) -> int:
        record = read_record(self.directory)
        assert record is not None
        return record.pid

    def bag(self) -> dict[str, object]:
        shown: dict[str, object] = json.loads(self.covey("show", "--json").stdout)
        return shown


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.covey("stop")


def wait_until(true: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_run_and_look(place: Place) -> None:
    ran = place.covey("run", "--name", "sums", "-p", "a=1..3", "-p", "b=x,y", "echo", "{a}{b}")
    assert ran.stdout.startswith("bag 1 sums finished: 6 tasks done in ")
    assert "covey results 1" in ran.stderr
    table = list(csv.DictReader(io.StringIO(place.covey("results", "--format", "csv").stdout)))
    assert [row["output"] for row in table] == ["1x", "1y", "2x", "2y", "3x", "3y"]
    assert {row["state"] for row in table} == {"done"}
    assert place.covey("logs", "1", "5", "--stdout").stdout == "3y\n"
    assert place.bag()["done"] == 6
    assert len(json.loads(place.covey("pilots", "--all", "--json").stdout)) == 1
    assert "ready" in place.covey("doctor").stdout


def test_reading_needs_no_server(place: Place) -> None:
    assert "no bags here yet" in place.covey("bags").stderr
    assert not place.directory.exists()
    place.covey("run", "true")
    place.covey("stop")
    assert not is_held(place.directory)
    assert "finished" in place.covey("bags").stdout
    assert len(json.loads(place.covey("results", "--json").stdout)) == 1
    assert "none runs" in place.covey("doctor").stdout
    assert place.covey("show", "7", status=1).stderr.startswith("covey: there is no bag 7")
    assert not is_held(place.directory)


def test_failures_are_told_and_retried(place: Place) -> None:
    script = place.here / "fit.py"
    script.write_text("import sys\nif sys.argv[1] == '2': sys.exit('no fit for 2')\n")
    ran = place.covey("run", "-p", "n=1..3", "--", "python3", "fit.py", "{n}", status=1)
    assert "2 tasks done, 1 failed" in ran.stdout
    assert "task 1 (n=2): exit 1 on" in ran.stderr
    assert "no fit for 2" in ran.stderr
    assert "no fit for 2" in place.covey("logs", "--limit", "1").stdout
    assert [
        row["n"] for row in json.loads(place.covey("results", "--failed", "--json").stdout)
    ] == [2]
    script.write_text("")
    ran = place.covey("retry", "--failed", "--watch")
    assert "1 failed task will run again" in ran.stdout
    assert "3 tasks done" in ran.stdout
    assert "nothing to retry" in place.covey("retry", "--failed").stderr


def test_the_command_is_run_as_it_was_written(place: Place) -> None:
    (place.here / "random.py").write_text("raise SystemExit('not the random you want')\n")
    (place.here / "data.txt").write_text("one two\n")
    place.covey("run", "-p", "x=7", "--", "awk", '{print $2, "{x}", "{task}"}', "data.txt")
    assert place.covey("logs", "1", "0", "--stdout").stdout == "two 7 0\n"
    place.covey(
        "run", "--chdir", ".", "--env", "COLOUR=blue", "sh", "-c", "echo $COLOUR; ls data.txt"
    )
    assert place.covey("logs", "2", "0", "--stdout").stdout == "blue\ndata.txt\n"
    ran = place.covey("run", "--", "sh", "-c", "cat data.txt", status=1)
    assert "--chdir ." in ran.stderr


def test_a_limit(place: Place) -> None:
    ran = place.covey("run", "--limit", "1s", "sleep", "60", status=1)
    assert "over its limit of 1 s" in ran.stderr


def test_two_at_once_share_one_server(place: Place) -> None:
    children = [place.start("run", "-p", "x=1..5", "echo", "{x}") for _ in range(3)]
    for child in children:
        _, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
    assert place.log().count("server ready") == 1
    assert len(json.loads(place.covey("bags", "--json").stdout)) == 3


def test_submit_and_watch(place: Place) -> None:
    assert place.covey("submit", "-p", "x=1..4", "sleep", "0.1").stdout == "1\n"
    told = json.loads(place.covey("run", "--detach", "--json", "true").stdout)
    assert told == {"bag": 2, "total": 1, "known": False}
    lines = [json.loads(line) for line in place.covey("watch", "1", "--json").stdout.splitlines()]
    assert lines[-1]["status"] == "finished"
    assert lines[-1]["done"] == 4


def test_interrupt_detaches(place: Place) -> None:
    child = place.start("run", "-p", "x=1..4", "sleep", "0.5")
    wait_until(lambda: "pilot enrolled" in place.log())
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=10)
    assert child.returncode == 0
    assert "bag 1 goes on without you: covey watch 1 | covey cancel 1" in err
    assert "4 tasks done" in place.covey("watch").stdout


def test_cancel(place: Place) -> None:
    place.covey("submit", "-p", "x=1..1000", "sleep", "60")
    wait_until(lambda: place.bag()["running"])
    running = json.loads(place.covey("tasks", "--state", "running", "--json").stdout)
    assert running[0]["values"] == {"x": running[0]["task"] + 1}
    assert place.covey("cancel").stdout == "bag 1 cancelled: 1,000 tasks stopped or not run\n"
    assert "nothing to cancel" in place.covey("cancel").stderr
    assert "1,000 not run" in place.covey("watch", status=1).stdout


def test_a_killed_server_comes_back_under_a_watch(place: Place) -> None:
    child = place.start("run", "-p", "x=1..6", "sh", "-c", "sleep 0.5; echo {x}")
    wait_until(lambda: "pilot enrolled" in place.log())
    os.kill(place.server_pid(), signal.SIGKILL)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, f"{out}\n{err}\n{place.log()}"
    assert "6 tasks done" in out
    assert place.log().count("server ready") == 2


def test_a_stopped_bag_goes_on_with_watch(place: Place) -> None:
    child = place.start("run", "-p", "x=1..6", "sleep", "0.5")
    wait_until(lambda: "pilot enrolled" in place.log())
    place.covey("stop")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "the server was stopped; 'covey watch' starts one and goes on" in err
    assert place.bag()["status"] == "running"
    assert "6 tasks done" in place.covey("watch").stdout


def test_drain_lets_tasks_end(place: Place) -> None:
    place.covey("submit", "--slots", "1", "-p", "x=1..50", "sleep", "1")
    wait_until(lambda: place.bag()["running"])
    place.covey("stop", "--drain")
    ended = json.loads(place.covey("results", "--json").stdout)
    assert ended
    assert {row["state"] for row in ended} == {"done"}


def test_a_server_that_cannot_start_says_why(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place.env["COVEY_SERVE_PORT"] = str(taken.getsockname()[1])
        ran = place.covey("run", "true", status=1)
    assert "covey: the server did not start:\n" in ran.stderr
    assert f"port {place.env['COVEY_SERVE_PORT']} cannot be used" in ran.stderr
    assert len(ran.stderr.splitlines()) <= 6
