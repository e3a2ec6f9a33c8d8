"""PBS, with text in the form of OpenPBS and Torque; never run for real."""

import pytest

from covey.core.errors import BadConfig
from covey.sites.driver import Output, Refused, Seen, Shape, Stand, Unclear, numbered
from covey.sites.drivers.pbs import Pbs
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
    assert PBS.submitted(SITE, batch(), recorded("pbs/qsub-one.txt")) == ("13.pbs01",)
    with pytest.raises(Unclear):
        PBS.submitted(SITE, batch(), recorded("pbs/qsub-array.txt"))


def test_handles_of_an_array() -> None:
    handles = PBS.submitted(SITE, batch(3), recorded("pbs/qsub-array.txt"))
    assert handles == ("12[0].pbs01", "12[1].pbs01", "12[2].pbs01")
    assert PBS.cancel(SITE, handles).argv == ("qdel", "12[0-2].pbs01")
    assert PBS.cancel(SITE, ["12[0].pbs01", "12[2].pbs01", "13.pbs01"]).argv == (
        *("qdel", "13.pbs01", "12[0].pbs01", "12[2].pbs01"),
    )
    assert PBS.cancel(TORQUE, handles).argv == ("qdel", *handles)


@pytest.mark.parametrize(
    "words",
    [
        "qsub: Unknown queue",
        "qsub: Job violates queue and/or server resource limits",
        "qsub: cannot connect to server pbs01 (errno=111)",
        "qsub: Unauthorized Request",
    ],
)
def test_refused(words: str) -> None:
    with pytest.raises(Refused, match=words.split("(")[0]):
        PBS.submitted(SITE, batch(), Output(1, "", words + "\n"))


@pytest.mark.parametrize(
    ("status", "words"),
    [(1, "qsub: End of File"), (1, ""), (-9, "qsub: Unknown queue"), (0, "")],
)
def test_nobody_knows(status: int, words: str) -> None:
    with pytest.raises(Unclear):
        PBS.submitted(SITE, batch(), Output(status, "", words))


def test_the_list() -> None:
    assert PBS.status(SITE, PREFIX).argv == ("qstat", "-f", "-t")
    assert PBS.listed(SITE, PREFIX, recorded("pbs/qstat-f-t.txt")) == [
        Seen("covey-q7-1-4", "12[0].pbs01", Stand.ENDED, "signal 15"),
        Seen("covey-q7-1-5", "12[1].pbs01", Stand.RUNNING, "", 1),
        Seen(
            *("covey-q7-1-6", "12[2].pbs01", Stand.WAITING),
            "Not Running: Not enough free nodes available",
        ),
        Seen(
            *("covey-q7-1-7", "13.pbs01", Stand.STUCK),
            *("job held, too many failed attempts to run", 21),
        ),
    ]


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
    assert done == Seen(
        *("subtest.sh", "9.torque01.bcgsc.ca", Stand.ENDED),
        "exit status 0 (Job started on Tue May 29 at 09:37)",
    )


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
    (seen,) = PBS.accounted(SITE, recorded("pbs/qstat-x-f.txt", 153))
    assert (seen.name, seen.handle, seen.stand) == ("covey-q7-1-7", "13.pbs01", Stand.ENDED)
    assert seen.reason.startswith("exit status 3 (Job run at")
    assert PBS.accounting(TORQUE, ["13.s"]) is None
    with pytest.raises(Unclear):
        PBS.accounted(SITE, Output(1, "", "qstat: cannot connect to server pbs01"))
