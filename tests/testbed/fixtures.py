"""The testbed's systems as fixtures, for every test (`tests/conftest.py` names this module).

A system is started when a test first asks for it and stays until the end; each worker of xdist has
its own. All that a test asks for are started before one of them is waited for. What a test gets is
*as new*: `reset` comes after each. Tests that ask for a system come first of all: the first worker
has them, and others take work from the end of its list.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.testbed.gridengine import GridEngine
from tests.testbed.place import running, sweep
from tests.testbed.slurm import Slurm
from tests.testbed.ssh import SshHosts
from tests.testbed.wall import SSH, Wall

# What tests that ask for a system are marked with.
MARKS = {
    "slurm": ("slurm",),
    "slurm_accounting": ("slurm",),
    "gridengine": ("gridengine",),
    "sshd": ("ssh",),
    "firewalled": ("slurm", "ssh"),
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in asked_for(item):
            for mark in MARKS[name]:
                item.add_marker(mark)
    items.sort(key=lambda item: not asked_for(item))


def asked_for(item: pytest.Item) -> list[str]:
    """Systems, also those that others of its fixtures ask for, or that the parameter `system`
    names, which such a fixture asks for when it is made."""
    call = getattr(item, "callspec", None)
    named = [call.params["system"]] if call is not None and "system" in call.params else []
    return [name for name in (*getattr(item, "fixturenames", ()), *named) if name in MARKS]


class TwoSlurms(NamedTuple):
    """They do not know of one another."""

    alpha: Slurm
    beta: Slurm


class Firewalled(NamedTuple):
    """A cluster with its login node, both behind the wall: `ssh` reaches the host `login`, on which
    the commands of `slurm` work; its jobs reach `wall.outside`:`wall.port`, and nothing else."""

    wall: Wall
    slurm: Slurm
    ssh: SshHosts


@pytest.fixture(scope="session")
def swept() -> None:
    """Of what earlier runs have left that were killed."""
    for root in sweep():
        print(f"swept away: {root}")


@pytest.fixture(scope="session")
def session_alpha(swept: None) -> Iterator[Slurm]:
    system = Slurm("alpha")
    with running(system, ready=False):
        yield system


@pytest.fixture(scope="session")
def session_beta(swept: None) -> Iterator[Slurm]:
    system = Slurm("beta")
    with running(system, ready=False):
        yield system


@pytest.fixture(scope="session")
def session_accounting(swept: None) -> Iterator[Slurm]:
    system = Slurm("gamma", accounting=True)
    with running(system, ready=False):
        yield system


@pytest.fixture(scope="session")
def session_gridengine(swept: None) -> Iterator[GridEngine]:
    system = GridEngine()
    with running(system, ready=False):
        yield system


@pytest.fixture(scope="session")
def session_sshd(swept: None) -> Iterator[SshHosts]:
    system = SshHosts()
    with running(system, ready=False):
        yield system


@pytest.fixture(scope="session")
def session_firewalled(swept: None) -> Iterator[Firewalled]:
    wall = Wall()
    with running(wall):
        slurm = Slurm("walled", within=wall.within)
        ssh = SshHosts(wall.inside, SSH, slurm.environment, within=wall.within)
        with running(slurm, ssh):
            yield Firewalled(wall, slurm, ssh)


@pytest.fixture
def slurm(session_alpha: Slurm) -> Iterator[Slurm]:
    """8 CPUs, partitions main, short, urgent, killable and requeue; no accounting."""
    session_alpha.wait_ready()
    yield session_alpha
    session_alpha.reset()


@pytest.fixture
def two_slurms(slurm: Slurm, session_beta: Slurm) -> Iterator[TwoSlurms]:
    session_beta.wait_ready()
    yield TwoSlurms(slurm, session_beta)
    session_beta.reset()


@pytest.fixture
def slurm_accounting(session_accounting: Slurm) -> Iterator[Slurm]:
    """One whose `sacct` answers."""
    session_accounting.wait_ready()
    yield session_accounting
    session_accounting.reset()


@pytest.fixture
def gridengine(session_gridengine: GridEngine) -> Iterator[GridEngine]:
    """16 slots, queues all.q, short.q and low.q."""
    session_gridengine.wait_ready()
    yield session_gridengine
    session_gridengine.reset()


@pytest.fixture
def sshd(session_sshd: SshHosts) -> Iterator[SshHosts]:
    """The host `login`, and those that tests add."""
    session_sshd.wait_ready()
    yield session_sshd
    session_sshd.reset()


@pytest.fixture
def firewalled(session_firewalled: Firewalled) -> Iterator[Firewalled]:
    yield session_firewalled
    for system in (session_firewalled.wall, session_firewalled.slurm, session_firewalled.ssh):
        system.reset()
