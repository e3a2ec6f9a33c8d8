"""One world: a seed determines a workload, faults, and whether all promises are kept.

First everything may break. Then it becomes calm, and all work must be finished within a bounded
time; then the record is compared with what really happened.
"""

import math
import traceback
from collections.abc import Callable
from functools import partial
from random import Random

from msgspec import Struct

from covey.core.record.actions import Change
from covey.core.record.events import Ticked
from covey.core.record.model import JobId, JobRecord
from covey.lab.clock import START, Timeline
from covey.ports import EngineEvent
from tests.memory_store.memory_record import MemoryRecord
from tests.simulator.checkers import explain_check
from tests.simulator.checkers.ledger import Ledger, Violation
from tests.simulator.checkers.promises import Judge
from tests.simulator.checkers.site_checks import Supervisor
from tests.simulator.machines.liar import Liar
from tests.simulator.machines.network import Network, Weather
from tests.simulator.machines.pilot import SimPilot, Surroundings
from tests.simulator.machines.server import Server
from tests.simulator.machines.sites import Sites
from tests.simulator.machines.virtual_store import Disk, VirtualStore
from tests.simulator.people.administrator import Administrator
from tests.simulator.people.owners import Owner
from tests.simulator.plan import faults, policies, workload
from tests.simulator.plan.faults import Misfortunes
from tests.simulator.plan.places import Place
from tests.simulator.trace import Trace

MOST_COMPARISONS = 2  # of explanations with what is decided
UNWANTED_SECONDS = 60.0  # for which jobs may wait that nobody needs any more


class Report(Struct, frozen=True, kw_only=True):
    seed: int
    problem: str  # empty: all promises were kept
    digest: str
    tasks: int
    pilots: int
    starts: int
    repeats: int  # for a good reason
    faults: dict[str, int]  # what broke
    messages: dict[str, int]  # what happened to messages
    servers: int
    virtual_seconds: float
    events: int


class World:
    """A seed's world; with a given plan, nothing breaks."""

    def __init__(
        self,
        seed: int,
        show: Callable[[str], None] | None = None,
        plan: workload.Plan | None = None,
    ) -> None:
        self._breaks = plan is None
        self.plan = plan or policies.governed(workload.draw(seed))
        self.clock = Timeline()
        self.trace = Trace(self.clock, show)
        self.random = Random(f"{seed}/world")
        self.network = Network(self.clock, self.trace, Random(f"{seed}/network"))
        self.ledger = Ledger()
        record = MemoryRecord(workload.TABLES)
        grounds = self.plan.grounds
        self.supervisor = Supervisor(self.ledger, grounds.natures)
        self.judge = Judge(self.ledger, self.plan.settings, record, self.supervisor)
        self.disk = Disk(record, self._applied)
        self.sites = Sites(
            self.clock,
            self.trace,
            Random(f"{seed}/site"),
            grounds.natures,
            self._start_job,
            self._report,
            self.supervisor,
        )
        self.administrator = Administrator(
            grounds,
            self.clock,
            self.network,
            self.supervisor,
            Random(f"{seed}/administrator"),
        )
        self.pilots: list[SimPilot] = []
        self.misfortunes = Misfortunes()
        self._wandering = Random(f"{seed}/places")
        self._explaining, self._comparisons = Random(f"{seed}/explain"), MOST_COMPARISONS
        self.site_notices = True
        self.servers = 0
        self.calm_at = START + self.plan.calm_at
        self._over = False
        self._done_at = math.inf  # since when nobody wants anything
        self.struck: dict[str, int] = {}
        self.owners = [self._owner(bag) for bag in self.plan.bags]
        self.server = self._new_server()
        self._arrange(seed)

    def run(self) -> Report:
        problem = ""
        try:
            while not self._over:
                self.clock.step()
            self.server.check()
            self.judge.final(self.calm_at)
            self.supervisor.final(self.clock.time)
        except Violation as violation:
            problem = str(violation)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        return self._report_of(problem)

    # -- the plan --------------------------------------------------------------------------

    def _arrange(self, seed: int) -> None:
        random = Random(f"{seed}/strikes")
        self._mild = faults.weather(random) if self._breaks else Weather()
        self.network.weather = self._mild
        calm_at = self.plan.calm_at
        drawn = faults.draw(seed, calm_at) + faults.draw_misfortunes(seed, calm_at)
        for fault in drawn if self._breaks else ():
            self.clock.at(fault.at, partial(self._strike, fault.kind, random))
        for at, slots in self.plan.hand_pilots:
            owner = random.choice(("", "", f"owner-{random.randrange(3)}"))
            self.clock.at(START + at, partial(self._start_pilot, slots, "", owner))
        if self._breaks and not self.plan.grounds.placed:  # there, covey would count on the liar
            lying = Random(f"{seed}/liar")
            Liar(self.clock, self.network, self.ledger, lying, self._is_wild)
        self.clock.at(self.calm_at, self._calm_down)
        self.clock.every(1.0, self._tick)
        self.clock.every(5.0, self._mind)

    def _is_wild(self) -> bool:
        return self.clock.time < self.calm_at

    def _owner(self, bag: workload.BagPlan) -> Owner:
        random = Random(f"{self.plan.seed}/owner/{bag.number}")
        return Owner(bag, self.clock, self.network, self.ledger, self.judge, random)

    def _strike(self, kind: str, random: Random) -> None:
        self.trace.add(f"fault: {kind}")
        if faults.strike(self, kind, random):
            self._count(kind)
        self.server.check()

    def _count(self, kind: str, times: int = 1) -> None:
        self.struck[kind] = self.struck.get(kind, 0) + times

    def storm(self, weather: Weather, seconds: float) -> None:
        self.network.weather = weather

        def over() -> None:
            if self.clock.time < self.calm_at:
                self.network.weather = self._mild

        self.clock.after(seconds, over)

    def _calm_down(self) -> None:
        self.trace.add("calm")
        for owner in self.owners:
            owner.calm = True
        self.network.heal()
        self.disk.failing_commits = self.disk.failing_opens = 0
        self.disk.after_apply = None
        self.server.fuse, self.server.trap = 0, ()
        self.sites.notice_all()

    # -- what goes on ----------------------------------------------------------------------

    def _tick(self) -> None:
        self.server.post(Ticked())
        self.server.go_on()
        for owner in self.owners:
            owner.look()
        self._look_at_pilots()
        if self.clock.time >= self.calm_at:
            self.administrator.set_right()
        self._over = self.clock.time >= self.calm_at and self._satisfied()

    def _look_at_pilots(self) -> None:
        now = self.clock.time
        for pilot in self.pilots:
            waits = pilot.alive and pilot.state is not None and not pilot.draining and pilot.idle()
            life = pilot.life
            life.idle_since = min(life.idle_since, now) if waits else math.inf

    def _compare_explanations(self) -> None:
        """A few times in each world: copies of the whole state are expensive."""
        scheduler = self.server.engine.scheduler if self.server.alive else None
        if scheduler is None or not self._comparisons or self._explaining.random() < 0.8:
            return
        state = scheduler.state
        now = self.clock.time
        bags = explain_check.can_be_compared(state, now)
        if not bags:
            return
        bag = self._explaining.choice(bags)
        found = explain_check.obstacles(state, now, bag)
        if found:
            self._comparisons -= 1
            obstacle = self._explaining.choice(found)
            words = explain_check.disagreement(state, now, bag, obstacle)
            words = words or explain_check.disorder(state, now, bag, obstacle)
            if words:
                raise Violation(words)

    def _mind(self) -> None:
        """Somebody starts pilots by hand if there are hardly any."""
        if self.clock.time >= self.calm_at:
            self.judge.calm(self.clock.time, self.calm_at)
        self._compare_explanations()
        if self.plan.grounds.placed:
            wanted = not all(owner.satisfied() for owner in self.owners)
            if self.clock.time >= self.calm_at:
                self.supervisor.calm(self.clock.time, self.calm_at, wanted)
            return
        alive = [
            pilot.slots
            for pilot in self.pilots
            if pilot.alive and not pilot.draining and not pilot.owner
        ]
        enough = 2 if self.clock.time >= self.calm_at else len(self.plan.hand_pilots) // 3
        few = len(alive) < enough or max(alive) < workload.MOST_CORES
        if all(owner.satisfied() for owner in self.owners):
            return
        if few:
            self._start_pilot(4)
        if self.clock.time >= self.calm_at:
            for place in self.plan.places:
                if place.stays and not any(self._serves_all(pilot, place) for pilot in self.pilots):
                    self._start_pilot(4, place=place)

    def _serves_all(self, pilot: SimPilot, place: Place) -> bool:
        """Whether any task that may run on this host can run in this pilot."""
        here = pilot.alive and not pilot.draining and pilot.place.host == place.host
        return here and not pilot.owner and pilot.slots > workload.MOST_CORES

    def _new_server(self) -> Server:
        self.servers += 1
        self.trace.add(f"server {self.servers} starts")
        server = Server(
            self.clock,
            self.trace,
            self.network,
            self.sites,
            self.plan.settings,
            self.ledger,
            self.judge,
            self._server_died,
        )
        random = Random(f"{self.plan.seed}/store/{self.servers}")
        server.store = VirtualStore(self.disk, self.clock, random, server.post)
        self.network.server = server
        server.start()
        return server

    def _server_died(self, cause: str) -> None:
        self.trace.add("the server is dead")
        if cause:
            self._count(cause)
        calm = self.clock.time >= self.calm_at
        delay = self.random.uniform(0.2, 3.0 if calm else self.random.choice((3.0, 12.0, 40.0)))
        self.clock.after(delay, self._restart)

    def _restart(self) -> None:
        self.server = self._new_server()

    def _start_pilot(
        self,
        slots: int,
        job: str = "",
        owner: str = "",
        place: Place | None = None,
        works: bool = True,
    ) -> SimPilot:
        name = f"pilot-{len(self.pilots) + 1}"
        if place is None:
            places = self.plan.places
            place = self._wandering.choice(places) if places else Place(name)
            place = place.of(owner)
        around = Surroundings(
            self.clock,
            self.trace,
            self.network,
            self.ledger,
            self.judge,
            self.plan,
            self.misfortunes,
        )

        def over() -> None:
            if job:
                self.sites.over(JobId(job), self.site_notices)

        self.trace.add(f"{name} with {slots} slots on {place.host}, job {job or '-'}")
        pilot = SimPilot(around, name, slots, job, over, owner, place, works)
        self.pilots.append(pilot)
        return pilot

    def requeue(self, pilot: SimPilot) -> None:
        """The pilot's node failed, and its site starts the job once more."""
        pilot.kill(requeued=True)
        self.sites.requeue(JobId(pilot.job), self.random.random() < 0.7)

    def _start_job(self, job: JobRecord, works: bool) -> Callable[[], None]:
        there = [place for place in self.plan.places if place.site == job.site]
        alone = Place(f"node-{len(self.pilots) + 1}", job.site)
        place = (self._wandering.choice(there) if there else alone).of(job.wanted_by)
        return self._start_pilot(job.slots, job.id, place=place, works=works).kill

    def _applied(self, change: Change) -> None:
        self.judge.applied(change, self.clock.time)
        self.supervisor.applied(change)

    def _report(self, event: EngineEvent) -> None:
        self.server.post(event)

    # -- the end ---------------------------------------------------------------------------

    def _satisfied(self) -> bool:
        done = all(owner.satisfied() for owner in self.owners)
        self._done_at = min(self._done_at, self.clock.time) if done else math.inf
        waiting = self.sites.waiting() if done else 0
        quiet = done and not waiting and not self.administrator.asking
        if quiet and all(pilot.idle() for pilot in self.pilots if pilot.alive):
            return True
        if waiting and self.clock.time > max(self._done_at, self.calm_at) + UNWANTED_SECONDS:
            raise Violation(f"nobody wants anything, but {waiting} jobs wait")
        if self.clock.time > self.calm_at + self._patience_seconds():
            left = [owner.plan.number for owner in self.owners if not owner.satisfied()]
            busy = [pilot.name for pilot in self.pilots if pilot.alive and not pilot.idle()]
            raise Violation(f"nothing breaks any more, but bags {left} and {busy} do not finish")
        return False

    def _patience_seconds(self) -> float:
        settings = self.plan.settings
        waits = settings.lease_seconds + settings.adopt_seconds + settings.poll_seconds
        placing = 400.0 if self.plan.grounds.placed else 0.0
        return 200.0 + placing + 2 * waits + min(self.plan.work_seconds() / 2, 20_000.0)

    def _report_of(self, problem: str) -> Report:
        if self.disk.failed_commits:
            self._count("failed commit", self.disk.failed_commits)
        return Report(
            seed=self.plan.seed,
            problem=problem,
            digest=self.trace.digest(),
            tasks=sum(bag.tasks for bag in self.plan.bags),
            pilots=len(self.pilots),
            starts=sum(len(runs) for runs in self.ledger.runs.values()),
            repeats=self.ledger.repeats,
            faults=self.struck,
            messages=self.network.faults,
            servers=self.servers,
            virtual_seconds=self.clock.time - START,
            events=self.trace.count,
        )


def run(seed: int, show: Callable[[str], None] | None = None) -> Report:
    return World(seed, show).run()
