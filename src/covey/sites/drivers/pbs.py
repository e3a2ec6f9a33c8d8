"""PBS: qsub, qstat, qdel of OpenPBS and PBS Professional; with `dialect = "torque"` those of
Torque. Run by hand with OpenPBS 23.06.06, and tested with its recorded output; for Torque, tested
with output that others recorded.

The list is `qstat -f -t`, which looks the same in all of them. Plain `qstat` cuts names, and in old
versions the JSON is broken by some environments. An environment may also contain a line that looks
like one of covey's jobs, so only this user's jobs are listed. qstat cannot select by user and show
full names at once, so qselect selects; Torque lists everybody's jobs, because qselect was not
tested there. The entry of a whole array (`12[].server`) is not a job. Torque adds the index to the
name of an element, and has another name for the count of starts.

Old versions allow 15 characters in a name (Torque, PBS Pro before 13) and cut or refuse more: give
the queue a short id there.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from covey.core.errors import BadConfig
from covey.core.record.capacity import SiteCapacity
from covey.core.record.model import SiteSpec
from covey.sites.command_driver import Batch, CommandDriver
from covey.sites.commands import Command, Output
from covey.sites.driver import Seen, Stand, numbered
from covey.sites.drivers import common
from covey.sites.errors import Unclear
from covey.sites.options import Extra, argument_options

# By letter. M, a job that moved to another server, counts as unknown: that server lists it.
STATES = {
    **dict.fromkeys(("Q", "T", "W", "H"), Stand.WAITING),
    **dict.fromkeys(("R", "E", "S", "U"), Stand.RUNNING),
    **dict.fromkeys(("F", "X", "C"), Stand.ENDED),
}
SUSPENDED = ("S", "U")
HOPELESS = re.compile(r"too many failed attempts|can never run", re.IGNORECASE)

# The answer was lost; the server may have got the request.
UNCERTAIN = re.compile(
    r"timed? ?out|premature end of message|end of file|broken pipe|"
    r"connection (closed|reset)|communication failure|protocol",
    re.IGNORECASE,
)

SUBMITTED = re.compile(r"^([0-9]{1,18})(\[\])?(\.\S+)?$", re.MULTILINE)
ELEMENT = re.compile(r"(?P<job>[0-9]{1,18})\[(?P<index>[0-9]{1,9})\](?P<rest>(\.\S+)?)")
HEAD = re.compile(r"^Job Id: (?P<id>[0-9]{1,18}(\[[0-9]{0,9}\])?(\.\S+)?)[ \t]*$", re.MULTILINE)
FACT = re.compile(r"^ {4}([A-Za-z_]+(?:\.[\w.]+)?) = (.*)$", re.MULTILINE)
NODE_FACT = re.compile(r"[ \t]{1,20}(?P<key>[\w.]{1,60}) = (?P<value>.*)")
UNUSABLE = {"down", "offline", "unknown", "state-unknown", "stale", "maintenance", "sleep"}
USAGE = "usage: "
HOW = re.compile(r" and ([a-z].*)")
FORGOTTEN = "Subjob finished"  # there is no history: the exit status is that of the whole array
USUAL = {"finished", "failed"}  # words that add nothing to the exit status
OURS = 'set -f; ids=$(qselect -u "$(id -un)") || exit; test -z "$ids" || exec qstat -f -t $ids'
UNKNOWN_JOBS = re.compile(r"unknown job|has finished|not configured to maintain", re.IGNORECASE)


class PbsOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    queue: Annotated[str, Meta(description="Queue, or queue@server.")] = ""
    account: Annotated[str, Meta(description="Account that is charged (-A).")] = ""
    project: Annotated[str, Meta(description="Project that is charged (-P).")] = ""
    node: Annotated[
        str, Meta(description="More requirements on the node, as in select=1:ncpus=8:HERE.")
    ] = ""
    whole_nodes: Annotated[bool, Meta(description="Each pilot gets a whole node.")] = False
    requeue: Annotated[
        bool,
        Meta(
            description="PBS may start a pilot again after its node failed or was taken away; "
            "pilots in a job array always may."
        ),
    ] = True
    dialect: Annotated[
        Literal["pbspro", "torque"], Meta(description="pbspro (also for OpenPBS), or torque.")
    ] = "pbspro"
    extra: Extra = ()


class Pbs(CommandDriver):
    name = "pbs"
    options = PbsOptions
    most_elements = 1000
    index = "${PBS_ARRAY_INDEX:-${PBS_ARRAYID:-0}}"
    environment: Mapping[str, str] = {"LC_ALL": "C"}

    def submit(self, spec: SiteSpec, batch: Batch) -> Command:
        options = argument_options(spec, PbsOptions)
        common.checked(batch)
        if options.project and options.dialect == "torque":
            raise BadConfig(f"site {spec.name}: Torque has no projects; did you mean 'account'?")
        argv = ["qsub", "-N", batch.title, "-S", "/bin/sh", "-j", "oe"]
        argv += ["-o", f"{batch.directory}/"]
        argv += ["-C", ""]  # qsub must not take options from lines of the script
        if len(batch.names) > 1:
            flag = "-t" if options.dialect == "torque" else "-J"
            argv += [flag, f"0-{len(batch.names) - 1}"]
        else:
            argv += ["-r", "y" if options.requeue else "n"]  # arrays are always rerunnable
        argv += common.flags(
            ("-q", options.queue),
            ("-A", options.account),
            ("-P", options.project),
        )
        argv += _resources(options, batch)
        return Command((*argv, *options.extra), batch.script.encode())

    def log(self, spec: SiteSpec) -> str:
        """PBS Professional and OpenPBS choose the file's name."""
        torque = argument_options(spec, PbsOptions).dialect == "torque"
        return super().log(spec) if torque else "log/{handle}.OU"

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        found = SUBMITTED.findall(output.stdout)
        if output.status != 0 or len(found) != 1:
            common.not_submitted(output._replace(stderr=_before_usage(output.stderr)), UNCERTAIN)
        job, array, server = found[0]
        if bool(array) != (len(batch.names) > 1):
            raise Unclear(output.words)
        if not array:
            return (job + server,)
        return tuple(f"{job}[{index}]{server}" for index in range(len(batch.names)))

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        torque = argument_options(spec, PbsOptions).dialect == "torque"
        argv = ("qstat", "-f", "-t") if torque else ("/bin/sh", "-c", OURS)
        return Command(argv, b"", 120.0)

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        """A job may have ended between qselect and qstat."""
        if output.status != 0 and not _all_unknown(output.stderr):
            common.no_list(output)
        found = _jobs(output.stdout, argument_options(spec, PbsOptions).dialect)
        return [seen for seen in found if seen.name.startswith(prefix)]

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        options = argument_options(spec, PbsOptions)
        if options.dialect == "torque":
            return Command(("qdel", *dict.fromkeys(handles)))
        single, arrays = common.arrays(handles, ELEMENT)
        words = [
            f"{job}[{common.written([pair])}]{rest}"
            for (job, rest), indices in arrays.items()
            for pair in common.ranges(indices)
        ]
        return Command(("qdel", *single, *words))

    def accounting(self, spec: SiteSpec, handles: Sequence[str]) -> Command | None:
        """The server's history, if it keeps one. Torque shows ended jobs in its list."""
        if argument_options(spec, PbsOptions).dialect == "torque":
            return None
        return Command(("qstat", "-x", "-f", *dict.fromkeys(handles)))

    def accounted(self, spec: SiteSpec, output: Output) -> list[Seen]:
        """With unknown jobs qstat fails, but still prints the others."""
        if output.status != 0 and not _all_unknown(output.stderr):
            common.no_list(output)
        return list(_jobs(output.stdout, argument_options(spec, PbsOptions).dialect))

    def capacity(self, spec: SiteSpec) -> Command:
        """Of each node what counts; then the queues."""
        options = argument_options(spec, PbsOptions)
        wanted = r"^[^[:space:]]|^ +(state|np|jobs|resources_(available|assigned)\.ncpus) = "
        return common.two_questions(
            f"nodes=$(pbsnodes -a) && printf '%s\\n' \"$nodes\" | grep -E '{wanted}'",
            'qstat -Q "$@"',
            [options.queue] if options.queue else [],
        )

    def measured(self, spec: SiteSpec, output: Output) -> SiteCapacity:
        nodes, queues = common.two_answers(output, "pbsnodes")
        found = _nodes(nodes)
        if not found:
            raise Unclear(f"pbsnodes printed an unexpected line: {nodes.strip()[:100]!r}")
        usable = [node for node in found if node.usable]
        return SiteCapacity(
            free_cores=sum(max(0, node.cores - node.busy) for node in usable),
            total_cores=sum(node.cores for node in found),
            free_nodes=sum(not node.busy for node in usable),
            total_nodes=len(found),
            queue_length=_queued(queues),
        )


def _resources(options: PbsOptions, batch: Batch) -> list[str]:
    shape = batch.shape
    torque = options.dialect == "torque"
    parts = [f"nodes=1:ppn={shape.slots}" if torque else f"select=1:ncpus={shape.slots}"]
    more: list[str] = []
    if shape.memory_mb:
        (more if torque else parts).append(f"mem={shape.memory_mb}mb")
    if shape.gpus:
        parts.append(f"gpus={shape.gpus}" if torque else f"ngpus={shape.gpus}")
    if options.node:
        parts.append(options.node)
    if shape.wall_seconds:
        more.append(f"walltime={common.clock(shape.wall_seconds)}")
    if options.whole_nodes and not torque:
        more.append("place=excl")
    argv = ["-l", ":".join(parts)]
    for wish in more:
        argv += ["-l", wish]
    return [*argv, "-n"] if torque and options.whole_nodes else argv


def _all_unknown(errors: str) -> bool:
    """Whether all errors mean that a job is not there any more."""
    lines = [line for line in errors.splitlines() if line.strip()]
    return bool(lines) and all(UNKNOWN_JOBS.search(line) for line in lines)


def _jobs(text: str, dialect: str) -> Iterator[Seen]:
    """Long lines continue after a line break and a tab. If a key comes twice, the first one counts:
    names and states come before the environment, which users can fill with anything."""
    text = text.replace("\n\t", "")
    heads = list(HEAD.finditer(text))
    before = text[: heads[0].start()] if heads else text
    if before.strip():
        raise Unclear(f"qstat's output is not a list of jobs: {before.strip()[:100]!r}")
    for place, head in enumerate(heads):
        end = heads[place + 1].start() if place + 1 < len(heads) else len(text)
        facts: dict[str, str] = {}
        for key, value in FACT.findall(text[head.end() : end]):
            facts.setdefault(key, value)
        if "[]" not in head["id"] and "Job_Name" in facts and "job_state" in facts:
            yield _seen(head["id"], facts, dialect)


def _seen(handle: str, facts: Mapping[str, str], dialect: str) -> Seen:
    title, state = facts["Job_Name"], facts["job_state"]
    element = ELEMENT.fullmatch(handle)
    if element and dialect == "torque":
        title = title.removesuffix(f"-{element['index']}")
    name = numbered(title, int(element["index"])) if element else title
    stand = STATES.get(state, Stand.UNKNOWN)
    comment = _comment(facts.get("comment", ""))
    runs = common.whole(facts.get("run_count") or facts.get("start_count") or "")
    if facts.get("comment") == FORGOTTEN:
        return Seen(name, handle, stand, "it ended; PBS does not report how")
    if stand is Stand.ENDED:
        status = facts.get("Exit_status") or facts.get("exit_status") or ""
        return Seen(name, handle, stand, _ended(status, comment), max(0, runs - 1))
    if stand is Stand.WAITING and HOPELESS.search(comment):
        return Seen(name, handle, Stand.STUCK, comment, runs)
    why = comment if stand is Stand.WAITING or state != "R" else ""
    again = runs if stand is Stand.WAITING else max(0, runs - 1)
    return Seen(name, handle, stand, why, again, state in SUSPENDED)


def _comment(text: str) -> str:
    """The part of a comment that says more than the state and the exit status."""
    if text.startswith(("Job Array Began ", "Job started on ")):
        return ""
    if not text.startswith("Job run at "):
        return text
    how = HOW.search(text)
    return "" if how is None or how[1] in USUAL else how[1]


class PbsNode(NamedTuple):
    cores: int
    busy: int
    usable: bool


def _nodes(text: str) -> list[PbsNode]:
    """A name at the beginning of a line, then what is known of that node. OpenPBS counts assigned
    cores; Torque lists them, each with its job: 0-3/12.server,4/13.server."""
    found: list[PbsNode] = []
    facts: dict[str, str] | None = None
    for line in (*text.splitlines(), "end"):
        fact = NODE_FACT.fullmatch(line)
        if fact is not None and facts is not None:
            facts.setdefault(fact["key"], fact["value"])
        elif line[:1].strip():
            if facts is not None:
                found.append(_node(facts))
            facts = {}
    return [node for node in found if node.cores]


def _node(facts: Mapping[str, str]) -> PbsNode:
    if "np" in facts:
        cores = common.whole(facts["np"])
        busy = sum(map(_span, facts.get("jobs", "").split(","))) if facts.get("jobs") else 0
    else:
        cores = common.whole(facts.get("resources_available.ncpus", ""))
        busy = common.whole(facts.get("resources_assigned.ncpus", ""))
    states = set(re.split(r"[,\s]+", facts.get("state", "")))
    return PbsNode(cores, busy, not states & UNUSABLE)


def _span(word: str) -> int:
    """How many cores 2/12.server or 0-3/12.server are."""
    first, _, last = word.strip().partition("/")[0].partition("-")
    return max(1, common.whole(last) - common.whole(first) + 1) if last else 1


def _queued(text: str) -> int | None:
    """The sum of the column `Que` of `qstat -Q`."""
    lines = [line.split() for line in text.splitlines()]
    head = next((words for words in lines if "Que" in words), None)
    if head is None:
        return None
    place = head.index("Que")
    least = max(place + 1, len(head) - 1)
    rows = [words for words in lines if len(words) >= least and "Que" not in words]
    return sum(common.whole(words[place]) for words in rows)


def _before_usage(text: str) -> str:
    """A command's errors without the list of its options."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if number and line.lstrip().lower().startswith(USAGE):
            return "\n".join(lines[:number]).rstrip()
    return text


def _ended(status: str, comment: str) -> str:
    """A status above 256 is 256 and a signal; below 0, PBS could not run the job, or ended it. A
    job that was deleted before it ran has no status."""
    words = f" ({comment})" if comment else ""
    if not re.fullmatch(r"-?[0-9]{1,9}", status):
        return comment or "it ended before it started"
    number = int(status)
    return f"signal {number - 256}{words}" if number > 256 else f"exit status {number}{words}"
