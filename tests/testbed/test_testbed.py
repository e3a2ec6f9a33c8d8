"""The systems of the testbed are what they claim to be. All that other tests rely on happens here
once, without covey."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.world import environment, process_name, wait_until
from tests.testbed.fixtures import Firewalled, TwoSlurms
from tests.testbed.gridengine import GridEngine
from tests.testbed.place import PORTS, alone, free_ports, processes, sweep
from tests.testbed.slurm import Slurm
from tests.testbed.ssh import SshHosts
from tests.testbed.wall import SSH

ROOT = Path(__file__).parents[2]


# -- Slurm ---------------------------------------------------------------------------------------


def test_slurm_runs_a_job_and_knows_how_it_ended(slurm: Slurm, tmp_path: Path) -> None:
    good = slurm.submit(f"echo $SLURM_JOB_ID > {tmp_path}/said", "--job-name=good")
    bad = slurm.submit("exit 3")
    slurm.wait_state(good, "COMPLETED")
    slurm.wait_state(bad, "FAILED")
    assert (tmp_path / "said").read_text() == f"{good}\n"
    assert slurm.fields(good)["JobName"] == "good"
    assert slurm.fields(bad)["ExitCode"] == "3:0"
    assert slurm.squeue() == []


def test_slurm_runs_all_elements_of_an_array_at_once(slurm: Slurm) -> None:
    job = slurm.submit("sleep 60", f"--array=0-{slurm.slots}")
    slurm.wait(lambda: slurm.states(job).count("RUNNING") == slurm.slots)
    listed = {one.id: one.state for one in slurm.squeue()}
    waiting = [one for one, state in listed.items() if state == "PENDING"]
    assert len(listed) == slurm.slots + 1
    assert waiting == [f"{job}_{slurm.slots}"]
    slurm.cancel(job)
    slurm.wait_state(job, "CANCELLED")


def test_slurm_ends_jobs_for_reasons_of_its_own(slurm: Slurm, tmp_path: Path) -> None:
    late = slurm.submit("sleep 100")
    slurm.wait_state(late, "RUNNING")
    slurm.end_soon(late)

    heard = tmp_path / "heard"
    script = f"trap 'echo TERM >> {heard}' TERM; sleep 100 & wait; sleep 100"
    most = f"-n{slurm.slots - 1}"
    victim = slurm.submit(script, "-pkillable", most)
    slurm.wait_state(victim, "RUNNING")
    urgent = slurm.submit("sleep 100", "-purgent", most)
    slurm.wait_state(victim, "PREEMPTED")
    slurm.wait_state(urgent, "RUNNING")
    assert "TERM" in heard.read_text()

    slurm.requeue(urgent)
    slurm.wait(lambda: slurm.fields(urgent)["Reason"] == "BeginTime")
    slurm.release(urgent)
    slurm.wait_state(urgent, "RUNNING")
    assert slurm.fields(urgent)["Restarts"] == "1"

    slurm.wait_state(late, "TIMEOUT", 60)


def test_a_controller_that_is_away_answers_nobody_and_loses_nothing(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = slurm.submit(f"while [ ! -e {tmp_path}/end ]; do sleep 0.1; done")
    slurm.wait_state(job, "RUNNING")
    slurm.stop_controller()
    with pytest.raises(AssertionError, match="Unable to contact slurm controller"):
        slurm.squeue()
    slurm.restart_controller()
    assert slurm.states(job) == ["RUNNING"]
    (tmp_path / "end").touch()
    slurm.wait_state(job, "COMPLETED")


def test_partitions_are_drained_and_held(slurm: Slurm) -> None:
    slurm.drain()
    with pytest.raises(AssertionError, match="Required partition not available"):
        slurm.submit("true")
    slurm.hold()
    job = slurm.submit("true")
    slurm.wait(lambda: slurm.fields(job)["Reason"] == "PartitionDown")
    slurm.resume()
    slurm.wait_state(job, "COMPLETED")


def test_two_clusters_know_nothing_of_one_another(two_slurms: TwoSlurms) -> None:
    alpha, beta = two_slurms
    job = alpha.submit("sleep 60", "--job-name=of-alpha")
    assert [one.name for one in alpha.squeue()] == ["of-alpha"]
    assert beta.squeue() == []
    # A token of one is no token of the other: their keys differ.
    mixed = beta.configuration.read_text().replace(
        f"{beta.place.root}/munge", f"{alpha.place.root}/munge"
    )
    foreign = alpha.place.write("foreign.conf", mixed)
    done = subprocess.run(
        ["scancel", job], env={**os.environ, "SLURM_CONF": str(foreign)}, capture_output=True
    )
    assert done.returncode != 0
    assert alpha.squeue() != []


def test_accounting_remembers(slurm_accounting: Slurm) -> None:
    job = slurm_accounting.submit("exit 4", "--job-name=counted")
    words = ("sacct", "-n", "-X", "-P", "-j", job, "-o", "JobName,State,ExitCode")
    slurm_accounting.wait(lambda: slurm_accounting.run(*words) == "counted|FAILED|4:0")


# -- Grid Engine ---------------------------------------------------------------------------------


def test_gridengine_runs_arrays_and_keeps_accounts(gridengine: GridEngine, tmp_path: Path) -> None:
    script = f"while [ ! -e {tmp_path}/end ]; do sleep 0.1; done; exit 3"
    job = gridengine.submit(script, "-t", f"1-{gridengine.slots + 1}", "-N", "many")
    full = ["qw", *["r"] * gridengine.slots]
    gridengine.wait(lambda: sorted(gridengine.states(job)) == full)
    assert {one.name for one in gridengine.qstat()} == {"many"}
    (tmp_path / "end").touch()
    gridengine.wait_gone(job)
    gridengine.wait(lambda: len(gridengine.qacct(job)) == gridengine.slots + 1)
    assert {one["exit_status"] for one in gridengine.qacct(job)} == {"3"}


def test_gridengine_ends_at_the_time_limit_requeues_and_drains(gridengine: GridEngine) -> None:
    late = gridengine.submit("sleep 100", "-l", "h_rt=1")
    again = gridengine.submit("sleep 100")
    gridengine.wait(lambda: gridengine.states(again) == ["r"])
    gridengine.requeue(again)
    gridengine.wait(lambda: gridengine.states(again) == ["Rr"])
    gridengine.drain()
    waits = gridengine.submit("true")
    gridengine.wait_gone(late)
    gridengine.wait(lambda: gridengine.qacct(late))
    assert gridengine.qacct(late)[0]["failed"].startswith("37 ")  # qmaster enforced h_rt
    assert gridengine.states(waits) == ["qw"]
    gridengine.resume()
    gridengine.wait_gone(waits)


def test_a_killed_master_loses_nothing(gridengine: GridEngine) -> None:
    job = gridengine.submit("sleep 100")
    gridengine.wait(lambda: gridengine.states(job) == ["r"])
    gridengine.kill_controller()
    with pytest.raises(AssertionError, match="unable to send message to qmaster"):
        gridengine.run("qstat")
    gridengine.restart_controller()
    assert gridengine.states(job) == ["r"]
    assert gridengine.submit("true") in {one.id for one in gridengine.qstat()}


# -- SSH and the firewall ------------------------------------------------------------------------


def test_ssh_hosts_have_names_homes_and_bad_days(sshd: SshHosts) -> None:
    other = sshd.add("other", {"COLOUR": "green"})
    told = sshd.run("other", "sh", "-c", 'echo "$TESTBED_HOST $COLOUR $HOME"')
    assert told == f"other green {other.home}"
    assert (
        sshd.run("login", "sh", "-c", 'echo "$TESTBED_HOST"; cat', text="hello") == "login\nhello"
    )
    sshd.stop("other")
    assert not sshd.answers("other")
    assert sshd.answers("login")
    sshd.start("other")
    assert sshd.answers("other")
    sshd.freeze("other")
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(sshd.command("other", "true"), capture_output=True, timeout=1)
    sshd.thaw("other")
    assert sshd.answers("other")


def test_what_is_behind_the_wall_is_reached_by_ssh_and_calls_one_port(
    firewalled: Firewalled, tmp_path: Path
) -> None:
    wall, slurm, ssh = firewalled
    call = f"exec 3<>/dev/tcp/{wall.outside}/{{port}} && head -c 5 <&3"
    with answering(wall.outside, wall.port), answering(wall.outside) as closed:
        with socket.create_connection((wall.outside, closed), 5) as probe:
            assert probe.recv(5) == b"hello"
        job = ssh.run(
            "login",
            *("sbatch", "--parsable", f"--output={tmp_path}/said"),
            text=f"#!/bin/bash\n({call.format(port=wall.port)})\n({call.format(port=closed)})\n",
        )
        slurm.wait_state(job, "FAILED")
    said = (tmp_path / "said").read_text()
    assert said.startswith("hello")
    assert "Connection refused" in said
    assert not reached(wall.inside, PORTS[0])
    assert reached(wall.inside, SSH)
    wall.cut()
    assert not reached(wall.inside, SSH)
    wall.mend()
    assert ssh.answers("login")


def reached(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 0.5).close()
    except OSError:
        return False
    return True


@contextmanager
def answering(address: str, port: int = 0) -> Iterator[int]:
    with socket.create_server((address, port)) as server:
        threading.Thread(target=_answer, args=(server,), daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)  # whoever waits in it would keep it open


def _answer(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            connection.sendall(b"hello")
            connection.close()


# -- leaving nothing behind ----------------------------------------------------------------------


def test_what_a_killed_run_has_left_is_swept_away() -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.testbed", "slurm", "ssh"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    lines = [next(run.stdout) for _ in range(4)]
    configuration = lines[1].strip().partition("=")[2]
    roots = [Path(configuration).parent, Path(lines[3].split()[2]).parent]
    orphan = "setsid sleep 1000 & sleep 1000"
    command = ["sbatch", "--output=/dev/null", f"--wrap={orphan}"]
    env = {**os.environ, "SLURM_CONF": configuration}
    subprocess.run(command, env=env, check=True, capture_output=True)
    wait_until(lambda: len(sleepers(configuration)) == 2)
    run.send_signal(signal.SIGKILL)
    run.wait(10)
    assert all(processes(root) for root in roots)
    assert set(sweep()) >= set(roots)
    assert not any(root.exists() or processes(root) for root in roots)
    assert sleepers(configuration) == []


def sleepers(configuration: str) -> list[int]:
    mark = f"SLURM_CONF={configuration}".encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [
        pid
        for pid in pids
        if mark in environment(pid).split(b"\0") and process_name(pid) == "sleep"
    ]


def test_what_lives_is_not_swept_away(sshd: SshHosts) -> None:
    assert sshd.place.root not in sweep()
    assert sshd.answers("login")


def test_free_ports_are_free() -> None:
    with alone(), socket.socket() as taken:
        one, two = free_ports(2)
        taken.bind(("127.0.0.1", one))
        assert one != two
        assert one not in free_ports(len(PORTS))
