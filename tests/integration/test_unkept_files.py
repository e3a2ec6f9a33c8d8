"""Files that tasks leave and no output pattern names: they are removed, and everybody is told."""

import json
import warnings

import pytest

import covey
from tests.integration.test_cli import Place, place, wait_until

__all__ = ["place"]  # a fixture

WRITES = "import sys; open(f'result-{sys.argv[1]}.txt', 'w').write('x' * 10)"


def test_unkept_files_are_told_at_the_end_and_in_every_view(place: Place) -> None:
    ran = place.covey("run", "-p", "n=1..3", "--", "python3", "-c", WRITES, "{n}")
    (line,) = [one for one in ran.stderr.splitlines() if one.startswith("covey: bag 1: NOT KEPT")]
    assert "3 files of 3 tasks" in line
    assert "result-2.txt" in line
    assert "30 bytes in all" in line
    assert "--output '*'" in line
    assert "NOT KEPT: 3 files of 3 tasks" in place.covey("show").stdout
    unkept = place.bag()["unkept"]
    assert isinstance(unkept, dict)
    assert (unkept["tasks"], unkept["files"], unkept["bytes"]) == (3, 3, 30)
    place.covey("stop")  # without a server the record says the same
    assert place.bag()["unkept"] == unkept


def test_unkept_files_are_told_while_the_bag_runs(place: Place) -> None:
    (place.here / "slow.sh").write_text(
        f'echo x > out-$1; while [ $1 != 0 ] && [ ! -e "{place.here}/go" ]; do sleep 0.05; done'
    )
    words = ["run", "--slots", "1", "-p", "n=0..1", "--", "sh", str(place.here / "slow.sh"), "{n}"]
    child = place.start(*words)
    assert child.stderr is not None
    line = next(one for one in child.stderr if "NOT KEPT" in one)
    assert "1 file of 1 task (out-0)" in line
    assert "covey cancel 1" in line
    assert child.poll() is None
    (place.here / "go").touch()
    child.communicate(timeout=60)
    assert child.returncode == 0


def test_a_star_keeps_all_files_but_inputs(place: Place) -> None:
    (place.here / "fit.py").write_text(
        "import os; os.mkdir('deep'); open('deep/a', 'w').write('1'); open('b', 'w').write('2')"
    )
    words = ["--input", "fit.py", "--output", "*", "--", "python3", "fit.py"]
    ran = place.covey("run", *words)
    assert "NOT KEPT" not in ran.stderr
    place.covey("pull", "1")
    kept = sorted(path.name for path in (place.here / "bag-1").rglob("*") if path.is_file())
    assert kept == ["a", "b"]


def test_only_what_no_pattern_names_is_unkept(place: Place) -> None:
    script = "mkdir __pycache__; touch __pycache__/x.pyc .hidden kept; echo 12345 > lost"
    place.covey("run", "--output", "kept", "--", "sh", "-c", script)
    unkept = place.bag()["unkept"]
    assert unkept == {"tasks": 1, "files": 1, "bytes": 6, "names": ["lost"]}


def test_files_in_a_directory_of_the_owner_are_not_unkept(place: Place) -> None:
    ran = place.covey("run", "--chdir", ".", "--", "sh", "-c", "echo x > stays")
    assert (place.here / "stays").exists()
    assert "NOT KEPT" not in ran.stderr
    assert "nothing came back" not in ran.stderr


def test_a_bag_without_any_output_is_told_so(place: Place) -> None:
    assert "bag 1: nothing came back" in place.covey("run", "--", "true").stderr
    assert "nothing came back" in place.covey("show", "1").stdout
    assert "nothing came back" not in place.covey("run", "--", "echo", "hello").stderr
    assert json.loads(place.covey("show", "1", "--json").stdout)["silent"] is True
    assert json.loads(place.covey("show", "2", "--json").stdout)["silent"] is False


def test_python_warns(place: Place) -> None:
    with covey.connect(dir=place.directory) as connection:
        bag = connection.submit("touch lost")
        with pytest.warns(UserWarning, match=r"NOT KEPT: 1 file of 1 task \(lost\)"):
            bag.wait(60)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            connection.submit("echo hello").wait(60)


def test_done_tasks_and_single_tasks_run_again(place: Place) -> None:
    (place.here / "run.sh").write_text(
        f'echo $1 >> "{place.here}/ran"; echo $1; [ ! -e "{place.here}/bad" ]'
    )
    (place.here / "bad").touch()
    command = ["--", "sh", str(place.here / "run.sh"), "{n}"]
    place.covey("run", "-p", "n=0..5", *command, status=1)
    (place.here / "bad").unlink()
    (place.here / "ran").unlink()
    assert "3 failed tasks will run again" in place.covey("retry", "1", "1", "3-4").stdout
    wait_until(lambda: place.bag()["status"] == "finished")
    assert sorted((place.here / "ran").read_text().split()) == ["1", "3", "4"]
    shown = place.bag()
    assert (shown["done"], shown["failed"]) == (3, 3)
    (place.here / "ran").unlink()
    assert "add --done" in place.covey("retry", "1", "3").stderr
    assert "1 task will run again" in place.covey("retry", "1", "3", "--done").stdout
    wait_until(lambda: place.bag()["status"] == "finished")
    assert (place.here / "ran").read_text() == "3\n"
    place.covey("retry", "1", "--failed", "--done", "--watch")
    shown = place.bag()
    assert (shown["done"], shown["failed"]) == (6, 0)
    assert sorted((place.here / "ran").read_text().split()) == ["0", "1", "2", "3", "3", "4", "5"]
    results = json.loads(place.covey("results", "1", "--json").stdout)
    assert len(results) == 6
    place.covey("stop")
    assert "6" in place.covey("show", "1").stdout
    place.covey("retry", "1", "2", "--done", "--watch")  # loaded from the record


def test_retry_with_amounts(place: Place) -> None:
    hungry = "x = bytearray(80 << 20); print(len(x))"
    command = ["--", "python3", "-c", hungry]
    place.covey("run", "--memory", "40MB", "--time", "50s", *command, status=1)
    place.covey("retry", "1", "--failed", "--memory", "500MB", "--time", "5m", "--watch")
    assert place.bag()["done"] == 1
