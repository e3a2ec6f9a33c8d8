"""The messages between pilots and the server.

Defined once: the pilot carries this module to hosts with nothing but ``python3``, and the server
imports it. Top-level messages travel as JSON objects (a field that one side does not know is
ignored, a missing one takes its default); the rows inside them (`Task`, `End`, `Held`) are many
and travel as JSON arrays in field order, so new fields go at the end of a row, with a default.

The rules of `sync`, which both sides keep (`covey.core.protocol.pilots` and
`covey.pilot.protocol.pilot_state`):

1. A pilot numbers its syncs 1, 2, 3, … and never reuses a number for another message. The server
   answers a repeated number with the same answer and does nothing else.
2. `received` says up to which number the pilot has processed the answers. The pilot processes
   answers in the order of their numbers, so everything in them arrives exactly once.
3. An answer to a sync that carried ends is given only when those ends are durable: it is their
   acknowledgement.
4. A sync of another epoch (the server restarted), or of a pilot that was given up as lost, is
   answered with `resync`. The pilot then forgets the answers it waits for, drops the ends of
   syncs up to `recorded` (they are durable), and sends a *full* sync: its next number, the new
   epoch, all other ends, and `held`: every attempt it has. It has no other attempts.
5. A pilot ignores answers of an epoch older than the newest it has seen.
6. An answer with tasks has a `receipt` for them. The pilot keeps it, without reading it, and sends
   it in a full sync as long as it has one of these attempts or an end of one. For attempts that
   the server no longer knows as this pilot's, the server believes only a receipt.
"""

from typing import Dict, List, NamedTuple, Optional, Union

PROTOCOL = 2
# A header of an enrolment: its site job, percent-encoded. With it the server can check the secret
# before it reads the body.
JOB_HEADER = "X-Covey-Job"

Scalar = Union[str, int, float]

# How an attempt can end. OK, FAILED, TIMEOUT and CANCELLED are caused by the task or its owner.
# RETURNED was never started. HOST and LOST are faults of the infrastructure and use up no retries.
OK = "ok"
FAILED = "failed"
TIMEOUT = "timeout"
CANCELLED = "cancelled"
RETURNED = "returned"
HOST = "host"
LOST = "lost"
MEMORY = "memory"  # over its memory limit
OUTPUT = "output"  # the task succeeded, but an output file is missing or the bag's check failed
SETUP = "setup"  # the bag's setup failed on this host, or an input cannot be fetched anywhere
PILOT_OUTCOMES = (OK, FAILED, TIMEOUT, CANCELLED, RETURNED, HOST, MEMORY, OUTPUT, SETUP)
OWN_FAILURES = (FAILED, TIMEOUT, MEMORY, OUTPUT, SETUP)  # caused by the task itself
GOING_SECONDS = 30.0  # a pilot ends so long before its wall time is over, or a tenth of it if less

# Limits that both sides keep: the server refuses what is over them, and a pilot never sends it
# (`message_limits`). Sizes in bytes are those of the message as JSON.
LARGEST = 2**53  # the largest number that every part of the system can count to
MOST_SLOTS = 4096
MOST_WANT = 50_000  # attempts that a pilot asks for, counted in slots
MOST_WAITING_BAGS = 1000  # bags whose attempts wait for files on one pilot
MOST_SHORTAGE = 500  # characters
MOST_TAGS = 200
LONGEST_TAG = 1024  # characters, of a tag's name (with its owner) and of its value
MOST_TAG_CHARACTERS = 64_000  # of all names and values, so that tags fit into an enrolment
MOST_FILES = 10_000  # that a task returns
LONGEST_PATH = 4096  # characters
MOST_RESULT = 1 << 16  # characters
MOST_UNKEPT_NAMES = 5  # names of unkept files that are reported for a task
LONGEST_UNKEPT_NAME = 200  # characters
MOST_MESSAGE = 4096  # characters
MOST_ENROL_BYTES = 1 << 20  # it is read before anybody knows who sends it
MOST_SYNC_BYTES = 16 << 20
MOST_END_BYTES = (
    13 << 20
)  # the two streams of a task fit, at most 1 MB each; the rest of the sync is for `held`
# A message of many small parts takes much longer to read than one of the same size with few. There
# are no more parts than commas (in texts, too), and commas are counted in no time.
MOST_SYNC_COMMAS = 600_000
MOST_LOG_COMMAS = 400_000  # in both streams of an attempt
INVALID = "invalid"  # the problem type of a message that is over a limit or makes no sense
TOO_LARGE = "too-large"


def life_of(wall_seconds: float) -> float:
    """The part of a pilot's wall time that it can use; both sides compute it. The site job began
    before the pilot enrolled, and ending takes a moment: some sites kill without warning."""
    return wall_seconds - min(GOING_SECONDS, 0.1 * wall_seconds)


class Enrol(NamedTuple):
    """A pilot presents itself. Enrolling again with the same key gives the same pilot."""

    key: str
    host: str
    slots: int
    site: str = "hand"
    job: str = ""
    tags: Dict[str, str] = {}
    version: str = ""
    protocol: int = PROTOCOL
    memory_mb: int = 0
    disk_mb: int = 0
    gpus: int = 0
    machine: str = ""  # the machine's id: stays when its name and its pilots change
    boot: str = ""  # an id of this start of the machine: two at once under one id are two machines
    shared: bool = False  # it keeps tasks of different owners apart


class Enrolled(NamedTuple):
    pilot: int
    credential: str
    epoch: int
    poll_seconds: float
    lease_seconds: float
    idle_seconds: float


class Need(NamedTuple):
    """The resources of one task of a class. 0: not specified."""

    cores: int = 1
    memory_mb: int = 0
    disk_mb: int = 0
    gpus: int = 0
    limit_seconds: float = 0.0


class Input(NamedTuple):
    """A file for `path` in the task's directory. Without a `url` the server has it, under its
    digest (`GET /pilot/v1/files/DIGEST`)."""

    path: str
    digest: str = ""
    size: int = 0
    executable: bool = False
    copy: bool = False
    url: str = ""


class Body(NamedTuple):
    """What all tasks of a bag share; sent once per pilot and epoch, and again when the bag's inputs
    have changed."""

    bag: int
    argv: List[str]
    names: List[str]
    env: Dict[str, str] = {}
    chdir: str = ""
    needs: List[Need] = [Need()]  # by class
    owner: str = ""
    export: bool = False
    pin: bool = False
    inputs: List[Input] = []
    outputs: List[str] = []
    optional_outputs: List[str] = []
    output_mb: int = 1024
    ok_codes: List[int] = [0]
    check: str = ""
    setup: str = ""
    setup_seconds: float = 1800.0
    log_kb: int = 64
    calls: bool = False  # `argv` starts a worker for calls: see `call_records`
    ahead: bool = False  # calls may wait in front of the worker, because repeating one does no harm
    inputs_version: int = 1  # grows when `inputs` change; an attempt keeps the version it came with


class Task(NamedTuple):
    """One attempt to make: its sequence number (in the answer's epoch), and its task. A memory or
    time limit here, if not 0, replaces that of its class."""

    sequence: int
    bag: int
    task: int
    values: List[Scalar]
    need: int = 0  # index into the body's `needs`
    memory_mb: int = 0
    limit_seconds: float = 0.0
    inputs: List[Input] = []


class Held(NamedTuple):
    """An attempt that the pilot has, running or waiting for a slot."""

    epoch: int
    sequence: int
    bag: int
    task: int


class WaitingBag(NamedTuple):
    """A bag whose attempts wait on this pilot for input files or for the bag's setup. They take no
    slot meanwhile: `slots` is how many slots they would take."""

    bag: int
    slots: int


class OutputFile(NamedTuple):
    """A file that a task returns. A small one is here as base64; a large one has been uploaded
    before (`PUT /pilot/v1/files/DIGEST`), and only its digest is here."""

    path: str
    size: int
    digest: str = ""
    data: str = ""
    executable: bool = False


class Unkept(NamedTuple):
    """Files that a task left in its directory and that no output pattern matches: they are removed
    with the directory. `names` are a few of them."""

    files: int
    bytes: int
    names: List[str]


class End(NamedTuple):
    """How an attempt ended. Times are durations, so clocks need not agree:
    fetched --queued--> started --wall--> ended --age--> sent to the server."""

    epoch: int
    sequence: int
    bag: int
    task: int
    outcome: str
    exit_code: int = -1
    signal: int = 0
    queued_seconds: float = 0.0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_kb: int = 0
    age_seconds: float = 0.0
    stdout: str = ""
    stderr: str = ""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    message: str = ""
    result: str = ""  # a JSON object: what the task wrote to $COVEY_RESULT, or printed last
    files: List[OutputFile] = []
    unkept: Optional[Unkept] = None


class Sync(NamedTuple):
    """`want` is how many attempts, counted in slots, the pilot would like to hold in all, so that
    an answer still under way is never counted twice. `tags` is everything that it publishes about
    its host, whenever that has changed."""

    pilot: int
    epoch: int
    number: int
    received: int
    want: int
    ends: List[End] = []
    held: Optional[List[Held]] = None
    tags: Optional[Dict[str, str]] = None
    receipts: List[str] = []  # with `held`: of all attempts in `held` and in `ends`
    waiting: List[WaitingBag] = []  # all bags that wait for files or a setup; none get more tasks
    shortage: str = ""  # why this host can start no task now (a full disk); `want` is then 0
    clock: float = 0.0  # the pilot's monotonic time; the ages in `ends` are as of then


class Followed(NamedTuple):
    """Somebody watches the output of this task (-1: of every task of the bag)."""

    bag: int
    task: int


class Answer(NamedTuple):
    """`follow`, if not None, replaces the list of tasks that the pilot follows: it sends `Printed`
    for those tasks while they run, as well as it can."""

    epoch: int
    number: int
    bodies: List[Body] = []
    tasks: List[Task] = []
    cancels: List[Held] = []
    recalls: List[Held] = []
    resync: bool = False
    recorded: int = 0
    leave: bool = False
    follow: Optional[List[Followed]] = None
    receipt: str = ""  # proves later that this pilot was given `tasks`
    forget: List[int] = []  # bags whose bodies the pilot may drop: they are sent again if needed


class Piece(NamedTuple):
    """Some output of a running attempt, from byte `start` of its stream on (1: standard output,
    2: standard error). Not recorded; the whole comes with the attempt's end."""

    bag: int
    task: int
    epoch: int
    sequence: int
    stream: int
    start: int
    text: str


class Printed(NamedTuple):
    pilot: int
    pieces: List[Piece]


class Leave(NamedTuple):
    """The pilot ends. It has delivered what it could, and will not run what it still held.
    `holds_nothing`: it holds no attempt and no undelivered end, and gave up none that had started.
    So whatever the server has sent it without getting an end was never started."""

    pilot: int
    epoch: int
    reason: str = ""
    holds_nothing: bool = False


class Left(NamedTuple):
    epoch: int
