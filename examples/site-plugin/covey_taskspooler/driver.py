"""Task Spooler (`tsp`): the smallest batch system there is, one queue on one machine.

An example of a driver: it builds commands and reads answers, and does nothing itself. `covey.sites.
command_driver` says what each method promises. Task Spooler has no arrays, and ended jobs stay in
its list, so the driver needs no accounting. Written for 1.0, Debian's package `task-spooler`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from covey.core.record.model import SiteSpec
from covey.sites.command_driver import Batch, CommandDriver
from covey.sites.commands import Command, Output, after_writing
from covey.sites.driver import Seen, Stand
from covey.sites.errors import Refused, Unclear
from covey.sites.options import argument_options

STATES = {
    "queued": Stand.WAITING,
    "allocating": Stand.WAITING,
    "running": Stand.RUNNING,
    "finished": Stand.ENDED,
    "skipped": Stand.ENDED,
}

# ID, state, file of the output, then for an ended job its exit status and times, and the command,
# behind the label that we gave it.
LINE = re.compile(
    r"(?P<id>[0-9]{1,9}) +(?P<state>[a-z]+) +\S+ +(?P<status>-?[0-9]{1,4} +[0-9./]+ +)?"
    r"(\[[^\]]*\])?\[(?P<label>[^\]]+)\]"
)


class TaskSpoolerOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    nice: Annotated[int, Meta(ge=0, le=19, description="How much pilots give way to others.")] = 0


class TaskSpooler(CommandDriver):
    name = "taskspooler"
    options = TaskSpoolerOptions
    environment: Mapping[str, str] = {"LC_ALL": "C"}

    def submit(self, spec: SiteSpec, batch: Batch) -> Command:
        """It takes a command and no script. The script holds secrets, which no argument may show:
        it goes into a private file first."""
        options = argument_options(spec, TaskSpoolerOptions)
        polite = ("nice", "-n", str(options.nice)) if options.nice else ()
        slots = ("-N", str(batch.shape.slots))
        path = f"{batch.directory}/{batch.title}.sh"
        argv = ("tsp", "-L", batch.title, *slots, *polite, path)
        return after_writing(path, batch.script, argv)

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        if output.status in (126, 127):  # there is no directory, or no tsp
            raise Refused(output.words)
        if output.status != 0 or not output.stdout.strip().isdecimal():
            raise Unclear(output.words)
        return (output.stdout.strip(),)

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        return Command(("tsp", "-l"))

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        head, _, rest = output.stdout.partition("\n")
        if output.status != 0 or not head.startswith("ID "):
            raise Unclear(output.words)
        found = []
        for line in rest.splitlines():
            match = LINE.match(line)
            if match and match["label"].startswith(prefix):
                stand = STATES.get(match["state"], Stand.UNKNOWN)
                status = (match["status"] or "").split(" ")[0]
                why = f"exit status {status}" if stand is Stand.ENDED and status else ""
                found.append(Seen(match["label"], match["id"], stand, why))
        return found

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        """`-r` takes a job from the queue and `-k` ends one that runs, one at a time: what belongs
        together needs a shell, whose words are ours and whose arguments are handles."""
        script = 'for job; do tsp -r "$job"; done; for job; do tsp -k "$job"; done; true'
        return Command(("sh", "-c", script, "sh", *handles))
