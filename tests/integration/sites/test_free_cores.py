"""How much is free, told by real batch systems."""

import pytest

from covey.core.record.model import SiteSpec
from covey.sites.drivers.gridengine import GridEngine
from covey.sites.drivers.slurm import Slurm
from covey.sites.shell import LocalShell

DRIVERS = {"slurm": Slurm(), "gridengine": GridEngine()}


@pytest.mark.parametrize("system", DRIVERS)
def test_a_real_system_tells_how_much_is_free(system: str, request: pytest.FixtureRequest) -> None:
    testbed, driver = request.getfixturevalue(system), DRIVERS[system]
    spec = SiteSpec(name="there", driver=system, environment=testbed.environment)
    command = driver.capacity(spec)
    assert command is not None
    output = LocalShell().run(command, {**driver.environment, **spec.environment})
    found = driver.measured(spec, output)
    assert found.total_cores is not None
    assert found.total_cores > 1
    assert found.free_cores is not None
    assert 0 <= found.free_cores <= found.total_cores
    assert found.queue_length is not None
