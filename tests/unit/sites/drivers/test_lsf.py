"""LSF, never run for real: with what others recorded, and text in the form of Spectrum LSF 10.1."""

import json

import pytest

from covey.sites.commands import Output
from covey.sites.driver import Seen, Shape, Stand
from covey.sites.drivers.lsf import Lsf
from covey.sites.errors import Away, Refused, Unclear
from tests.unit.sites.recordings import PREFIX, SCRIPT, batch, recorded, site

LSF = Lsf()
SITE = site("lsf")


def test_an_array_is_submitted_with_what_its_pilots_need() -> None:
    spec = site("lsf", queue="long", project="phys", select="type==any", whole_nodes=True)
    command = LSF.submit(spec, batch(3, Shape(8, 5400, 4000, 0, 2)))
    assert command.stdin == SCRIPT.encode()
    assert command.argv[command.argv.index("bsub") :] == (
        *("bsub", "-J", "covey-q7-1-4[1-3]", "-cwd", "/home/ann/.covey/sites/there"),
        *("-o", "/home/ann/.covey/sites/there/covey-q7-1-4.%I.out", "-r"),
        *("-q", "long", "-P", "phys", "-n", "8"),
        *("-R", "select[type==any] rusage[mem=4000MB] span[hosts=1]"),
        *("-W", "90", "-M", "4000MB", "-gpu", "num=2", "-x"),
        "/home/ann/.covey/sites/there/covey-q7-1-4.sh",
    )


def test_one_job_is_an_array_of_one() -> None:
    assert "covey-q7-1-4[1-1]" in LSF.submit(SITE, batch()).argv
    assert LSF.submitted(SITE, batch(), recorded("lsf/bsub.txt")) == ("806290[1]",)


def test_handles_of_an_array() -> None:
    handles = LSF.submitted(SITE, batch(3), recorded("lsf/bsub.txt"))
    assert handles == ("806290[1]", "806290[2]", "806290[3]")
    assert LSF.cancel(SITE, [*handles, "7[1]", "9"]).argv == ("bkill", "9", "806290[1-3]", "7[1]")


def test_refused_or_lost() -> None:
    refused = Output(255, "", "normal: No such queue. Job not submitted.\n")
    with pytest.raises(Refused, match="No such queue"):
        LSF.submitted(SITE, batch(), refused)
    gone = "LSF is down. Please wait ...\nRequest from non-LSF host rejected. Job not submitted.\n"
    with pytest.raises(Away, match="non-LSF"):
        LSF.submitted(SITE, batch(), Output(255, "", gone))
    with pytest.raises(Unclear):
        LSF.submitted(SITE, batch(), Output(255, "", "Connection closed by remote host\n"))
    with pytest.raises(Unclear):
        LSF.submitted(
            SITE, batch(), Output(-15, "", "batch daemon not responding ... still trying")
        )


def test_the_list() -> None:
    argv = LSF.status(SITE, PREFIX).argv
    assert argv[:4] == ("bjobs", "-a", "-J", "covey-q7-*")
    assert argv[-1] == "-json"
    assert LSF.listed(SITE, PREFIX, recorded("lsf/bjobs.json")) == [
        Seen("covey-q7-1-4", "806290[1]", Stand.RUNNING),
        Seen(
            *("covey-q7-1-5", "806290[2]", Stand.WAITING, "New job is waiting for scheduling"),
        ),
        Seen(
            *("covey-q7-1-6", "806290[3]", Stand.ENDED, "EXIT (TERM_OWNER: job killed by owner)"),
        ),
        Seen("covey-q7-1-7", "806291[1]", Stand.ENDED, "exit status 0"),
        Seen("covey-q7-1-8", "806292[1]", Stand.UNKNOWN, "UNKWN"),
        Seen(
            *("covey-q7-1-9", "806293[1]", Stand.ENDED),
            "exit status 130 (TERM_RUNLIMIT: job killed after reaching LSF run time limit)",
        ),
    ]


def test_what_others_recorded() -> None:
    """Names are theirs; these fields are fewer than we ask for, and others."""
    (running,) = LSF.listed(SITE, "/eng/", recorded("lsf/recorded-bjobs-a.json"))
    assert running[1:5] == ("5346451", Stand.RUNNING, "", 0)
    assert running.name == "/eng/tools/cm/bin/BHstart --BHbld_sys lnx86_64_opt"
    stands = [
        (seen.handle, seen.stand)
        for seen in LSF.listed(SITE, "sleep", recorded("lsf/recorded-bjobs-waiting.json"))
    ]
    assert stands == [
        *((str(job), Stand.RUNNING) for job in range(217, 221)),
        *((str(job), Stand.WAITING) for job in (221, 222)),
    ]
    ended = LSF.listed(SITE, "RoddyTest", recorded("lsf/recorded-bjobs-ended.json"))
    assert {seen.stand for seen in ended} == {Stand.ENDED}
    assert [seen.reason for seen in ended] == 3 * ["EXIT"] + 3 * ["exit status 0"]
    assert LSF.submitted(SITE, batch(), recorded("lsf/recorded-bsub.txt")) == ("764254593[1]",)
    assert LSF.listed(SITE, PREFIX, recorded("lsf/recorded-bjobs-unknown.txt", 255)) == []


def test_a_job_by_itself_has_index_0() -> None:
    record = {"JOBID": "321", "JOBINDEX": "0", "STAT": "RUN", "JOB_NAME": "covey-q7-1"}
    output = Output(0, json.dumps({"RECORDS": [record]}), "")
    assert LSF.listed(SITE, PREFIX, output) == [Seen("covey-q7-1", "321", Stand.RUNNING)]


def test_lsf_may_ask_for_patience_first() -> None:
    output = recorded("lsf/bjobs.json")
    slow = output._replace(stdout="Cannot connect to LSF. Please wait ...\n" + output.stdout)
    assert LSF.listed(SITE, PREFIX, slow) == LSF.listed(SITE, PREFIX, output)


def test_no_job_is_an_empty_list_and_silence_is_none() -> None:
    assert (
        LSF.listed(SITE, PREFIX, Output(0, '{"COMMAND":"bjobs","JOBS":0,"RECORDS":[]}', "")) == []
    )
    assert LSF.listed(SITE, PREFIX, Output(255, "", "Job <covey-q7-*> is not found\n")) == []
    assert LSF.listed(SITE, PREFIX, Output(0, "", "No job found\n")) == []
    record = {"JOBID": "7", "ERROR": "Job <7> is not found"}
    for output in (
        Output(0, "", ""),
        Output(255, "", "Failed in an LSF library call: LIM is down\n"),
        Output(0, json.dumps({"RECORDS": [record]}), ""),
        Output(0, '{"RECORDS":[', ""),
    ):
        with pytest.raises(Unclear):
            LSF.listed(SITE, PREFIX, output)


def test_there_are_no_accounts() -> None:
    assert LSF.accounting(SITE, ["7[1]"]) is None
    assert LSF.accounted(SITE, Output(0, "", "")) == []
