"""LSF: bsub, bjobs, bkill, as of 10.1 (Fix Pack 2, for `bjobs -json`). Not run for real: made after
IBM's manual, and tried with text that others recorded, or in the form that is published.

Every batch is an array, also one of one job, whose index would be 0 otherwise. `bjobs -a` also
tells of jobs that ended in the last hour (CLEAN_PERIOD), so there is no need of accounts. Where no
job is found bjobs says so on the wrong channel, or not at all.

What bsub reads is the job's command, and bjobs shows it to everybody. The script holds secrets, so
it is put into a private file, and the command is its path.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, NoReturn

from msgspec import Meta, Struct

from covey.core.record.model import SiteSpec
from covey.sites.command_driver import Batch, CommandDriver
from covey.sites.commands import Command, Output, after_writing
from covey.sites.driver import Seen, Stand, numbered
from covey.sites.drivers import common
from covey.sites.errors import Away, Refused, Unclear
from covey.sites.options import Extra, argument_options

# UNKWN and ZOMBI: LSF lost sight of the host, so the job may run or not.
STATES = {
    **dict.fromkeys(("PEND", "PSUSP", "WAIT", "FWD_PEND"), Stand.WAITING),
    **dict.fromkeys(("RUN", "USUSP", "SSUSP", "PROV"), Stand.RUNNING),
    **dict.fromkeys(("DONE", "EXIT", "POST_DONE", "POST_ERR"), Stand.ENDED),
}
SUSPENDED = ("USUSP", "SSUSP")

# The master may have heard us, though we did not hear it.
UNCERTAIN = re.compile(r"still trying|timed? ?out|communication|lost connection", re.IGNORECASE)
AWAY = re.compile(r"is down|not responding|non-LSF host", re.IGNORECASE)
NOBODY = re.compile(r"\bno (unfinished |matching )?job\w* found|is not found", re.IGNORECASE)

SUBMITTED = re.compile(r"^Job <([0-9]{1,18})> is submitted", re.MULTILINE)
JOB = re.compile(r"(?P<job>[0-9]{1,18})(\[(?P<index>[0-9]{1,9})\])?")
HANDLE = re.compile(r"(?P<job>[0-9]{1,18})\[(?P<index>[0-9]{1,9})\]")
TITLE = re.compile(r"(?P<title>.*?)(\[(?P<index>[0-9]{1,9})\])?", re.DOTALL)
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
        for flag, value in (
            ("-q", options.queue),
            ("-P", options.project),
            ("-G", options.group),
            ("-app", options.application),
        ):
            argv += [flag, value] if value else []
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
            if NOBODY.search(output.stderr) or NOBODY.search(output.stdout):
                return []
            common.no_list(output)
        try:
            records = json.loads(output.stdout[start:])["RECORDS"]
            found = [_seen(record) for record in records]
        except common.MISREAD as error:
            raise Unclear(f"bjobs's output is not a list of jobs: {error!r}"[:200]) from error
        return [seen for seen in found if seen.name.startswith(prefix)]

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        alone, together = common.arrays(handles, HANDLE)
        words = [
            f"{job}[{common.written(common.ranges(indices))}]"
            for (job, _), indices in together.items()
        ]
        return Command(("bkill", *alone, *words))

    def accounting(self, spec: SiteSpec, handles: Sequence[str]) -> Command | None:
        return None

    def accounted(self, spec: SiteSpec, output: Output) -> list[Seen]:
        return []


def _refused(output: Output) -> NoReturn:
    """With status 255, which a lost SSH connection has, too: so the words decide."""
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
    """The index of an element stands in its job's number, in its name or by itself, as LSF likes.
    What is about one job that is not to be had (`ERROR`) makes the list none."""
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
