"""What clients and the server say to each other, and how messages become bytes.

Pilots' messages are defined in `covey.pilot.protocol.messages`; here they get checked decoders.
Everything a person can see (console, CLI, Python) is one of the views below.
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
    """The tasks of a bag with equal needs, and how long those that ended well took. The server
    counts them while the bag runs, from its own start on: null, where it does not know of all."""

    cores: int
    memory_mb: int
    disk_mb: int
    gpus: int
    limit_seconds: float
    ended: int | None = None
    mean_seconds: float | None = None


class BagView(Struct, kw_only=True):
    """A bag as its owner sees it. Every task is in one state: done, failed, running (it has a slot
    of a pilot), sent (a pilot has it, and it waits there for a slot), in doubt, or waiting (all the
    others). Without a server `running`, `sent` and what follows from them is 0."""

    id: int
    name: str
    owner: str
    argv: list[str]
    names: list[str]
    readings: list[str] = []  # how each parameter is read: value or text (core.scalars)
    status: str  # running, paused, finished, cancelled
    reason: str = ""  # why it is paused
    open: bool = False
    calls: bool = False  # of functions: what they are given and return is pickled
    total: int
    done: int
    failed: int
    running: int = 0
    sent: int = 0
    in_doubt: int = 0
    created: float
    ended: float = 0.0
    retries: int = 0
    overtimes: int = 0  # how often a task over its limit gets …
    grow_time: float = 1.0  # … so much more time
    classes: list[ClassView] = []
    idempotent: bool = True
    labels: dict[str, str] = {}
    notes: str = ""
    outputs: list[str] = []
    ignored_results: list[str] = []  # why values that tasks reported were not kept; few
    result_names: list[str] = []  # of the values that tasks reported, in order of appearance
    unkept: UnkeptFiles = UnkeptFiles()  # files that tasks left and no output pattern names
    silent: bool = False  # finished, and no task printed, reported or returned anything
    inputs: InputSummary = InputSummary()  # where its files came from, and since when it has others
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
    """As one of many: what is long is cut off. A list of all bags must not be as long as all that
    was ever submitted."""
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
    """The first, until there are too many characters in them, and in what belongs to them."""
    left = MOST_LISTED
    for place, (text, besides) in enumerate(zip_longest(texts, more, fillvalue="")):
        left -= len(text) + len(besides) + 1
        if left < 0:
            return texts[:place]
    return texts


class ResultRow(Struct):
    """One ended attempt; in a bag's results, the one that counts for its task."""

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
    result: dict[str, Any] = {}  # the values that it reported
    files: int = 0  # how many files it returned
    inputs_version: int = 1  # of the bag's input files


class BriefRow(ResultRow, omit_defaults=True):
    """A row that says how a task ended, without its parameters, times and amounts. What has its
    usual value is not sent: a program that waits for many calls reads a quarter of the bytes."""


class ResultQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which results, in which order. `where` are comparisons such as `alpha >= 0.5`, `host = n1`
    or `state = failed` over the columns of the table: parameters, reported values and our own. By
    task or by row, pages are asked for with `after`; sorted by a column (`-seconds`: the largest
    first), with `offset`. Without a limit, a page has 1000 rows, and an export all there are.
    `brief` rows say how tasks ended, and nothing else (`BriefRow`). A page of more than
    `most_bytes`, if that is not 0, is refused (PageTooLong)."""

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
    """Given-up tasks that failed in the same way; the causes of a bag, most frequent first."""

    cause: str
    outcome: str
    count: int
    hosts: list[str]  # the first few
    host_count: int
    tasks: list[int]  # the first few
    example: int  # a task, and the end of what it wrote to standard error, else to output
    log: str = ""


class WasteView(Struct, kw_only=True):
    """What a bag cost that is in none of its results: attempts that were stopped because another
    one had ended well, those that ended well too late, and those that were lost with their host
    or not begun there. Seconds are a process's, but of lost ones: from sending until they were
    given up."""

    cancelled: int = 0
    cancelled_seconds: float = 0.0
    discarded: int = 0
    discarded_seconds: float = 0.0
    lost: int = 0
    lost_seconds: float = 0.0


class Explanation(Struct, kw_only=True):
    """Why a bag, or a task of it, stands as it does. What core says is there as long as it holds
    the bag; attempts that have ended, and waste, are the record's."""

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
    """The input files of a bag, as attempts get them that are sent now. Those of single tasks are
    in the `manifest`, by the names that `task_inputs` make of a task's values. `sources` and the
    bases of `task_inputs` are paths on the machine `host`, from which the bag was submitted."""

    version: int
    versions: list[InputVersionView]  # after the first
    host: str
    seal: str  # of these paths: whoever submitted the bag knows it again
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
    slots: int  # of the pilots that are there now; of the last one if none is
    pilots: int
    running: int
    sent: int = 0
    first: float
    heard: float
    done: int
    failed: int
    tags: dict[str, str]
    machine: str = ""
    error_rate: float | None = None  # lately; only a server that runs knows
    banned: dict[str, float] = {}  # owner -> until when none of their tasks go there
    shortage: str = ""  # why it can start no task now: too little disk space


class TokenView(Struct, kw_only=True):
    """A token, without itself."""

    id: int
    name: str
    role: str
    owner: str
    created: float
    expires: float = 0.0
    revoked: float = 0.0


class Issued(Struct, kw_only=True):
    """A new token: nobody will ever see it again."""

    id: int
    token: str


class Invitation(Struct, kw_only=True):
    """Good for one pilot, until then: whoever asks for `path` at `address` gets it. `ca`: PEM of
    the authority that vouches for that address; empty: one that systems know."""

    path: str
    address: str
    ca: str
    job: str
    owner: str
    expires: float


class LiveOutput(Struct, kw_only=True):
    """What a running task has printed since; `next` is where to go on."""

    next: int
    pieces: list[Piece]


class Stored(Struct, kw_only=True):
    """How much of a file the server has; whether that is all of it."""

    size: int
    complete: bool


class RunningRow(Struct, kw_only=True):
    """An attempt that a pilot has: it is running, or sent and waits there for a slot."""

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
    reason: str = ""  # why it is not here any more
    shortage: str = ""  # why its host can start no task now: too little disk space


class SiteView(Struct, kw_only=True):
    """A place where pilots can be started, as it stands. Admins see what it is made of, too."""

    name: str
    driver: str
    status: str  # on, paused, draining, removed
    origin: str  # covey.toml, or `added` while the server ran
    trouble: str = ""  # why nothing is started there now, or only one pilot as a test
    rests_until: float = 0.0
    failures: int = 0  # in a row
    waiting: int = 0  # site jobs that wait there
    running: int = 0  # … that run
    suspended: int = 0  # of these: suspended by the site
    pilots: int = 0
    slots: int = 0  # of these
    busy: int = 0  # of these
    queued_limit: int = 0  # jobs that may wait there
    running_limit: int = 0  # … run or wait; 0: any number
    ramp: int = 0  # jobs that may wait there just now
    price: float = 0.0
    users: list[str] = []  # whose tasks may run there; none: everybody's
    failover: bool = False
    shared: bool = False
    here: bool = False  # its pilots are processes of the server's machine, and end with it
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
    """A kind of site. `package` brought it; `problem`: why it cannot be used."""

    name: str
    package: str
    problem: str = ""
    options: list[OptionView]


class SiteExplanation(Struct, kw_only=True):
    """Why a site gets no pilots, or only so many."""

    name: str
    summary: str
    answer: SiteAnswer


class TrialStep(Struct, kw_only=True):
    """`kind`: asked, submitted, started, requeued, enrolled, ready, left, refused, vanished,
    ended. With `ready` the pilot has asked for work, so the site works. `left`: the pilot has said
    goodbye, with its reason."""

    kind: str
    at: float
    text: str = ""


class TrialView(Struct, kw_only=True):
    """What has become of a pilot that was started to see whether that works."""

    job: str
    site: str
    steps: list[TrialStep]
    over: bool = False  # nothing more will come of it
    pilot: int = 0
    host: str = ""
    trouble: str = ""  # of the site, just now
    address: str = ""  # of the server, as pilots are told


class Refused(Struct, kw_only=True):
    """Requests that were refused in the last ten minutes. `owner` is empty for strangers: whoever
    showed no valid token, secret or credential."""

    owner: str
    kind: str  # unauthorized, too-large, over-share, unavailable, invalid, connection
    count: int


class ServerView(Struct, kw_only=True):
    """`refused` names strangers and the caller's own; for administrators, everybody."""

    version: str
    epoch: int
    pid: int
    started: float
    state: str  # ready, or why not
    store: str
    bags: int
    pilots: int
    slots: int
    quarantined: int = 0  # bags that cannot be handled
    overruns: int = 0  # how often policies of an owner needed more work than they may
    refused: list[Refused] = []
    disk_free_bytes: int = 0  # where the record is kept
    certificate_expires: float = 0.0  # seconds since 1970; 0: it has none


class ProblemDocument(Struct, kw_only=True):
    """RFC 9457: why a request changed nothing, and what to do."""

    type: str
    title: str
    status: int
    detail: str


def _decoder(
    message: type[Enrol] | type[Sync] | type[Leave] | type[Printed],
) -> msgspec.json.Decoder[Any]:
    """A checked decoder from a JSON object to what `message` describes."""
    defaults = message._field_defaults
    fields = [
        (name, kind, defaults[name]) if name in defaults else (name, kind)
        for name, kind in message.__annotations__.items()
    ]
    return msgspec.json.Decoder(msgspec.defstruct(message.__name__, fields))


_DECODERS: dict[object, msgspec.json.Decoder[Any]] = {
    Enrol: _decoder(Enrol),
    Sync: _decoder(Sync),
    Leave: _decoder(Leave),
    Printed: _decoder(Printed),
}


def decode(message: type[Message], body: bytes) -> Message:
    """Raises msgspec.DecodeError (or its ValidationError), with words, if anything is off."""
    try:
        return message(*msgspec.structs.astuple(_DECODERS[message].decode(body)))
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"not UTF-8: {error}") from error


def encode(message: Answer | Enrolled | Left) -> bytes:
    return msgspec.json.encode(message._asdict())
