"""sites: real Slurm clusters and SSH, from an idle queue to the first task, and how full they are.

The testbed of the tests is started for each run (what a run leaves is ended after it): two Slurm
clusters of 8 CPUs and a host by SSH, all on this machine.

- *First task*: `sbatch` of a script that only says what time it is, and `covey run` of a task that
  does the same, on a server that has no pilot. They take turns; what covey needs beyond `sbatch` is
  the difference of the medians: its command, the decision, a durable job, the pilot's start.
- *Filling*: 400 tasks of a second over 20 slots at three sites. Of all slots, how many are at work
  on average, from the first start to the last (after that nothing waits: the tail).
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench import rig
from bench.report import NOTE, RUN, Column, Report, Row, Table, at_least, at_most, best_of
from tests.testbed.place import running, sweep
from tests.testbed.slurm import Slurm
from tests.testbed.ssh import SshHosts

ROUNDS = 5
TASKS, SECONDS = 400, 1.0
CPUS, SSH_SLOTS = 8, 4
WAIT_SECONDS = 60.0
SAY = "date +%s.%N > {0}.new && mv {0}.new {0}"
FIRST = (
    RUN,
    Column("sbatch", "sbatch, s", ".2f"),
    Column("covey", "covey run, s", ".2f"),
    Column("more", "more, s", ".2f"),
    NOTE,
)
FILLING = (
    RUN,
    Column("slots", "slots", "d"),
    Column("tasks", "tasks", "d"),
    Column("filling", "at work, first start to last", ".3f"),
    Column("seconds", "all done in, s", ".1f"),
    Column("bound", "work by slots, s", ".1f"),
    NOTE,
)


def run(where: rig.Rig) -> Report:
    rounds, tasks = (2, 100) if where.quick else (ROUNDS, TASKS)
    sweep()
    first = where.repeat("sites, first task", lambda _: first_task(where, rounds), 1)
    full = where.repeat("sites, filling", lambda _: filling(where, tasks))
    verdicts = [
        at_most("first task, beyond sbatch, s", best_of(first, "more", min), 2.0),
        at_least("slots at work", best_of(full, "filling", max), 0.85),
    ]
    tables = [Table(FIRST, first, "To the first task:"), Table(FILLING, full, "Filling:")]
    return Report("sites", "pilots into real Slurm and SSH", tables, verdicts)


# -- the first task ------------------------------------------------------------------------


def first_task(where: rig.Rig, rounds: int) -> Row:
    place, slurm = where.directory(), Slurm("alpha", cpus=CPUS)
    text = describe("alpha", "slurm", 1, slurm.environment, place, idle='"1s"')
    with running(slurm), configured(where, text), where.server() as server:
        theirs, ours = [], []
        for number in range(rounds):
            said = place / f"sbatch-{number}"
            began = time.time()
            slurm.submit(SAY.format(said), "--output=/dev/null")
            theirs.append(when(said) - began)
            said = place / f"covey-{number}"
            words = server.command_line("run", "--", "sh", "-c", SAY.format(said))
            began = time.time()
            ran = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            ours.append(when(said) - began)
            ran.wait()
            wait(lambda: not slurm.squeue())
    return {
        "sbatch": median(theirs),
        "covey": median(ours),
        "more": median(ours) - median(theirs),
    }


def when(said: Path) -> float:
    wait(said.exists)
    return float(said.read_text())


# -- filling -------------------------------------------------------------------------------


def filling(where: rig.Rig, tasks: int) -> Row:
    place = where.directory()
    alpha, beta, hosts = Slurm("alpha", cpus=CPUS), Slurm("beta", cpus=CPUS), SshHosts()
    text = f'[serve]\nssh = "ssh -F {hosts.config}"\n'
    text += describe("alpha", "slurm", CPUS, alpha.environment, place)
    text += describe("beta", "slurm", CPUS, beta.environment, place)
    text += describe("hosts", "ssh", SSH_SLOTS, {}, place)
    text += f'[sites.hosts.options]\nhosts = ["login:{SSH_SLOTS}"]\n'
    slots = 2 * CPUS + SSH_SLOTS
    with running(alpha, beta, hosts), configured(where, text), where.server() as server:
        bag = rig.submit(server.client, tasks, "sleep", str(SECONDS))
        rows = rig.stream(server.client, bag, tasks)
        rig.statuses(rows, tasks)
    first, last = min(row.started for row in rows), max(row.started for row in rows)
    busy = sum(min(row.ended, last) - row.started for row in rows)
    return {
        "slots": slots,
        "tasks": tasks,
        "filling": busy / (slots * (last - first)),
        "seconds": max(row.ended for row in rows) - first,
        "bound": tasks * SECONDS / slots,
    }


# -- settings ------------------------------------------------------------------------------


def describe(
    name: str, driver: str, slots: int, environment: dict[str, str], place: Path, **more: str
) -> str:
    """A site with room for one pilot, as covey.toml has it."""
    keys = {"driver": f'"{driver}"', "slots": str(slots), "running": "1", "wall": '"10m"'}
    keys |= {"interval": '"2s"', "directory": f'"{place / name}"', **more}
    lines = [f"[sites.{name}]", *(f"{key} = {value}" for key, value in keys.items())]
    if environment:
        lines.append(f"[sites.{name}.environment]")
        lines += [f'{key} = "{value}"' for key, value in environment.items()]
    return "\n".join(lines) + "\n"


@contextmanager
def configured(where: rig.Rig, text: str) -> Iterator[None]:
    """The user's own settings, which the servers of a rig read; without pilots of this machine."""
    path = where.workspace / "covey" / "covey.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{text}[local]\npilots = 0\n")
    try:
        yield
    finally:
        path.unlink()


def wait(condition: Callable[[], object]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise rig.Broken(f"it did not happen in {WAIT_SECONDS:.0f} s")
        time.sleep(0.01)
