"""Slurm: sbatch, squeue, scancel, sacct. Tested with Slurm 22.05; the options need 20.11 or later.

`squeue --states=all` also lists jobs that ended in the last minutes (MinJobAge, by default 300 s),
like `scontrol show job`, so an end is seen at once. Later sacct reports it, at sites that keep
accounts. Elements of an array that were cancelled before they started are in no list, and rarely in
the accounts. A requeued job keeps its number, and squeue counts its restarts.

A pilot ends on SIGTERM. Slurm sends that when the job's time is over or the job is cancelled, and
SIGKILL after KillWait (30 s), which is enough: a pilot takes up to 20 s. With `warn_seconds` the
SIGTERM comes before the end of the time, but then it may come up to a minute too early.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from covey.core.record.capacity import SiteCapacity
from covey.core.record.model import SiteSpec
from covey.sites.command_driver import Batch, CommandDriver
from covey.sites.commands import Command, Output
from covey.sites.driver import Seen, Stand, numbered
from covey.sites.drivers import common
from covey.sites.errors import Unclear
from covey.sites.options import Extra, argument_options

# Every state of Slurm 24.05. A job that is COMPLETING counts as running: its processes may live.
STATES = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_FED"), Stand.WAITING),
    **dict.fromkeys(
        (
            "CONFIGURING",
            "RUNNING",
            "COMPLETING",
            "RESIZING",
            "SIGNALING",
            "STAGE_OUT",
            "STOPPED",
            "SUSPENDED",
        ),
        Stand.RUNNING,
    ),
    **dict.fromkeys(("SPECIAL_EXIT", "REQUEUE_HOLD", "RESV_DEL_HOLD"), Stand.STUCK),
    **dict.fromkeys(
        (
            "BOOT_FAIL",
            "CANCELLED",
            "COMPLETED",
            "DEADLINE",
            "FAILED",
            "LAUNCH_FAILED",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "PREEMPTED",
            "RECONFIG_FAIL",
            "REVOKED",
            "TIMEOUT",
        ),
        Stand.ENDED,
    ),
}

SUSPENDED = ("STOPPED", "SUSPENDED")

# Reasons of waiting jobs that will never run: their request cannot be met, or is not allowed.
HOPELESS = frozenset(
    {
        "AssocMaxWallDurationPerJobLimit",
        "BadConstraints",
        "InvalidAccount",
        "InvalidQOS",
        "JobHoldMaxRequeue",
        "PartitionTimeLimit",
        "QOSMaxWallDurationPerJobLimit",
        "job_requeued_in_held_state",
        "launch_failed_requeued_held",
    }
)

# The answer was lost; the controller may have got the request.
UNCERTAIN = re.compile(
    r"timed out|zero bytes|unexpected message|communication|connection (closed|reset)|"
    r"unable to contact slurm controller \((?!connect failure)|protocol|broken pipe",
    re.IGNORECASE,
)

# After these errors the list may be incomplete, though the status is 0. Others come from plugins.
LOST = re.compile(
    r"^(?=.*error:).*(slurm_load|contact|timed out|connection|persist)",
    re.IGNORECASE | re.MULTILINE,
)

ELEMENT = re.compile(r"(?P<job>[0-9]{1,18})_(?P<index>[0-9]{1,9})")
HANDLE = re.compile(r"[0-9]{1,18}(_[0-9]{1,9})?")
ELEMENTS = re.compile(
    r"(?P<job>[0-9]{1,18})_\[(?P<spans>[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*)(%[0-9]+)?\]"
)
MOST_ELEMENTS = 1000  # MaxArraySize is 1001 unless a site says otherwise
SUBMITTED = re.compile(r"^([0-9]{1,18})(;\S+)?$", re.MULTILINE)

# A line of sinfo: allocated, idle, other and all cores, then nodes likewise.
PARTITION = re.compile(
    r"(?P<name>[^|\s]{1,200})\|[0-9]{1,9}/(?P<idle>[0-9]{1,9})/[0-9]{1,9}/(?P<cores>[0-9]{1,9})"
    r"\|[0-9]{1,9}/(?P<free>[0-9]{1,9})/[0-9]{1,9}/(?P<nodes>[0-9]{1,9})\s*"
)

# Columns have a fixed width: the formats of `-o`, with separators, have no count of restarts.
COLUMNS = (
    ("JobArrayID", 32),
    ("State", 32),
    ("RestartCnt", 12),
    ("Name", 160),
    ("Reason", 120),
    ("TimeUsed", 16),
)


class SlurmOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    partition: Annotated[str, Meta(description="Partition, or several, separated by commas.")] = ""
    account: Annotated[str, Meta(description="Account that is charged.")] = ""
    qos: Annotated[str, Meta(description="Quality of service.")] = ""
    constraint: Annotated[str, Meta(description="Features that a node must have.")] = ""
    reservation: Annotated[str, Meta(description="Reservation to run in.")] = ""
    cluster: Annotated[
        str, Meta(description="Name of the cluster, if one database serves several.")
    ] = ""
    gpu_type: Annotated[str, Meta(description="Type of the GPUs, as in --gres=gpu:TYPE:N.")] = ""
    whole_nodes: Annotated[bool, Meta(description="Each pilot gets a whole node.")] = False
    requeue: Annotated[
        bool,
        Meta(
            description="Slurm may start a pilot again after its node failed or was taken away. "
            "Slurm holds such a job for two minutes, so covey starts another pilot instead, "
            "unless this is true."
        ),
    ] = False
    warn_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="SIGTERM comes this long before the time limit; 0: at the limit.",
        ),
    ] = 0
    user: Annotated[
        str,
        Meta(description="User name at the site; needed before Slurm 20.02 (no squeue --me)."),
    ] = ""
    extra: Extra = ()


class Slurm(CommandDriver):
    name = "slurm"
    options = SlurmOptions
    most_elements = MOST_ELEMENTS
    index = "${SLURM_ARRAY_TASK_ID:-0}"
    environment: Mapping[str, str] = {"SLURM_BITSTR_LEN": "0"}  # lists of elements are not cut

    def submit(self, spec: SiteSpec, batch: Batch) -> Command:
        options = argument_options(spec, SlurmOptions)
        common.checked(batch)
        argv = ["sbatch", "--parsable", *_cluster(options), f"--job-name={batch.title}"]
        argv += [f"--chdir={batch.directory}", "--open-mode=append"]
        folder = batch.directory.replace("%", "%%")
        if len(batch.names) > 1:
            argv += [f"--array=0-{len(batch.names) - 1}", f"--output={folder}/{batch.title}.%a.out"]
        else:
            argv += [f"--output={folder}/{batch.title}.0.out"]
        argv += _wishes(options) + _resources(options, batch)
        return Command((*argv, *options.extra), batch.script.encode())

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        found = SUBMITTED.findall(output.stdout)
        if output.status != 0 or len(found) != 1:
            common.not_submitted(output, UNCERTAIN)
        job = found[0][0]
        if len(batch.names) == 1:
            return (job,)
        return tuple(f"{job}_{index}" for index in range(len(batch.names)))

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        options = argument_options(spec, SlurmOptions)
        columns = ",".join(f"{column}:{width}" for column, width in COLUMNS)
        mine = f"--user={options.user}" if options.user else "--me"
        wanted = (mine, "--noheader", "--array", "--states=all", f"--Format={columns}")
        return Command(("squeue", *_cluster(options), *wanted))

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        if output.status != 0 or LOST.search(output.stderr):
            common.no_list(output)
        found: list[Seen] = []
        good = False
        for line in output.stdout.split("\n"):
            if not line.strip() or line.startswith("CLUSTER: "):
                continue
            handle, state, restarts, title, reason, used = _columns(line)
            if not HANDLE.fullmatch(handle) or not state:
                if good:  # the rest of another job's name, with a line break in it
                    continue
                raise Unclear(f"squeue printed an unexpected line: {line.strip()[:100]!r}")
            good = True
            if title.startswith(prefix):
                stand, why = _stand(state, reason)
                name, again = _name(title, handle), common.whole(restarts)
                ran = common.clocked(used) if stand is Stand.RUNNING else 0.0
                found.append(Seen(name, handle, stand, why, again, state in SUSPENDED, ran))
        return found

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        """Elements of an array make one argument: then Slurm asks its controller once for all."""
        options = argument_options(spec, SlurmOptions)
        single, arrays = common.arrays(handles, ELEMENT)
        words = [
            f"{job}_[{common.written(common.ranges(indices))}]"
            for (job, _), indices in arrays.items()
        ]
        return Command(("scancel", "--quiet", *_cluster(options), *single, *words))

    def accounting(self, spec: SiteSpec, handles: Sequence[str]) -> Command | None:
        options = argument_options(spec, SlurmOptions)
        jobs = ",".join(dict.fromkeys(handles))
        wanted = ("--noheader", "--parsable2", "--allocations", f"--jobs={jobs}")
        fields = "--format=JobID,State,ExitCode,JobName"
        return Command(("sacct", *_cluster(options), *wanted, fields))

    def accounted(self, spec: SiteSpec, output: Output) -> list[Seen]:
        if "accounting storage is disabled" in output.stderr:
            return []
        if output.status != 0 or LOST.search(output.stderr):
            common.no_list(output)
        found: list[Seen] = []
        for line in output.stdout.splitlines():
            jobs, *rest = line.split("|", 3)
            if len(rest) == 3:
                state, code, title = rest
                stand = STATES.get((state.split() or [""])[0], Stand.UNKNOWN)
                why = _ended(state, code)
                for handle in _handles(jobs):
                    found.append(Seen(_name(title, handle), handle, stand, why))
        return found

    def capacity(self, spec: SiteSpec) -> Command:
        """By partition: cores and nodes as allocated/idle/other/total; then who waits there."""
        options = argument_options(spec, SlurmOptions)
        where = [f"--partition={options.partition}"] if options.partition else []
        return common.two_questions(
            "sinfo \"$@\" --noheader --noconvert --format='%P|%C|%F'",
            'squeue "$@" --noheader --states=PENDING --array --format=%P | sort | uniq -c',
            [*_cluster(options), *where],
        )

    def measured(self, spec: SiteSpec, output: Output) -> SiteCapacity:
        """Of several partitions, which may have the same nodes, the largest numbers. Where the site
        names none, jobs go to the default partition, which has a star."""
        partitions, waiting = common.two_answers(output, "sinfo")
        rows = [row for row in map(PARTITION.fullmatch, partitions.splitlines()) if row]
        if not rows:
            raise Unclear(f"sinfo printed an unexpected line: {partitions[:100]!r}")
        if not argument_options(spec, SlurmOptions).partition:
            rows = [row for row in rows if row["name"].endswith("*")] or rows
        names = {row["name"].rstrip("*") for row in rows}
        counts = [line.split() for line in waiting.splitlines()]
        pairs = [pair for pair in counts if len(pair) == 2 and names & set(pair[1].split(","))]
        return SiteCapacity(
            free_cores=max(int(row["idle"]) for row in rows),
            total_cores=max(int(row["cores"]) for row in rows),
            free_nodes=max(int(row["free"]) for row in rows),
            total_nodes=max(int(row["nodes"]) for row in rows),
            queue_length=sum(common.whole(count) for count, _ in pairs),
        )


def _cluster(options: SlurmOptions) -> list[str]:
    return [f"--clusters={options.cluster}"] if options.cluster else []


def _wishes(options: SlurmOptions) -> list[str]:
    argv = [
        f"--{name}={value}"
        for name in ("partition", "account", "qos", "constraint", "reservation")
        if (value := getattr(options, name))
    ]
    argv.append("--requeue" if options.requeue else "--no-requeue")
    if options.whole_nodes:
        argv.append("--exclusive")
    if options.warn_seconds:
        argv.append(f"--signal=B:TERM@{options.warn_seconds}")
    return argv


def _resources(options: SlurmOptions, batch: Batch) -> list[str]:
    shape = batch.shape
    argv = ["--nodes=1", "--ntasks=1", f"--cpus-per-task={shape.slots}"]
    if shape.wall_seconds:
        argv.append(f"--time={common.minutes(shape.wall_seconds)}")
    if shape.memory_mb:
        argv.append(f"--mem={shape.memory_mb}M")
    if shape.disk_mb:
        argv.append(f"--tmp={shape.disk_mb}M")
    if shape.gpus:
        kind = f"{options.gpu_type}:" if options.gpu_type else ""
        argv.append(f"--gres=gpu:{kind}{shape.gpus}")
    return argv


def _columns(line: str) -> list[str]:
    """By width: if a word fills its column, no blank follows it."""
    found = []
    for _, width in COLUMNS:
        found.append(line[:width].strip())
        line = line[width:]
    return found


def _name(title: str, handle: str) -> str:
    element = ELEMENT.fullmatch(handle)
    return numbered(title, int(element["index"])) if element else title


def _stand(state: str, reason: str) -> tuple[Stand, str]:
    """With the reason. For an ended job the state is the reason; Slurm's own reason says little."""
    stand = STATES.get(state, Stand.UNKNOWN)
    reason = "" if reason in ("None", "(null)") else reason
    if stand is Stand.WAITING:
        return (Stand.STUCK if reason.replace(" ", "_") in HOPELESS else stand), reason
    if stand is Stand.RUNNING:
        return stand, "" if state == "RUNNING" else state
    return stand, state if reason in ("", state) else f"{state} ({reason})"


def _handles(jobs: str) -> list[str]:
    """In accounts, elements that ended before they started share a line: 14_[4-5,7]."""
    several = ELEMENTS.fullmatch(jobs)
    if several is None:
        return [jobs] if HANDLE.fullmatch(jobs) else []
    found: list[str] = []
    for span in several["spans"].split(","):
        first, _, last = span.partition("-")
        count = int(last or first) - int(first) + 1
        found += [f"{several['job']}_{int(first) + n}" for n in range(min(count, MOST_ELEMENTS))]
    return found


def _ended(state: str, code: str) -> str:
    """CANCELLED by 1000, or FAILED (exit status 3)."""
    status, _, signal = code.partition(":")
    if status not in ("", "0"):
        return f"{state} (exit status {status})"
    return state if signal in ("", "0") else f"{state} (signal {signal})"
