"""Where the CPU time of a run goes: one line per process and thread of covey, per task.

Read from /proc before and after. The children's time is what the slots were told when they
waited for them. The store's writer is the thread of the server, beside the main one, that writes
most; the others read the record for clients.
"""

import os
from pathlib import Path
from typing import NamedTuple

from bench import processes
from bench.measures import Floors
from bench.report import Column, Row, Table

ALL = "all of these"
OTHERS = "the rest of the machine"
COLUMNS = (Column("role", "where"), Column("micros", "CPU µs per task", ".1f"))


class Usage(NamedTuple):
    """CPU seconds so far."""

    server: dict[int, float]  # by thread
    pilot: dict[int, float]
    pilots: list[int]  # their main threads
    keeper: float
    slots: float
    tasks: float
    client: float
    machine: float  # everything that was not idle


def usage(server: int) -> Usage:
    tree = _tree(server)
    slots = [found for pid in tree["slots"] if (found := processes.stat(pid)) is not None]
    return Usage(
        server=_threads(server),
        pilot={tid: used for pid in tree["pilots"] for tid, used in _threads(pid).items()},
        pilots=tree["pilots"],
        keeper=processes.cpu(*tree["keepers"]),
        slots=sum(one.cpu for one in slots),
        tasks=sum(one.children for one in slots),
        client=processes.cpu(os.getpid()),
        machine=_machine(),
    )


def _tree(server: int) -> dict[str, list[int]]:
    """A pilot's only child is its guard, whose only child is the keeper, whose children are slots,
    whose children are tasks. Guards are counted with the keepers."""
    pilots = processes.children(server)
    guards = [child for pilot in pilots for child in processes.children(pilot)]
    keepers = [child for guard in guards for child in processes.children(guard)]
    slots = [child for keeper in keepers for child in processes.children(keeper)]
    return {"pilots": pilots, "keepers": guards + keepers, "slots": slots}


def _threads(pid: int) -> dict[int, float]:
    found = {}
    for name in os.listdir(f"/proc/{pid}/task"):
        one = processes.read_stat(f"/proc/{pid}/task/{name}/stat")
        if one is not None:
            found[int(name)] = one.cpu
    return found


def _machine() -> float:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    idle = fields[3] + fields[4]
    return (sum(fields[:8]) - idle) * processes.TICK


def writer_of(server: int) -> int:
    """The thread that writes most, but the main one; 0 if there is no other."""
    written = {}
    for name in os.listdir(f"/proc/{server}/task"):
        text = Path(f"/proc/{server}/task/{name}/io").read_text()
        written[int(name)] = int(text.split("wchar:")[1].split()[0])
    written.pop(server, None)
    return max(written, key=lambda tid: written[tid], default=0)


def breakdown(used: dict[str, float], floors: Floors) -> Table:
    """`used` is from `per_task`."""
    found = {**used, ALL: ours(used), "(a spawn of the floor)": floors.micros}
    found[OTHERS] = found.pop(OTHERS)
    rows: list[Row] = [{"role": role, "micros": micros} for role, micros in found.items()]
    return Table(COLUMNS, rows, "CPU time of the least crowded run:")


def ours(used: dict[str, float]) -> float:
    return sum(micros for role, micros in used.items() if role != OTHERS)


def per_task(before: Usage, after: Usage, count: int, server: int) -> dict[str, float]:
    """Microseconds a task, by role. What others used includes the kernel's own threads."""
    used = _by_role(before, after, server)
    used[OTHERS] = max(0.0, after.machine - before.machine - sum(used.values()))
    return {role: seconds / count * 1e6 for role, seconds in used.items()}


def _by_role(before: Usage, after: Usage, server: int) -> dict[str, float]:
    pilots = after.pilots
    writer = writer_of(server)
    in_server = _spent(before.server, after.server)
    in_pilot = _spent(before.pilot, after.pilot)
    rest = sum(cpu for tid, cpu in in_server.items() if tid not in (server, writer))
    return {
        "client": after.client - before.client,
        "server, main thread": in_server.get(server, 0.0),
        "server, writer thread": in_server.get(writer, 0.0),
        "server, readers and others": rest,
        "pilot, main thread": sum(cpu for tid, cpu in in_pilot.items() if tid in pilots),
        "pilot, other threads": sum(cpu for tid, cpu in in_pilot.items() if tid not in pilots),
        "keeper": after.keeper - before.keeper,
        "slot processes": after.slots - before.slots,
        "tasks": after.tasks - before.tasks,
    }


def _spent(before: dict[int, float], after: dict[int, float]) -> dict[int, float]:
    return {tid: cpu - before.get(tid, 0.0) for tid, cpu in after.items()}
