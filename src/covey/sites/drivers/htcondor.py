"""HTCondor: condor_submit, condor_q, condor_rm, condor_history, from 8.8 on. Run by hand with
23.9.6, and tested with its recorded answers.

Jobs have no names; the batch's title is the cluster's JobBatchName. condor_submit gets a
description in its arguments, and needs the executable in a file. The script holds secrets, so it is
put into a private file, beside the output.

A job that HTCondor holds (its output cannot be written, it uses too much memory) would wait for
ever. So the description has an expression that removes it; the history tells why it was held.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, NoReturn

from msgspec import Meta, Struct

from covey.core.record.capacity import SiteCapacity
from covey.core.record.model import SiteSpec
from covey.sites.command_driver import Batch, CommandDriver
from covey.sites.commands import Command, Output, after_writing
from covey.sites.driver import Seen, Stand, numbered
from covey.sites.drivers import common
from covey.sites.errors import Refused, Unclear
from covey.sites.options import Extra, argument_options

# By JobStatus. 6: its files are transferred back; 7: suspended. 3: removed; in the history the job
# has ended, but in the queue its removal is only requested, and its processes may live.
STATES = {
    1: Stand.WAITING,
    2: Stand.RUNNING,
    3: Stand.ENDED,
    4: Stand.ENDED,
    5: Stand.STUCK,
    6: Stand.RUNNING,
    7: Stand.RUNNING,
}
SUSPENDED = 7
QUEUED = {**STATES, 3: Stand.UNKNOWN}

# The answer was lost; the schedd may have got the request. A refusal has a reason, on a line of its
# own after the first.
UNCERTAIN = re.compile(
    r"failed to commit|timed? ?out|communication|connection (closed|reset|lost)|disconnect",
    re.IGNORECASE,
)
NOT_COMMITTED = "failed to commit job submission"
ERROR = "error: "
PERIODIC = "PeriodicRemove expression "
TOO_LONG = re.compile(r"JobCurrentStartDate > ([0-9]+)")

SLOTS = re.compile(r"\s*(?P<count>[0-9]{1,9}) (?P<state>\w{1,20}) (?P<cores>[0-9]{1,9})\s*")
SUBMITTED = re.compile(r"^([0-9]{1,18})\.0 - ([0-9]{1,18})\.([0-9]{1,9})$", re.MULTILINE)
ATTRIBUTES = (
    "ClusterId",
    "ProcId",
    "JobBatchName",
    "JobStatus",
    "LastJobStatus",
    "NumJobStarts",
    "HoldReason",
    "LastHoldReason",
    "RemoveReason",
    "ExitBySignal",
    "ExitCode",
    "ExitSignal",
)


class HTCondorOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    requirements: Annotated[
        str, Meta(description="An expression that must be true for a machine.")
    ] = ""
    accounting_group: Annotated[str, Meta(description="Accounting group that is charged.")] = ""
    schedd: Annotated[str, Meta(description="Name of the schedd; empty: the local schedd.")] = ""
    pool: Annotated[str, Meta(description="Central manager; empty: the local one.")] = ""
    transfer: Annotated[
        bool,
        Meta(description="Transfer files: needed if hosts share no directory with the schedd."),
    ] = False
    lines: Annotated[
        tuple[str, ...], Meta(description="Additional lines for the submit description.")
    ] = ()
    extra: Extra = ()


class HTCondor(CommandDriver):
    name = "htcondor"
    options = HTCondorOptions
    most_elements = 1000
    index = "${COVEY_INDEX:-0}"
    environment: Mapping[str, str] = {"LC_ALL": "C"}

    def submit(self, spec: SiteSpec, batch: Batch) -> Command:
        options = argument_options(spec, HTCondorOptions)
        common.checked(batch)
        lines = _description(options, batch)
        argv = ["condor_submit", "-terse", *_where(options), *options.extra]
        for line in lines:
            argv += ["-append", line]
        argv += ["/dev/null", "-queue", str(len(batch.names))]
        return after_writing(_script(batch), batch.script, argv)

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        found = SUBMITTED.findall(output.stdout)
        if output.status != 0 or len(found) != 1:
            _not_submitted(output)
        cluster, again, last = found[0]
        if cluster != again or int(last) != len(batch.names) - 1:
            raise Unclear(output.words)
        return tuple(f"{cluster}.{index}" for index in range(len(batch.names)))

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        """Without the name of a user, condor_q lists the caller's own jobs."""
        options = argument_options(spec, HTCondorOptions)
        ours = f"substr(JobBatchName, 0, {len(prefix)}) == {_string(prefix)}"
        wanted = ("-constraint", ours, "-json", "-attributes", ",".join(ATTRIBUTES))
        return Command(("condor_q", *_where(options), *wanted))

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        if output.status != 0:  # then condor_q adds guesses about the configuration
            common.no_list(output._replace(stderr=output.stderr.partition("\nExtra Info")[0]))
        return [seen for seen in _jobs(output.stdout, QUEUED) if seen.name.startswith(prefix)]

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        options = argument_options(spec, HTCondorOptions)
        return Command(("condor_rm", *_where(options), *dict.fromkeys(handles)))

    def accounting(self, spec: SiteSpec, handles: Sequence[str]) -> Command | None:
        options = argument_options(spec, HTCondorOptions)
        wanted = ("-json", "-attributes", ",".join(ATTRIBUTES), "-limit", str(len(handles)))
        argv = ("condor_history", *_where(options), *wanted, *dict.fromkeys(handles))
        return Command(argv, b"", 180.0)

    def accounted(self, spec: SiteSpec, output: Output) -> list[Seen]:
        if output.status != 0:
            common.no_list(output)
        return _jobs(output.stdout, STATES)

    def capacity(self, spec: SiteSpec) -> Command:
        """Slots by state and cores, counted there; then the totals of the schedd's queue."""
        options = argument_options(spec, HTCondorOptions)
        pool = f"-pool {shlex.quote(options.pool)} " if options.pool else ""
        return common.two_questions(
            f"slots=$(condor_status {pool}-af State Cpus) && "
            "printf '%s\\n' \"$slots\" | sort | uniq -c",
            'condor_q "$@" -allusers -totals',
            _where(options),
        )

    def measured(self, spec: SiteSpec, output: Output) -> SiteCapacity:
        """A slot that can be divided has the cores that are left in it; those that were taken from
        it are slots of their own."""
        slots, queue = common.two_answers(output, "condor_status")
        found = [row for row in map(SLOTS.fullmatch, slots.splitlines()) if row]
        if not found:
            raise Unclear(f"condor_status printed an unexpected line: {slots.strip()[:100]!r}")
        cores = [(row["state"], int(row["count"]) * int(row["cores"])) for row in found]
        return SiteCapacity(
            free_cores=sum(count for state, count in cores if state == "Unclaimed"),
            total_cores=sum(count for _, count in cores),
            queue_length=_idle(queue),
        )


def _idle(text: str) -> int | None:
    """Jobs that wait. The last line of the totals is that of all users."""
    for line in reversed(text.splitlines()):
        words = line.replace(",", " ").split()
        if "idle" in words[1:]:
            return common.counted(words[words.index("idle", 1) - 1])
    return None


def _not_submitted(output: Output) -> NoReturn:
    why = _refusal(output.stderr)
    if why and not UNCERTAIN.search(why):
        raise Refused(why.strip()[:300])
    common.not_submitted(output, UNCERTAIN)


def _refusal(stderr: str) -> str:
    """The error in the line after "failed to commit"; empty if there is none."""
    lines = [line for line in stderr.split("\n") if line]
    for line, following in pairwise(lines):
        if NOT_COMMITTED in line.lower() and following.lower().startswith(ERROR):
            return following[len(ERROR) :]
    return ""


def _where(options: HTCondorOptions) -> list[str]:
    return common.flags(("-pool", options.pool), ("-name", options.schedd))


def _script(batch: Batch) -> str:
    return f"{batch.directory}/{batch.title}.sh"


def _description(options: HTCondorOptions, batch: Batch) -> list[str]:
    """`$` would begin a macro; of the batch's words, only the directory may contain one."""
    shape = batch.shape
    folder = _plain(batch.directory)
    lines = [
        "universe = vanilla",
        f"batch_name = {batch.title}",
        f"executable = {_plain(_script(batch))}",
        'environment = "COVEY_INDEX=$(Process)"',
        f"should_transfer_files = {'YES' if options.transfer else 'IF_NEEDED'}",
        "when_to_transfer_output = ON_EXIT",
        'transfer_output_files = ""',
        f"initialdir = {folder}",
        f"output = {folder}/{batch.title}.$(Process).out",
        f"error = {folder}/{batch.title}.$(Process).err",
        f"periodic_remove = {_over(shape.wall_seconds)}",
        "notification = never",
        f"request_cpus = {shape.slots}",
    ]
    if shape.memory_mb:
        lines.append(f"request_memory = {shape.memory_mb}")
    if shape.disk_mb:
        lines.append(f"request_disk = {shape.disk_mb * 1024}")
    if shape.gpus:
        lines.append(f"request_gpus = {shape.gpus}")
    if options.requirements:
        lines.append(f"requirements = {options.requirements}")
    if options.accounting_group:
        lines.append(f"accounting_group = {options.accounting_group}")
    return [*lines, *options.lines]


def _over(wall_seconds: float) -> str:
    """When HTCondor removes a job by itself: when it is held, or has run too long."""
    held = "JobStatus == 5"
    if not wall_seconds:
        return held
    long = f"time() - JobCurrentStartDate > {max(1, round(wall_seconds))}"
    return f"{held} || (JobStatus == 2 && {long})"


def _plain(text: str) -> str:
    """A literal value in a submit description."""
    if "\n" in text or "\r" in text:
        raise Refused(f"{text!r} cannot be written into a submit description")
    return text.replace("$", "$(DOLLAR)")


def _string(text: str) -> str:
    """A string of a ClassAd."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _jobs(text: str, states: Mapping[int, Stand]) -> list[Seen]:
    """Without jobs, HTCondor writes nothing."""
    if not text.strip():
        return []
    try:
        return [_seen(ad, states) for ad in json.loads(text)]
    except common.MISREAD as error:
        raise Unclear(f"the output is not a list of jobs: {error!r}"[:200]) from error


def _seen(ad: Mapping[str, Any], states: Mapping[int, Stand]) -> Seen:
    cluster, process = int(ad["ClusterId"]), int(ad["ProcId"])
    name = numbered(str(ad.get("JobBatchName", "")), process)
    status = ad["JobStatus"]
    stand = states.get(status, Stand.UNKNOWN) if isinstance(status, int) else Stand.UNKNOWN
    starts = common.whole(ad.get("NumJobStarts", 0))
    restarts = starts if stand is Stand.WAITING else max(0, starts - 1)
    why, suspended = _why(stand, ad)[:300], status == SUSPENDED
    return Seen(name, f"{cluster}.{process}", stand, why, restarts, suspended)


def _removed(why: str, held: object, before: object) -> str:
    """Why a job was removed. A hold reason counts only if the job was held just before."""
    if held and before == 5:
        return f"held: {held}"
    too_long = TOO_LONG.search(why.partition(PERIODIC)[2])
    return f"it ran for more than {too_long[1]} s" if too_long else why


def _why(stand: Stand, ad: Mapping[str, Any]) -> str:
    held = ad.get("HoldReason") or ad.get("LastHoldReason")
    if stand is Stand.STUCK:
        return f"held: {held}"
    if stand is not Stand.ENDED:
        return ""
    if ad["JobStatus"] == 3:
        return _removed(str(ad.get("RemoveReason") or "removed"), held, ad.get("LastJobStatus"))
    if ad.get("ExitBySignal"):
        return f"signal {ad.get('ExitSignal', '')}".strip()
    return f"exit status {ad.get('ExitCode', 'unknown')}"
