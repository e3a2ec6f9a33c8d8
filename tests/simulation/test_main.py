"""The command that repeats a failure."""

import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.simulator.report import failure, summary
from tests.simulator.world import World, run

ROOT = Path(__file__).parents[2]


def test_one_command_repeats_a_world() -> None:
    command = [sys.executable, "-m", "tests.simulator", "--seed", "3", "--trace"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines: list[str] = []
    report = run(3, lines.append)
    assert shown.startswith("\n".join(lines))
    assert summary([report]) in shown


def test_a_failure_says_how_to_repeat_it() -> None:
    world = World(3)
    world.clock.after(1.0, partial(divmod, 1, 0))
    report = world.run()
    assert failure(report).startswith("seed 3 failed: ZeroDivisionError")
    assert failure(report).endswith("repeat: python -m tests.simulator --seed 3 --trace")
    assert failure(report) in summary([run(2), report])
    assert "2 worlds, 1 failed" in summary([run(2), report])
