"""Nobody runs covey with versions of its libraries that are older than those tested."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([a-z0-9-]+)==([0-9.]+)", re.MULTILINE)
FLOOR = re.compile(r"([a-z0-9-]+)>=([0-9.]+)")


def test_floors_are_the_tested_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts = [(ROOT / "requirements" / name).read_text() for name in ("runtime.txt", "dev.txt")]
    locked = dict(PIN.findall("\n".join(texts)))
    wanted = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["parquet"],
        *project["build-system"]["requires"],
    ]
    assert wanted
    for line in wanted:
        floor = FLOOR.match(line)
        assert floor is not None, f"{line} has no oldest version"
        name, version = floor.groups()
        assert locked[name] == version, f"{name} {locked[name]} is tested: raise its floor"
