"""PBS, with what OpenPBS 23.06.06 said, and others recorded (tests/data/sites/README.md)."""

import subprocess
from pathlib import Path

import pytest

from covey.core.errors import BadConfig
from covey.sites.commands import Output
from covey.sites.driver import Seen, Shape, Stand, numbered
from covey.sites.drivers.pbs import Pbs
from covey.sites.errors import Away, Refused, Unclear
from tests.unit.sites.recordings import PREFIX, SCRIPT, batch, recorded, site

PBS = Pbs()
SITE = site("pbs")
TORQUE = site("pbs", dialect="torque")


def test_an_array_is_submitted_with_what_its_pilots_need() -> None:
    spec = site("pbs", queue="long", account="phys", node="model=rome", whole_nodes=True)
    command = PBS.submit(spec, batch(3, Shape(8, 5400.5, 4000, 0, 2)))
    assert command.stdin == SCRIPT.encode()
    assert command.argv == (
        *("qsub", "-N", "covey-q7-1-4", "-S", "/bin/sh", "-j", "oe"),
        *("-o", "/home/ann/.covey/sites/there/", "-C", "", "-J", "0-2"),
        *("-q", "long", "-A", "phys"),
        *("-l", "select=1:ncpus=8:mem=4000mb:ngpus=2:model=rome"),
        *("-l", "walltime=01:30:01", "-l", "place=excl"),
    )


def test_torque_has_other_words() -> None:
    spec = site("pbs", dialect="torque", whole_nodes=True, requeue=False)
    argv = PBS.submit(spec, batch(2, Shape(4, 60, 500, 0, 1))).argv
    assert argv[argv.index("-C") + 2 :] == (
        *("-t", "0-1", "-l", "nodes=1:ppn=4:gpus=1"),
        *("-l", "mem=500mb", "-l", "walltime=00:01:00", "-n"),
    )
    with pytest.raises(BadConfig, match="account"):
        PBS.submit(site("pbs", dialect="torque", project="p"), batch())


def test_one_job_is_no_array() -> None:
    argv = PBS.submit(site("pbs", requeue=False), batch()).argv
    assert "-J" not in argv
    assert argv[argv.index("-r") + 1] == "n"
    assert PBS.submitted(SITE, batch(), recorded("pbs/qsub-one.txt")) == ("20.pbs01",)
    with pytest.raises(Unclear):
        PBS.submitted(SITE, batch(), recorded("pbs/qsub-array.txt"))


def test_handles_of_an_array() -> None:
    handles = PBS.submitted(SITE, batch(4), recorded("pbs/qsub-array.txt"))
    assert handles == ("19[0].pbs01", "19[1].pbs01", "19[2].pbs01", "19[3].pbs01")
    assert PBS.cancel(SITE, handles).argv == ("qdel", "19[0-3].pbs01")
    assert PBS.cancel(SITE, ["19[0].pbs01", "19[2].pbs01", "20.pbs01"]).argv == (
        *("qdel", "20.pbs01", "19[0].pbs01", "19[2].pbs01"),
    )
    assert PBS.cancel(TORQUE, handles).argv == ("qdel", *handles)


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("queue", 170, "qsub: Unknown queue"),
        ("resource", 187, "qsub: Unknown resource: nosuch"),
        ("name", 2, "qsub: illegal -N value"),  # and not the last line of the usage
    ],
)
def test_refused(name: str, status: int, words: str) -> None:
    with pytest.raises(Refused, match=f"^{words}$") as refused:
        PBS.submitted(SITE, batch(), recorded(f"pbs/qsub-refused-{name}.txt", status))
    assert not isinstance(refused.value, Away)


def test_torque_refuses() -> None:
    words = "qsub: submit error (Unknown queue MSG=requested queue not found)\n"
    with pytest.raises(Refused, match="requested queue not found"):
        PBS.submitted(TORQUE, batch(), Output(1, "", words))


def test_no_server() -> None:
    with pytest.raises(Away, match="cannot connect to server pbs01"):
        PBS.submitted(SITE, batch(), recorded("pbs/qsub-server.txt", 162))
    with pytest.raises(Unclear, match="cannot connect to server pbs01"):
        PBS.listed(SITE, PREFIX, recorded("pbs/qstat-server.txt", 162))


@pytest.mark.parametrize(
    ("status", "words"),
    [(1, "qsub: End of File"), (1, ""), (-9, "qsub: Unknown queue"), (0, "")],
)
def test_nobody_knows(status: int, words: str) -> None:
    with pytest.raises(Unclear):
        PBS.submitted(SITE, batch(), Output(status, "", words))


def test_the_list() -> None:
    """An element that waits says when the array began, and that is no reason."""
    assert PBS.listed(SITE, PREFIX, recorded("pbs/qstat-array.txt")) == [
        Seen("covey-q7-1-4", "19[0].pbs01", Stand.RUNNING),
        Seen("covey-q7-1-5", "19[1].pbs01", Stand.RUNNING),
        Seen("covey-q7-1-6", "19[2].pbs01", Stand.RUNNING),
        Seen("covey-q7-1-7", "19[3].pbs01", Stand.WAITING),
        Seen("covey-q7-1-20", "20.pbs01", Stand.WAITING),  # held
        Seen(
            *("covey-q7-1-21", "21.pbs01", Stand.STUCK),
            "Can Never Run: Insufficient amount of resource: ncpus (R: 1000 A: 3 T: 3)",
        ),
    ]


def test_requeued_and_suspended() -> None:
    assert PBS.listed(SITE, PREFIX, recorded("pbs/qstat-mixed.txt")) == [
        Seen("covey-q7-1-45", "31.pbs01", Stand.RUNNING, "", 1),
        Seen("covey-q7-1-46", "32.pbs01", Stand.RUNNING, suspended=True),
    ]


def test_pbs_gives_up() -> None:
    assert PBS.listed(SITE, PREFIX, recorded("pbs/qstat-attempts.txt")) == [
        Seen(
            *("covey-q7-1-95", "37.pbs01", Stand.STUCK),
            *("job held, too many failed attempts to run", 21),
        )
    ]


def test_how_an_element_ended_is_forgotten_without_a_history() -> None:
    """It has the exit status of the whole array: of these, one ended with 0, the other with 1."""
    ended = "it ended; PBS does not report how"
    assert PBS.listed(SITE, PREFIX, recorded("pbs/qstat-elements.txt")) == [
        Seen("covey-q7-1-85", "38[0].pbs01", Stand.ENDED, ended),
        Seen("covey-q7-1-86", "38[1].pbs01", Stand.ENDED, ended),
        Seen("covey-q7-1-87", "38[2].pbs01", Stand.RUNNING),
    ]


def commands(folder: Path, **scripts: str) -> dict[str, str]:
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_only_ours_are_listed(tmp_path: Path) -> None:
    """In another's environment there may be lines that look like a job of ours."""
    everybody = recorded("pbs/qstat-everybody.txt")
    assert [seen.name for seen in PBS.listed(SITE, PREFIX, everybody)] == ["covey-q7-1-99"]
    argv = PBS.status(SITE, PREFIX).argv
    for chosen, asked in (("echo 1.s; echo '2[].s'", "-f -t 1.s 2[].s\n"), ("true", "")):
        env = commands(tmp_path, qselect=chosen, qstat='echo "$@"')
        ran = subprocess.run(argv, env=env, capture_output=True, text=True)
        assert (ran.returncode, ran.stdout) == (0, asked)
    env = commands(tmp_path, qselect="exit 162", qstat="echo never")
    ran = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (162, "")
    assert PBS.status(TORQUE, PREFIX).argv == ("qstat", "-f", "-t")


def test_a_job_that_ended_meanwhile_spoils_no_list() -> None:
    output = recorded("pbs/qstat-array.txt", 153)
    gone = output._replace(stderr="qstat: Unknown Job Id 18.pbs01\n")
    assert len(PBS.listed(SITE, PREFIX, gone)) == 6
    with pytest.raises(Unclear):
        PBS.listed(SITE, PREFIX, gone._replace(stderr=gone.stderr + "qstat: End of File\n"))


def test_the_list_of_torque() -> None:
    assert PBS.listed(TORQUE, PREFIX, recorded("pbs/torque-qstat-f-t.txt")) == [
        Seen("covey-q7-1-4", "272[0].batch.example.org", Stand.ENDED, "exit status 0"),
        Seen("covey-q7-1-5", "272[1].batch.example.org", Stand.WAITING),
    ]


def test_what_others_recorded_of_pbs_pro() -> None:
    """One has a function of the shell in its environment, over several lines."""
    waiting, running = (
        PBS.listed(SITE, "script", recorded(f"pbs/recorded-pbspro-{stand}.txt"))
        for stand in ("waiting", "running")
    )
    assert waiting == [Seen("script.sh", "171389798.mycluster", Stand.WAITING)]
    assert running == [Seen("script.sh", "171390152.mycluster", Stand.RUNNING)]


def test_what_others_recorded_of_torque() -> None:
    """Handles without a server; empty lines and others' words in the middle of a job."""
    held, running, ended = PBS.listed(TORQUE, "", recorded("pbs/recorded-torque-hint.txt"))
    assert held == Seen("somejob", "549159", Stand.WAITING)
    assert running == Seen("somejob010", "556491", Stand.RUNNING)
    assert ended == Seen("job_543984", "543984", Stand.ENDED, "signal 15")
    (done,) = PBS.listed(TORQUE, "", recorded("pbs/recorded-torque-done.txt"))
    assert done == Seen("subtest.sh", "9.torque01.bcgsc.ca", Stand.ENDED, "exit status 0")


def test_torque_adds_an_elements_number_to_its_name() -> None:
    (seen,) = PBS.listed(TORQUE, "MA_mock", recorded("pbs/recorded-torque-array.txt"))
    assert seen.name == numbered("MA_mock-A47933_batch-JT3CUggKXNStHcoFXYaGR3", 1)
    assert (seen.handle, seen.stand) == ("48[1].torque01.bcgsc.ca", Stand.ENDED)
    assert seen.reason.startswith("signal 15 (Job 48[].torque01.bcgsc.ca deleted because")


def test_torque_counts_starts() -> None:
    once = recorded("pbs/recorded-torque-hint.txt")
    twice = once._replace(stdout=once.stdout.replace("start_count = 1", "start_count = 2"))
    assert [seen.restarts for seen in PBS.listed(TORQUE, "", once)] == [0, 0, 0]
    assert [seen.restarts for seen in PBS.listed(TORQUE, "", twice)] == [0, 1, 1]


def test_nothing_is_a_list_and_words_are_none() -> None:
    assert PBS.listed(SITE, PREFIX, Output(0, "", "")) == []
    for output in (
        Output(0, "Connection refused\n", ""),
        Output(1, "", "qstat: cannot connect to server pbs01 (errno=15010)\n"),
    ):
        with pytest.raises(Unclear):
            PBS.listed(SITE, PREFIX, output)


def test_the_first_word_about_a_job_counts() -> None:
    text = (
        "Job Id: 1.s\n    Job_Name = covey-q7-1\n    job_state = R\n    A = x\n    job_state = F\n"
    )
    assert PBS.listed(SITE, PREFIX, Output(0, text, ""))[0].stand is Stand.RUNNING


def test_history() -> None:
    command = PBS.accounting(SITE, ["13.pbs01", "12[0].pbs01"])
    assert command is not None
    assert command.argv == ("qstat", "-x", "-f", "13.pbs01", "12[0].pbs01")
    seen = PBS.accounted(SITE, recorded("pbs/qstat-history.txt"))
    assert {one.handle: one.reason for one in seen if one.stand is Stand.ENDED} == {
        "25.pbs01": "exit status 3",
        "26.pbs01": "exit status 0",
        "27.pbs01": "exit status -29 (exceeded resource walltime)",
        "28.pbs01": "exit status 137",
        **{f"29[{index}].pbs01": f"exit status {index}" for index in range(3)},
        "30.pbs01": "exit status 0",
        "33.pbs01": "it ended before it started",
    }


def test_some_are_not_in_the_history() -> None:
    seen = PBS.accounted(SITE, recorded("pbs/qstat-history-deleted.txt", 153))
    assert seen == [
        Seen(
            *("covey-q7-1-90", "35.pbs01", Stand.ENDED),
            "Not Running: Not enough free nodes available and terminated",
        ),
        Seen(
            *("covey-q7-1-80", "34[0].pbs01", Stand.ENDED, "signal 15 (terminated by ann@pbs01)"),
        ),
        Seen("covey-q7-1-81", "34[1].pbs01", Stand.RUNNING),
        Seen("covey-q7-1-82", "34[2].pbs01", Stand.RUNNING),
    ]
    with pytest.raises(Unclear):
        PBS.accounted(SITE, Output(1, "", "qstat: cannot connect to server pbs01"))


def test_without_a_history() -> None:
    assert PBS.accounted(SITE, recorded("pbs/qstat-history-off.txt")) == []
    assert PBS.accounting(TORQUE, ["13.s"]) is None
