"""In which world each planted bug is first seen.

    python -m tests.simulation.find > tests/simulation/found.py

The test of planted bugs begins with that world, and searches on from the first if the bug is not
seen there any more: the table is never wrong, only slow when it is old.
"""

import sys
from concurrent.futures import ProcessPoolExecutor

from tests.simulation import site_bugs
from tests.simulation.bugs import BUGS, WORDS
from tests.simulator.world import run

WORLDS = 200
__all__ = ["BUGS", "WORDS", "site_bugs"]


def seen(name: str, seed: int) -> str:
    """What the simulator says, if it sees this bug in that world."""
    with BUGS[name]():
        problem = run(seed).problem
    return problem if problem and WORDS.get(name, "") in problem else ""


def first(name: str, start: int = 0) -> int | None:
    return next((s for s in dict.fromkeys((start, *range(WORLDS))) if seen(name, s)), None)


def main() -> None:
    print(
        '"""Worlds in which planted bugs are seen; written by `python -m tests.simulation.find`."""'
    )
    print("\nFOUND: dict[str, int] = {")
    with ProcessPoolExecutor() as pool:
        for name, seed in zip(BUGS, pool.map(first, BUGS), strict=True):
            if seed is None:
                print(f"{name} is not seen in {WORLDS} worlds", file=sys.stderr)
            else:
                print(f'    "{name}": {seed},')
    print("}")


if __name__ == "__main__":
    main()
