"""The record of a running server is removed or replaced: the server notices, acknowledges nothing
more, and ends."""

import errno
import shutil
import sqlite3
from pathlib import Path

import pytest

from covey.client.client import Client
from covey.client.embedded import attach, read_record
from covey.core.errors import CoveyError
from covey.core.record.model import BagSpec
from covey.core.values.space import Axis, Values
from tests.faults.world import World, wait_until

SPEC = BagSpec(name="", argv=("true",), space=Axis("x", Values((1,))))


def remove_tree(directory: Path) -> None:
    """Remove `directory`, although its pilot may be creating files in it."""
    for _ in range(100):
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            if not directory.exists():
                return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        else:
            return
    raise AssertionError(f"{directory} is still being filled")


def remove_record(directory: Path) -> None:
    (directory / "covey.db").unlink()


def remove_log(directory: Path) -> None:
    (directory / "covey.db-wal").unlink()


def replace_record(directory: Path) -> None:
    shutil.copy(directory / "covey.db", directory / "copy")
    (directory / "copy").rename(directory / "covey.db")


def remove_lock(directory: Path) -> None:
    (directory / "lock").unlink()


@pytest.mark.parametrize("harm", [remove_record, remove_log, replace_record, remove_lock])
def test_a_server_at_rest_notices_and_ends(world: World, harm: object) -> None:
    server = world.serve("--pilots", "0")
    assert callable(harm)
    harm(world.directory)
    assert server.wait(20) == 1
    assert "while this server used it" in world.log_tail()


def test_nothing_is_acknowledged_after_the_directory_is_removed(world: World) -> None:
    server = world.serve("--pilots", "0")
    found = read_record(world.directory)
    assert found is not None
    client = Client(*found.endpoint)
    client.connection.patience_seconds = 0.0
    client.submit(SPEC)
    remove_tree(world.directory)
    with pytest.raises(CoveyError):
        client.submit(SPEC)
    assert server.wait(20) == 1


def test_a_new_server_is_the_only_one(world: World) -> None:
    first = world.serve("--slots", "1")
    remove_tree(world.directory)
    second = world.serve("--slots", "1")
    assert first.wait(20) == 1
    client = attach(world.directory)
    assert client is not None
    client.submit(SPEC)
    wait_until(lambda: client.bags()[0].over)
    assert second.poll() is None
    with sqlite3.connect(world.directory / "covey.db") as record:
        assert record.execute("SELECT count(*) FROM bags").fetchone() == (1,)
