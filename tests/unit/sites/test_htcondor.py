"""HTCondor, with text in the form of its source (25.x); never run for real."""

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from covey.sites.driver import Output, Refused, Seen, Shape, Stand, Unclear
from covey.sites.drivers.htcondor import HTCondor
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
    handles = CONDOR.submitted(SITE, batch(3), recorded("htcondor/condor_submit.txt"))
    assert handles == ("12.0", "12.1", "12.2")
    assert CONDOR.cancel(SITE, handles).argv == ("condor_rm", "12.0", "12.1", "12.2")
    with pytest.raises(Unclear):
        CONDOR.submitted(SITE, batch(2), recorded("htcondor/condor_submit.txt"))


def test_refused_or_lost() -> None:
    refused = "\nERROR: Failed to parse command file (line 3).\n"
    with pytest.raises(Refused, match="line 3"):
        CONDOR.submitted(SITE, batch(), Output(1, "", refused))
    lost = "\nERROR: Failed to commit job submission into the queue.\n"
    for words in (lost, lost + "ERROR: Connection closed by peer\n"):
        with pytest.raises(Unclear):
            CONDOR.submitted(SITE, batch(), Output(1, "", words))
    with pytest.raises(Refused, match="no pilots here"):
        CONDOR.submitted(SITE, batch(), Output(1, "", lost + "ERROR: no pilots here\n"))


def test_the_list() -> None:
    argv = CONDOR.status(SITE, PREFIX).argv
    assert argv[:3] == (*("condor_q", "-constraint", 'substr(JobBatchName, 0, 9) == "covey-q7-"'),)
    seen = CONDOR.listed(SITE, PREFIX, recorded("htcondor/condor_q.json"))
    assert seen[:2] == [
        Seen("covey-q7-1-4", "12.0", Stand.RUNNING, "", 1),
        Seen("covey-q7-1-5", "12.1", Stand.WAITING, "", 0),
    ]
    assert (seen[2].name, seen[2].stand) == ("covey-q7-1-6", Stand.STUCK)
    assert seen[2].reason.startswith("held: Error from slot1@node3: Failed to open '/home/ann/out'")
    assert (seen[3].name, seen[3].stand) == ("covey-q7-1-7", Stand.UNKNOWN)


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
    seen = CONDOR.accounted(SITE, recorded("htcondor/condor_history.json"))
    assert [(one.name, one.stand, one.reason) for one in seen] == [
        ("covey-q7-1-7", Stand.ENDED, "via condor_rm (by user ann)"),
        ("covey-q7-1-4", Stand.ENDED, "exit status 3"),
        ("covey-q7-1-5", Stand.ENDED, "signal 9"),
        (
            *("covey-q7-1-6", Stand.ENDED),
            "held: Error from slot1@node3: Job has gone over cgroup memory limit.",
        ),
    ]
