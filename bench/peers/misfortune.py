"""flaky: a schedule of misfortune, the same for every tool, and what it costs at the least.

Workers are numbered. The first few are black holes: whatever runs there fails at once. The next are
slow: their processes are stopped for 80 of every 100 ms. The others are well, but every few seconds
one of them is killed, with all below it, and replaced at once. Which, and when, and how long each
task takes, comes from one seed.

The tasks find out by themselves whether they are in a black hole: the harness names its top process
(or its slot, for tools whose slots are numbers) by a file in a directory. So no tool needs to know.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random

SEED = 20261115
STEP_SECONDS = 0.01
PERIOD_SECONDS = 0.1
STOPPED = 0.8
FULL_SECONDS = (0.5, 2.0)
QUICK_SECONDS = (0.2, 0.6)
FULL_KILLS = (2.0, 6.0)
QUICK_KILLS = (0.5, 1.5)
LONGEST = 175.0
TASK = Path(__file__).with_name("flaky_task.py")


@dataclass(frozen=True)
class Kill:
    """`worker` counts among the healthy ones."""

    seconds: float
    worker: int


@dataclass(frozen=True)
class Schedule:
    durations: tuple[float, ...]
    workers: int
    black: int
    slow: int
    kills: tuple[Kill, ...]

    @property
    def healthy(self) -> int:
        return self.workers - self.black - self.slow

    @property
    def work(self) -> float:
        return sum(self.durations)

    @property
    def bound(self) -> float:
        """No tool can be faster: all work, shared without loss by those who do any, with a kill
        that always falls between two tasks and a replacement that takes no time."""
        speed = self.healthy + self.slow * (1 - STOPPED)
        return max(self.work / speed, max(self.durations))


def schedule(
    tasks: int = 600,
    workers: int = 16,
    black: int = 2,
    slow: int = 3,
    seconds: tuple[float, float] = FULL_SECONDS,
    between: tuple[float, float] = FULL_KILLS,
    seed: int = SEED,
) -> Schedule:
    random = Random(seed)
    durations = tuple(
        round(random.uniform(*seconds) / STEP_SECONDS) * STEP_SECONDS for _ in range(tasks)
    )
    kills, now = [], 0.0
    while (now := now + random.uniform(*between)) < LONGEST:
        kills.append(Kill(round(now, 3), random.randrange(workers - black - slow)))
    return Schedule(durations, workers, black, slow, tuple(kills))


@dataclass(frozen=True)
class Attempt:
    """One try of a task, from what it wrote: when it began, when it was last seen to do
    something, and whether it came to its end."""

    task: int
    began: float
    seen: float
    ended: bool

    @property
    def seconds(self) -> float:
        return max(0.0, self.seen - self.began)


def read_attempts(directory: Path) -> list[Attempt]:
    found = []
    for path in directory.iterdir():
        words = path.read_text().split()
        task = int(path.name.partition("-")[0])
        if words:
            found.append(Attempt(task, float(words[0]), path.stat().st_mtime, "end" in words))
    return found


def wasted(attempts: list[Attempt]) -> float:
    """Seconds of all attempts but the first of each task that came to its end."""
    first: dict[int, Attempt] = {}
    for attempt in sorted(attempts, key=lambda one: one.seen):
        if attempt.ended:
            first.setdefault(attempt.task, attempt)
    return sum(one.seconds for one in attempts if first.get(one.task) is not one)


def lost(attempts: list[Attempt], tasks: int) -> int:
    """Tasks that never came to an end."""
    return tasks - len({attempt.task for attempt in attempts if attempt.ended})
