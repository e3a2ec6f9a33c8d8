"""Real slots for tests: orders in, outcomes by key, and proof that nothing is left."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from covey.pilot.slots.orders import Order, Outcome, Plan
from covey.pilot.slots.slot_pool import Slots

ENV = {"PATH": "/usr/bin:/bin"}


class Harness:
    """Orders that name no plan of their own use plan 0, which ``log_bytes`` is for."""

    def __init__(
        self, directory: Path, count: int = 2, log_bytes: int = 65536, **settings: Any
    ) -> None:
        self.directory = directory
        self.slots = Slots(str(directory), count, **settings)
        self.slots.start()
        self.plans = 0
        self.slots.plan(Plan(0, ENV, log_bytes=log_bytes))
        self.found: dict[str, Outcome] = {}

    def plan(self, env: dict[str, str] = ENV, **fields: Any) -> int:
        self.plans += 1
        self.slots.plan(Plan(self.plans, env, **fields))
        return self.plans

    def offer(self, key: str, argv: Sequence[str], plan: int = 0, **fields: Any) -> None:
        assert self.slots.offer(Order(key, plan, list(argv), **fields))

    def sh(self, key: str, script: str, limit_seconds: float = 0, **fields: Any) -> None:
        self.offer(key, ["sh", "-c", script], limit_seconds=limit_seconds, **fields)

    def note(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            assert outcome.key not in self.found, "two outcomes for one order"
            self.found[outcome.key] = outcome

    def wait(self, *keys: str, seconds: float = 20) -> list[Outcome]:
        until = time.monotonic() + seconds
        while not all(key in self.found for key in keys):
            assert time.monotonic() < until, f"no outcome for {keys}; found {self.found}"
            self.note(self.slots.read(0.1))
        return [self.found[key] for key in keys]

    def run(self, script: str, limit_seconds: float = 0, **fields: Any) -> Outcome:
        key = f"run-{len(self.found)}"
        self.sh(key, script, limit_seconds, **fields)
        return self.wait(key)[0]

    def wait_running(self, key: str) -> int:
        """Its process id, once it has one."""
        wait_until(lambda: self.slots.running().get(key, 0) > 0)
        return self.slots.running()[key]

    def slot_pids(self) -> list[int]:
        return [seat.pid for seat in self.slots._seats]

    def close(self, kill: bool = True) -> None:
        self.note(self.slots.close(kill))
        assert not self.directory.exists()


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.005)


def processes_with(mark: str) -> list[int]:
    """Live processes whose command line holds the mark."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                text = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in text:
                found.append(int(name))
    return found


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
