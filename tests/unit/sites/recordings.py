"""Sites, batches and recorded answers for the tests of drivers (tests/data/sites/README.md)."""

from pathlib import Path

from covey.core.record.model import Option, SiteSpec
from covey.sites.command_driver import Batch, CommandDriver
from covey.sites.commands import Output
from covey.sites.driver import Shape, numbered
from covey.sites.drivers.gridengine import GridEngine
from covey.sites.drivers.htcondor import HTCondor
from covey.sites.drivers.lsf import Lsf
from covey.sites.drivers.pbs import Pbs
from covey.sites.drivers.slurm import Slurm

DATA = Path(__file__).parents[2] / "data" / "sites"
PREFIX = "covey-q7-"
SCRIPT = "#!/bin/sh\n#$ -q other\n#PBS -q other\nexec python3 \"$HOME/pilot\" 'a b' `echo $(id)`\n"
BATCH_SYSTEMS: tuple[CommandDriver, ...] = (GridEngine(), HTCondor(), Lsf(), Pbs(), Slurm())


def site(driver: str, **options: Option) -> SiteSpec:
    return SiteSpec(name="there", driver=driver, options=options)


def batch(count: int = 1, shape: Shape | None = None, title: str = PREFIX + "1-4") -> Batch:
    names = tuple(numbered(title, index) for index in range(count))
    return Batch(title, names, shape or Shape(1), SCRIPT, "/home/ann/.covey/sites/there")


def recorded(name: str, status: int = 0) -> Output:
    """What a command wrote; beside it, where there is one, what it wrote as errors."""
    path = DATA / name
    errors = path.with_suffix(".err")
    return Output(
        status,
        path.read_text("utf-8") if path.exists() else "",
        errors.read_text("utf-8") if errors.exists() else "",
    )
