"""docs/sites.md: what it shows is understood, and it leaves out nothing that drivers know."""

import re
import tomllib
from pathlib import Path

import pytest

from covey import config, wiring

PAGE = (Path(__file__).parents[2] / "docs" / "sites.md").read_text()
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS)
def test_examples_are_settings(text: str, tmp_path: Path) -> None:
    (tmp_path / "covey.toml").write_text(text)
    settled = config.load({}, {"HOME": str(tmp_path / "home")}, tmp_path)
    assert len(settled.config.sites) == len(tomllib.loads(text).get("sites", {}))
    for spec in settled.config.sites:
        wiring.check_site(spec)


@pytest.mark.parametrize("driver", [one.name for one in wiring.drivers() if one.package == "covey"])
def test_every_driver_has_an_example_and_all_its_options(driver: str) -> None:
    (found,) = [one for one in wiring.drivers() if one.name == driver]
    assert not found.problem
    section = PAGE.split(f"\n### {driver}\n")[1].split("\n##")[0]
    assert f'driver = "{driver}"' in section
    for option in found.options:
        assert re.search(rf"^`?{option.name} = |`{option.name}[` ]", section, re.MULTILINE), (
            option.name
        )
    shown = set(re.findall(r"`(\w+)`", section.partition("Also ")[2]))
    assert shown <= {option.name for option in found.options}


def test_there_are_drivers_and_examples() -> None:
    names = {one.name for one in wiring.drivers()}
    assert {"slurm", "gridengine", "pbs", "lsf", "htcondor", "ssh", "manual"} <= names
    assert len(BLOCKS) > len(names)
