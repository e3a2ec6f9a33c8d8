"""One Metropolis run of the two-dimensional Ising model: magnetisation and energy per spin.

A task of the demo: `ising.py --temperature 2.25 --seed 3` prints one line of JSON.
"""

import argparse
import json
import math
import random


def simulate(temperature: float, size: int, sweeps: int, seed: int) -> tuple[float, float]:
    """Mean |magnetisation| and energy per spin over the second half of the sweeps."""
    rng = random.Random(seed)
    spins = [[1] * size for _ in range(size)]
    accept = {change: math.exp(-change / temperature) for change in (4, 8)}
    magnetisation = energy = 0.0
    for sweep in range(sweeps):
        for _ in range(size * size):
            x, y = rng.randrange(size), rng.randrange(size)
            spin = spins[x][y]
            neighbours = (
                spins[x - 1][y]
                + spins[(x + 1) % size][y]
                + spins[x][y - 1]
                + spins[x][(y + 1) % size]
            )
            change = 2 * spin * neighbours
            if change <= 0 or rng.random() < accept[change]:
                spins[x][y] = -spin
        if sweep >= sweeps // 2:
            magnetisation += abs(sum(map(sum, spins)))
            energy -= sum(
                spins[x][y] * (spins[x - 1][y] + spins[x][y - 1])
                for x in range(size)
                for y in range(size)
            )
    samples = (sweeps - sweeps // 2) * size * size
    return magnetisation / samples, energy / samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--temperature", type=float, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=600)
    given = parser.parse_args()
    magnetisation, energy = simulate(given.temperature, given.size, given.sweeps, given.seed)
    print(json.dumps({"magnetisation": round(magnetisation, 4), "energy": round(energy, 4)}))


if __name__ == "__main__":
    main()
