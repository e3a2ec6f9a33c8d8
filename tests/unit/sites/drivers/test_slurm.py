"""Slurm, with what Slurm 22.05.8 said (tests/data/sites/README.md)."""

import pytest

from covey.sites.commands import Output
from covey.sites.driver import Seen, Shape, Stand
from covey.sites.drivers.slurm import COLUMNS, STATES, Slurm
from covey.sites.errors import Away, Refused, Unclear
from tests.unit.sites.recordings import PREFIX, SCRIPT, batch, recorded, site

SLURM = Slurm()
SITE = site("slurm")


def line(
    handle: str,
    state: str,
    title: str,
    reason: str = "None",
    restarts: str = "0",
    used: str = "0:00",
) -> str:
    words = (handle, state, restarts, title, reason, used)
    columns = zip(words, COLUMNS, strict=True)
    return "".join(word.ljust(width)[:width] for word, (_, width) in columns) + "\n"


def test_an_array_is_submitted_with_what_its_pilots_need() -> None:
    spec = site(
        "slurm",
        partition="long",
        account="phys",
        qos="high",
        constraint="rome|milan",
        reservation="r1",
        gpu_type="a100",
        whole_nodes=True,
        requeue=True,
        warn_seconds=90,
        extra=("--mail-type=NONE",),
    )
    command = SLURM.submit(spec, batch(3, Shape(8, 5401, 4000, 100, 2)))
    assert command.stdin == SCRIPT.encode()
    assert command.argv == (
        *("sbatch", "--parsable", "--job-name=covey-q7-1-4"),
        *("--chdir=/home/ann/.covey/sites/there", "--open-mode=append", "--array=0-2"),
        "--output=/home/ann/.covey/sites/there/covey-q7-1-4.%a.out",
        *("--partition=long", "--account=phys", "--qos=high", "--constraint=rome|milan"),
        *("--reservation=r1", "--requeue", "--exclusive", "--signal=B:TERM@90"),
        *("--nodes=1", "--ntasks=1", "--cpus-per-task=8", "--time=91", "--mem=4000M"),
        *("--tmp=100M", "--gres=gpu:a100:2", "--mail-type=NONE"),
    )


def test_what_is_not_said_is_not_asked() -> None:
    argv = SLURM.submit(SITE, batch()).argv
    assert argv[4:] == (
        *("--open-mode=append", "--output=/home/ann/.covey/sites/there/covey-q7-1-4.0.out"),
        *("--no-requeue", "--nodes=1", "--ntasks=1", "--cpus-per-task=1"),
    )
    odd = batch()._replace(directory="/home/50%")
    assert "--output=/home/50%%/covey-q7-1-4.0.out" in SLURM.submit(SITE, odd).argv


def test_handles() -> None:
    array = recorded("slurm/sbatch-array.txt")
    job = array.stdout.strip()
    assert SLURM.submitted(SITE, batch(2), array) == (f"{job}_0", f"{job}_1")
    one = recorded("slurm/sbatch-one.txt")
    assert SLURM.submitted(SITE, batch(), one) == (one.stdout.strip(),)
    assert SLURM.submitted(SITE, batch(), Output(0, "12;second\n", "")) == ("12",)


def test_one_of_several_clusters() -> None:
    spec = site("slurm", cluster="second")
    for command in (
        SLURM.submit(spec, batch()),
        SLURM.status(spec, PREFIX),
        SLURM.cancel(spec, ["12"]),
        SLURM.accounting(spec, ["12"]),
    ):
        assert command is not None
        assert "--clusters=second" in command.argv
    text = "CLUSTER: second\n" + line("12", "RUNNING", "covey-q7-1-4")
    assert SLURM.listed(spec, PREFIX, Output(0, text, "")) == [
        Seen("covey-q7-1-4", "12", Stand.RUNNING)
    ]


@pytest.mark.parametrize("what", ["partition", "constraint", "controller"])
def test_refused(what: str) -> None:
    with pytest.raises(Refused) as caught:
        SLURM.submitted(SITE, batch(), recorded(f"slurm/sbatch-refused-{what}.txt", 1))
    assert isinstance(caught.value, Away) == (what == "controller")


@pytest.mark.parametrize(
    "output",
    [
        Output(
            *(1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv"),
        ),
        Output(1, "", "sbatch: error: Batch job submission failed: Zero Bytes were transmitted"),
        Output(1, "", ""),
        Output(-15, "", "sbatch: error: something"),
        Output(255, "", "Connection to login1 closed by remote host."),
        Output(0, "Submitted\n", ""),
    ],
)
def test_nobody_knows(output: Output) -> None:
    with pytest.raises(Unclear):
        SLURM.submitted(SITE, batch(), output)


def test_every_state_has_a_stand() -> None:
    for state, stand in STATES.items():
        text = line("12_3", state, "covey-q7-1-4", "Priority")
        (seen,) = SLURM.listed(SITE, PREFIX, Output(0, text, ""))
        assert (seen.name, seen.handle, seen.stand) == ("covey-q7-1-7", "12_3", stand)
    (seen,) = SLURM.listed(SITE, PREFIX, Output(0, line("12", "NEW_STATE", "covey-q7-1-4"), ""))
    assert (seen.stand, seen.reason) == (Stand.UNKNOWN, "NEW_STATE")


def test_what_never_will_run_is_stuck() -> None:
    text = line("12", "PENDING", "covey-q7-1-4", "BadConstraints", "1")
    assert SLURM.listed(SITE, PREFIX, Output(0, text, "")) == [
        Seen("covey-q7-1-4", "12", Stand.STUCK, "BadConstraints", 1)
    ]


def test_nothing_is_a_list_and_words_are_none() -> None:
    assert SLURM.listed(SITE, PREFIX, Output(0, "", "")) == []
    for output in (
        recorded("slurm/squeue-controller.txt", 1),
        Output(0, line("12", "RUNNING", "covey-q7-1-4"), "slurm_load_jobs error: partial\n"),
        Output(0, "hello\n", ""),
    ):
        with pytest.raises(Unclear):
            SLURM.listed(SITE, PREFIX, output)


@pytest.mark.parametrize("title", ["a\nb", "a\n12", "a\n\nb", "a\rb", "a\x85b"])
def test_line_breaks_in_the_names_of_other_jobs_spoil_no_list(title: str) -> None:
    text = line("11", "RUNNING", title) + line("12", "RUNNING", "covey-q7-1-4")
    assert SLURM.listed(SITE, PREFIX, Output(0, text, "")) == [
        Seen("covey-q7-1-4", "12", Stand.RUNNING)
    ]


def test_a_greeting_spoils_no_list() -> None:
    output = Output(0, line("12", "RUNNING", "covey-q7-1-4"), "Questions? Contact help@uni\n")
    assert len(SLURM.listed(SITE, PREFIX, output)) == 1


def test_elements_of_an_array_are_cancelled_with_one_call() -> None:
    handles = ["7_4", "7_5", "7_9", "8", "9_0", "7_6"]
    assert SLURM.cancel(SITE, handles).argv == (*("scancel", "--quiet", "8", "7_[4-6,9]", "9_[0]"),)


def test_the_user_where_squeue_is_old() -> None:
    assert SLURM.status(SITE, PREFIX).argv[1] == "--me"
    assert SLURM.status(site("slurm", user="ann"), PREFIX).argv[1] == "--user=ann"


def test_a_list_as_it_was() -> None:
    assert SLURM.listed(SITE, PREFIX, recorded("slurm/squeue.txt")) == [
        Seen("covey-q7-1-7", "1_3", Stand.ENDED, "CANCELLED"),
        Seen("covey-q7-1-8", "2", Stand.ENDED, "CANCELLED"),
        Seen("covey-q7-1-9", "3", Stand.ENDED, "FAILED (NonZeroExitCode)"),
        Seen("covey-q7-1-17", "12", Stand.ENDED, "FAILED (BadConstraints)"),
        Seen("covey-q7-1-12", "5_0", Stand.WAITING, "Resources"),
        Seen("covey-q7-1-13", "5_1", Stand.WAITING, "Resources"),
        Seen("covey-q7-1-11", "4", Stand.WAITING, "JobHeldUser"),
        Seen("covey-q7-1-4", "1_0", Stand.RUNNING),
        Seen("covey-q7-1-5", "1_1", Stand.RUNNING),
        Seen("covey-q7-1-6", "1_2", Stand.RUNNING),
        Seen("covey-q7-1-16", "11", Stand.WAITING, "BeginTime", 1),
        Seen("covey-q7-1-14", "9", Stand.RUNNING),
    ]


def test_two_minutes_later() -> None:
    later = SLURM.listed(SITE, PREFIX, recorded("slurm/squeue-later.txt"))
    found = {seen.name: seen for seen in later}
    for name, stand, reason, restarts in (
        ("covey-q7-1-4", Stand.STUCK, "job requeued in held state", 1),
        ("covey-q7-1-5", Stand.STUCK, "SPECIAL_EXIT (job requeued in held state)", 1),
        ("covey-q7-1-14", Stand.ENDED, "TIMEOUT (TimeLimit)", 0),
        ("covey-q7-1-16", Stand.RUNNING, "", 1),
    ):
        assert found[name][2:5] == (stand, reason, restarts)


def test_accounts() -> None:
    command = SLURM.accounting(SITE, ["1_3", "9"])
    assert command is not None
    assert command.argv == (
        *("sacct", "--noheader", "--parsable2", "--allocations", "--jobs=1_3,9"),
        "--format=JobID,State,ExitCode,JobName",
    )
    found = {seen.handle: seen for seen in SLURM.accounted(SITE, recorded("slurm/sacct.txt"))}
    assert found["1_3"] == Seen("covey-q7-1-7", "1_3", Stand.ENDED, "CANCELLED by 0")
    assert found["3"] == Seen("covey-q7-1-9", "3", Stand.ENDED, "FAILED (exit status 3)")
    assert found["9"] == Seen("covey-q7-1-14", "9", Stand.ENDED, "TIMEOUT")
    assert found["11"].stand is Stand.RUNNING
    killed = SLURM.accounted(SITE, Output(0, "7|NODE_FAIL|0:9|covey-q7-1-4\n", ""))
    assert killed[0].reason == "NODE_FAIL (signal 9)"


def test_elements_that_never_started_are_accounted_for_together() -> None:
    found = SLURM.accounted(SITE, recorded("slurm/sacct-array.txt"))
    indices = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 14, 15, 17, 18, 19, 20]
    assert [seen.handle for seen in found] == [f"14_{index}" for index in indices]
    assert [seen.name for seen in found] == [f"covey-q7-2-{100 + index}" for index in indices]


def test_a_site_without_accounts_and_one_that_cannot_be_asked() -> None:
    assert SLURM.accounted(SITE, recorded("slurm/sacct-disabled.txt", 1)) == []
    with pytest.raises(Unclear):
        SLURM.accounted(SITE, Output(1, "", "sacct: error: Sending PersistInit msg: refused\n"))


def test_an_error_of_a_plugin_spoils_no_list() -> None:
    errors = "squeue: error: plugin_load_from_file: dlopen(topology_tree.so): cannot open\n"
    output = Output(0, line("12", "RUNNING", "covey-q7-1-4"), errors)
    assert len(SLURM.listed(SITE, PREFIX, output)) == 1


def test_a_job_that_runs_tells_for_how_long() -> None:
    text = (
        line("7", "RUNNING", PREFIX + "1-1", used="1-00:01:05")
        + line("8", "PENDING", PREFIX + "1-2", used="0:00")
        + line("9", "RUNNING", PREFIX + "1-3", used="INVALID")
    )
    seen = SLURM.listed(SITE, PREFIX, Output(0, text, ""))
    assert [job.ran_seconds for job in seen] == [86465.0, 0.0, 0.0]
