"""Sessions of real pilots, replayed: the same pilots, waits and task lengths end at about the same
time.

The sessions are records of RADICAL-Pilot (AIMES on four XSEDE machines, MIT licence; probes of the
Open Science Grid). They are not in the repository: where they are missing, these tests say so.
A session is replayed if all its tasks were done, and if its log agrees with itself.
"""

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from typing import TypeAlias

import pytest

from covey.lab import world
from covey.lab.clock import START
from covey.lab.draws import constant
from covey.lab.world_parts import BagPart, Seconds, SitePart, WorldFile

DATA = Path(__file__).parents[4] / "shared/data/pilots"
SKEW_SECONDS = 5.0  # by which a task may be "done" before it ends, by another machine's clock
Row: TypeAlias = dict[str, str]


def rows_of(name: str) -> dict[str, list[Row]]:
    path = DATA / f"{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"the records of pilots are not there: {path.name}")
    found = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            found[row["session"]].append(row)
    return found


def sessions(name: str) -> Iterator[tuple[list[Row], list[Row]]]:
    """Pilots and tasks of each session that can be replayed."""
    pilots, tasks = rows_of(f"{name}-pilots"), rows_of(f"{name}-tasks")
    for session, rows in tasks.items():
        done = all(row["state"] == "Done" for row in rows)
        if done and not any(float(row["done_s"]) < ended(row) - SKEW_SECONDS for row in rows):
            yield pilots[session], rows


def ended(row: Row) -> float:
    return float(row["exec_end_s"] or 0.0)


def world_of(pilots: list[Row], tasks: list[Row]) -> WorldFile:
    """Each pilot is a site with one pilot, which waits as long as it did. Where tasks were bound
    to pilots at once, each pilot has bags of its own; else all share them. Tasks of another size or
    another second of submission are another bag."""
    begin = min(float(row["submit_epoch"]) for row in pilots)
    sites = []
    for row in pilots:
        if row["queue_wait_s"]:
            wait = float(row["submit_epoch"]) - begin
            wait += float(row["launch_s"] or 0.0) + float(row["queue_wait_s"])
            speed = speed_of([task for task in tasks if task["pilot"] == row["pilot"]], tasks)
            sites.append(
                SitePart(
                    name=row["pilot"],
                    pilots=1,
                    steady=False,
                    slots=int(row["cores"]),
                    speed=constant(speed),
                    wait=constant(wait),
                )
            )
    early = pilots[0]["mode"] != "backfilling"
    bags: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in tasks:
        second = int(float(row["submit_s"]))
        bags[row["pilot"] if early else "", row["cores"], second].append(row)
    parts = [bag_of(pilot, rows) for (pilot, _, _), rows in bags.items()]
    return WorldFile(sites=tuple(sites), bags=tuple(parts))


def length(row: Row) -> float:
    """Of a task: as asked for, or if that is not known as it was."""
    return float(row["nominal_s"] or ended(row) - float(row["exec_s"]))


def speed_of(here: list[Row], tasks: list[Row]) -> float:
    """Of a pilot's machine, where tasks had work and no fixed time."""
    if not here or here[0]["nominal_s"]:
        return 1.0
    return fmean(map(length, tasks)) / fmean(map(length, here))


def bag_of(pilot: str, rows: list[Row]) -> BagPart:
    first = rows[0]
    return BagPart(
        name=f"{pilot}/{first['cores']}/{first['submit_s']}",
        tasks=len(rows),
        time=constant(fmean(map(length, rows))),
        cores=int(first["cores"]),
        at=Seconds(float(first["submit_s"])),
        policy={"only_sites": (pilot,)} if pilot else {},
    )


def error(pilots: list[Row], tasks: list[Row]) -> float:
    """Of the predicted completion time: 0.1 if it is a tenth too long."""
    accounts = world.run(world_of(pilots, tasks), None, 1)
    assert not any(account.stopped for account in accounts)
    predicted = max(account.over_at for account in accounts) - START
    return predicted / max(float(row["done_s"]) for row in tasks) - 1.0


def test_sessions_on_xsede_are_predicted() -> None:
    errors = [abs(error(pilots, tasks)) for pilots, tasks in sessions("aimes-xsede")]
    assert len(errors) == 89
    assert median(errors) < 0.03
    assert max(errors) < 0.2


def test_sessions_on_the_open_science_grid_are_predicted() -> None:
    """Two are not: in one a task was held up for 100 s before it ran, in the other the host took up
    to 42 s for a sleep of 10 s."""
    errors = {
        pilots[0]["session"]: abs(error(pilots, tasks)) for pilots, tasks in sessions("osg-probe")
    }
    assert len(errors) == 130
    assert median(errors.values()) < 0.04
    wrong = {session for session, size in errors.items() if size >= 0.2}
    assert wrong == {"016971.0003", "016956.0032"}
