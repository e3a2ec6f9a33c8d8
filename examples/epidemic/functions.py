"""The same epidemics from Python: every call of a function is a task.

python3 functions.py
"""

from statistics import mean

from epidemic import epidemic

import covey

PEOPLE = 20_000


def share_ill(r0: float, seed: int) -> float:
    """Of the people, on the worst day."""
    return max(epidemic(PEOPLE, r0, seed)) / PEOPLE


def main() -> None:
    with covey.Executor() as executor:
        runs = {
            r0: [executor.submit(share_ill, r0, seed) for seed in range(50)]
            for r0 in (1.2, 1.6, 2.0, 2.4, 2.8)
        }
        for r0, calls in runs.items():
            share = mean(call.result() for call in calls)
            print(f"R0 {r0}: {share:6.1%} ill on the worst day  {'▪' * round(100 * share)}")
        print(f"(bag {executor.bag}: {len(runs) * 50} calls, in 'covey bags' as all others)")


if __name__ == "__main__":
    main()
