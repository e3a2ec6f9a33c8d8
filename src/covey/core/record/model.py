"""The records core keeps and the store remembers: immutable, and free of behaviour."""

from enum import StrEnum
from typing import Any, NamedTuple, NewType, TypeAlias

from msgspec import Struct

from covey.core.record.broker_rules import BrokerRules
from covey.core.record.histories import History, SiteHistory
from covey.core.values.space import ONE_TASK, Scalar, Space
from covey.pilot.protocol.messages import End

LONG_FIRST, GIVEN = "long-first", "given"  # orders in which tasks of a bag go out

BagId = NewType("BagId", int)
TaskNumber = NewType("TaskNumber", int)
PilotId = NewType("PilotId", int)
RequestId = NewType("RequestId", int)
JobId = NewType("JobId", str)


class AttemptId(NamedTuple):
    """Never reused: the epoch is durable and grows with every start of a server."""

    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.sequence}"


class BagStatus(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"  # by its owner, or because it fails everywhere; nothing new goes out
    FINISHED = "finished"
    CANCELLED = "cancelled"


class PilotStatus(StrEnum):
    ACTIVE = "active"
    SUSPECTED = "suspected"
    LOST = "lost"
    LEFT = "left"


class SiteStatus(StrEnum):
    """PAUSED: no job is started there. DRAINING: waiting jobs are cancelled, and pilots end when
    their tasks have."""

    ON = "on"
    PAUSED = "paused"
    DRAINING = "draining"


class JobStatus(StrEnum):
    """The status of a site job: a pilot in the queue of a site."""

    SUBMITTED = "submitted"
    ENDED = "ended"


class JobOutcome(StrEnum):
    """How a site job ended. OK: its pilot worked and said goodbye. PREEMPTED: the site took it away
    from a pilot that worked. REFUSED: the site would not take it. CANCELLED: covey took it back;
    whether it had started, its times tell. UNKNOWN: it has not ended, or an older version wrote it.
    """

    UNKNOWN = ""
    OK = "ok"
    FAILED = "failed"
    PREEMPTED = "preempted"
    REFUSED = "refused"
    CANCELLED = "cancelled"


class Role(StrEnum):
    """What a token allows: to see everything, to run bags of one's own, or everything."""

    VIEWER = "viewer"
    USER = "user"
    ADMIN = "admin"


class Verdict(StrEnum):
    """What an ended attempt means for its task's result."""

    COUNTS = "counts"  # it is the result
    REPLACES = "replaces"  # it is a success, and takes the place of a counted failure
    LATE = "late"  # a success of a bag not in memory: counts if the task has no success
    WASTE = "waste"  # recorded only


class Need(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The resources that one task takes of its host. 0: not specified."""

    cores: int = 1
    memory_mb: int = 0
    disk_mb: int = 0
    gpus: int = 0
    limit_seconds: float = 0.0


class Condition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition on one parameter: it is one of these values, or a number from `low` to `high`."""

    name: str
    values: tuple[Scalar, ...] = ()
    low: float | None = None
    high: float | None = None


class Rule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks for which every condition holds have this need. `need_from`: see `BagSpec`."""

    when: tuple[Condition, ...]
    need: Need
    need_from: dict[str, str] = {}


class Blob(Struct, frozen=True, omit_defaults=True):
    """A file that the server holds, known by the SHA-256 of its content."""

    digest: str
    size: int
    executable: bool = False


class Placed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that every task finds at `path` in its directory: hard-linked and read-only, or as a
    copy of its own. It comes from the server (`blob`), or the host fetches it (`url`); with a
    `digest`, the fetched file must have it."""

    path: str
    blob: Blob | None = None
    url: str = ""
    digest: str = ""
    executable: bool = False  # of a file from a URL
    copy: bool = False


class TaskInput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of each task's own. `source` and `path` are texts with {NAME}s; the source, filled in,
    is a key of the bag's `manifest`. `base`: the directory on the submitting machine that the
    source is relative to; empty: not known."""

    source: str
    path: str
    copy: bool = False
    base: str = ""


class InputSource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where inputs of all tasks came from, on the machine that submitted the bag: a file, a
    directory or a pattern, absolute, and the place in a task's directory that it went to. With
    `script`, the path is a bag file, and the input is the script in it."""

    path: str
    to: str
    copy: bool = False
    script: bool = False


class InputChanges(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Files that replace those of a bag: `inputs` of all tasks by their paths (a new path is
    added), and files of single tasks by their keys in the `manifest`. `removed`: paths of inputs
    that later tasks do not get. `sources_seal` replaces the bag's."""

    inputs: tuple[Placed, ...] = ()
    removed: tuple[str, ...] = ()
    manifest: dict[str, Blob] = {}
    sources_seal: str = ""


class InputVersion(Struct, frozen=True, kw_only=True):
    """Files that were sent after the bag: attempts from `first` on got them. `files`: how many
    differ from the version before; `names`: a few of them."""

    first: AttemptId
    at: float
    files: int
    names: tuple[str, ...]
    changes: InputChanges


class Rows(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parameters from the rows of a file that the server holds. The server fills in `names`,
    `count`, `text_names` and `row_bytes`."""

    digest: str
    form: str  # csv, tsv, semicolons, jsonl, lines
    names: tuple[str, ...] = ()
    count: int = 0
    text_names: tuple[str, ...] = ()  # columns that are text, although they look like numbers
    row_bytes: int = 0  # about the length of the longest rows; 0: not known


class Segment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks that came together: every row, if there are rows, with every point of the space. The
    row varies slowest. Values are in the order of `rows.names`, then `space.names(space)`.
    `task_needs`: see `BagSpec`."""

    space: Space = ONE_TASK
    rows: Rows | None = None
    task_needs: tuple[Need, ...] = ()


class PolicySpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bag's policy as its owner wrote it: ClassAd expressions, and plain keys that become part of
    them (`match.policies`). Empty: the preset's."""

    preset: str = ""
    requirements: str = ""  # JobRequirements: where a task may run
    rank: str = ""  # Rank: which of an owner's bags goes first there
    concurrency: str = ""  # Concurrency: tasks that a pilot holds, running or sent ahead
    deadline: str = ""  # Deadline: seconds, or 30m, after which an attempt is given up
    replication: str = ""  # ReplicationRequirements: whether a running task gets another attempt
    tail: str = ""  # TailCondition: whether the bag is in its tail
    sticky_tail: bool | None = None  # once in its tail, always
    max_replicas: str = ""  # MaxReplicas: live attempts of a task, at most
    grid: str = ""  # GridPolicy: whether pilots for its tasks may be started at a site
    only_sites: tuple[str, ...] = ()
    avoid_sites: tuple[str, ...] = ()
    only_hosts: tuple[str, ...] = ()
    avoid_hosts: tuple[str, ...] = ()
    failover_sites: tuple[str, ...] = ()  # for tasks that failed elsewhere


class BagSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bag as a person submits it. Submissions with equal keys are one submission.

    `need_from`: resources (cores, memory, disk, gpus, time) that come from parameters, each as text
    with {NAME}s, such as "{mem} GB". Then the server fills in `task_needs`: every combination of
    resources that tasks of the first segment have, once."""

    argv: tuple[str, ...]
    calls: bool = False  # `argv` starts a process that stays; tasks are calls that it is given
    space: Space = ONE_TASK
    rows: Rows | None = None
    open: bool = False  # more segments may follow, until it is closed
    name: str = ""
    owner: str = ""
    key: str = ""
    labels: dict[str, str] = {}
    notes: str = ""
    env: dict[str, str] = {}
    export: bool = False  # every parameter is also an environment variable
    chdir: str = ""
    need: Need = Need()
    need_from: dict[str, str] = {}
    rules: tuple[Rule, ...] = ()  # the first rule that fits a task decides; else `need` holds
    task_needs: tuple[Need, ...] = ()
    order: str = LONG_FIRST  # tasks with more time go out first; GIVEN: by their numbers
    pin: bool = False  # bind each task to cores of its own
    retries: int = 0
    grow_memory: float = 1.0  # each retry after a lack of memory gets its memory times this
    grow_time: float = 3.0  # each retry after a time limit gets its time times this …
    overtimes: int = 3  # … at most this often, on top of the retries
    breaker: int = 30  # this many failures in a row without a success pause the bag; 0: never
    idempotent: bool = True
    policy: PolicySpec = PolicySpec()
    broker: str = ""  # what splits its pilots over sites; empty: as the server says
    finish_seconds: float = 0.0  # after its submission it should be done; 0: no such time
    inputs: tuple[Placed, ...] = ()
    task_inputs: tuple[TaskInput, ...] = ()
    manifest: dict[str, Blob] = {}
    sources: tuple[InputSource, ...] = ()  # where `inputs` came from, …
    sources_host: str = ""  # … on which machine,
    sources_seal: str = ""  # … and its submitter's proof of that (`client.source_seal`)
    outputs: tuple[str, ...] = ()  # globs in the task's directory; each must match
    optional_outputs: tuple[str, ...] = ()
    output_mb: int = 1024  # of one task, at most
    ok_codes: tuple[int, ...] = (0,)
    check: str = ""  # a line of shell, run after a task in its directory: 0 is a good result
    setup: str = ""  # a shell script, run once per host before the bag's first task there
    setup_seconds: float = 1800.0
    log_kb: int = 64  # kept of each output stream of a task: its head and its tail


# What numbers of a bag's spec may be, both ends included.
BAG_RANGES: dict[str, tuple[int, int]] = {
    "retries": (0, 1000),
    "grow_memory": (1, 100),
    "grow_time": (1, 100),
    "overtimes": (0, 100),
    "breaker": (0, 1_000_000),
    "output_mb": (0, 10_000_000),
    "setup_seconds": (1, 10_000_000),
    "finish_seconds": (0, 1_000_000_000),
    "log_kb": (1, 1024),  # two streams, escaped, must fit into a sync
}


class UnkeptFiles(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Files that tasks of a bag left in their directories and that no output pattern matches, so
    that they were removed. `tasks`: how many left such files; `names`: a few of them."""

    tasks: int = 0
    files: int = 0
    bytes: int = 0
    names: tuple[str, ...] = ()


class OutputSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outputs of the tasks of a bag that ended well. `something`: at least one task printed
    something, reported values or returned files."""

    something: bool = False
    unkept: UnkeptFiles = UnkeptFiles()


class BagRecord(Struct, frozen=True, kw_only=True):
    """`total` and `open` are as of now; `segments` are those after the first, which is in the
    spec."""

    id: BagId
    spec: BagSpec
    total: int
    created: float
    status: BagStatus = BagStatus.RUNNING
    reason: str = ""  # why it is paused
    open: bool = False
    segments: tuple[Segment, ...] = ()
    policy: PolicySpec | None = None  # if it was changed; else that of the spec holds
    outputs: OutputSummary = OutputSummary()
    input_versions: tuple[InputVersion, ...] = ()  # those after the first, which is in the spec


class More(Struct, frozen=True, omit_defaults=True):
    """The memory and the time of tasks that run again: multiplied by these factors, or these
    amounts (0: no amount given)."""

    memory: float = 1.0
    time: float = 1.0
    memory_mb: int = 0
    limit_seconds: float = 0.0


AS_BEFORE = More()


class Reopening(Struct, frozen=True, kw_only=True):
    """These tasks (None: all that had failed) were given a fresh start, and from then on get
    `more`. `row`: the last end recorded before. `tasks` is not None if memory or time changes."""

    row: int
    tasks: tuple[int, ...] | None = None
    more: More = AS_BEFORE


class PilotRecord(Struct, frozen=True, kw_only=True):
    id: PilotId
    key: str
    credential: str  # digest of what the pilot shows in every sync
    host: str
    slots: int
    site: str
    job: JobId
    tags: dict[str, str]
    version: str
    enrolled: float
    memory_mb: int = 0  # of all slots together; 0: not known
    disk_mb: int = 0
    gpus: int = 0
    machine: str = ""
    boot: str = ""
    owner: str = ""  # whose tasks it runs; empty: everybody's
    status: PilotStatus = PilotStatus.ACTIVE
    recorded: int = 0  # the last sync whose ends are durable


class TokenRecord(Struct, frozen=True, kw_only=True):
    """A token: the right to call the API. Only its digest is kept."""

    id: int
    name: str
    role: Role
    owner: str  # whose bags these are
    digest: str
    created: float
    expires: float = 0.0  # 0: never
    revoked: float = 0.0  # when; 0: not


# Of a driver: its own type says what a list or a table may hold.
Option: TypeAlias = bool | int | float | str | tuple[Any, ...] | dict[str, Any]


class SiteFacts(Struct, frozen=True, kw_only=True):
    """Facts about a site that its driver derives from its options, for core."""

    here: bool = False  # pilots are processes of the server's machine and user, and end with it
    by_hand: bool = False  # people start the pilots: core submits no jobs
    whole_nodes: bool = False  # a pilot gets all slots, however few it needs
    # Unix accounts that tasks run under, as names of hosts ("": the server's own); None: `host`.
    accounts: tuple[str, ...] | None = None
    # Where a job prints to, for people: {job} is its id, {handle} what the site calls it.
    log: str = ""


class SiteSpec(Struct, frozen=True, kw_only=True):
    """A place where pilots can be started, and how much of it may be used. Numbers of pilots; 0
    seconds, megabytes or pilots: no limit. `options` are the driver's own, and so are `facts`."""

    name: str
    driver: str
    host: str = ""  # where its commands run, by SSH; empty: here
    options: dict[str, Option] = {}
    environment: dict[str, str] = {}  # of its commands
    directory: str = ""  # there, for pilots and their output; empty: ~/.covey/sites/NAME
    python: str = "python3"
    setup: str = ""  # shell commands that a pilot runs first, such as `module load`
    check: str = ""
    slots: int = 1  # of a pilot, at most
    memory_mb: int = 0  # of a pilot
    disk_mb: int = 0
    gpus: int = 0
    wall_seconds: float = 3600.0  # a pilot's life, at most
    idle_seconds: float = 0.0  # after which an idle pilot ends; 0: the server's setting
    queued: int = 10  # pilots that may wait there
    running: int = 100  # pilots that may wait or run there
    per_user: int = 0  # pilots that may wait or run there for one owner's tasks
    all_memory_mb: int = 0  # of all pilots there
    all_disk_mb: int = 0
    ramp: int = 4  # pilots that may wait at first; more when they start
    interval_seconds: float = 10.0  # between two looks at its list
    pause_seconds: float = 0.2  # between two commands
    credentials: tuple[str, ...] = ()  # files that must be there
    credential_check: str = ""  # a shell command, run where the commands run: 0 means valid
    users: tuple[str, ...] = ()  # whose tasks may run there; none: everybody's
    price: float = 0.0
    weight: float = 1.0  # for the broker; 0: no pilots are started there
    preference: str = ""  # of its owners: an expression that ranks bags there
    failover: bool = False  # only for tasks that failed elsewhere
    shared: bool = False  # its pilots wall owners' tasks in
    facts: SiteFacts = SiteFacts()


class SiteRecord(Struct, frozen=True, kw_only=True):
    """`of_file`: the site is defined in the configuration file. `removed`: it is forgotten when its
    last job has ended."""

    spec: SiteSpec
    status: SiteStatus = SiteStatus.ON
    of_file: bool = False
    removed: bool = False


class JobRecord(Struct, frozen=True, kw_only=True):
    """A pilot that a site was asked for. `handle`: the site's name for the job, once it is
    known."""

    id: JobId
    site: str
    slots: int
    submitted: float
    status: JobStatus = JobStatus.SUBMITTED
    wall_seconds: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0
    gpus: int = 0
    handle: str = ""
    trial: bool = False  # of `covey site test`: whatever the demand is
    wanted_by: str = ""  # whose tasks it was asked for
    # What became of it, by the server's clock; 0: that did not happen. A job that was requeued
    # waits again: then these are the times since it did.
    requeued: float = 0.0  # when it last was
    requeues: int = 0
    cancelled: float = 0.0  # when covey first took it back
    started: float = 0.0  # when it began to run, as its site said
    enrolled: float = 0.0  # when its pilot did
    goodbye: float = 0.0  # when that pilot said it
    pilot: int = 0
    outcome: JobOutcome = JobOutcome.UNKNOWN
    ended: float = 0.0
    reason: str = ""  # of its end

    @property
    def waits_since(self) -> float:
        return self.requeued or self.submitted


class ChunkRecord(Struct, frozen=True, kw_only=True):
    """Task numbers first … stop-1, reserved for dispatch. In a closed chunk every task has its
    result; in an open chunk the ends tell which tasks have."""

    first: int
    stop: int
    closed: bool


class EndRecord(Struct, frozen=True):
    """One ended attempt: its end as the pilot reported it, and what core makes of it. Times are the
    server's; `end` has only durations."""

    end: End
    verdict: Verdict
    pilot: PilotId
    host: str
    sent: float = 0.0
    fetched: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    delivered: float = 0.0
    cause: str = ""  # of a failure (`values.causes`)
    only_of: str = ""  # of a bag not in memory: the end is dropped if the bag has another owner

    @property
    def bag(self) -> BagId:
        return BagId(self.end.bag)

    @property
    def task(self) -> TaskNumber:
        return TaskNumber(self.end.task)

    @property
    def attempt(self) -> AttemptId:
        return AttemptId(self.end.epoch, self.end.sequence)


class BagSnapshot(Struct, frozen=True, kw_only=True):
    """All that the record has of an unfinished bag: enough to go on with it."""

    bag: BagRecord
    chunks: tuple[ChunkRecord, ...]
    open_done: tuple[int, ...]  # tasks in open chunks that have succeeded
    failed: tuple[int, ...]  # tasks anywhere that were given up
    tries: dict[int, int]  # task -> failures so far (time limits aside), of unfinished tasks
    overtimes: dict[int, int] = {}  # task -> how often it ran into its time limit, likewise
    short: dict[int, int] = {}  # task -> how often it ran out of memory, likewise
    reopenings: tuple[Reopening, ...] = ()  # oldest first
    keys: tuple[str, ...] = ()  # of the segments that were appended
    broken: str = ""  # why it could not be read; then only the owner in its spec is valid


class Snapshot(Struct, frozen=True, kw_only=True):
    """All that a server starts with."""

    epoch: int
    bags: tuple[BagSnapshot, ...]
    pilots: tuple[PilotRecord, ...]  # active and lost ones
    jobs: tuple[JobRecord, ...]  # not ended
    ended_jobs: tuple[JobRecord, ...] = ()  # the latest of each site, oldest first
    next_bag: int
    next_pilot: int
    keys: dict[str, BagId]  # submission keys of every bag
    hosts: dict[str, str] = {}  # machine -> the name under which it is known
    histories: dict[str, History] = {}  # by the host's name
    site_histories: dict[str, SiteHistory] = {}  # by the site's name
    tokens: tuple[TokenRecord, ...] = ()  # not revoked; some may have expired
    sites: tuple[SiteRecord, ...] = ()  # that were added, or are not simply on
    next_token: int = 1


class Settings(Struct, frozen=True, kw_only=True):
    """How core behaves; times in seconds."""

    poll_seconds: float = 25.0
    lease_seconds: float = 60.0
    adopt_seconds: float = 60.0
    idle_seconds: float = 60.0
    chunk: int = 1024
    largest_chunk: int = 16384
    most_lookahead: int = 64  # open chunks of a bag, in search of a class that a pilot can run
    most_ends: int = 4096
    most_pilots: int = 100_000
    most_losses: int = 20
    absent_seconds: float = 300.0  # after which a bag of calls is paused if no program waits
    buffer_seconds: float = 30.0  # after which a chunk that fits no pilot lets others go first
    replicate_seconds: float = 1.0  # between two draws
    ban_seconds: float = 3600.0  # T: the longest
    ban_growth: float = 650.0  # C: how fast they become longer
    batch: bool = False  # new work goes to the best waiting pilots, not to the first ones
    sites: tuple[SiteSpec, ...] = ()  # those of the configuration
    broker: BrokerRules = BrokerRules()
    receipt_key: bytes = b""  # seals receipts (`protocol.receipts`)
    user: str = ""  # the account that the server runs as; empty: not known
