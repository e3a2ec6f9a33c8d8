"""Grid Engine: qsub, qstat, qdel, qacct. Tested with Son of Grid Engine 8.1.9; its successors (Open
Cluster Scheduler, Altair Grid Engine) have the same options.

Every batch is an array, even of one job: otherwise the variable with the number is `undefined`.
qstat forgets a job when it ends; the accounting has it about a second later. A job that could not
be started stays in the list for ever, in an error state: such a job is stuck. Grid Engine kills
jobs without a warning when they run too long or are deleted; pilots end before their time is over.

Everybody on a host can read the scripts that qsub reads. covey's scripts hold secrets, so they are
put into private files, and the command is the path.

Resources for memory, GPUs and whole nodes have different names at each site, so a site's options
name them. Memory is requested per slot, as all resources of parallel jobs are.
"""

import math
import re
import xml.etree.ElementTree as Xml
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from covey.core.record.capacity import SiteCapacity
from covey.core.record.model import SiteSpec
from covey.sites.command_driver import Batch, CommandDriver
from covey.sites.commands import Command, Output, after_writing
from covey.sites.driver import Seen, Stand, numbered
from covey.sites.drivers import common
from covey.sites.errors import Unclear
from covey.sites.options import Extra, argument_options

# The answer was lost; the master may have got the request.
UNCERTAIN = re.compile(r"timeout|timed out|broken pipe|read error|lost connection", re.IGNORECASE)

HANDLE = re.compile(r"(?P<job>[0-9]{1,18})\.(?P<index>[0-9]{1,9})")
SUBMITTED = re.compile(r"^([0-9]{1,18})\.1-([0-9]{1,9}):1$", re.MULTILINE)
RULE = re.compile(r"^=+$", re.MULTILINE)
RESCHEDULED = ("24", "25")  # an end of a run, not of the job


class GridEngineOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    queue: Annotated[str, Meta(description="Queue, or several, separated by commas.")] = ""
    project: Annotated[str, Meta(description="Project that is charged.")] = ""
    account: Annotated[str, Meta(description="Account string.")] = ""
    parallel_environment: Annotated[
        str,
        Meta(description="Parallel environment on one host, for pilots of several slots."),
    ] = "smp"
    memory_resource: Annotated[
        str,
        Meta(description="Resource for memory, such as h_vmem; empty: memory is not requested."),
    ] = ""
    gpu_resource: Annotated[str, Meta(description="Name of the resource for GPUs.")] = "gpu"
    exclusive_resource: Annotated[
        str, Meta(description="Name of the resource for exclusive use of a host.")
    ] = "exclusive"
    whole_nodes: Annotated[bool, Meta(description="Each pilot gets a whole host.")] = False
    requeue: Annotated[
        bool, Meta(description="Grid Engine may start a pilot again after its host failed.")
    ] = True
    accounting_days: Annotated[
        int,
        Meta(ge=0, description="How many days back the accounting file is read; 0: never."),
    ] = 2
    extra: Extra = ()


class GridEngine(CommandDriver):
    name = "gridengine"
    options = GridEngineOptions
    most_elements = 1000
    index = "$((SGE_TASK_ID - 1))"
    environment: Mapping[str, str] = {"LC_ALL": "C"}

    def submit(self, spec: SiteSpec, batch: Batch) -> Command:
        options = argument_options(spec, GridEngineOptions)
        common.checked(batch)
        path = f"{batch.directory}/{batch.title}.sh"
        argv = ["qsub", "-terse", "-b", "y", "-N", batch.title, "-t", f"1-{len(batch.names)}"]
        argv += ["-S", "/bin/sh", "-wd", batch.directory, "-j", "y"]
        argv += ["-o", f"{batch.directory}/{batch.title}.$TASK_ID.out"]
        argv += ["-r", "y" if options.requeue else "n"]
        argv += common.flags(
            ("-q", options.queue),
            ("-P", options.project),
            ("-A", options.account),
        )
        argv += _resources(options, batch)
        return after_writing(path, batch.script, (*argv, *options.extra, path))

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        found = SUBMITTED.findall(output.stdout)
        if output.status != 0 or len(found) != 1 or int(found[0][1]) != len(batch.names):
            words = output.stderr.removesuffix("Exiting.\n")  # qsub always prints it last
            common.not_submitted(output._replace(stderr=words), UNCERTAIN)
        return tuple(f"{found[0][0]}.{index + 1}" for index in range(len(batch.names)))

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        """qstat replaces `$user` by the caller's name; `-g d`: one entry for each element."""
        return Command(("qstat", "-u", "$user", "-g", "d", "-xml"))

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        if output.status != 0:
            common.no_list(output)
        try:
            tree = Xml.fromstring(output.stdout)
        except (Xml.ParseError, ValueError) as error:
            raise Unclear(f"qstat's output is not XML: {error}") from error
        if tree.tag != "job_info":
            raise Unclear(f"qstat's output is not a list of jobs: {tree.tag!r}")
        found = []
        for entry in tree.iter("job_list"):
            title = entry.findtext("JB_name") or ""
            if title.startswith(prefix):
                found.append(_seen(entry, title))
        return found

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        single, arrays = common.arrays(handles, HANDLE)
        words = [
            f"{job}.{first}-{last}:1"
            for (job, _), indices in arrays.items()
            for first, last in common.ranges(indices)
        ]
        return Command(("qdel", *single, *words))

    def accounting(self, spec: SiteSpec, handles: Sequence[str]) -> Command | None:
        """qacct takes one job, or a pattern of names; all names of covey's jobs begin alike."""
        options = argument_options(spec, GridEngineOptions)
        if not options.accounting_days:
            return None
        _, arrays = common.arrays(handles, HANDLE)
        jobs = [job for job, _ in arrays]
        days = ("-d", str(options.accounting_days))
        return Command(("qacct", *days, "-j", jobs[0] if len(jobs) == 1 else "covey-*"), b"", 180.0)

    def accounted(self, spec: SiteSpec, output: Output) -> list[Seen]:
        if output.status != 0:
            if "not found" in output.stderr:
                return []
            common.no_list(output)
        found = []
        for block in RULE.split(output.stdout):
            facts: dict[str, str] = {}
            for line in block.splitlines():
                key, _, value = line.partition(" ")
                facts.setdefault(key, value.strip())
            job, task = facts.get("jobnumber", ""), facts.get("taskid", "")
            again = facts.get("failed", "").partition(":")[0].strip() in RESCHEDULED
            if HANDLE.fullmatch(f"{job}.{task}") and "jobname" in facts and not again:
                name = numbered(facts["jobname"], int(task) - 1)
                found.append(Seen(name, f"{job}.{task}", Stand.ENDED, _ended(facts)))
        return found

    def capacity(self, spec: SiteSpec) -> Command:
        options = argument_options(spec, GridEngineOptions)
        return common.two_questions(
            'qstat -g c "$@" -xml',
            "qstat -u '*' -s p -g d | tail -n +3 | wc -l",
            ["-q", options.queue] if options.queue else [],
        )

    def measured(self, spec: SiteSpec, output: Output) -> SiteCapacity:
        """Slots of queues: of several, which may have the same hosts, the largest numbers. A job
        that waits is in no queue yet, so all of them are counted."""
        queues, waiting = common.two_answers(output, "qstat")
        try:
            tree = Xml.fromstring(queues)
        except (Xml.ParseError, ValueError) as error:
            raise Unclear(f"qstat's output is not XML: {error}") from error
        found = list(tree.iter("cluster_queue_summary"))
        if not found:
            raise Unclear("qstat shows no queue")
        return SiteCapacity(
            free_cores=max(common.whole(queue.findtext("available")) for queue in found),
            total_cores=max(common.whole(queue.findtext("total")) for queue in found),
            queue_length=common.counted(waiting),
        )


def _resources(options: GridEngineOptions, batch: Batch) -> list[str]:
    shape = batch.shape
    argv = ["-pe", options.parallel_environment, str(shape.slots)] if shape.slots > 1 else []
    wanted = []
    if shape.wall_seconds:
        wanted.append(f"h_rt={math.ceil(shape.wall_seconds)}")
    if shape.memory_mb and options.memory_resource:
        each = math.ceil(shape.memory_mb / max(1, shape.slots))
        wanted.append(f"{options.memory_resource}={each}M")
    if shape.gpus:
        wanted.append(f"{options.gpu_resource}={shape.gpus}")
    if options.whole_nodes:
        wanted.append(f"{options.exclusive_resource}=true")
    return argv + (["-l", ",".join(wanted)] if wanted else [])


SUSPENDED = frozenset("sSTNP")


def _seen(entry: Xml.Element, title: str) -> Seen:
    handle = f"{entry.findtext('JB_job_number', '')}.{entry.findtext('tasks', '')}"
    match = HANDLE.fullmatch(handle)
    if match is None:
        raise Unclear(f"qstat's output has an unknown id {handle!r} for a job of {title}")
    state = entry.findtext("state") or ""
    stand = _stand(state)
    if stand is Stand.STUCK:
        why = f"error state {state}: 'qstat -j {match['job']}' there shows the reason"
    else:
        why = "" if state in ("qw", "r") else state
    name = numbered(title, int(match["index"]) - 1)
    suspended = stand is Stand.RUNNING and bool(set(state) & SUSPENDED)
    return Seen(name, handle, stand, why, int("R" in state), suspended)


def _stand(state: str) -> Stand:
    """A state is a word of letters: E error, q queued, w waits, h held, r runs, t is being started,
    s S T N P suspended in some way, d is being deleted, R started again."""
    letters = set(state)
    if not letters or letters - set("EqwhrtsSTNPdR"):
        return Stand.UNKNOWN
    if "E" in letters:
        return Stand.STUCK
    if letters & set("rtsSTNP"):
        return Stand.RUNNING
    return Stand.WAITING if letters & set("qwhR") else Stand.UNKNOWN


def _ended(facts: Mapping[str, str]) -> str:
    """The reason of a failure, else the exit status. Failure 100 is an end by any signal."""
    number, _, words = facts.get("failed", "").partition(":")
    status = " ".join(facts.get("exit_status", "unknown").split())
    if number.strip() in ("", "0", "100"):
        return f"exit status {status}"
    return f"{words.strip() or 'failed'} (failure {number.strip()})"
