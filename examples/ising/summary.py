"""The demo's table: reads `covey results --format jsonl` and averages over the seeds."""

import json
import sys
from collections import defaultdict


def main() -> None:
    runs = defaultdict(list)
    for line in sys.stdin:
        row = json.loads(line)
        if row["state"] == "done":
            runs[row["temperature"]].append(row)
    print(f"{'temperature':>11}  {'runs':>4}  {'energy':>7}  |magnetisation|")
    for temperature, found in sorted(runs.items()):
        energy = sum(run["energy"] for run in found) / len(found)
        magnetisation = sum(run["magnetisation"] for run in found) / len(found)
        bar = "█" * round(40 * magnetisation)
        print(f"{temperature:>11}  {len(found):>4}  {energy:>7.3f}  {magnetisation:.3f} {bar}")
    print("Onsager's exact answer: the magnet loses its order at 2.269.")


if __name__ == "__main__":
    main()
