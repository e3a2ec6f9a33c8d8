"""A small file system filled under the store, under a pilot, under both: what was acknowledged
stays, nothing fails for it, and everything goes on by itself when there is space."""

import contextlib
import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from covey.client.embedded import read_record
from covey.core.errors import CoveyError, ServerAway
from covey.wire import BagView
from tests.faults.world import (
    World,
    fill,
    kill_process,
    small_disk,
    task_script,
    wait_until,
)

SIZE = 48 << 20
TASKS = 60
WORK = task_script("sleep 0.3; { head -c 2000 /dev/zero | tr '\\0' x && echo {i}; } || exit 1")


def health(world: World) -> tuple[int, dict[str, Any]]:
    record = read_record(world.directory)
    assert record is not None
    try:
        with urllib.request.urlopen(record.address + "/healthz", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def check_outputs(world: World, bag: int) -> None:
    client = world.client()
    for task in range(TASKS):
        output = client.output(bag, task)
        assert output is not None
        assert output.stdout == "x" * 2000 + f"{task}\n"
    client.close()


def test_the_store_is_full_for_a_while(world: World, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", SIZE) as disk:
        world.directory = disk / "store"
        try:
            _fill_the_store(world, disk)
        finally:
            world.close()


def _fill_the_store(world: World, disk: Path) -> None:
    process = world.serve("--pilots", "0")
    pilot = world.pilot("--slots", "6", "--directory", str(world.root / "pilot"))
    bag = world.submit(WORK, TASKS)
    wait_until(lambda: world.ended() >= 6)
    filler = fill(disk)
    wait_until(lambda: health(world)[0] == 503)
    assert "full" in health(world)[1]["status"]
    with pytest.raises(ServerAway, match="full"):
        world.client(patience_seconds=0).submit(world.spec("true", 1, "while-full"))
    wait_until(lambda: world.running() == 0)  # the pilot finishes what it has, and keeps it
    ran = world.ended()
    assert world.bag(bag).done < ran < TASKS
    assert pilot.poll() is None

    kill_process(process)
    world.serve("--pilots", "0", ready=False)
    wait_until(lambda: _answers(world))  # even now; whether it can write is another matter

    filler.unlink()
    wait_until(lambda: health(world) == (200, {"status": "ready"}))
    world.wait_over(bag)
    world.check_results(bag, TASKS)
    world.check_once(bag, TASKS)
    check_outputs(world, bag)
    assert world.rows("SELECT id FROM bags") == [(bag,)]


def _answers(world: World) -> bool:
    try:
        health(world)
    except OSError:
        return False
    return True


def test_the_disk_of_a_pilot_is_full_for_a_while(world: World, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", SIZE) as disk:
        world.serve("--pilots", "0")
        pilot = world.pilot("--slots", "6", "--directory", str(disk / "pilot"))
        bag = world.submit(WORK, TASKS)
        wait_until(lambda: world.ended() >= 6)
        filler = fill(disk)
        wait_until(lambda: not world.tasks())
        started = world.started()
        assert started < TASKS
        assert health(world)[0] == 200
        with pytest.raises(AssertionError):
            wait_until(lambda: world.started() > started, 2)  # nothing starts on a full disk
        assert pilot.poll() is None
        filler.unlink()
        world.wait_over(bag)
        world.check_results(bag, TASKS)
        # What a task printed in the moment of the filling may be lost to the host: run again.
        assert world.ended(bag) >= TASKS
        check_outputs(world, bag)
        world.close()


def test_server_and_pilots_share_a_full_disk(world: World, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", SIZE) as disk:
        world.directory = disk / "store"
        try:
            world.serve("--slots", "6")
            bag = world.submit(WORK, TASKS)
            wait_until(lambda: world.ended() >= 6)
            pilots = world.pilots()
            filler = fill(disk)
            wait_until(lambda: _cannot_write(world))
            wait_until(lambda: not world.tasks())
            assert world.pilots() == pilots
            filler.unlink()
            world.wait_over(bag)
            world.check_results(bag, TASKS)
            check_outputs(world, bag)
            assert world.pilots() == pilots
        finally:
            world.close()


def _cannot_write(world: World) -> bool:
    """Tasks may all have stopped before the record needed more space: have it written to."""
    client = world.client(patience_seconds=0)
    with contextlib.suppress(CoveyError):
        client.create_token("a token", role="user", owner="ann", seconds=0.0)
    client.close()
    return health(world)[0] == 503


def test_a_server_that_starts_on_a_full_disk_says_so(world: World, tmp_path: Path) -> None:
    """There is nothing yet to go on with: it ends, with words."""
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        world.directory = disk / "store"
        fill(disk)
        found = world.covey("serve")
        assert found.returncode == 1
        assert "No space left on device" in found.stderr
        assert "bug" not in found.stderr
        assert not os.path.exists(world.directory / "server.json")


def test_a_host_short_of_disk_gives_its_work_back_and_every_view_says_why(
    world: World, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", SIZE) as disk:
        world.serve("--pilots", "0")
        world.pilot("--slots", "2", "--directory", str(disk / "pilot"))
        client = world.client()

        def view_of(id_: int) -> BagView:
            found = client.bag(id_)
            assert found is not None
            return found

        try:
            wait_until(lambda: len(client.pilots()) == 1)
            filler = fill(disk)
            bag = world.submit("true", 20)
            wait_until(lambda: view_of(bag).reason.startswith("waits for disk space on "))
            view = view_of(bag)
            assert view.running == 0, "nothing is kept that cannot start"
            (pilot,), (host,) = client.pilots(), client.hosts()
            assert "no space left" in pilot.shortage
            assert "no space left" in host.shortage
            assert view.reason == f"waits for disk space on {pilot.host}"
            for words in (["pilots"], ["hosts"], ["explain", str(bag)], ["show", str(bag)]):
                assert "disk space" in world.covey(*words).stdout, words
            assert "covey_pilots_short_of_disk 1.0" in _metrics(world)
            world.pilot("--slots", "2", "--directory", str(world.root / "other"))
            wait_until(lambda: view_of(bag).over, 60)
            filler.unlink()
            wait_until(lambda: not any(one.shortage for one in client.pilots()), 60)
            again = world.submit("true", 4)
            wait_until(lambda: view_of(again).over, 60)
        finally:
            client.close()
            world.close()


def _metrics(world: World) -> str:
    record = read_record(world.directory)
    assert record is not None
    request = urllib.request.Request(
        record.address + "/metrics", headers={"Authorization": f"Bearer {record.token}"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())
