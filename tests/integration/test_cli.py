"""The command line with a real server and real pilots, as a person uses it."""

import csv
import io
import json
import os
import random
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
    assert "no server is running" in place.covey("doctor").stdout
    assert place.covey("show", "7", status=1).stderr.startswith("covey: there is no bag 7")
    assert not is_held(place.directory)


def test_failures_are_told_and_retried(place: Place) -> None:
    script = place.here / "fit.py"
    script.write_text("import sys\nif sys.argv[1] == '2': sys.exit('no fit for 2')\n")
    ran = place.covey("run", "-p", "n=1..3", "--", "python3", "fit.py", "{n}", status=1)
    assert "2 tasks done, 1 failed" in ran.stdout
    assert "task 1 (n=2) on " in ran.stderr
    assert "exit 1: no fit for 2" in ran.stderr
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
    (place.here / "bag.toml").write_text(
        "command = ['sleep', '60']\n[resources]\ntime = '1s'\n[retries]\novertimes = 0\n"
    )
    ran = place.covey("run", "-f", "bag.toml", status=1)
    assert "time limit" in ran.stderr
    assert "covey retry 1 --failed --time x2" in ran.stderr


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
    assert "bag 1 keeps running: covey watch 1 | covey cancel 1" in err
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


def test_stop_says_how_many_tasks_start_over(place: Place) -> None:
    place.covey("submit", "--slots", "1", "-p", "x=1..3", "sh", "-c", "sleep 60; echo {x}")
    wait_until(lambda: place.bag()["running"])
    assert "1 task that ran will start over" in place.covey("stop").stderr


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


FIT = """
import json, os, sys
alpha, seed = float(sys.argv[1]), int(sys.argv[2])
print("fitting", alpha, seed)
if seed == 3 and not os.path.exists(sys.argv[3]):
    raise ValueError("no fit for %s" % alpha)
with open("fit.txt", "w") as file:
    file.write("%s %s" % (alpha, seed))
with open(os.environ["COVEY_RESULT"], "w") as file:
    json.dump({"energy": alpha * seed, "shape": [seed, 2], "good": seed > 1}, file)
"""


@pytest.fixture
def fits(place: Place) -> Place:
    """Bag 1: alpha is 0, 0.5, 1; seed is 1, 2, 3, and with 3 it fails."""
    (place.here / "fit.py").write_text(FIT)
    ran = place.covey(
        "run", "--name", "fits", "-p", "alpha=0..1..0.5", "-p", "seed=1..3", "--output", "fit.txt",
        "--", "python3", "fit.py", "{alpha}", "{seed}", str(place.here / "mended"), status=1,
    )  # fmt: skip
    assert "3 tasks, such as task 2 (alpha=0.0, seed=3) on " in ran.stderr
    assert "exit 1: ValueError: no fit for 0.0" in ran.stderr
    return place


def test_results_are_one_table(fits: Place) -> None:
    words = ["--where", "alpha >= 0.5", "--where", "good = true", "--sort", "-energy"]
    found = fits.covey(
        "results", *words, "--columns", "alpha,seed,energy", "--format", "csv"
    ).stdout
    assert found == "alpha,seed,energy\n1.0,2,2.0\n0.5,2,1.0\n"
    lines = fits.covey("results", "--where", "energy > 100").stderr
    assert "no results of bag 1 match" in lines
    assert "did you mean 'energy'" in (
        fits.covey("results", "--where", "enrgy > 1", status=2).stderr
    )
    joined = ["results", "--where", "energy > 1 and seed < 3"]
    told = [fits.covey(*joined, *more, status=2).stderr for more in ([], ["--format", "csv"])]
    fits.covey("stop")
    told.append(fits.covey(*joined, status=2).stderr)
    assert len(set(told)) == 1, "also without a server"
    assert "several --where" in told[0]


def test_ready_made_files_and_ours_are_the_same(fits: Place) -> None:
    """With a server and without."""
    found = [_both_forms(fits), _both_forms(fits, "--limit", "100")]
    fits.covey("stop")
    found += [_both_forms(fits), _both_forms(fits, "--limit", "100")]
    assert found == found[:1] * 4


def _both_forms(place: Place, *words: str) -> tuple[list[dict[str, object]], list[list[object]]]:
    lines = place.covey("results", "--format", "jsonl", *words).stdout.splitlines()
    table = csv.reader(io.StringIO(place.covey("results", "--format", "csv", *words).stdout))
    return list(map(json.loads, lines)), [list(map(_number, cells)) for cells in table]


def _number(cell: str) -> object:
    try:
        return float(cell)
    except ValueError:
        return cell


def test_results_as_parquet(fits: Place) -> None:
    import pyarrow.parquet

    fits.covey("results", "-o", "fits.parquet")
    table = pyarrow.parquet.read_table(fits.here / "fits.parquet")
    assert table.column("energy").to_pylist() == [0.0, 0.0, None, 0.5, 1.0, None, 1.0, 2.0, None]
    kinds = [str(table.schema.field(name).type) for name in ("alpha", "seed", "good", "shape")]
    assert kinds == ["double", "int64", "bool", "string"]


def test_failures_by_cause_and_again(fits: Place) -> None:
    shown = fits.covey("failures").stdout
    assert "3 tasks: exit 1: ValueError: no fit for N" in shown
    assert "| ValueError: no fit for 0.0" in shown
    assert [group["count"] for group in json.loads(fits.covey("failures", "--json").stdout)] == [3]
    told = fits.covey("retry", "--cause", "exit 2", status=2).stderr
    assert "the causes are:\n  exit 1: ValueError: no fit for N" in told
    assert "no such failed tasks" in fits.covey("retry", "--task", "0").stderr
    assert json.loads(fits.covey("logs", "--cause", "exit 1", "--tail", "1", "--json").stdout)[0][
        "stderr"
    ] == ("ValueError: no fit for 0.0\n")
    (fits.here / "mended").write_text("")
    ran = fits.covey("retry", "1", "--cause", "exit 1: Val", "--watch")
    assert "3 failed tasks will run again" in ran.stdout
    assert "9 tasks done" in ran.stdout


def test_files_are_pulled(fits: Place) -> None:
    assert "6 files" in fits.covey("pull", "--layout", "{alpha}/{seed}", "-o", "out").stdout
    assert (fits.here / "out" / "0.5" / "2" / "fit.txt").read_text() == "0.5 2"
    assert "6 existed already" in (
        fits.covey("pull", "--layout", "{alpha}/{seed}", "-o", "out").stdout
    )
    assert (
        "would both write" in fits.covey("pull", "--layout", "{alpha}", "-o", "x", status=2).stderr
    )


def test_a_large_file_comes_back_whole(place: Place) -> None:
    make = "import random; open('big', 'wb').write(random.Random({n}).randbytes(300000))"
    place.covey("run", "-p", "n=1,2", "--output", "big", "--", "python3", "-c", make)
    assert "2 files (585 kB), in bag-1" in place.covey("pull").stdout
    for task in (0, 1):
        found = (place.here / "bag-1" / str(task) / "big").read_bytes()
        assert found == random.Random(task + 1).randbytes(300_000)


def test_purge(fits: Place) -> None:
    assert "--yes" in fits.covey("purge", "1", "--logs", status=2).stderr
    fits.covey("purge", "1", "--logs", "--yes")
    assert "ValueError" not in fits.covey("logs").stdout
    assert len(json.loads(fits.covey("results", "--json").stdout)) == 9
    fits.covey("purge", "1", "--all", "--yes")
    assert "no bags here yet" in fits.covey("bags").stderr


def test_a_bag_that_fails_everywhere_is_paused(place: Place) -> None:
    ran = place.covey("run", "-p", "x=1..100", "false", status=1)
    assert "bag 1 PAUSED: 0 tasks done" in ran.stdout
    assert "go on: covey resume 1   give up: covey cancel 1" in ran.stderr
    assert "PAUSED" in place.covey("show").stdout
    assert place.bag()["status"] == "paused"
    place.covey("cancel")
    assert "cancelled" in place.covey("bags").stdout


def test_pause_and_resume(place: Place) -> None:
    place.covey("submit", "--slots", "1", "-p", "x=1..200", "sleep", "0.05")
    place.covey("pause", "--reason", "lunch")
    assert "PAUSED: lunch" in place.covey("watch", status=1).stderr
    assert "200 tasks done" in place.covey("resume", "--watch").stdout


SLOW = "for n in 1 2 3 4; do echo {x} $n; sleep 0.4; done; echo done {x} >&2"


def test_live_logs_of_one_task(place: Place) -> None:
    seen = place.here / "seen"
    waits = f"until test -e {seen}; do sleep 0.1; done; {SLOW}"
    place.covey("submit", "--slots", "2", "-p", "x=7,8", "sh", "-c", f"echo {{x}} 0; {waits}")
    wait_until(lambda: place.bag()["running"])
    child = place.start("logs", "-f", "1", "0")
    assert child.stdout is not None
    assert child.stdout.readline() == "7 0\n"
    seen.touch()
    assert child.stdout.readline() == "7 1\n"
    out = child.stdout.read()  # not communicate(), which loses what readline() has read ahead
    _, err = child.communicate(timeout=30)
    assert out == "7 2\n7 3\n7 4\ndone 7\n"
    assert "task 0 (x=7): exit 0" in err


def test_live_logs_of_all_tasks(place: Place) -> None:
    place.covey("submit", "--slots", "2", "-p", "x=7,8,9", "sh", "-c", SLOW)
    told = place.covey("logs", "-f").stdout.splitlines()
    for task, x in enumerate((7, 8, 9)):
        lines = [line for line in told if line.startswith(f"{task} | ")]
        assert lines == [f"{task} | {x} {n}" for n in range(1, 5)] + [f"{task} | done {x}"]
    assert len(told) == 15


def test_live_logs_end_with_an_interrupt(place: Place) -> None:
    place.covey("submit", "sh", "-c", "echo hello; sleep 60")
    child = place.start("logs", "-f")
    assert child.stdout is not None
    assert child.stdout.readline() == "0 | hello\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=10)
    assert (child.returncode, err) == (0, "covey: bag 1 keeps running\n")
    place.covey("cancel")


def test_results_as_they_come(place: Place) -> None:
    go = place.here / "go"
    task = f"test {{x}} = 1 || until test -e {go}; do sleep 0.1; done; echo {{x}}"
    place.covey("submit", "--slots", "1", "-p", "x=1..4", "sh", "-c", task)
    child = place.start("results", "--follow", "--format", "csv", "--columns", "x,output")
    assert child.stdout is not None
    assert [child.stdout.readline() for _ in range(2)] == ["x,output\n", "1,1\n"]
    assert place.bag()["done"] == 1, "the bag is not over"
    go.touch()
    out = child.stdout.read()
    assert (child.wait(30), out) == (0, "2,2\n3,3\n4,4\n")


def test_hosts_show_what_tasks_publish(place: Place) -> None:
    place.covey("run", "sh", "-c", "echo library=2.1 > $COVEY_TAGS; sleep 1")
    (host,) = json.loads(place.covey("hosts", "--json").stdout)
    assert host["done"] == 1
    published = {name: value for name, value in host["tags"].items() if ":" in name}
    assert list(published.values()) == ["2.1"]
    (name,) = published
    assert name in place.covey("hosts").stdout
    assert place.covey("hosts", "--where", f"{name}=2.*", "--tags").stdout.count("2.1") == 1


def test_a_policy_from_check_to_explanation(place: Place) -> None:
    assert "expected" in place.covey("policy", "check", "rank=1 +", status=1).stdout
    place.covey("submit", "--slots", "1", "-p", "x=1..3", "sleep", "60")
    wait_until(lambda: place.bag()["running"])
    listed = json.loads(place.covey("policy", "attributes", "--json").stdout)
    assert all(one["example"] for one in listed if one["role"] in ("Host", "Pilot", "Queue"))
    ran = place.covey("policy", "set", "requirements=Host.NumCpus > 100000", "deadline=30m")
    assert "+ Host.NumCpus > 100000" in ran.stdout
    assert "it is not true on the only connected host" in ran.stderr
    assert "0 of 1  Host.NumCpus > 100000" in place.covey("policy", "check", status=1).stdout
    told = place.covey("explain").stdout
    assert "no connected host meets its requirements" in told
    assert "lacks Host.NumCpus > 100000 (Host.NumCpus is " in told
    assert "it runs on" in place.covey("explain", "1", "0").stdout
    place.covey("cancel")
    place.covey("stop")
    assert "deadline (from the key deadline)\n  1800" in place.covey("policy", "show").stdout
    assert "it is cancelled: 0 of 3 tasks done" in place.covey("explain").stdout
    assert "no task 3" in place.covey("explain", "1", "3", status=1).stderr


def test_habits_of_a_shell(place: Place) -> None:
    """Lines of standard input, the environment, a bag's name, and a directory below."""
    listed = subprocess.run(
        [sys.executable, "-P", "-m", "covey", "run", "--name", "lines", "--", "echo", "n{}"],
        cwd=place.here, env=place.env, input="1\n2\n", text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert "2 tasks done" in listed.stdout
    assert place.covey("logs", "lines", "1", "--stdout").stdout == "n2\n"
    place.env["MINE"] = "7"
    words = ["run", "--name", "env", "--env", "MINE", "--cores", "1", "--"]
    names = ("MINE", "COVEY_BAG", "COVEY_TASK", "COVEY_CORES", "COVEY_ATTEMPT")
    place.covey(*words, "sh", "-c", "echo " + " ".join(f"${name}" for name in names))
    mine, bag, task, cores, attempt = place.covey("logs", "env", "0", "--stdout").stdout.split()
    assert (mine, bag, task, cores) == ("7", "2", "0", "1")
    assert attempt.count(".") == 1
    below = Place(place.here / "below")
    below.here.mkdir()
    below.env = place.env
    shown = below.covey("show", "env")
    assert f"using {place.directory} from a parent directory" in shown.stderr
    assert below.covey("status", "env").stdout == "finished\n"
    below.covey("run", "--", "echo", "{{m}}")
    assert not below.directory.exists()
    assert place.covey("logs", "3", "0", "--stdout").stdout == "{m}\n"
    assert "-- sh -c 'echo {n}'" in below.covey("run", "echo {n}", status=2).stderr


def test_tasks_sent_ahead_are_not_running(place: Place) -> None:
    place.covey("submit", "--slots", "1", "-p", "n=1..30", "--", "sleep", "0.3")
    wait_until(lambda: place.bag()["running"])
    view = place.bag()
    assert view["running"] == 1
    states = [one["state"] for one in json.loads(place.covey("tasks", "--json").stdout)]
    assert states.count("running") <= 1
    pilots = json.loads(place.covey("pilots", "--json").stdout)
    assert all(pilot["running"] <= pilot["slots"] for pilot in pilots)
    place.covey("cancel", "1")
