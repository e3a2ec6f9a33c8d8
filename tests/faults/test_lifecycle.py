"""From `covey run` to nothing at all: attach, detach, resume, stop, and no orphan left."""

import json
import os
import signal
import subprocess
import time

from covey.client.embedded import is_held, read_record
from covey.pilot.main import ORPHAN_SECONDS
from tests.faults.world import COVEY, World, task_script, wait_until


def run_in_terminal(world: World, script: str, total: int) -> "subprocess.Popen[bytes]":
    """`covey run` as a shell would start it: the leader of its own process group."""
    words = ["run", "-p", f"i=1..{total}", "--env", f"JOURNAL={world.journal_file}"]
    words += ["--slots", "4", "--", "sh", "-c", script]
    return world.start([*COVEY, "--dir", str(world.directory), *words], process_group=0)


def check_no_pilot_left(world: World) -> None:
    wait_until(lambda: not world.processes(), 40, lambda: f"{world.processes()}")
    assert os.listdir(world.directory / "pilots") == []


def check_nothing_left(world: World) -> None:
    check_no_pilot_left(world)
    assert not list(world.directory.glob("*-wal"))


def test_ctrl_c_detaches_and_the_bag_goes_on(world: World) -> None:
    running = run_in_terminal(world, task_script("sleep 0.5"), 20)
    wait_until(lambda: world.ended() >= 2)
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(20) == 0
    assert "keeps running" in world.log_tail()
    assert world.ended() < 20
    first = read_record(world.directory)

    again = run_in_terminal(world, task_script("true"), 3)  # the same server takes it
    assert again.wait(60) == 0
    assert read_record(world.directory) == first
    world.wait_over(1)
    for bag, total in ((1, 20), (2, 3)):
        world.check_results(bag, total)
        world.check_once(bag, total)
    assert world.covey("stop").returncode == 0
    check_nothing_left(world)


def test_a_server_ends_itself_and_leaves_nothing(world: World) -> None:
    found = world.covey("run", "--", "true", COVEY_SERVE_IDLE_EXIT_SECONDS="1")
    assert found.returncode == 0, found.stderr
    wait_until(lambda: not is_held(world.directory))
    check_nothing_left(world)
    record = read_record(world.directory)
    assert record is not None
    assert record.pid == 0, "it ended on purpose"
    assert not list(world.directory.glob(".*-*")), "half-written files"


def test_pilots_end_themselves_when_idle(world: World) -> None:
    world.serve("--slots", "2", env={"COVEY_SERVE_PILOT_IDLE_SECONDS": "1"})
    bag = world.submit("true", 4)
    world.wait_over(bag)
    assert world.pilots()
    wait_until(lambda: not world.pilots())
    wait_until(lambda: os.listdir(world.directory / "pilots") == [])
    assert world.rows("SELECT status FROM pilots") == [("left",)]
    again = world.submit("true", 4)
    world.wait_over(again)
    world.check_results(again, 4)


def test_stop_leaves_bags_that_can_be_resumed(world: World) -> None:
    watching = run_in_terminal(world, task_script("sleep 0.$((2 + {i} % 5))"), 40)
    wait_until(lambda: world.ended() >= 5)
    stopped = world.covey("stop", "--json")
    assert stopped.returncode == 0
    told = json.loads(stopped.stdout)
    assert 0 < told.pop("interrupted") <= 40 - 5
    assert told == {"stopped": True, "pilots": 1, "waiting": 0}
    assert watching.wait(30) != 0  # whoever watched is told, and starts no server
    check_nothing_left(world)
    assert not is_held(world.directory)
    assert world.rows("SELECT status FROM bags") == [("running",)]

    resumed = world.covey("watch")
    assert resumed.returncode == 0, resumed.stderr
    assert "40 tasks done" in resumed.stdout
    world.check_results(1, 40)
    starts = [line for line in world.journal() if line.what == "start"]
    assert len(starts) <= 40 + 4, "only what was stopped ran again"
    assert world.covey("stop").returncode == 0
    check_nothing_left(world)


def test_stop_drains_if_asked_to(world: World) -> None:
    run_in_terminal(world, task_script("sleep 1"), 12)
    wait_until(lambda: world.started() >= 4)
    assert world.covey("stop", "--drain").returncode == 0
    check_nothing_left(world)
    assert world.started() == world.ended() < 12
    assert world.covey("watch").returncode == 0
    world.check_results(1, 12)
    world.check_once(1, 12)
    assert world.covey("stop").returncode == 0


def test_a_pilot_drains_on_sigterm(world: World) -> None:
    world.serve("--pilots", "0")
    place = world.root / "pilot"
    pilot = world.pilot("--slots", "2", "--directory", str(place))
    bag = world.submit(task_script("sleep 2; echo {i}"), 6)
    wait_until(lambda: world.running() == 2)
    pilot.terminate()
    assert pilot.wait(30) == 0
    assert world.started() == world.ended() == 2
    assert world.rows("SELECT count(*) FROM ends WHERE counted=1 AND outcome=0") == [(2,)]
    assert world.rows("SELECT status, reason FROM pilots") == [("left", "asked to end")]
    assert not place.exists()
    assert not world.tasks()
    world.pilot("--slots", "4")
    world.wait_over(bag)
    world.check_results(bag, 6)
    world.check_once(bag, 6)


def test_a_second_signal_ends_the_tasks_too(world: World) -> None:
    world.serve("--pilots", "0")
    place = world.root / "pilot"
    pilot = world.pilot("--slots", "2", "--directory", str(place))
    bag = world.submit(task_script("sleep 60"), 2)
    wait_until(lambda: world.running() == 2)
    pilot.terminate()
    time.sleep(0.3)
    assert pilot.poll() is None
    pilot.send_signal(signal.SIGINT)
    assert pilot.wait(30) == 0
    assert not world.tasks()
    assert not place.exists()
    assert world.bag(bag).failed == 0, "no fault of theirs: they wait for another pilot"


def test_a_killed_server_is_revived_by_whoever_watches(world: World) -> None:
    watching = run_in_terminal(world, task_script("sleep 0.4"), 24)
    wait_until(lambda: world.ended() >= 4)
    record = read_record(world.directory)
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    assert watching.wait(90) == 0, world.log_tail()
    world.check_results(1, 24)
    world.check_once(1, 24)
    assert world.covey("stop").returncode == 0
    check_nothing_left(world)


def killed_server_with_an_idle_pilot(world: World) -> None:
    found = world.covey("run", "--", "true")
    assert found.returncode == 0, found.stderr
    record = read_record(world.directory)
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: not is_held(world.directory))
    assert len(world.processes()) >= 3, "a pilot and its processes"


def test_stop_ends_what_a_killed_server_has_started(world: World) -> None:
    killed_server_with_an_idle_pilot(world)
    stranger = world.start(["sleep", "600"])
    stopped = world.covey("stop")
    assert stopped.returncode == 0
    assert "ended 1 pilot that an earlier server had started" in stopped.stderr
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    check_no_pilot_left(world)
    assert "no server runs here" in world.covey("stop").stderr


def test_stop_ends_the_tasks_of_a_killed_server_too(world: World) -> None:
    run_in_terminal(world, task_script("setsid sleep 600 & sleep 600"), 2)
    wait_until(lambda: len(world.journal()) >= 2)
    for process in world._started:  # nobody revives the server
        process.kill()
        process.wait()
    record = read_record(world.directory)
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: not is_held(world.directory))
    stopped = world.covey("stop", "--json")
    assert json.loads(stopped.stdout)["pilots"] == 1
    check_no_pilot_left(world)


def test_an_idle_pilot_of_a_killed_server_ends_itself(world: World) -> None:
    killed_server_with_an_idle_pilot(world)
    wait_until(lambda: not world.processes(), ORPHAN_SECONDS + 40)


def test_two_runs_at_once_share_one_server(world: World) -> None:
    runs = [run_in_terminal(world, task_script("true"), 5) for _ in range(4)]
    assert [one.wait(90) for one in runs] == [0, 0, 0, 0]
    assert len(world.rows("SELECT id FROM bags")) == 4
    assert world.rows("SELECT epoch FROM server") == [(1,)]
    for bag in range(1, 5):
        world.check_results(bag, 5)
        world.check_once(bag, 5)
    assert world.covey("stop").returncode == 0
    check_nothing_left(world)
