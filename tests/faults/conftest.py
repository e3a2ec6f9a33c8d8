"""Every test here gets a world, and leaves nothing of it."""

import random
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.world import MARK, World, new_random


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    root = Path(tempfile.mkdtemp(prefix="covey-faults-"))
    mark = secrets.token_hex(8)
    monkeypatch.setenv(MARK, mark)
    monkeypatch.delenv("COVEY_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(root / "config"))
    found = World(root, mark)
    try:
        yield found
    finally:
        print(found.log_tail())
        found.close()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def seeded() -> random.Random:
    return new_random()
