"""Every test here gets a world, and leaves nothing of it."""

import random
from collections.abc import Iterator

import pytest

from tests.faults.world import MARK, World, new_random, open_world


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with open_world() as found:
        for name, text in found.environment().items():
            if name in (MARK, "XDG_CONFIG_HOME"):  # for servers that a client here starts
                monkeypatch.setenv(name, text)
        yield found


@pytest.fixture
def seeded() -> random.Random:
    return new_random()
