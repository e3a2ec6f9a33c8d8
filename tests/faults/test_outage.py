"""The server is away for a while: pilots go on, keep what their tasks printed, and come back
without hurry."""

import itertools
import socket
import subprocess
import threading
import time
from urllib.parse import urlsplit

from covey.client.embedded import read_record
from tests.faults.world import World, kill_process, task_script, wait_until


def port_of(world: World) -> int:
    record = read_record(world.directory)
    assert record is not None
    return urlsplit(record.address).port or 0


class Doorbell:
    """Takes the server's port and notes every attempt to connect; hangs up at once."""

    def __init__(self, port: int) -> None:
        self.times: list[float] = []
        self._over = False
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen(100)
        self._socket.settimeout(0.05)
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        while not self._over:
            try:
                caller, _ = self._socket.accept()
            except TimeoutError:
                continue
            self.times.append(time.monotonic())
            caller.close()

    def close(self) -> None:
        self._over = True
        self._thread.join()
        self._socket.close()


def test_results_wait_on_disk_and_arrive_once(world: World) -> None:
    process = world.serve("--pilots", "0")
    place = world.root / "pilot"
    pilot = world.pilot("--slots", "8", "--directory", str(place))
    script = task_script("sleep 1; head -c 30000 /dev/zero | tr '\\0' x; echo {i}; echo {i} >&2")
    bag = world.submit(script, 8)
    wait_until(lambda: world.started() == 8)
    kill_process(process)
    wait_until(lambda: world.ended() == 8)
    spool = place / "undelivered"
    wait_until(lambda: spool.exists() and spool.stat().st_size > 8 * 30000)
    world.serve("--pilots", "0")
    world.wait_over(bag)
    world.check_results(bag, 8)
    world.check_once(bag, 8)
    client = world.client()
    for task in range(8):
        output = client.output(bag, task)
        assert output is not None
        assert output.stdout == "x" * 30000 + f"{task}\n"
        assert output.stderr == f"{task}\n"
    client.close()
    wait_until(lambda: not spool.exists())
    pilot.terminate()
    assert pilot.wait(30) == 0
    wait_until(lambda: not place.exists())


def test_pilots_come_back_with_back_off_and_jitter(world: World) -> None:
    process = world.serve("--pilots", "0")
    pilots = [world.pilot("--slots", "1") for _ in range(3)]
    wait_until(lambda: world.server().pilots == 3)
    port = port_of(world)
    kill_process(process)
    bell = Doorbell(port)
    began = time.monotonic()
    try:
        time.sleep(8)
    finally:
        bell.close()
    times = [at - began for at in bell.times]
    assert 3 * 4 <= len(times) <= 3 * 16, times
    early = sum(at < 2 for at in times)
    late = sum(at >= 5 for at in times)
    assert early > late, "they ask ever less often"
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert len({round(gap, 3) for gap in gaps}) > len(gaps) / 3, "they do not march in step"
    world.serve("--pilots", "0")
    bag = world.submit(task_script("true"), 30)
    world.wait_over(bag)
    world.check_once(bag, 30)
    # One whose enrolment was not yet on disk at the kill enrols once more, by its own back-off.
    wait_until(lambda: world.rows("SELECT count(*) FROM pilots") == [(3,)])
    assert all(pilot.poll() is None for pilot in pilots)


def test_a_pilot_waits_for_a_server_that_is_not_there_yet(world: World) -> None:
    process = world.serve("--pilots", "0")
    kill_process(process)
    pilot = world.pilot("--slots", "1")
    time.sleep(1)
    assert pilot.poll() is None
    world.serve("--pilots", "0")
    bag = world.submit(task_script("true"), 3)
    world.wait_over(bag)
    world.check_once(bag, 3)


def test_a_pilot_with_a_wrong_secret_ends_with_words(world: World) -> None:
    world.serve("--pilots", "0")
    (world.root / "secret").write_text("not the secret")
    pilot = world.pilot("--slots", "1", "--directory", str(world.root / "pilot"))
    assert pilot.wait(30) != 0
    assert "this secret belongs to another server" in world.log_tail()
    assert not (world.root / "pilot").exists()
    assert not world.pilots()


def test_a_pilot_whose_directory_cannot_be_made_says_so(world: World) -> None:
    world.serve("--pilots", "0")
    (world.root / "file").write_text("")
    pilot = world.pilot("--slots", "1", "--directory", str(world.root / "file" / "pilot"))
    assert pilot.wait(30) != 0
    assert "Traceback" not in world.log_tail()


def test_a_stopped_server_is_not_hurried(world: World) -> None:
    """Suspended for a while, as laptops are: everyone gets that time back."""
    settings = {"COVEY_SERVE_LEASE_SECONDS": "4", "COVEY_SERVE_POLL_SECONDS": "1"}
    process = world.serve("--pilots", "0", env=settings)
    world.pilot("--slots", "4")
    bag = world.submit(task_script("sleep 8"), 4)
    wait_until(lambda: world.running() == 4)
    subprocess.run(["kill", "-STOP", str(process.pid)], check=True)
    time.sleep(5)
    subprocess.run(["kill", "-CONT", str(process.pid)], check=True)
    world.wait_over(bag)
    world.check_results(bag, 4)
    world.check_once(bag, 4)
