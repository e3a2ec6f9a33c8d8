"""overlay: what it costs core to decide how many pilots where, in virtual time.

50 bags, most of them with a policy that looks at sites, have tasks for 100 sites with 10,000 pilots
in 200 distinct shapes: half of them enrolled and at work, half of them jobs that wait. A *decision*
is one `Ticked`, less one of a core with the same bags and pilots but without sites: what else a
tick does is not the overlay's.

- *Full*: tasks wait for more pilots, but sites have no room.
- *Short*: sites have room for some, and these are asked for.
- *Broker*: the same as short, with the broker `measured`, for which every site has been measured.
- *Surplus*: nobody wants anything any more, and what waits is taken back.

Times are CPU time of the one thread there is: others use the machine, too.
"""

import gc
import time
from statistics import median

from bench import rig
from bench.report import NOTE, RUN, Column, Report, Row, Table, Verdict, at_most, best_of
from covey.core.record.actions import Action, CancelJobs, SubmitPilots
from covey.core.record.broker_rules import MEASURED, ROOM, BrokerRules
from covey.core.record.events import (
    BagSubmitted,
    CancelRequested,
    Committed,
    Event,
    PilotEnrolled,
    SyncReceived,
    Ticked,
)
from covey.core.record.model import (
    BagId,
    BagSpec,
    JobId,
    JobRecord,
    Need,
    PolicySpec,
    RequestId,
    Settings,
    SiteSpec,
    Snapshot,
)
from covey.core.scheduler import Scheduler
from covey.pilot.protocol.messages import Enrol, Sync

BAGS, SITES, PILOTS, SHAPES = 50, 100, 10_000, 200
TASKS = 100_000  # in each bag
DECISIONS = 15
MOST_MS = 50
COLUMNS = (
    RUN,
    Column("when", "when"),
    Column("bags", "bags", ",d"),
    Column("sites", "sites", ",d"),
    Column("pilots", "pilots and jobs", ",d"),
    Column("median", "a decision, median ms", ".1f"),
    Column("most", "most", ".1f"),
    Column("first", "the first, ms", ".1f"),
    Column("asked", "jobs asked for", ",d"),
    Column("back", "taken back", ",d"),
    NOTE,
)


def run(where: rig.Rig) -> Report:
    rows: list[Row] = []
    for number in range(1, 2 if where.quick else 4):
        rows += where.bounded_rows(f"overlay {number}", number, measure)
    title = f"{BAGS} bags × {SITES} sites × {PILOTS:,} pilots in {SHAPES} shapes, in core"
    return Report("overlay", title, [Table(COLUMNS, rows)], verdicts(rows))


def verdicts(rows: list[Row]) -> list[Verdict]:
    found = []
    for when in ("full", "short", "broker", "surplus"):
        of = [row for row in rows if row.get("when") == when]
        for key in ("median", "first"):
            words = f"{when}: a decision, {key}, ms"
            found.append(at_most(words, best_of(of, key, min), MOST_MS, ".1f"))
    return found


def measure() -> list[Row]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return [_row(when) for when in ("full", "short", "broker", "surplus")]
    finally:
        gc.enable()
        gc.unfreeze()


def _row(when: str) -> Row:
    full, bare = Yard(when, sites=True), Yard(when, sites=False)
    times, asked, back = [], 0, 0
    for _ in range(DECISIONS):
        seconds, actions = full.tick()
        times.append(1e3 * (seconds - bare.tick()[0]))
        asked += sum(len(one.jobs) for one in actions if isinstance(one, SubmitPilots))
        back += sum(len(one.jobs) for one in actions if isinstance(one, CancelJobs))
    expected = {
        "full": not asked and not back,
        "short": asked > 0,
        "broker": asked > 0,
        "surplus": back > 0,
    }
    if not expected[when]:
        raise rig.Broken(f"{when}: {asked} jobs were asked for and {back} taken back")
    state = full.scheduler.state
    return {
        "when": when,
        "bags": len(state.bags),
        "sites": len(state.sites),
        "pilots": PILOTS,
        "median": median(times[1:]),
        "most": max(times[1:]),
        "first": times[0],
        "asked": asked,
        "back": back,
    }


# -- a core, and all that it has to look at ----------------------------------------------------


class Yard:
    def __init__(self, when: str, *, sites: bool) -> None:
        self.now = 1_700_000_000.0
        self._requests = 0
        self._when, self._sites = when, sites
        jobs = tuple(_job(number) for number in range(PILOTS)) if sites else ()
        snapshot = Snapshot(
            epoch=1, bags=(), pilots=(), jobs=jobs, next_bag=1, next_pilot=1, keys={}
        )
        specs = tuple(_site(number, when) for number in range(SITES)) if sites else ()
        settings = Settings(
            lease_seconds=1e9,
            idle_seconds=1e9,
            poll_seconds=1e9,
            sites=specs,
            broker=BrokerRules(algorithm=MEASURED if when == "broker" else ROOM),
        )
        self.scheduler, _ = Scheduler.recover(snapshot, settings, self.now)
        for number in range(BAGS):
            self._submit(number)
        for number in range(0, PILOTS, 2):
            self._enrol(number)
        if len(self.scheduler.state.pilots) != PILOTS // 2:
            raise rig.Broken(f"{len(self.scheduler.state.pilots)} pilots are enrolled")
        if when == "surplus":
            for bag in list(self.scheduler.state.bags):
                self.handle(CancelRequested(self._request(), BagId(bag)))
            self.now += 11.0

    def tick(self) -> tuple[float, list[Action]]:
        self.now += 1.0
        began = time.thread_time()
        actions = self.scheduler.handle(Ticked(), self.now)
        seconds = time.thread_time() - began
        return seconds, [*actions, *self._commit()]

    def handle(self, event: Event) -> None:
        self.scheduler.handle(event, self.now)
        self._commit()

    def _commit(self) -> list[Action]:
        state, actions = self.scheduler.state, list[Action]()
        while state.journal.durable < state.journal.writes:
            actions += self.scheduler.handle(Committed(state.journal.writes), self.now)
        return actions

    def _request(self) -> RequestId:
        self._requests += 1
        return RequestId(self._requests)

    def _submit(self, number: int) -> None:
        policy = PolicySpec()
        if number % 5:
            policy = PolicySpec(
                requirements=f'Site.Name != "site-{number}" && Host.cpu_mhz > {number}',
                grid=f"Site.Price < {1 + number} && Site.Waiting < 100000",
            )
        spec = BagSpec(
            argv=("true",),
            space=rig.counting(TASKS),
            owner=f"owner-{number % 10}",
            need=Need(memory_mb=100 * (number % 4), limit_seconds=60.0 * (number % 3)),
            policy=policy,
        )
        self.handle(BagSubmitted(self._request(), spec))

    def _enrol(self, number: int) -> None:
        job = _job(number)
        enrol = Enrol(
            f"pilot-key-{number}",
            f"host{number}",
            job.slots,
            job.site if self._sites else "",
            job.id if self._sites else "",
            tags={"cpu_mhz": str(2000 + number % 7)},
            memory_mb=job.memory_mb,
        )
        self.handle(PilotEnrolled(self._request(), enrol, "word", "digest"))
        pilot = self.scheduler.state.counters.next_pilot - 1
        if self._when != "surplus":
            self.handle(SyncReceived(self._request(), Sync(pilot, 1, 1, 0, job.slots)))


def _job(number: int) -> JobRecord:
    shape = number % SHAPES
    return JobRecord(
        id=JobId(f"0-{number}"),
        site=f"site-{shape % SITES}",
        slots=1 + shape // SITES,
        submitted=1.0,
        wall_seconds=86400.0,
        memory_mb=1000 * (1 + shape // SITES),
        wanted_by=f"owner-{number % 10}",
    )


def _site(number: int, when: str) -> SiteSpec:
    here = PILOTS // SITES
    more = 3 if when in ("short", "broker") else 0
    return SiteSpec(
        name=f"site-{number}",
        driver="virtual",
        slots=2,
        memory_mb=2000,
        wall_seconds=86400.0,
        queued=here // 2 + more,
        running=here + more,
        ramp=here // 2 + more,
        price=number / 10,
    )
