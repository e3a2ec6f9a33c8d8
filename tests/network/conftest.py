"""Every test here gets networks of its own, and a world whose server lives in one of them."""

from collections.abc import Iterator

import pytest

from tests.faults.world import MARK, World, open_world
from tests.network.lab import Lab, inside, open_lab
from tests.network.remote import Remote


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """On this machine's own network."""
    with open_world() as found:
        for name, text in found.environment().items():
            if name in (MARK, "XDG_CONFIG_HOME"):
                monkeypatch.setenv(name, text)
        yield found


@pytest.fixture
def lab() -> Iterator[Lab]:
    with open_lab() as found:
        yield found


@pytest.fixture
def remote(lab: Lab, world: World) -> Iterator[Remote]:
    """The test itself is in the server's namespace, as its client."""
    with inside(lab.server):
        yield Remote(world, lab)
