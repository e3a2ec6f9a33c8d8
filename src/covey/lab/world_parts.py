"""What a world file consists of (docs/lab.md). `worldfile` reads and checks it."""

from typing import Any

from msgspec import Struct

from covey.lab.draws import Draw, constant


class Seconds(float):
    """A time in a world file: 90, or 30s, 10m, 2h, 1d."""


class ServerPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server, and its connections to pilots."""

    latency: Draw = constant(0.1)  # there and back; drawn once for each pilot
    lease: Seconds = Seconds(60.0)  # from the end of a pilot until the server gives it up
    connected: bool = True  # whether busy pilots hear of cancellations at once
    tick: Seconds = Seconds(1.0)  # how often core handles what depends on time
    cycle: Seconds = Seconds(1.0)  # how often replicas are drawn


class BackgroundPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other people's jobs in a site's queue: from a trace, or drawn."""

    trace: str = ""  # a file in the Standard Workload Format …
    begin: Seconds = Seconds(0.0)  # … and the time in it when the world begins
    every: Draw = constant(0.0)  # between two jobs that are submitted
    time: Draw = constant(0.0)  # of a job
    cores: Draw = constant(1.0)  # of a job
    asked: Draw = constant(1.0)  # the time that a job asks for, in multiples of its real time
    load: tuple[tuple[Seconds, float], ...] = ()  # time, factor on the rate of jobs from then on
    warm: Seconds = Seconds(0.0)  # time that the queue has run when the world begins


class QueuePart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The batch queue of a site at which core asks for pilots. Either its waits are drawn, or it
    has cores, and other people's jobs on them."""

    running: int = 100  # pilots that core may have there, waiting or running
    queued: int = 100  # … that wait
    ramp: int = 4  # … that wait at first
    weight: float = 1.0  # for the broker
    wall: Seconds = Seconds(86400.0)  # after which the site ends a pilot
    idle: Seconds = Seconds(60.0)  # after which a pilot without tasks goes home
    interval: Seconds = Seconds(10.0)  # between two looks of the server at the site's list
    submission: Draw = constant(0.2)  # one after the other
    wait: Draw = constant(0.0)
    load: tuple[tuple[Seconds, float], ...] = ()  # time, factor on waits from then on
    cores: int = 0
    background: BackgroundPart | None = None
    boot: Draw = constant(0.0)  # from a job's start to its pilot's first word
    start_failures: float = 0.0  # share of jobs that end instead of becoming a pilot


class SitePart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A site has `pilots`, or a `queue` to which core submits them."""

    name: str
    copies: int = 1  # sites that are like this one: NAME-1, NAME-2, …
    pilots: int = 0  # running, or waiting in its queue
    queue: QueuePart | None = None
    steady: bool = True  # whether some of `pilots` run at the start; if not, all wait
    hosts: int = 0  # machines for pilots; 0: as many as pilots
    slots: int = 1
    speed: Draw = constant(1.0)
    wait: Draw = constant(0.0)  # in the site's queue
    preempted: float = 0.0  # share of tasks that are lost because their pilot is preempted …
    preempted_over: Seconds = Seconds(0.0)  # … if tasks take this long
    failed: float = 0.0  # share of tasks that fail
    differ: bool = False  # whether each host has its own rates of preemption and failures
    black_holes: float = 0.0  # share of hosts on which every task fails …
    black_hole_time: Draw = constant(1.0)  # … after this time
    stragglers: float = 0.0  # share of tasks that take longer …
    slowdown: Draw = constant(3.0)  # … by this factor
    overhead: Draw = constant(0.0)  # before each task: its slot is taken, and nothing runs
    mb_per_second: float = 0.0  # of a slot that fetches or sends files; 0: files take no time
    availability: tuple[tuple[Seconds, float], ...] = ()  # time, share of pilots from then on

    @property
    def most_pilots(self) -> int:
        return self.pilots if self.queue is None else self.queue.running


class BagPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    tasks: int
    time: Draw  # of a task, at speed 1
    cores: int = 1  # slots that a task takes
    owner: str = ""
    broker: str = ""  # what splits its pilots over sites
    policy: dict[str, Any] = {}
    retries: int = 100
    common_mb: float = 0.0  # files that a host fetches once
    input_mb: float = 0.0  # files of each task
    output_mb: float = 0.0
    at: Seconds = Seconds(0.0)  # time of submission …
    after: str = ""  # … or the bag after whose end it is submitted
    shown: bool = True  # in the tables
    paper: dict[str, float | str] = {}  # what somebody else measured


class Variant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same world under another policy."""

    name: str
    about: str = ""
    broker: str = ""  # of every bag
    policy: dict[str, Any] = {}  # overrides keys of every bag's policy
    paper: dict[str, float | str] = {}


class WorldFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str = ""
    about: str = ""
    seeds: int = 5
    limit: Seconds = Seconds(30 * 86400.0)  # a run that takes longer is given up
    tail: float = 0.1  # the share of a bag's tasks that are its tail
    columns: tuple[str, ...] = ()  # of the table; none: those of `experiment.COLUMNS`
    server: ServerPart = ServerPart()
    sites: tuple[SitePart, ...]
    bags: tuple[BagPart, ...]
    variants: tuple[Variant, ...] = ()
