"""Reading the tree of processes."""

import os

from bench import cpu, processes
from bench.measures import Floor, Floors


def test_everything_below_a_process_is_found_parents_first() -> None:
    parent_of = {2: 1, 3: 1, 4: 2, 5: 4, 9: 8}
    assert processes.below(1, parent_of) == [2, 3, 4, 5]
    assert processes.below(9, parent_of) == []


def test_this_process_is_seen() -> None:
    found = processes.stat(os.getpid())
    assert found is not None
    assert found.parent == os.getppid()
    assert processes.alive(os.getpid())
    assert processes.memory(os.getpid()).now > 0
    assert processes.stat(2**22 + 1) is None


def test_the_breakdown_keeps_what_others_used_apart() -> None:
    used = {"client": 10.0, "tasks": 700.0, cpu.OTHERS: 300.0}
    table = cpu.breakdown(used, Floors(Floor(2000, 700.0), Floor(2000, 720.0)))
    found = {row["role"]: row["micros"] for row in table.rows}
    assert found[cpu.ALL] == 710
    assert found["(a spawn of the floor)"] == 710
    assert found[cpu.OTHERS] == 300
