"""HTCondor, with what HTCondor 23.9.6 said (tests/data/sites/README.md)."""

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from covey.sites.commands import Output
from covey.sites.driver import Seen, Shape, Stand
from covey.sites.drivers.htcondor import HTCondor
from covey.sites.errors import Away, Refused, Unclear
from tests.unit.sites.recordings import PREFIX, SCRIPT, batch, recorded, site

CONDOR = HTCondor()
SITE = site("htcondor")


def lines_of(argv: tuple[str, ...]) -> list[str]:
    return [line for flag, line in pairwise(argv) if flag == "-append"]


def test_a_cluster_is_submitted_with_what_its_pilots_need() -> None:
    spec = site("htcondor", schedd="s1", requirements='Arch == "X86_64"', lines=("+Project = 1",))
    command = CONDOR.submit(spec, batch(3, Shape(8, 5400, 4000, 10, 2)))
    start = command.argv.index("condor_submit")
    assert command.argv[start : start + 4] == ("condor_submit", "-terse", "-name", "s1")
    assert command.argv[-3:] == ("/dev/null", "-queue", "3")
    lines = lines_of(command.argv)
    assert lines[-1] == "+Project = 1"
    for line in (
        "batch_name = covey-q7-1-4",
        "executable = /home/ann/.covey/sites/there/covey-q7-1-4.sh",
        'environment = "COVEY_INDEX=$(Process)"',
        "request_cpus = 8",
        "request_memory = 4000",
        "request_disk = 10240",
        "request_gpus = 2",
        'requirements = Arch == "X86_64"',
        "output = /home/ann/.covey/sites/there/covey-q7-1-4.$(Process).out",
        "periodic_remove = JobStatus == 5 || "
        "(JobStatus == 2 && time() - JobCurrentStartDate > 5400)",
    ):
        assert line in lines


def test_the_script_goes_into_a_private_file(tmp_path: Path) -> None:
    """It holds secrets, and what is in a job's ad everybody may read."""
    (tmp_path / "bin").mkdir()
    submit = tmp_path / "bin" / "condor_submit"
    submit.write_text('#!/bin/sh\necho "$1"\n')
    submit.chmod(0o755)
    command = CONDOR.submit(SITE, batch(2)._replace(directory=str(tmp_path)))
    ran = subprocess.run(
        command.argv,
        input=command.stdin,
        env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"},
        stdout=subprocess.PIPE,
    )
    assert (ran.returncode, ran.stdout) == (0, b"-terse\n")
    written = tmp_path / "covey-q7-1-4.sh"
    assert written.read_text() == SCRIPT
    assert written.stat().st_mode & 0o777 == 0o700


def test_without_its_file_nothing_is_submitted() -> None:
    command = CONDOR.submit(SITE, batch()._replace(directory="/nowhere"))
    ran = subprocess.run(command.argv, input=command.stdin, stdout=-1, stderr=-1)
    with pytest.raises(Refused, match="nowhere"):
        CONDOR.submitted(SITE, batch(), Output(ran.returncode, "", ran.stderr.decode()))


def test_a_dollar_begins_no_macro() -> None:
    odd = batch(1)._replace(directory="/home/$x/$(y)")
    lines = lines_of(CONDOR.submit(SITE, odd).argv)
    assert "initialdir = /home/$(DOLLAR)x/$(DOLLAR)(y)" in lines


def test_handles() -> None:
    handles = CONDOR.submitted(SITE, batch(4), recorded("htcondor/condor_submit-array.txt"))
    assert handles == ("13.0", "13.1", "13.2", "13.3")
    assert CONDOR.cancel(SITE, handles).argv == ("condor_rm", *handles)
    one = recorded("htcondor/condor_submit-one.txt")
    assert CONDOR.submitted(SITE, batch(), one) == ("14.0",)
    with pytest.raises(Unclear):
        CONDOR.submitted(SITE, batch(2), one)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("refused-requirements", r"Requirements = \(nope ==== 1\)"),
        ("refused-policy", "^This pool does not want such jobs.$"),
        ("refused-schedd", "unknown host nope"),
    ],
)
def test_refused(name: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        CONDOR.submitted(SITE, batch(), recorded(f"htcondor/condor_submit-{name}.txt", 1))
    assert not isinstance(refused.value, Away)


def test_no_schedd() -> None:
    with pytest.raises(Away, match="find address of local schedd"):
        CONDOR.submitted(SITE, batch(), recorded("htcondor/condor_submit-schedd.txt", 1))
    with pytest.raises(Unclear, match=r"^Error: Can't find address for schedd condor01$"):
        CONDOR.listed(SITE, PREFIX, recorded("htcondor/condor_q-schedd.json", 1))


def test_nobody_knows() -> None:
    lost = "\nERROR: Failed to commit job submission into the queue.\n"
    for words in (lost, lost + "ERROR: Connection closed by peer\n"):
        with pytest.raises(Unclear):
            CONDOR.submitted(SITE, batch(), Output(1, "", words))


def test_the_list() -> None:
    argv = CONDOR.status(SITE, PREFIX).argv
    assert argv[:3] == (*("condor_q", "-constraint", 'substr(JobBatchName, 0, 9) == "covey-q7-"'),)
    assert CONDOR.listed(SITE, PREFIX, recorded("htcondor/condor_q-array.json")) == [
        Seen("covey-q7-1-4", "13.0", Stand.RUNNING),
        Seen("covey-q7-1-5", "13.1", Stand.RUNNING),
        Seen("covey-q7-1-6", "13.2", Stand.RUNNING),
        Seen("covey-q7-1-7", "13.3", Stand.WAITING),
    ]


def test_a_held_job_is_stuck() -> None:
    held, running, waiting = CONDOR.listed(SITE, PREFIX, recorded("htcondor/condor_q-held.json"))
    assert (held.name, held.handle, held.stand) == ("covey-q7-1-45", "27.0", Stand.STUCK)
    assert held.reason.startswith("held: Error from slot1_2@condor01: Failed to open '/nowhere/x'")
    assert (running.stand, waiting.stand) == (Stand.RUNNING, Stand.WAITING)


def test_what_was_held_and_released_is_held_no_more() -> None:
    released = CONDOR.listed(SITE, PREFIX, recorded("htcondor/condor_q-released.json"))
    assert released == [
        Seen("covey-q7-1-30", "16.0", Stand.WAITING),
        Seen("covey-q7-1-48", "25.0", Stand.RUNNING, "", 1),
    ]


def test_a_removed_job_that_is_still_there_may_run() -> None:
    (seen,) = CONDOR.listed(SITE, PREFIX, recorded("htcondor/condor_q-removing.json"))
    assert seen == Seen("covey-q7-1-70", "26.0", Stand.UNKNOWN)


def test_nothing_is_a_list_if_all_went_well() -> None:
    assert CONDOR.listed(SITE, PREFIX, Output(0, "", "")) == []
    for output in (
        Output(1, "", "-- Failed to fetch ads from: <127.0.0.1:9618> : node\n"),
        Output(0, "[{", ""),
        Output(0, '{"a": 1}', ""),
        Output(0, '[{"ClusterId": 1}]', ""),
        Output(0, '[{"ClusterId": 1e999, "ProcId": 0, "JobStatus": 1}]', ""),
    ):
        with pytest.raises(Unclear):
            CONDOR.listed(SITE, PREFIX, output)


def test_history() -> None:
    command = CONDOR.accounting(SITE, ["12.0", "12.1"])
    assert command is not None
    assert command.argv[-4:] == ("-limit", "2", "12.0", "12.1")
    assert CONDOR.accounted(SITE, recorded("htcondor/condor_history-unknown.json")) == []
    seen = CONDOR.accounted(SITE, recorded("htcondor/condor_history.json"))
    assert {one.stand for one in seen} == {Stand.ENDED}
    assert {one.handle: one.reason for one in seen} == {
        "18.0": "exit status 3",
        "19.0": "it ran for more than 10 s",
        "20.0": "signal 9",
        **{f"21.{index}": f"exit status {index}" for index in range(3)},
        "22.0": "held: Error from slot1_3@condor01: Failed to open '/nowhere/x' as standard output:"
        " No such file or directory (errno 2)",
        "23.0": "via condor_rm (by user ann)",
        "24.0": "held: submitted on hold at user's request",
        "25.0": "via condor_rm (by user ann)",
    }
    assert {one.handle: one.restarts for one in seen if one.restarts} == {"25.0": 1}


def test_history_of_an_array() -> None:
    seen = CONDOR.accounted(SITE, recorded("htcondor/condor_history-array.json"))
    assert [(one.name, one.reason) for one in seen if one.handle.startswith("13.")] == [
        ("covey-q7-1-4", "exit status 3"),
        ("covey-q7-1-7", "exit status 3"),
        ("covey-q7-1-6", "via condor_rm (by user ann)"),
        ("covey-q7-1-5", "via condor_rm (by user ann)"),
    ]
