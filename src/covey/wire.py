"""Messages between clients and the server, and how messages become bytes.

Pilots' messages are defined in `covey.pilot.protocol.messages`; here they get checked decoders. All
that the command line and Python show is one of the views below.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from covey.core.explain.answers import BagAnswer, SiteAnswer, TaskAnswer
from covey.core.record.input_files import InputSummary, InputVersionView
from covey.core.record.model import Blob, InputSource, Placed, SiteSpec, TaskInput, UnkeptFiles
from covey.core.record.suspects import MARK
from covey.core.sites.measures import UNKNOWN, SiteMeasures
from covey.core.values.space import Scalar
from covey.pilot.protocol.messages import (
    OK,
    Answer,
    Enrol,
    Enrolled,
    Leave,
    Left,
    Piece,
    Printed,
    Sync,
)

Message = TypeVar("Message", Enrol, Sync, Leave, Printed)


class Estimate(Struct, kw_only=True):
    """When a bag will be over, in seconds from now: probably between `low` and `high`."""

    likely: float
    low: float
    high: float


class Straggler(Struct, kw_only=True):
    """A running task that takes much longer than others of its class did."""

    task: int
    values: list[Scalar]
    host: str
    seconds: float
    typical_seconds: float


class ClassView(Struct, kw_only=True):
    """The tasks of a bag with equal needs, and how long those that succeeded took. The server
    counts them while the bag runs, from its own start on; null: tasks ended before that."""

    cores: int
    memory_mb: int
    disk_mb: int
    gpus: int
    limit_seconds: float
    ended: int | None = None
    mean_seconds: float | None = None


class BagView(Struct, kw_only=True):
    """A bag as its owner sees it. Each task has one state: done, failed, running (it has a slot of
    a pilot), sent (a pilot has it, and it waits there for a slot), in doubt, or waiting (all
    others). Without a server `running` and `sent` are 0."""

    id: int
    name: str
    owner: str
    argv: list[str]
    names: list[str]
    readings: list[str] = []  # how each parameter is read: value or text (core.scalars)
    status: str  # running, paused, finished, cancelled
    reason: str = ""  # why it is paused
    open: bool = False
    calls: bool = False  # its tasks are function calls: arguments and results are pickled
    total: int
    done: int
    failed: int
    running: int = 0
    sent: int = 0
    in_doubt: int = 0
    created: float
    ended: float = 0.0
    retries: int = 0
    overtimes: int = 0  # how often a task that exceeds its time limit may run again …
    grow_time: float = 1.0  # … with its limit multiplied by this
    classes: list[ClassView] = []
    idempotent: bool = True
    labels: dict[str, str] = {}
    notes: str = ""
    outputs: list[str] = []
    ignored_results: list[str] = []  # why reported values were not kept; the first few reasons
    result_names: list[str] = []  # of the values that tasks reported, in order of appearance
    unkept: UnkeptFiles = UnkeptFiles()  # files of tasks that no output pattern names
    silent: bool = False  # finished, and no task printed, reported or returned anything
    inputs: InputSummary = InputSummary()  # where its files came from, and when they were changed
    estimate: Estimate | None = None
    stragglers: list[Straggler] = []

    @property
    def over(self) -> bool:
        return self.status not in ("running", "paused")

    @property
    def quarantined(self) -> bool:
        """Whether the server paused this bag because it cannot handle it; `reason` says why."""
        return self.status == "paused" and self.reason.startswith(MARK.rstrip(": "))


MOST_LISTED = 2000  # characters of one text, or of the texts in one list
MOST_LISTED_CLASSES = 20


def in_list(view: BagView) -> BagView:
    """The view as a list of bags shows it: long texts are cut off, to keep the list short."""
    return replace(
        view,
        argv=_some([word[:MOST_LISTED] for word in view.argv[:MOST_LISTED]]),
        names=_some(view.names),
        labels={name: view.labels[name] for name in _some(list(view.labels), view.labels.values())},
        notes=view.notes[:MOST_LISTED],
        outputs=_some(view.outputs),
        result_names=_some(view.result_names),
        classes=view.classes[:MOST_LISTED_CLASSES],
        stragglers=[],
    )


def _some(texts: list[str], more: Iterable[str] = ()) -> list[str]:
    """The first texts, up to MOST_LISTED characters in them and in their values (`more`)."""
    left = MOST_LISTED
    for place, (text, value) in enumerate(zip_longest(texts, more, fillvalue="")):
        left -= len(text) + len(value) + 1
        if left < 0:
            return texts[:place]
    return texts


class ResultRow(Struct):
    """An ended attempt. In a bag's results: the attempt that counts for its task."""

    row: int  # grows with the order in which ends were recorded
    task: int
    values: list[Scalar] = []
    outcome: str = OK  # covey.pilot.protocol.messages: ok, failed, timeout, …
    counted: bool = True
    exit_code: int = 0
    signal: int = 0
    attempt: str = ""
    pilot: int = 0
    host: str = ""
    sent: float = 0.0
    fetched: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    delivered: float = 0.0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_kb: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    message: str = ""
    output: str = ""  # last line of standard output, shortened
    cause: str = ""
    result: dict[str, Any] = {}  # the values that the task reported
    files: int = 0  # how many files it returned
    inputs_version: int = 1  # of the bag's input files


class BriefRow(ResultRow, omit_defaults=True):
    """A row that says how a task ended, without its parameters, times and amounts. Default values
    are left out: a program that waits for many calls reads a quarter of the bytes."""


class ResultQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which results, in which order. `where`: comparisons such as `alpha >= 0.5`, `host = n1` or
    `state = failed` over the columns of the table (parameters, reported values, covey's own). In
    the order of tasks or rows, the next page is asked for with `after`; sorted by a column
    (`-seconds`: the largest first), with `offset`. Without a limit, a page has 1000 rows, and an
    export has all. `brief`: rows are a `BriefRow`. A page of more than `most_bytes` is refused
    (PageTooLong); 0: any length."""

    after: int = -1
    offset: int = 0
    limit: int = 0
    by_row: bool = False
    failed_only: bool = False
    where: tuple[str, ...] = ()
    sort: str = ""
    brief: bool = False
    most_bytes: int = 0

    def behind(self, page: Sequence[ResultRow]) -> "ResultQuery":
        """The query for what comes behind these rows."""
        if self.sort:
            return replace(self, offset=self.offset + len(page))
        last = page[-1]
        return replace(self, after=last.row if self.by_row else last.task, offset=0)


class FailureGroup(Struct, kw_only=True):
    """Failed tasks with the same cause. The groups of a bag are sorted, the largest first."""

    cause: str
    outcome: str
    count: int
    hosts: list[str]  # the first few
    host_count: int
    tasks: list[int]  # the first few
    example: int  # one of these tasks
    log: str = ""  # the end of its standard error; if that is empty, of its standard output


class WasteView(Struct, kw_only=True):
    """Attempts of a bag that gave no result. Cancelled: stopped because another attempt had
    succeeded. Discarded: succeeded after another attempt. Lost: with their host, or not begun
    there. Seconds are those of the process; for lost attempts, from sending until given up."""

    cancelled: int = 0
    cancelled_seconds: float = 0.0
    discarded: int = 0
    discarded_seconds: float = 0.0
    lost: int = 0
    lost_seconds: float = 0.0


class Explanation(Struct, kw_only=True):
    """Why a bag, or one of its tasks, is not running. `answer` and `task` are there only while the
    bag has not ended."""

    bag: int
    name: str
    owner: str
    names: list[str]
    status: str
    summary: str
    answer: BagAnswer | None = None
    task: TaskAnswer | None = None
    attempts: list[ResultRow] = []  # of the task, those that have ended, oldest first
    waste: WasteView


class InputsView(Struct, kw_only=True):
    """The input files of a bag, as new attempts get them. Files of single tasks are in the
    `manifest`, by names that `task_inputs` make from a task's values. `sources` and the bases of
    `task_inputs` are paths on `host`, the machine from which the bag was submitted."""

    version: int
    versions: list[InputVersionView]  # after the first
    host: str
    seal: str  # proves to the client that it wrote these paths itself
    sources: list[InputSource]
    inputs: list[Placed]
    task_inputs: list[TaskInput]
    manifest: dict[str, Blob]


class ReturnedFile(Struct, kw_only=True):
    """A file that a task returned; `data` (base64) holds a small one, `digest` names others."""

    row: int
    task: int
    values: list[Scalar]
    path: str
    size: int
    digest: str = ""
    data: bytes = b""
    executable: bool = False


class HostView(Struct, kw_only=True):
    host: str
    site: str
    slots: int  # of its present pilots; if there are none, of the last one
    pilots: int
    running: int
    sent: int = 0
    first: float
    heard: float
    done: int
    failed: int
    tags: dict[str, str]
    machine: str = ""
    error_rate: float | None = None  # recent; null without a running server
    banned: dict[str, float] = {}  # owner -> until when their tasks are not sent there
    shortage: str = ""  # why it cannot start tasks now: too little disk space


class TokenView(Struct, kw_only=True):
    """Facts about a token, without the secret itself."""

    id: int
    name: str
    role: str
    owner: str
    created: float
    expires: float = 0.0
    revoked: float = 0.0


class Issued(Struct, kw_only=True):
    """A new token. The server does not keep it, so it is shown only this once."""

    id: int
    token: str


class Invitation(Struct, kw_only=True):
    """Starts one pilot, until `expires`: the first who gets `path` at `address` uses it up. `ca`:
    the authority of that address's certificate (PEM); empty: the system trusts it already."""

    path: str
    address: str
    ca: str
    job: str
    owner: str
    expires: float


class LiveOutput(Struct, kw_only=True):
    """What running tasks have printed; `next` is the `after` of the next request."""

    next: int
    pieces: list[Piece]


class Stored(Struct, kw_only=True):
    """How many bytes of a file the server has, and whether the file is complete."""

    size: int
    complete: bool


class RunningRow(Struct, kw_only=True):
    """An attempt that a pilot has. It is running, or was sent and waits there for a slot."""

    task: int
    state: str = "running"
    values: list[Scalar]
    attempt: str
    pilot: int
    host: str
    sent: float
    inputs_version: int = 1


class Output(Struct, kw_only=True):
    task: int
    attempt: str
    outcome: str
    stdout: str
    stderr: str


class PilotView(Struct, kw_only=True):
    id: int
    host: str
    site: str
    job: str
    slots: int
    status: str
    running: int
    sent: int = 0
    enrolled: float
    heard: float
    tags: dict[str, str]
    version: str
    memory_mb: int = 0
    gpus: int = 0
    owner: str = ""  # whose tasks it runs; empty: anybody's
    reason: str = ""  # why it has left
    shortage: str = ""  # why its host cannot start tasks now: too little disk space


class SiteView(Struct, kw_only=True):
    """A place where pilots can be started, and its state. Only admins see its settings (`spec`)."""

    name: str
    driver: str
    status: str  # on, paused, draining, removed
    origin: str  # covey.toml, or `added` while the server ran
    trouble: str = ""  # why no pilot is started there now, or only one as a test
    rests_until: float = 0.0
    failures: int = 0  # in a row
    waiting: int = 0  # site jobs that wait there
    running: int = 0  # site jobs that run there, suspended ones too
    suspended: int = 0  # running site jobs that the site has suspended
    pilots: int = 0
    slots: int = 0  # of the pilots
    busy: int = 0  # slots that have tasks
    queued_limit: int = 0  # how many jobs may wait there
    running_limit: int = 0  # how many jobs may run or wait there; 0: any number
    ramp: int = 0  # how many jobs may wait there at the moment
    price: float = 0.0
    users: list[str] = []  # whose tasks may run there; empty: everybody's
    failover: bool = False
    shared: bool = False
    here: bool = False  # its pilots are processes on the server's machine, and end with the server
    measures: SiteMeasures = UNKNOWN
    spec: SiteSpec | None = None


class SiteJobView(Struct, kw_only=True):
    """A job at a site, which may be over, and what became of it. Times are seconds since 1970; 0:
    that did not happen, or is not known."""

    id: str
    site: str
    handle: str = ""  # what the site calls it
    owner: str = ""  # whose tasks it was asked for
    slots: int
    trial: bool = False
    state: str  # waiting, running, or how it ended: ok, failed, preempted, refused, cancelled
    submitted: float
    requeued: float = 0.0  # when it last was; the next times are later ones
    requeues: int = 0
    started: float = 0.0  # as its site said
    enrolled: float = 0.0  # when its pilot was first heard
    goodbye: float = 0.0  # when that pilot left by itself
    cancelled: float = 0.0  # when covey took it back
    ended: float = 0.0
    reason: str = ""  # of its end
    pilot: int = 0
    host: str = ""  # of that pilot
    log: str = ""  # where it prints to, at the site


class OptionView(Struct, kw_only=True):
    name: str
    default: Any
    text: str


class DriverView(Struct, kw_only=True):
    """A kind of site. `package`: the package that has it. `problem`: why it cannot be used."""

    name: str
    package: str
    problem: str = ""
    options: list[OptionView]


class WeightsTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """What sites are worth, as a resource priority service says. `source`: for people, where that
    comes from."""

    weights: dict[str, float]
    source: str = ""


class SiteExplanation(Struct, kw_only=True):
    """Why a site gets no pilots, or no more."""

    name: str
    summary: str
    answer: SiteAnswer


class TrialStep(Struct, kw_only=True):
    """A step of a site's test. `kind`: asked, submitted, started, requeued, enrolled, ready, left,
    refused, vanished, ended. `ready`: the pilot has asked for work, so the site works. `left`: the
    pilot has ended itself, with this reason."""

    kind: str
    at: float
    text: str = ""


class TrialView(Struct, kw_only=True):
    """The progress of a pilot that was started to test a site."""

    job: str
    site: str
    steps: list[TrialStep]
    over: bool = False  # no more steps will come
    pilot: int = 0
    host: str = ""
    trouble: str = ""  # of the site, at the moment
    address: str = ""  # the server's address for pilots


class Refused(Struct, kw_only=True):
    """Requests that were refused in the last ten minutes. `owner` is empty for strangers: requests
    without a valid token, secret or credential."""

    owner: str
    kind: str  # unauthorized, too-large, over-share, unavailable, invalid, connection
    count: int


class ServerView(Struct, kw_only=True):
    """Facts about the server. `refused` has requests of strangers and of the caller's owner;
    administrators see those of all owners."""

    version: str
    epoch: int
    pid: int
    started: float
    state: str  # `ready`, or why it is not
    store: str
    bags: int
    pilots: int
    slots: int
    quarantined: int = 0  # bags that the server cannot handle
    overruns: int = 0  # how often an owner's policies needed more work than allowed
    refused: list[Refused] = []
    disk_free_bytes: int = 0  # where the record is kept
    certificate_expires: float = 0.0  # seconds since 1970; 0: the server has no certificate


class ProblemDocument(Struct, kw_only=True):
    """RFC 9457: why a request was refused, and what to do instead."""

    type: str
    title: str
    status: int
    detail: str


def as_struct(message: Any) -> type[Struct]:
    """A struct with the fields of a pilot's message, which is a tuple with names."""
    defaults = message._field_defaults
    fields = [
        (name, kind, defaults[name]) if name in defaults else (name, kind)
        for name, kind in message.__annotations__.items()
    ]
    struct = msgspec.defstruct(message.__name__, fields)
    struct.__doc__ = message.__doc__
    return struct


_DECODERS: dict[object, msgspec.json.Decoder[Any]] = {
    message: msgspec.json.Decoder(as_struct(message)) for message in (Enrol, Sync, Leave, Printed)
}


def decode(message: type[Message], body: bytes) -> Message:
    """Raises msgspec.DecodeError (or its ValidationError) if the body is invalid."""
    try:
        return message(*msgspec.structs.astuple(_DECODERS[message].decode(body)))
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"not UTF-8: {error}") from error


def encode(message: Answer | Enrolled | Left) -> bytes:
    return msgspec.json.encode(message._asdict())
