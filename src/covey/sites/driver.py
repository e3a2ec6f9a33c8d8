"""What every kind of site is: a *driver* opens sites, and an open site starts pilots.

A driver declares its options, derives from them what core must know of a site (`facts`), and opens
the site. An open site takes orders and answers with events, whatever it is made of:

- commands of a batch system: write a `CommandDriver` (`command_driver`). It builds commands and
  reads answers, and does no I/O, so it is tested with recorded text. `drivers/slurm.py` is one.
- calls of an API: write a `Queue`, whose methods make the calls. `QueueSite` calls them in the
  right order, with pauses, and remembers what the rules of sites need
  (docs/decisions/0014-pilots-by-demand.md). `tests/contract/web_queue.py` is one.
- processes of our own, whose end is known at once: write an `OpenSite`. `drivers/local.py` is one.

How the pilot file, the start file and the job's secret get to the site is the driver's business.
`SiteContext` has what it needs for that; `script` has the script that becomes a pilot.

Another package adds its driver by an entry point in the group `covey.sites`, which names a class
that makes a `Driver` without arguments (`examples/site-plugin`).

A site knows a job by a name, and jobs that were submitted together by the name of the first of
them, their title, and a number. So names are numbered: a title ends in a number, and job i is named
by the number i higher (`numbered`). A list then tells every job's own name, and nobody keeps a
table. Names that are not consecutive are not submitted together (`runs` finds those that are).
"""

import hashlib
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from covey.core.record.actions import Note
from covey.core.record.model import JobId, JobRecord, SiteFacts, SiteSpec
from covey.ports import Post
from covey.sites.errors import Away
from covey.sites.script import PilotSource
from covey.sites.shell import Shells

GRACE_SECONDS = 90.0  # in which a submission may arrive: longer than its command may take


# -- what a driver is given -----------------------------------------------------------------


class PilotFile(NamedTuple):
    data: bytes
    digest: str  # SHA-256

    @property
    def name(self) -> str:
        return f"pilot-{self.digest[:16]}.pyz"


class SiteContext(NamedTuple):
    """What all sites get from their server. `queue` is its id, which is in the names of all jobs;
    of `master` their secrets are made. `whereabouts` tells the address that pilots call, and the
    authority that vouches for it (PEM). `now` may start anywhere, but never jumps.
    `on_record`: whether this is a job of any site."""

    post: Post
    note: Callable[[Note], None]
    now: Callable[[], float]
    queue: str
    master: str
    whereabouts: Callable[[], tuple[str, str]]
    pilot_file: Path
    shells: Shells
    grace_seconds: float = GRACE_SECONDS
    on_record: Callable[[JobId], bool] = lambda _: False

    @property
    def prefix(self) -> str:
        """How the names of all our jobs begin."""
        return f"covey-{self.queue}-"

    def read_pilot_file(self) -> PilotFile:
        """Raises Away."""
        try:
            data = self.pilot_file.read_bytes()
        except OSError as error:
            raise Away(f"the server's pilot file cannot be read: {error}") from error
        return PilotFile(data, hashlib.sha256(data).hexdigest())

    def pilot_source(self, path: str, digest: str) -> PilotSource:
        """For `script.job_script`. `path`: where a job finds the pilot file; a job that cannot read
        it there fetches it from the server."""
        address, ca = self.whereabouts()
        return PilotSource(address, ca, self.master, path, digest)


class Shape(NamedTuple):
    """What a pilot asks of the site. 0: nothing said."""

    slots: int
    wall_seconds: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0
    gpus: int = 0


class Submission(NamedTuple):
    """Jobs that are alike but for their names, which are numbered on from the first."""

    names: tuple[str, ...]
    jobs: tuple[JobRecord, ...]

    @property
    def shape(self) -> Shape:
        job = self.jobs[0]
        return Shape(job.slots, job.wall_seconds, job.memory_mb, job.disk_mb, job.gpus)


# -- what a site tells ----------------------------------------------------------------------


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


# -- what a driver makes --------------------------------------------------------------------


class OpenSite(Protocol):
    """A site that is looked after. Orders come from one thread and return at once; what comes of
    them is posted as events (`covey.ports.Sites` says which)."""

    spec: SiteSpec

    def submit(self, jobs: Sequence[JobRecord]) -> None: ...

    def watch(self, jobs: Sequence[JobRecord]) -> None:
        """These jobs are on record there, and no others."""
        ...

    def cancel(self, jobs: Sequence[JobRecord]) -> None: ...

    def change(self, spec: SiteSpec) -> bool:
        """Whether it goes on as this site; if not, it is closed and another is opened."""
        ...

    def jobs(self) -> tuple[JobRecord, ...]:
        """Jobs that it knows, for the site that is opened in its place."""
        ...

    def close(self, seconds: float = 0.0) -> None:
        """Begin nothing more, and wait so long for what has begun. Jobs stay where they are."""
        ...

    def terminate(self) -> int:
        """Ask pilots that are processes of this machine to end at once: how many are there. Jobs
        of a queue are not: they are cancelled."""
        return 0

    def alive(self) -> int:
        """How many pilots that are processes of this machine have not ended."""
        return 0


class Queue(Protocol):
    """A site that keeps a list of jobs, as `QueueSite` asks it: one call at a time, each from the
    same thread. A call takes a minute at most. It raises `SiteError`."""

    most_jobs: int  # of one submission

    def prepare(self, submission: Submission) -> Callable[[], Sequence[str]]:
        """All that comes before the site hears of these jobs: credentials, the pilot file, the
        request. Whatever it raises, the jobs are not there. What it returns submits them, and
        gives their handles in the order of their names. A submission that is repeated under the
        same names must not start a job twice where the site can prevent that."""
        ...

    def listed(self, prefix: str) -> Sequence[Seen]:
        """All jobs with names that begin so. Raises where there is no list: an empty list means
        that there are no jobs."""
        ...

    def cancel(self, handles: Sequence[str]) -> None:
        """All of them. That some have ended already is no failure."""
        ...

    def accounts(self, handles: Sequence[str]) -> Sequence[Seen] | None:
        """How jobs ended that are no longer listed; None where the site does not tell. The answer
        may be about other jobs of ours, too, and silent about some of these."""
        ...

    def close(self) -> None: ...


class Driver(Protocol):
    name: str

    @property
    def options(self) -> type[Struct]:
        """What [sites.NAME.options] may say: frozen, each with a Meta and its description. An
        option may be a Struct again, or a list or a table of Structs."""
        ...

    def facts(self, spec: SiteSpec) -> SiteFacts:
        """What core must know of such a site. Raises BadConfig for options that cannot be used."""
        ...

    def open(self, spec: SiteSpec, context: SiteContext) -> OpenSite:
        """Without I/O: a site that does not answer says so by an event. Raises BadConfig."""
        ...


# -- names ----------------------------------------------------------------------------------


def numbered(title: str, index: int) -> str:
    """The name of a job of the submission of this title."""
    stem = title.rstrip("0123456789")
    return f"{stem}{int(title[len(stem) :][-18:] or 0) + index}" if index else title


def runs(names: Sequence[str], most: int) -> list[tuple[str, ...]]:
    """These names as those of submissions: consecutive ones together, at most so many."""
    found: list[list[str]] = []
    for name in names:
        if found and len(found[-1]) < most and name == numbered(found[-1][0], len(found[-1])):
            found[-1].append(name)
        else:
            found.append([name])
    return [tuple(batch) for batch in found]
