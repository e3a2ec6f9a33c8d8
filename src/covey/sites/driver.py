"""What a kind of site is made of: a *driver* builds commands and reads answers.

Drivers have no state and do no I/O: the same question gives the same command, the same text the
same answer, so they are tested with recorded text, and one seam runs the commands here or over SSH
(see `shell`). Another package adds its own by an entry point in the group `covey.sites`, which
names a class that makes a `Driver` without arguments (`examples/site-plugin`).

A *batch* is one submission: jobs that are alike but for their names, one or many. Its script is the
same for all of them; where the batch system counts the elements of an array, `Driver.index` is the
shell's word for the number, from 0, and the script finds by it what is this job's own.

A site knows a batch by one name, its title, and an element by that and a number. So names are
numbered: the title is the first job's name, which ends in a number, and element i is named by the
number i higher (`numbered`). A list then tells every job's own name, and nobody keeps a table.
Names that are not consecutive are not of one batch (`runs` finds those that are).
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from msgspec import Struct

from covey.core.record.model import SiteSpec

MOST_LINES, MOST_WORDS = 10, 600  # of what a command said: lines, and characters


class Command(NamedTuple):
    """`argv`, never a shell's line; `stdin` is what it reads. It is stopped after `seconds`."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    seconds: float = 60.0


class Output(NamedTuple):
    status: int  # below 0: by this signal; 127: no such command
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """What it said, for people: all its lines, or the last of them if they are many. The
        reason often stands before the last line."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines()]
        found = "; ".join(dict.fromkeys(line[:MOST_WORDS] for line in lines[-MOST_LINES:] if line))
        return found[-MOST_WORDS:] or f"exit status {self.status}"


class Stand(StrEnum):
    """Where a job stands, as far as its site tells. STUCK: it is there, but will not run unless
    somebody sees to it (an error state, an impossible request): it is to be cancelled, and when it
    is gone it has ended for this reason. UNKNOWN: a state that we do not know, which is neither an
    end nor a start."""

    WAITING = "waiting"
    RUNNING = "running"
    STUCK = "stuck"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Seen(NamedTuple):
    """A job in a site's list. `reason`: why it waits, or how it ended. `restarts`: how often the
    site has started it again, where it says so. `suspended`: it has started, and stands still."""

    name: str
    handle: str  # what the site calls it, an array's element by itself
    stand: Stand
    reason: str = ""
    restarts: int = 0
    suspended: bool = False


class Shape(NamedTuple):
    """What a pilot asks of the site. 0: nothing said."""

    slots: int
    wall_seconds: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0
    gpus: int = 0


class Batch(NamedTuple):
    """`names` of the jobs, in the order of their indices; `title` is the first of them, and the
    others are numbered on from it. `directory` is where output goes, on the site."""

    title: str
    names: tuple[str, ...]
    shape: Shape
    script: str
    directory: str


WRITE = (
    'file=$1 size=$2; shift 2; umask 077; cat >"$file" && test "$(wc -c <"$file")" -eq "$size" '
    '&& chmod 700 "$file" || exit 126; exec "$@"'
)


def after_writing(path: str, script: str, argv: Sequence[str]) -> Command:
    """For systems that want a file: the script arrives by standard input, as it holds secrets, and
    goes into a private file; if all of it did, this command is run. Status 126: it was not."""
    data = script.encode()
    return Command(("/bin/sh", "-c", WRITE, "sh", path, str(len(data)), *argv), data)


def numbered(title: str, index: int) -> str:
    """The name of an element of the batch of this title."""
    stem = title.rstrip("0123456789")
    return f"{stem}{int(title[len(stem) :][-18:] or 0) + index}" if index else title


def runs(names: Sequence[str], most: int) -> list[tuple[str, ...]]:
    """These names as those of batches: consecutive ones together, at most so many."""
    found: list[list[str]] = []
    for name in names:
        if found and len(found[-1]) < most and name == numbered(found[-1][0], len(found[-1])):
            found[-1].append(name)
        else:
            found.append([name])
    return [tuple(batch) for batch in found]


class Refused(Exception):
    """The site will not have these jobs: surely none of them is there. With its words."""


class Away(Refused):
    """Nor does the site answer at all: this tells of the site, not of the jobs."""


class Unclear(Exception):
    """The command failed, and nobody knows what came of it."""


class Driver(Protocol):
    """All methods may raise Refused or Unclear where they read an answer. `spec` is the site."""

    name: str
    most_elements: int  # jobs in one batch: 1 where there are no arrays
    index: str  # the shell's word for an element's number, from 0; "0" where there are no arrays
    environment: Mapping[str, str]  # what makes the commands' answers the same everywhere (LC_ALL)

    @property
    def options(self) -> type[Struct]:
        """What [sites.NAME.options] may say: frozen, each with a Meta and its description."""
        ...

    def submit(self, spec: SiteSpec, batch: Batch) -> Command: ...

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        """The handles, in the order of the batch's names."""
        ...

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        """All jobs of ours: of this user, with names that begin so."""
        ...

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        """Raises Unclear where this is no list: an empty list means that there is none."""
        ...

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        """All of them at once. That some have ended already is no failure."""
        ...

    def accounting(self, spec: SiteSpec, handles: Sequence[str]) -> Command | None:
        """How jobs ended that are no longer listed; None where the system does not tell. The answer
        may be about other jobs of ours, too, and silent about some of these."""
        ...

    def accounted(self, spec: SiteSpec, output: Output) -> list[Seen]:
        """Empty where the site keeps no accounts. Raises Unclear where they could not be had."""
        ...
