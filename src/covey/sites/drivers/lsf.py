"""LSF: bsub, bjobs, bkill, from 10.1 on (Fix Pack 2, for `bjobs -json`). Never run with a real LSF:
written from IBM's manual, and tested with published or recorded output.

Every batch is an array, even of one job: otherwise its index would be 0. `bjobs -a` also lists jobs
that ended in the last hour (CLEAN_PERIOD), so no accounting is needed. If there are no jobs, bjobs
prints that on standard error, or prints nothing.

bsub reads the job's command from its input, and bjobs shows it to everybody. The script holds
secrets, so it is put into a private file, and the command is its path.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, NoReturn

from msgspec import Meta, Struct

from covey.core.record.capacity import SiteCapacity
from covey.core.record.model import SiteSpec
from covey.sites.command_driver import Batch, CommandDriver
from covey.sites.commands import Command, Output, after_writing
from covey.sites.driver import Seen, Stand, numbered
from covey.sites.drivers import common
from covey.sites.errors import Away, Refused, Unclear
from covey.sites.options import Extra, argument_options

# UNKWN and ZOMBI: LSF does not reach the host, so the job may run or not.
STATES = {
    **dict.fromkeys(("PEND", "PSUSP", "WAIT", "FWD_PEND"), Stand.WAITING),
    **dict.fromkeys(("RUN", "USUSP", "SSUSP", "PROV"), Stand.RUNNING),
    **dict.fromkeys(("DONE", "EXIT", "POST_DONE", "POST_ERR"), Stand.ENDED),
}
SUSPENDED = ("USUSP", "SSUSP")

# The answer was lost; the master may have got the request.
UNCERTAIN = re.compile(r"still trying|timed? ?out|communication|lost connection", re.IGNORECASE)
AWAY = re.compile(r"is down|not responding|non-LSF host", re.IGNORECASE)
NO_JOBS = re.compile(r"\bno (unfinished |matching )?job\w* found|is not found", re.IGNORECASE)

SUBMITTED = re.compile(r"^Job <([0-9]{1,18})> is submitted", re.MULTILINE)
JOB = re.compile(r"(?P<job>[0-9]{1,18})(\[(?P<index>[0-9]{1,9})\])?")
HANDLE = re.compile(r"(?P<job>[0-9]{1,18})\[(?P<index>[0-9]{1,9})\]")
TITLE = re.compile(r"(?P<title>.*?)(\[(?P<index>[0-9]{1,9})\])?", re.DOTALL)
USABLE = ("ok", "closed_Full", "closed_Busy")
FIELDS = "jobid jobindex stat job_name exit_code exit_reason pend_reason"


class LsfOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    queue: Annotated[str, Meta(description="Queue, or several, separated by blanks.")] = ""
    project: Annotated[str, Meta(description="Project that is charged (-P).")] = ""
    group: Annotated[str, Meta(description="User group that is charged (-G).")] = ""
    application: Annotated[str, Meta(description="Application profile (-app).")] = ""
    select: Annotated[str, Meta(description="Requirement on hosts, as in -R select[HERE].")] = ""
    whole_nodes: Annotated[bool, Meta(description="Each pilot gets a whole host.")] = False
    requeue: Annotated[
        bool, Meta(description="LSF may start a pilot again after its host failed.")
    ] = True
    extra: Extra = ()


class Lsf(CommandDriver):
    name = "lsf"
    options = LsfOptions
    most_elements = 1000  # MAX_JOB_ARRAY_SIZE, unless a site says otherwise
    index = "$((LSB_JOBINDEX - 1))"
    environment: Mapping[str, str] = {"LSB_BJOBS_DISPLAY_ENH": "N"}  # jobs inherit it: no locale

    def submit(self, spec: SiteSpec, batch: Batch) -> Command:
        options = argument_options(spec, LsfOptions)
        common.checked(batch)
        argv = ["bsub", "-J", f"{batch.title}[1-{len(batch.names)}]"]
        argv += ["-cwd", batch.directory, "-o", f"{batch.directory}/{batch.title}.%I.out"]
        argv.append("-r" if options.requeue else "-rn")
        argv += common.flags(
            ("-q", options.queue),
            ("-P", options.project),
            ("-G", options.group),
            ("-app", options.application),
        )
        argv += _resources(options, batch)
        path = f"{batch.directory}/{batch.title}.sh"
        return after_writing(path, batch.script, (*argv, *options.extra, path))

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        found = SUBMITTED.findall(output.stdout)
        if len(found) != 1 or output.status != 0:
            _refused(output)
        return tuple(f"{found[0]}[{index + 1}]" for index in range(len(batch.names)))

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        return Command(("bjobs", "-a", "-J", f"{prefix}*", "-o", FIELDS, "-json"))

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        start = output.stdout.find("{")  # "Please wait ..." may come before
        if start < 0:
            if NO_JOBS.search(output.stderr) or NO_JOBS.search(output.stdout):
                return []
            common.no_list(output)
        try:
            records = json.loads(output.stdout[start:])["RECORDS"]
            found = [_seen(record) for record in records]
        except common.MISREAD as error:
            raise Unclear(f"bjobs's output is not a list of jobs: {error!r}"[:200]) from error
        return [seen for seen in found if seen.name.startswith(prefix)]

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        single, arrays = common.arrays(handles, HANDLE)
        words = [
            f"{job}[{common.written(common.ranges(indices))}]"
            for (job, _), indices in arrays.items()
        ]
        return Command(("bkill", *single, *words))

    def accounting(self, spec: SiteSpec, handles: Sequence[str]) -> Command | None:
        return None

    def accounted(self, spec: SiteSpec, output: Output) -> list[Seen]:
        return []

    def capacity(self, spec: SiteSpec) -> Command:
        options = argument_options(spec, LsfOptions)
        return common.two_questions("bhosts -w", 'bqueues -w "$@"', options.queue.split())

    def measured(self, spec: SiteSpec, output: Output) -> SiteCapacity:
        """Job slots of all hosts, as LSF does not tell which are a queue's. A host without a limit
        has no number of slots, and is not counted."""
        hosts, queues = common.two_answers(output, "bhosts")
        table = _table(hosts, "HOST_NAME")
        counts = [
            (common.whole(row["MAX"]), common.whole(row["NJOBS"]), row["STATUS"])
            for row in table
            if row.get("MAX", "").isdigit() and {"NJOBS", "STATUS"} <= row.keys()
        ]
        if not counts:
            raise Unclear(f"bhosts printed an unexpected line: {hosts.strip()[:100]!r}")
        waiting = [common.whole(row.get("PEND")) for row in _table(queues, "QUEUE_NAME")]
        usable = [(most, busy) for most, busy, status in counts if status in USABLE]
        return SiteCapacity(
            free_cores=sum(max(0, most - busy) for most, busy in usable),
            total_cores=sum(most for most, _, _ in counts),
            free_nodes=sum(not busy for _, busy in usable),
            total_nodes=len(counts),
            queue_length=sum(waiting) if waiting else None,
        )


def _table(text: str, first: str) -> list[dict[str, str]]:
    """Rows below the line of names that begins so."""
    lines = [line.split() for line in text.splitlines()]
    place = next((number for number, words in enumerate(lines) if words[:1] == [first]), len(lines))
    names = lines[place] if place < len(lines) else []
    return [dict(zip(names, words, strict=False)) for words in lines[place + 1 :] if words]


def _refused(output: Output) -> NoReturn:
    """A refusal has status 255, like a lost SSH connection; so the words decide."""
    if "Job not submitted" in output.stderr + output.stdout:
        raise Away(output.words) if AWAY.search(output.words) else Refused(output.words)
    common.not_submitted(output, UNCERTAIN)


def _resources(options: LsfOptions, batch: Batch) -> list[str]:
    shape = batch.shape
    wanted = [f"select[{options.select}]"] if options.select else []
    if shape.memory_mb:
        wanted.append(f"rusage[mem={shape.memory_mb}MB]")
    argv = ["-n", str(shape.slots), "-R", " ".join([*wanted, "span[hosts=1]"])]
    if shape.wall_seconds:
        argv += ["-W", str(common.minutes(shape.wall_seconds))]
    if shape.memory_mb:
        argv += ["-M", f"{shape.memory_mb}MB"]
    if shape.gpus:
        argv += ["-gpu", f"num={shape.gpus}"]
    return [*argv, "-x"] if options.whole_nodes else argv


def _seen(record: Mapping[str, str]) -> Seen:
    """The index of an element is in the job's id, in its name or in a field of its own. If a field
    of one job is missing (`ERROR`), the whole list is rejected."""
    job = JOB.fullmatch(str(record["JOBID"]).strip())
    title = TITLE.fullmatch(str(record["JOB_NAME"]))
    if job is None or title is None:
        raise ValueError(record)
    index = common.whole(job["index"] or title["index"] or record.get("JOBINDEX", ""))
    handle = f"{job['job']}[{index}]" if index else job["job"]
    name = numbered(title["title"], index - 1) if index else title["title"]
    state = str(record["STAT"])
    stand = STATES.get(state, Stand.UNKNOWN)
    if stand is Stand.WAITING:
        return Seen(name, handle, stand, str(record.get("PEND_REASON") or "").strip(" ;")[:300])
    if stand is not Stand.ENDED:
        why = "" if state == "RUN" else state
        return Seen(name, handle, stand, why, suspended=state in SUSPENDED)
    why = str(record.get("EXIT_REASON") or "").strip()
    code = str(record.get("EXIT_CODE") or "").strip()
    ended = f"exit status {code or 0}" if state == "DONE" or code else state
    return Seen(name, handle, stand, f"{ended} ({why})"[:300] if why else ended)
