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

A site knows a job by a name. Jobs that were submitted together have a title, the name of the first
job, and an index. So names are numbered: a title ends in a number, and the name of job i has a
number that is i higher (`numbered`). Every job's name then follows from the site's list, and no
table is needed. Only jobs with consecutive names are submitted together (`runs` finds them).
"""

import hashlib
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from covey.core.record.actions import Note
from covey.core.record.capacity import SiteCapacity
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
    """What all sites get from their server. `queue` is the server's id, which is in the names of
    all jobs. The jobs' secrets are made from `master`. `whereabouts` returns the address that
    pilots call, and the certificate of its authority (PEM). `now` is monotonic time.
    `on_record`: whether any site has this job."""

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
    """What a pilot asks of the site. 0: not specified."""

    slots: int
    wall_seconds: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0
    gpus: int = 0


class Submission(NamedTuple):
    """Jobs that differ only in their names, which are consecutive."""

    names: tuple[str, ...]
    jobs: tuple[JobRecord, ...]

    @property
    def shape(self) -> Shape:
        job = self.jobs[0]
        return Shape(job.slots, job.wall_seconds, job.memory_mb, job.disk_mb, job.gpus)


# -- what a site tells ----------------------------------------------------------------------


class Stand(StrEnum):
    """The state of a job as its site reports it. STUCK: the job is there, but will never run by
    itself (an error state, an impossible request): it is cancelled, and this is the reason of its
    end. UNKNOWN: a state that covey does not know; it counts as neither a start nor an end."""

    WAITING = "waiting"
    RUNNING = "running"
    STUCK = "stuck"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Seen(NamedTuple):
    """A job in a site's list. `reason`: why it waits, or how it ended. `restarts`: how often the
    site has started it again, if the site reports that. `suspended`: it has started, but pauses."""

    name: str
    handle: str  # the site's own id of the job; each element of an array has its own
    stand: Stand
    reason: str = ""
    restarts: int = 0
    suspended: bool = False
    ran_seconds: float = 0.0  # since it started, if the site reports that


# -- what a driver makes --------------------------------------------------------------------


class OpenSite(Protocol):
    """A site in use. Orders come from one thread and return at once; results are posted as events
    events (`covey.ports.Sites` says which)."""

    spec: SiteSpec

    def submit(self, jobs: Sequence[JobRecord]) -> None: ...

    def watch(self, jobs: Sequence[JobRecord]) -> None:
        """The record has these jobs at this site, and no others."""
        ...

    def cancel(self, jobs: Sequence[JobRecord]) -> None: ...

    def change(self, spec: SiteSpec) -> bool:
        """Take over new settings. False: it cannot; then it is closed and another one is opened."""
        ...

    def jobs(self) -> tuple[JobRecord, ...]:
        """Jobs that it knows, for its successor."""
        ...

    def close(self, seconds: float = 0.0) -> None:
        """Begin nothing more; wait at most `seconds` for calls in progress. Jobs go on."""
        ...

    def terminate(self) -> int:
        """Tell pilots that are processes of this machine to end at once; returns how many there
        are. Jobs in a queue are no such processes: they are cancelled."""
        return 0

    def alive(self) -> int:
        """How many pilots that are processes of this machine have not ended."""
        return 0


class Queue(Protocol):
    """A site that keeps a list of jobs. `QueueSite` makes one call at a time, all from one thread.
    A call takes a minute at most, and raises `SiteError`."""

    most_jobs: int  # in one submission

    def prepare(self, submission: Submission) -> Callable[[], Sequence[str]]:
        """Everything before the site hears of these jobs: credentials, the pilot file, the request.
        If it raises, the jobs are surely not at the site. The returned function submits them, and
        returns their handles in the order of their names. If a submission is repeated under the
        same names, no job may start twice, if the site can prevent that."""
        ...

    def listed(self, prefix: str) -> Sequence[Seen]:
        """All jobs whose names begin with the prefix. Raises if the list cannot be had: an empty
        list means that there are no jobs."""
        ...

    def cancel(self, handles: Sequence[str]) -> None:
        """Cancels all of them. It is no failure if some have ended already."""
        ...

    def accounts(self, handles: Sequence[str]) -> Sequence[Seen] | None:
        """Reports how jobs ended that are no longer listed; None if the site cannot. The answer may
        lack some of these jobs, and have others of this server."""
        ...

    def capacity(self) -> SiteCapacity | None:
        """The size of the site, and how much of it is free; None if that is not known.
        It is asked for at most once a minute, and if this fails, more rarely."""
        ...

    def close(self) -> None: ...


class Driver(Protocol):
    name: str

    @property
    def options(self) -> type[Struct]:
        """The options in [sites.NAME.options], as a frozen Struct; each has a Meta with a
        description. An option may be a Struct again, or a list or a table of Structs."""
        ...

    def facts(self, spec: SiteSpec) -> SiteFacts:
        """What core must know about the site. Raises BadConfig for options that cannot be used."""
        ...

    def open(self, spec: SiteSpec, context: SiteContext) -> OpenSite:
        """Does no I/O: if the site does not answer, an event reports that. Raises BadConfig."""
        ...


# -- names ----------------------------------------------------------------------------------


def numbered(title: str, index: int) -> str:
    """The name of job number `index` of the submission with this title."""
    stem = title.rstrip("0123456789")
    return f"{stem}{int(title[len(stem) :][-18:] or 0) + index}" if index else title


def runs(names: Sequence[str], most: int) -> list[tuple[str, ...]]:
    """The names in groups that can be submitted together: consecutive names, at most `most`."""
    batches: list[list[str]] = []
    for name in names:
        last = batches[-1] if batches else []
        if last and len(last) < most and name == numbered(last[0], len(last)):
            last.append(name)
        else:
            batches.append([name])
    return [tuple(batch) for batch in batches]
