"""One epidemic in one town: a stochastic SIR model, stepped day by day.

    python3 epidemic.py TOWN PEOPLE BEDS R0 MEASURE SEED

Reads measures.json, writes curve.csv (day, ill), and reports what came of it as a line of JSON.
"""

import json
import math
import random
import sys

DAYS_ILL = 7.0
NEED_BED = 0.02


def draw(chances: random.Random, people: int, probability: float) -> int:
    """How many of so many people, each with this probability."""
    if people > 100:
        spread = math.sqrt(people * probability * (1.0 - probability))
        return min(people, max(0, round(chances.gauss(people * probability, spread))))
    return sum(chances.random() < probability for _ in range(people))


def epidemic(people: int, r0: float, seed: int) -> list[int]:
    """How many are ill on each day."""
    chances = random.Random(seed)
    if people < 10:
        raise ValueError(f"a town of {people} people has no epidemic")
    susceptible, ill = people - 10, 10
    days = [ill]
    while ill and len(days) < 730:
        infection = 1.0 - math.exp(-r0 / DAYS_ILL * ill / people)
        caught = draw(chances, susceptible, infection)
        recovered = draw(chances, ill, 1.0 - math.exp(-1.0 / DAYS_ILL))
        susceptible -= caught
        ill += caught - recovered
        days.append(ill)
    return days


def main() -> None:
    _town, people, beds, r0, measure, seed = sys.argv[1:]
    with open("measures.json", encoding="utf-8") as file:
        factor = json.load(file)[measure]
    days = epidemic(int(people), float(r0) * factor, int(seed))
    with open("curve.csv", "w", encoding="utf-8") as file:
        file.write("day,ill\n")
        file.writelines(f"{day},{ill}\n" for day, ill in enumerate(days))
    peak = max(days)
    wanted = peak * NEED_BED
    print(json.dumps({"peak": peak, "days": len(days), "load": round(wanted / int(beds), 3)}))


if __name__ == "__main__":
    main()
