"""memory: what a running attempt costs the server. Pilots that only talk take tasks and never end
them; the growth of the server's resident memory is divided by their number."""

import http.client
import json
import time
from pathlib import Path
from urllib.parse import urlsplit

from bench import processes, rig, swarm
from bench.report import (
    FLOORS,
    NOTE,
    RUN,
    Column,
    Report,
    Row,
    Table,
    at_most,
    best_of,
    floor_cells,
    with_best,
)
from covey.client import embedded
from covey.pilot.protocol.messages import Answer, Enrol, Enrolled, Sync

WARM_UP = 1_000
ATTEMPTS = 20_000
SLOTS = 1_000  # of each pilot
BOUND = 2_000
COLUMNS = (
    RUN,
    Column("attempts", "attempts", ",d"),
    Column("pilots", "pilots", ",d"),
    Column("grown", "server grew, MB", ".1f"),
    Column("each", "bytes per attempt", ",.0f"),
    Column("seconds", "taken in, s", ".2f"),
    *FLOORS,
    NOTE,
)


def run(where: rig.Rig) -> Report:
    count = ATTEMPTS // 4 if where.quick else ATTEMPTS
    rows = where.repeat("memory", lambda _: once(where, count))
    verdicts = [at_most("bytes per attempt, best", best_of(rows, "each", min), BOUND, ",.0f")]
    tables = [Table(COLUMNS, with_best(rows, "each", min))]
    return Report("memory", "a running attempt in the server", tables, verdicts)


def once(where: rig.Rig, count: int) -> Row:
    found, floors = where.with_floors(lambda: _measure(where, count))
    return {**found, **floor_cells(floors)}


def _measure(where: rig.Rig, count: int) -> Row:
    with where.server("--pilots", "0") as server:
        bag = rig.submit(server.client, 10 * count, "/bin/true", "{i}")
        pilots = [Talker(server.directory)]
        pilots[0].take(WARM_UP)
        before = _settled(server.pid)
        began = time.monotonic()
        for _ in range(count // SLOTS):
            pilots.append(Talker(server.directory))
            pilots[-1].take(SLOTS)
        seconds = time.monotonic() - began
        grown = _settled(server.pid) - before
        view = server.client.bag(bag)
        if view is None or view.running != WARM_UP + count:
            raise rig.Broken(f"{view.running if view else 0} attempts are out")
        for pilot in pilots:
            pilot.close()
        return {
            "attempts": count,
            "pilots": count // SLOTS,
            "grown": grown / 1e6,
            "each": grown / count,
            "seconds": seconds,
        }


def _settled(pid: int) -> int:
    """Resident memory once the server has written what it had to."""
    time.sleep(1.2)
    return processes.memory(pid).now


class Talker:
    """A pilot that takes tasks and runs none."""

    def __init__(self, directory: Path) -> None:
        record = embedded.read_record(directory)
        assert record is not None
        url = urlsplit(record.address)
        self._http = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
        [(job, secret)] = swarm.secrets_of(directory, 1)
        self._credential = secret
        key = f"talker-{id(self):016x}"
        enrol = Enrol(key=key, host="talker", slots=SLOTS, job=job, shared=True)
        said = self._ask("enrol", enrol._asdict())
        self._enrolled = Enrolled(**said)
        self._credential = self._enrolled.credential
        self._number = 0

    def take(self, count: int) -> None:
        """Hold that many attempts, and acknowledge them in a sync that stays parked."""
        held = 0
        while held < count:
            answer = Answer(**self._ask("sync", self._sync(count)._asdict()))
            if answer.resync or answer.leave:
                raise rig.Broken(f"the server answered {answer}")
            held += len(answer.tasks)
        self._send("sync", self._sync(count)._asdict())

    def close(self) -> None:
        self._http.close()

    def _sync(self, want: int) -> Sync:
        self._number += 1
        enrolled = self._enrolled
        return Sync(enrolled.pilot, enrolled.epoch, self._number, self._number - 1, want)

    def _ask(self, call: str, message: Row) -> Row:
        self._send(call, message)
        response = self._http.getresponse()
        body = response.read()
        if response.status != 200:
            raise rig.Broken(f"{call}: {response.status} {body[:200]!r}")
        found: Row = json.loads(body)
        return found

    def _send(self, call: str, message: Row) -> None:
        headers = {
            "Authorization": f"Bearer {self._credential}",
            "Content-Type": "application/json",
        }
        self._http.request("POST", f"/pilot/v1/{call}", json.dumps(message), headers)
