"""questions: how long a pilot's sync waits for people's questions about 10,000 pilots.

Core, the decider of the server and its event loop, without sockets or a disk. One bag has a policy
that half of the hosts meet; another has one that none meets. While a question is answered, a pilot
syncs in every turn of the loop, so a turn is what a sync waits for: *longest* is the longest turn.
*All* are nine questions at once.

Times are CPU time of the one thread there is: others use the machine, too.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable
from statistics import median
from types import SimpleNamespace
from typing import Any

import uvloop

from bench import rig
from bench.policy import Asker, Desk
from bench.report import NOTE, RUN, Column, Report, Row, Table, Verdict, at_most, best_of
from covey.core.record.model import BagId, PolicySpec
from covey.questions.bag_questions import ViewsOfBags
from covey.questions.pilot_questions import HostsNow, ViewsOfPilots
from covey.questions.policy_questions import CheckPolicy, WhyBag
from covey.questions.question import LongQuestion
from covey.questions.server_questions import AllFigures
from covey.server.decider import Decider

PILOTS, TASKS = 10_000, 1_000_000
BUSY = 20  # one pilot of so many holds a task
MOST_MS = 20
HALF = PolicySpec(
    requirements="Host.cpu_mhz > 2500 && Host.ErrorRate <= BestErrorRate + 0.5", rank="Host.cpu_mhz"
)
NONE = PolicySpec(requirements="Host.cpu_mhz > 2500 && Host.free_mem_mb > 1e6 && Job._ >= 0")
QUESTIONS: dict[str, LongQuestion[Any]] = {
    "explain a bag": WhyBag(BagId(1), -1),
    "explain a task": WhyBag(BagId(1), TASKS - 1),
    "explain a bag that fits nowhere": WhyBag(BagId(2), -1),
    "policy check": CheckPolicy(HALF, ""),
    "policy check of a bag that fits nowhere": CheckPolicy(NONE, "", BagId(2)),
    "list of pilots": ViewsOfPilots(None),
    "list of hosts": HostsNow("ann"),
    "list of bags": ViewsOfBags((BagId(1), BagId(2))),
    "metrics": AllFigures(),
}
COLUMNS = (
    RUN,
    Column("question", "question"),
    Column("pilots", "pilots", ",d"),
    Column("answer", "answered after, ms", ",.1f"),
    Column("turns", "syncs meanwhile", ",d"),
    Column("median", "a sync waits, median ms", ".2f"),
    Column("longest", "longest", ".2f"),
    NOTE,
)


def run(where: rig.Rig) -> Report:
    pilots = 1_000 if where.quick else PILOTS
    rows: list[Row] = []
    for number in range(1, 2 if where.quick else 4):
        rows += where.bounded_rows(f"questions {number}", number, lambda: measure(pilots))
    return Report("questions", "syncs while people ask", [Table(COLUMNS, rows)], verdicts(rows))


def verdicts(rows: list[Row]) -> list[Verdict]:
    found = []
    for name in (*QUESTIONS, "all"):
        of = [row for row in rows if row.get("question") == name]
        found.append(at_most(f"{name}: a sync waits, ms", best_of(of, "longest", min), MOST_MS))
    return found


def measure(pilots: int) -> list[Row]:
    desk = Desk()
    for policy in (HALF, NONE):
        desk.submit(TASKS, policy)
    askers = [desk.enrol(number) for number in range(pilots)]
    for asker in askers[::BUSY]:
        asker.ask(1, 0)
    engine: Any = SimpleNamespace(scheduler=desk.scheduler, trouble="")
    gc.collect()
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_all(Decider(engine, lambda: desk.now), askers, pilots))
    finally:
        gc.unfreeze()


async def _all(decider: Decider, askers: list[Asker], pilots: int) -> list[Row]:
    rows = []
    for name, question in QUESTIONS.items():
        rows.append({"question": name, "pilots": pilots, **await _one(decider, [question], askers)})
    every = list(QUESTIONS.values())
    return [*rows, {"question": "all", "pilots": pilots, **await _one(decider, every, askers)}]


async def _one(
    decider: Decider, questions: list[LongQuestion[Any]], askers: list[Asker]
) -> dict[str, float]:
    turns = _Turns(askers)
    began = time.thread_time()
    answers: list[Awaitable[Any]] = [decider.ask_long(question) for question in questions]
    await asyncio.gather(*answers)
    seconds = time.thread_time() - began
    turns.end()
    return {
        "answer": 1e3 * seconds,
        "turns": len(turns.times),
        "median": 1e3 * median(turns.times),
        "longest": 1e3 * max(turns.times),
    }


class _Turns:
    """A sync in every turn of the loop, and how long each turn took."""

    def __init__(self, askers: list[Asker]) -> None:
        self.times: list[float] = []
        self._askers = askers
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self._at = time.thread_time()
        self._loop.call_soon(self._turn)

    def end(self) -> None:
        self._ended = True
        self._turn()

    def _turn(self) -> None:
        now = time.thread_time()
        self.times.append(now - self._at)
        self._at = now
        self._askers[BUSY * len(self.times) % len(self._askers)].ask(1, 1)
        if not self._ended:
            self._loop.call_soon(self._turn)
