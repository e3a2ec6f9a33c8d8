"""The wall clock jumps by an hour, either way: nobody is lost, nothing repeated, no limit moved.

The machine's own clock is left alone: libfaketime tells single processes another time, which
changes while they run. The monotonic clock goes on, as it does in reality. (Faked pilots run
under PyPy: libfaketime does not understand how CPython sleeps, by an absolute monotonic time.)
"""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from covey.core.record.model import Need
from tests.faults.clock import FakeClock
from tests.faults.world import World, task_script, wait_until

HOUR = 3600


@pytest.fixture
def clock(tmp_path: Path) -> FakeClock:
    return FakeClock(tmp_path / "clock")


def offset(stamp: str) -> float:
    """How far a time in a log is from the true one, in seconds."""
    return datetime.fromisoformat(stamp).astimezone(UTC).timestamp() - time.time()


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
@pytest.mark.parametrize("who", ["server", "pilot"])
def test_a_clock_jumps(world: World, clock: FakeClock, who: str, jump: int) -> None:
    env = clock.environment()
    # Short terms: a lease that looked at the wall clock would be over a thousand times.
    settings = {"COVEY_SERVE_LEASE_SECONDS": "20", "COVEY_SERVE_POLL_SECONDS": "2"}
    server = world.serve("--pilots", "0", env={**settings, **(env if who == "server" else {})})
    faked = who == "pilot"
    pilot = world.pilot(
        "--slots", "6", python="pypy3" if faked else sys.executable, env=env if faked else {}
    )
    bag = world.submit(
        task_script("sleep 0.$((3 + {i} % 6)); echo {i}"), 60, need=Need(limit_seconds=20)
    )
    wait_until(lambda: world.ended() >= 6)

    clock.jump(jump)
    stuck = world.submit(task_script("sleep 60"), 1, need=Need(limit_seconds=2), overtimes=0)
    wait_until(lambda: world.ended() >= 20)
    assert server.poll() is None
    assert pilot.poll() is None
    world.wait_over(bag)
    world.check_results(bag, 60)
    world.check_once(bag, 60)

    assert world.wait_over(stuck).failed == 1
    [(outcome, wall)] = world.rows("SELECT outcome, ended - started FROM ends WHERE bag=?", stuck)
    assert outcome == 2, "its limit"
    assert 2 <= wall < 15
    assert world.rows("SELECT status FROM pilots") == [("active",)]
    if who == "server":
        note = next(note for note in world.log_notes() if note.get("bag") == stuck)
        assert abs(offset(note["time"]) - jump) < 300, "the clock was faked"
    else:
        pilot.terminate()
        assert pilot.wait(30) == 0
        said = [line for line in world.log_tail().splitlines() if "ended: asked to end" in line]
        assert abs(offset(said[0].split()[0]) - jump) < 300, "the clock was faked"
