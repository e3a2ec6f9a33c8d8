"""Grid Engine, with what Son of Grid Engine 8.1.9 said (tests/data/sites/README.md)."""

import pytest

from covey.sites.commands import Output
from covey.sites.driver import Seen, Shape, Stand
from covey.sites.drivers.gridengine import GridEngine
from covey.sites.errors import Away, Refused, Unclear
from tests.unit.sites.recordings import PREFIX, SCRIPT, batch, recorded, site

GRID = GridEngine()
SITE = site("gridengine")


def test_an_array_is_submitted_with_what_its_pilots_need() -> None:
    spec = site(
        "gridengine",
        queue="long.q",
        project="phys",
        account="a1",
        memory_resource="h_vmem",
        whole_nodes=True,
        requeue=False,
        extra=("-m", "n"),
    )
    command = GRID.submit(spec, batch(3, Shape(8, 5400.5, 4001, 0, 2)))
    assert command.stdin == SCRIPT.encode()
    assert command.argv[command.argv.index("qsub") :] == (
        *("qsub", "-terse", "-b", "y", "-N", "covey-q7-1-4", "-t", "1-3", "-S", "/bin/sh"),
        *("-wd", "/home/ann/.covey/sites/there", "-j", "y"),
        *("-o", "/home/ann/.covey/sites/there/covey-q7-1-4.$TASK_ID.out", "-r", "n"),
        *("-q", "long.q", "-P", "phys", "-A", "a1", "-pe", "smp", "8"),
        *("-l", "h_rt=5401,h_vmem=501M,gpu=2,exclusive=true", "-m", "n"),
        "/home/ann/.covey/sites/there/covey-q7-1-4.sh",
    )


def test_memory_has_no_name_unless_the_site_gives_one() -> None:
    assert "-l" not in GRID.submit(SITE, batch(1, Shape(1, 0, 4000))).argv


def test_handles() -> None:
    assert GRID.submitted(SITE, batch(3), recorded("gridengine/qsub.txt")) == (
        *("11.1", "11.2", "11.3"),
    )
    with pytest.raises(Unclear):
        GRID.submitted(SITE, batch(2), recorded("gridengine/qsub.txt"))
    handles = ["11.1", "11.2", "11.5", "12.1"]
    assert GRID.cancel(SITE, handles).argv == ("qdel", "11.1-2:1", "11.5-5:1", "12.1-1:1")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            "queue",
            'Unable to run job: Job was rejected because job requests unknown queue "nope.q"',
        ),
        ("pe", 'job rejected: the requested parallel environment "nope" does not exist'),
        ("master", "unable to send message to qmaster"),
    ],
)
def test_refused(what: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        GRID.submitted(SITE, batch(), recorded(f"gridengine/qsub-refused-{what}.txt", 1))
    assert isinstance(caught.value, Away) == (what == "master")


def test_nobody_knows() -> None:
    lost = (
        "error: commlib error: got read error (closing connection)\nUnable to run job.\nExiting.\n"
    )
    for output in (Output(1, "", lost), Output(1, "", ""), Output(-9, "", "x"), Output(0, "", "")):
        with pytest.raises(Unclear):
            GRID.submitted(SITE, batch(), output)


def test_a_list_as_it_was() -> None:
    found = GRID.listed(SITE, PREFIX, recorded("gridengine/qstat.xml"))
    assert len(found) == 16
    stuck = "error state Eqw: 'qstat -j 14' there shows the reason"
    for seen in (
        Seen("covey-q7-1-4", "11.1", Stand.RUNNING),
        Seen("covey-q7-1-5", "11.2", Stand.WAITING, "Rq", 1),
        Seen("covey-q7-1-10", "14.1", Stand.STUCK, stuck),
        Seen("covey-q7-1-11", "15.1", Stand.WAITING, "hqw"),
        Seen("covey-q7-1-25", "20.6", Stand.RUNNING),
        Seen("covey-q7-1-31", "20.12", Stand.WAITING),
    ):
        assert seen in found


@pytest.mark.parametrize(
    ("state", "stand", "restarts"),
    [
        ("qw", Stand.WAITING, 0),
        ("hRwq", Stand.WAITING, 1),
        ("t", Stand.RUNNING, 0),
        ("Rr", Stand.RUNNING, 1),
        ("dr", Stand.RUNNING, 0),
        ("S", Stand.RUNNING, 0),
        ("dEqw", Stand.STUCK, 0),
        ("z", Stand.UNKNOWN, 0),
        ("", Stand.UNKNOWN, 0),
    ],
)
def test_states(state: str, stand: Stand, restarts: int) -> None:
    text = (
        "<job_info><job_list><JB_job_number>7</JB_job_number><JB_name>covey-q7-1-4</JB_name>"
        f"<state>{state}</state><tasks>2</tasks></job_list></job_info>"
    )
    (seen,) = GRID.listed(SITE, PREFIX, Output(0, text, ""))
    assert (seen.name, seen.handle) == ("covey-q7-1-5", "7.2")
    assert (seen.stand, seen.restarts) == (stand, restarts)


def test_an_empty_list_is_one_and_words_are_none() -> None:
    assert GRID.listed(SITE, PREFIX, recorded("gridengine/qstat-empty.xml")) == []
    for output in (
        recorded("gridengine/qstat-master.txt", 1),
        Output(0, "", ""),
        Output(0, "<html></html>", ""),
        Output(0, recorded("gridengine/qstat.xml").stdout[:-30], ""),
    ):
        with pytest.raises(Unclear):
            GRID.listed(SITE, PREFIX, output)


def test_accounts() -> None:
    one, several = GRID.accounting(SITE, ["13.1", "13.2"]), GRID.accounting(SITE, ["13.1", "14.1"])
    assert one is not None
    assert several is not None
    assert one.argv == ("qacct", "-d", "2", "-j", "13")
    assert several.argv == ("qacct", "-d", "2", "-j", "covey-*")
    assert GRID.accounted(SITE, recorded("gridengine/qacct-one.txt")) == [
        Seen("covey-q7-1-8", "13.1", Stand.ENDED, "exit status 3"),
        Seen("covey-q7-1-9", "13.2", Stand.ENDED, "exit status 3"),
    ]
    assert GRID.accounted(SITE, recorded("gridengine/qacct-array.txt")) == [
        Seen("covey-q7-1-6", "11.3", Stand.ENDED, "exit status 137 (Killed)"),
        Seen("covey-q7-1-4", "11.1", Stand.ENDED, "exit status 137 (Killed)"),
    ]
    (seen,) = GRID.accounted(SITE, recorded("gridengine/qacct-limit.txt"))
    assert seen.reason == "qmaster enforced h_rt, h_cpu, or h_vmem limit (failure 37)"


def test_a_run_that_is_repeated_is_no_end() -> None:
    output = recorded("gridengine/qacct-limit.txt")
    again = output.stdout.replace("37  : qmaster enforced", "25  : rescheduling;")
    assert GRID.accounted(SITE, output._replace(stdout=again)) == []


def test_accounts_that_there_are_not() -> None:
    assert GRID.accounting(site("gridengine", accounting_days=0), ["13.1"]) is None
    assert GRID.accounted(SITE, recorded("gridengine/qacct-unknown.txt", 1)) == []
    with pytest.raises(Unclear):
        GRID.accounted(SITE, Output(1, "", "accounting: No such file or directory\n"))
