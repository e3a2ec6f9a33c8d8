"""Drivers are found by entry points, ours and others'; one that is broken harms nobody else."""

import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from covey.core.errors import BadConfig
from covey.core.record.model import Option, SiteSpec
from covey.sites import plugins
from covey.sites.command_driver import CommandDriver
from covey.sites.commands import Output
from covey.sites.driver import Seen, Stand
from covey.sites.errors import Refused, Unclear
from covey.sites.plugins import GROUP, Plugin
from tests.unit.sites.recordings import PREFIX, batch, recorded

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "site-plugin"


def points_of(project: Path) -> dict[str, str]:
    found: dict[str, str] = tomllib.loads((project / "pyproject.toml").read_text())["project"][
        "entry-points"
    ][GROUP]
    return found


def points(**named: str) -> list[EntryPoint]:
    return [EntryPoint(name, value, GROUP) for name, value in named.items()]


OURS = plugins.find(points(**points_of(ROOT)))


def test_ours_are_all_good() -> None:
    assert list(OURS) == ["gridengine", "htcondor", "lsf", "manual", "pbs", "slurm", "ssh"]
    assert [plugin.problem for plugin in OURS.values()] == [""] * 7


def site(driver: str = "slurm", **options: Option) -> SiteSpec:
    return SiteSpec(name="hpc", driver=driver, options=options)


def told(spec: SiteSpec, found: dict[str, Plugin] | None = None) -> str:
    with pytest.raises(BadConfig) as caught:
        plugins.described(spec, OURS if found is None else found)
    return str(caught.value)


def test_options_are_checked_with_their_driver() -> None:
    good = site(partition="long", requeue=False, whole_nodes=True)
    assert plugins.driver_of(good, OURS) is OURS["slurm"].driver
    assert plugins.described(good, OURS).facts.whole_nodes
    assert told(site(partiton="long")).startswith(
        "site hpc: option 'partiton' of driver 'slurm' is unknown; did you mean 'partition'? "
        "(options: partition, account, "
    )
    assert "is unknown; options: partition" in told(site(zzz=1))
    assert told(site("manual", queue="x")).endswith("is unknown; this driver has no options")
    assert told(site(partition=3)) == (
        "site hpc: option 'partition' of driver 'slurm' is 3; it must be text"
    )
    assert told(site(whole_nodes="yes")).endswith("is 'yes'; it must be true or false")
    assert told(site(warn_seconds=1.5)).endswith("is 1.5; it must be a whole number")
    assert told(site(extra="--foo")).endswith("'--foo' must not begin with a dash")
    assert told(site(extra="foo")).endswith("is 'foo'; it must be a list of texts")
    assert told(site("pbs", dialect="sun")).endswith("is 'sun'; it must be one of pbspro, torque")


def test_a_driver_that_there_is_not() -> None:
    assert told(site("slrum")) == (
        "site hpc: there is no driver 'slrum'; did you mean 'slurm'? "
        "(drivers: gridengine, htcondor, lsf, manual, pbs, slurm, ssh)"
    )
    assert told(site("slurm"), {}) == "site hpc: there is no driver 'slurm' (drivers: none)"


def test_every_option_is_described() -> None:
    driver = OURS["slurm"].driver
    assert driver is not None
    helped = {option.name: option for option in plugins.options_help(driver)}
    assert helped["partition"].default == ""
    assert helped["requeue"].default is False
    assert all(option.text.endswith(".") for option in helped.values())


BROKEN = """
import sys
from covey.sites.drivers.slurm import Slurm

class Raises:
    def __init__(self):
        raise RuntimeError("no licence")

class Exits:
    def __init__(self):
        sys.exit("go away")

class Misnamed(Slurm):
    pass

class Short(Slurm):
    name = "short"
    def cancel(self):
        return None

class Undescribed(Slurm):
    name = "undescribed"
    class options(__import__("msgspec").Struct):
        speed: int = 0

class Optionless(Slurm):
    name = "optionless"
    options = dict

class Factless(Slurm):
    name = "factless"
    most_elements = "many"
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "covey_broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    return "covey_broken"


def test_what_is_broken_says_why_and_harms_nobody(broken: str) -> None:
    found = plugins.find(
        points(
            gone="covey_not_there:X",
            missing=f"{broken}:Missing",
            raises=f"{broken}:Raises",
            exits=f"{broken}:Exits",
            other=f"{broken}:Misnamed",
            short=f"{broken}:Short",
            undescribed=f"{broken}:Undescribed",
            optionless=f"{broken}:Optionless",
            factless=f"{broken}:Factless",
            slurm="covey.sites.drivers.slurm:Slurm",
        )
    )
    said = {name: plugin.problem for name, plugin in found.items()}
    assert said["gone"] == "ModuleNotFoundError: No module named 'covey_not_there'"
    assert said["missing"].startswith("AttributeError")
    assert said["raises"] == "RuntimeError: no licence"
    assert said["exits"] == "SystemExit: go away"
    assert said["other"] == "its entry point is 'other', but its own name is 'slurm'"
    assert said["short"] == "its method 'cancel' does not take 2 argument(s)"
    assert said["undescribed"] == "its option 'speed' has no description (msgspec.Meta)"
    assert said["optionless"] == "its 'options' are not a msgspec.Struct"
    assert said["factless"] == "its 'most_elements' is not of type int"
    assert [name for name, problem in said.items() if not problem] == ["slurm"]
    assert told(site("raises"), found) == (
        "site hpc: driver 'raises' of covey cannot be used: RuntimeError: no licence"
    )


# -- the example: a package of its own ----------------------------------------------------


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installed, as far as Python can tell: its module and its metadata are on the path."""
    shutil.copytree(EXAMPLE / "covey_taskspooler", tmp_path / "covey_taskspooler")
    info = tmp_path / "covey_taskspooler-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: covey-taskspooler\nVersion: 1.0\n")
    lines = [f"{name} = {value}\n" for name, value in points_of(EXAMPLE).items()]
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for module in [name for name in sys.modules if name.startswith("covey_taskspooler")]:
        del sys.modules[module]


@pytest.mark.usefixtures("example")
def test_the_example_is_found_where_it_is_installed() -> None:
    assert "taskspooler" in entry_points(group=GROUP).names
    plugin = plugins.find()["taskspooler"]
    assert (plugin.package, plugin.problem) == ("covey-taskspooler", "")
    assert told(site("taskspooler", nise=3), plugins.find()).endswith(
        "did you mean 'nice'? (options: nice)"
    )


@pytest.mark.usefixtures("example")
def test_the_example_keeps_its_promises() -> None:
    spec = site("taskspooler", nice=10)
    driver = plugins.driver_of(spec, plugins.find())
    assert isinstance(driver, CommandDriver)
    argv = driver.submit(spec, batch()).argv
    assert argv[argv.index("tsp") :] == (
        *("tsp", "-L", "covey-q7-1-4", "-N", "1", "nice", "-n", "10"),
        "/home/ann/.covey/sites/there/covey-q7-1-4.sh",
    )
    assert driver.submitted(spec, batch(), Output(0, "3\n", "")) == ("3",)
    with pytest.raises(Refused):
        driver.submitted(spec, batch(), Output(127, "", "tsp: not found"))
    with pytest.raises(Unclear):
        driver.listed(spec, PREFIX, Output(0, "", ""))
    assert driver.listed(spec, PREFIX, recorded("taskspooler/tsp-l.txt")) == [
        Seen("covey-q7-1-5", "1", Stand.RUNNING),
        Seen("covey-q7-1-6", "2", Stand.WAITING),
        Seen("covey-q7-1-4", "0", Stand.ENDED, "exit status 3"),
    ]
