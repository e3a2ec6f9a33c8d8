"""How much of a site is free, by recorded text, by text in a published form, and by nonsense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.record.capacity import SiteCapacity
from covey.sites.command_driver import CommandDriver
from covey.sites.commands import Output
from covey.sites.drivers.gridengine import GridEngine
from covey.sites.drivers.htcondor import HTCondor
from covey.sites.drivers.lsf import Lsf
from covey.sites.drivers.pbs import Pbs
from covey.sites.drivers.slurm import Slurm
from covey.sites.errors import Unclear
from tests.unit.sites.recordings import BATCH_SYSTEMS, recorded, site


def text(first: str, second: str = "") -> Output:
    return Output(0, f"{first}\n\n{second}", "")


def measured(driver: CommandDriver, output: Output, **options: str) -> SiteCapacity:
    return driver.measured(site(driver.name, **options), output)


# -- slurm -------------------------------------------------------------------------------------


def test_slurm_tells_of_the_default_partition() -> None:
    assert measured(Slurm(), recorded("slurm/capacity.txt")) == SiteCapacity(
        free_cores=2, total_cores=12, free_nodes=0, total_nodes=3, queue_length=15
    )


def test_slurm_tells_of_the_partitions_that_a_site_names() -> None:
    output = text(
        "long|4/60/0/64|1/7/0/8\nshort*|0/8/0/8|0/2/0/2", "  5 long,short\n 2 short\n 9 other"
    )
    found = measured(Slurm(), output, partition="long,short")
    assert found == SiteCapacity(
        free_cores=60, total_cores=64, free_nodes=7, total_nodes=8, queue_length=7
    )
    assert measured(Slurm(), output).total_cores == 8, "of the default partition only"


def test_slurm_is_asked_for_the_partitions_and_the_cluster_of_a_site() -> None:
    command = Slurm().capacity(site("slurm", partition="long", cluster="a"))
    assert command.argv[-2:] == ("--clusters=a", "--partition=long")


# -- gridengine --------------------------------------------------------------------------------


def test_grid_engine_tells_of_its_queues() -> None:
    assert measured(GridEngine(), recorded("gridengine/capacity.txt")) == SiteCapacity(
        free_cores=16, total_cores=16, queue_length=17
    )


def test_grid_engine_is_asked_for_the_queues_of_a_site() -> None:
    assert GridEngine().capacity(site("gridengine", queue="a.q,b.q")).argv[-2:] == ("-q", "a.q,b.q")


# -- pbs ---------------------------------------------------------------------------------------

OPENPBS = """node1
     state = free
     resources_available.ncpus = 8
     resources_assigned.ncpus = 2
node2
     state = job-busy
     resources_available.ncpus = 8
     resources_assigned.ncpus = 8
node3
     state = free
     resources_available.ncpus = 4
node4
     state = offline,down
     resources_available.ncpus = 16
     resources_assigned.ncpus = 0
"""
TORQUE = """node1
     state = free
     np = 8
     jobs = 0-1/12.server,4/13.server
node2
     state = job-exclusive
     np = 2
     jobs = 0/14.server, 1/14.server
node3
     state = free
     np = 4
"""
QUEUES = """Queue              Max   Tot Ena Str   Que   Run   Hld   Wat   Trn   Ext Type
---------------- ----- ----- --- --- ----- ----- ----- ----- ----- ----- ----
workq                0     8 yes yes     5     3     0     0     0     0 Exec
long                 0     4 yes yes     4     0     0     0     0     0 Exec
"""


def test_pbs_tells_of_its_nodes_and_queues() -> None:
    assert measured(Pbs(), text(OPENPBS, QUEUES)) == SiteCapacity(
        free_cores=10, total_cores=36, free_nodes=1, total_nodes=4, queue_length=9
    )


def test_short_lines_of_pbs_are_no_queues() -> None:
    assert measured(Pbs(), text(OPENPBS, "Que\n\n5\n\n")).queue_length == 5


def test_torque_lists_the_cores_of_each_job() -> None:
    assert measured(Pbs(), text(TORQUE), dialect="torque") == SiteCapacity(
        free_cores=9, total_cores=14, free_nodes=1, total_nodes=3, queue_length=None
    )


# -- lsf ---------------------------------------------------------------------------------------

HOSTS = """HOST_NAME          STATUS          JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV
hosta              ok              -       8      3      3      0      0      0
hostb              closed_Full     -       4      4      4      0      0      0
hostc              unavail         -      16      0      0      0      0      0
hostd              ok              -       8      0      0      0      0      0
hoste              ok              -       -      7      7      0      0      0
"""
LSF_QUEUES = """QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP  RSV
normal           30  Open:Active       -    -    -    -    20    13     7     0    0
idle             20  Open:Active       -    -    -    -     2     2     0     0    0
"""


def test_lsf_tells_of_its_hosts_and_queues() -> None:
    assert measured(Lsf(), text(HOSTS, LSF_QUEUES)) == SiteCapacity(
        free_cores=13, total_cores=36, free_nodes=1, total_nodes=4, queue_length=15
    )


# -- htcondor ----------------------------------------------------------------------------------

SLOTS = """     12 Claimed 1
      3 Claimed 8
      5 Unclaimed 4
      1 Owner 2
"""
TOTALS = """

-- Schedd: here : <127.0.0.1:9618?... @ 11/19/26 21:00:00
Total for query: 40 jobs; 0 completed, 0 removed, 4 idle, 36 running, 0 held, 0 suspended
Total for all users: 99 jobs; 0 completed, 0 removed, 63 idle, 36 running, 0 held, 0 suspended
"""


def test_htcondor_tells_of_its_slots_and_its_queue() -> None:
    assert measured(HTCondor(), text(SLOTS, TOTALS)) == SiteCapacity(
        free_cores=20, total_cores=58, queue_length=63
    )


def test_the_name_of_a_pool_is_no_command() -> None:
    command = HTCondor().capacity(site("htcondor", pool="a; rm -rf x"))
    assert "-pool 'a; rm -rf x' " in command.argv[2]


# -- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", BATCH_SYSTEMS, ids=lambda one: one.name)
def test_a_failed_command_is_no_answer(driver: CommandDriver) -> None:
    for output in (Output(1, "", "it is down"), Output(127, "", "not found"), Output(0, "", "")):
        with pytest.raises(Unclear):
            measured(driver, output)


@pytest.mark.parametrize("driver", BATCH_SYSTEMS, ids=lambda one: one.name)
def test_a_question_is_one_command_and_short(driver: CommandDriver) -> None:
    command = driver.capacity(site(driver.name))
    assert command is not None
    assert command.argv[:2] == ("/bin/sh", "-c")
    assert command.seconds <= 30


SAMPLES = {
    "slurm": recorded("slurm/capacity.txt").stdout,
    "gridengine": recorded("gridengine/capacity.txt").stdout,
    "pbs": text(OPENPBS + TORQUE, QUEUES).stdout,
    "lsf": text(HOSTS, LSF_QUEUES).stdout,
    "htcondor": text(SLOTS, TOTALS).stdout,
}


@pytest.mark.parametrize("driver", BATCH_SYSTEMS, ids=lambda one: one.name)
@given(data=st.data())
def test_whatever_it_says_it_is_a_capacity_or_no_answer(
    driver: CommandDriver, data: st.DataObject
) -> None:
    """Of an answer some places are replaced by anything."""
    words = SAMPLES[driver.name]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(words)))
        stop = data.draw(st.integers(start, min(len(words), start + 30)))
        nonsense = data.draw(
            st.text(max_size=12) | st.sampled_from(["9" * 40, "-1", "/", "|", "\n"])
        )
        words = words[:start] + nonsense + words[stop:]
    try:
        found = measured(driver, Output(0, words, ""))
    except Unclear:
        return
    assert isinstance(found, SiteCapacity)
