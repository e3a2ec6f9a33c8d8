"""docs/sites.md, "my laptop plus two clusters", with a real Slurm and Grid Engine behind SSH: the
page's own settings, as far as these clusters are like those that it tells of."""

import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_cli import Place
from tests.testbed.gridengine import GridEngine
from tests.testbed.slurm import Slurm
from tests.testbed.ssh import SshHosts

PAGE = (Path(__file__).parents[2] / "docs" / "sites.md").read_text()
GUIDE = PAGE.partition("in ten minutes\n")[2].partition("\n## ")[0]
# What clusters of the testbed do not have.
NOT_HERE = re.compile(r"^(memory|setup|account|parallel_environment) = .*\n", re.MULTILINE)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.covey("stop")


def settings(slurm: Slurm, gridengine: GridEngine, sshd: SshHosts) -> str:
    server, clusters = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    server = server.replace("8300", port).replace("laptop.example.org", "localhost")
    clusters = NOT_HERE.sub("", clusters).replace("slots = 4", "slots = 1")
    clusters = clusters.replace('"short"', '"main"')  # whose limit is longer
    clusters = re.sub(r"login\.\w\.example\.org", "login", clusters)
    for name, system in (("alpha", slurm), ("beta", gridengine)):
        lines = [f'{key} = "{value}"' for key, value in system.environment.items()]
        clusters += "\n".join([f"\n[sites.{name}.environment]", *lines]) + "\n"
    return f'{server}ssh = "ssh -F {sshd.config}"\n{clusters}'


def commands() -> list[list[str]]:
    """Those of covey in the guide, in their order."""
    blocks = "".join(re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL))
    lines = [shlex.split(line, comments=True) for line in blocks.splitlines()]
    return [words[1:] for words in lines if words[:1] == ["covey"]]


def test_the_guide(place: Place, slurm: Slurm, gridengine: GridEngine, sshd: SshHosts) -> None:
    (place.here / "covey.toml").write_text(settings(slurm, gridengine, sshd))
    (place.here / "simulate").write_text("#!/bin/sh\nsleep 0.05\necho $1 of $(hostname)\n")
    (place.here / "simulate").chmod(0o755)
    shown = {}
    for words in commands():
        typed = [word.replace("1..2000", "1..200") for word in words]
        shown[" ".join(words)] = place.covey(*typed)
        if words[:2] == ["site", "test"]:
            place.covey("site", "test", "beta")
    assert "site alpha works: a pilot in " in shown["site test alpha"].stderr
    (ran,) = [one for typed, one in shown.items() if typed.startswith("run ")]
    assert "200 tasks done" in ran.stdout
    assert [line.split()[0] for line in shown["site list"].stdout.splitlines()[1:]] == [
        "local", "alpha", "beta",
    ]  # fmt: skip
    assert shown["explain site beta"].stdout.startswith("site beta: ")
    used = place.covey("pilots", "--all").stdout
    assert "alpha" in used
