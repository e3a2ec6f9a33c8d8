"""The jobs that a site should have, compared with its lists. Pure: no calls, no clock.

Rules 2 to 7 of docs/decisions/0014-pilots-by-demand.md are here. In short: a job that is not in a
list may be in the next one, so one list alone proves nothing. A list that was requested before a
job had time to appear says nothing about that job. A job that is listed is not submitted again.

A job is *queued* until the call that submits it begins; then *unsure* until the site has given its
handle; then *there* until the site reports its end, or it vanishes. A job that vanished after it
had been there is kept for a day: its pilot may still call, and if a list shows the job again, core
hears that, or the job is cancelled if core has given it up. A job that was never listed is
forgotten; if it appears later, it is cancelled as not on record.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from covey.core.record.events import (
    Event,
    JobEnded,
    JobRefused,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    JobSuspended,
    JobVanished,
)
from covey.core.record.model import JobId, JobRecord
from covey.sites.driver import Seen, Stand

MISSES = 2  # complete lists in a row without a job: then it is missing
ASKED = 3  # times that accounts are asked about a missing job …
LAG_SECONDS = 10.0  # … and time that they have to answer, before it counts as vanished
AGAIN_SECONDS = 30.0  # until a job that was cancelled, and is still there, is cancelled again
VANISHED_SECONDS = 86400.0

_LIVELIEST = (Stand.RUNNING, Stand.WAITING, Stand.STUCK, Stand.UNKNOWN, Stand.ENDED)


class Phase(Enum):
    QUEUED = auto()
    UNSURE = auto()
    THERE = auto()
    VANISHED = auto()


@dataclass(slots=True)
class Entry:
    """`counts_from`: lists that were requested earlier do not count against the job. `reported`:
    the last state that core heard of. `doomed`: the job must be cancelled. `stuck`: why the job
    would never have run."""

    job: JobRecord
    name: str
    phase: Phase
    handle: str = ""
    counts_from: float = -math.inf
    reported: Stand | None = None
    restarts: int = -1
    misses: int = 0
    missed_at: float = 0.0  # when the first list without it was requested
    asked: int = 0
    doomed: bool = False
    cancelled_at: float | None = None
    vanished_at: float = 0.0
    stuck: str = ""
    suspended: bool = False  # as reported to core


class JobTable:
    """The names of all jobs of this server begin with `prefix`. `on_record`: whether any site has
    the job on record: another site may be the same machines under another name."""

    def __init__(self, prefix: str, on_record: Callable[[JobId], bool] = lambda _: False) -> None:
        self.prefix = prefix
        self._on_record = on_record
        self.complete = False  # whether it has all jobs on record
        self._entries: dict[JobId, Entry] = {}
        self._strays: dict[str, float | None] = {}  # handle -> when it was cancelled

    def name(self, job: JobId) -> str:
        return f"{self.prefix}{job}"

    def entry(self, job: JobId) -> Entry | None:
        return self._entries.get(job)

    def jobs(self) -> tuple[JobRecord, ...]:
        return tuple(entry.job for entry in list(self._entries.values()))

    def waits(self) -> bool:
        """Whether a list could have news."""
        return bool(self._strays) or any(
            entry.phase in (Phase.UNSURE, Phase.THERE) for entry in self._entries.values()
        )

    def doubts(self) -> bool:
        """Whether a list could show a vanished job."""
        return any(entry.phase is Phase.VANISHED for entry in self._entries.values())

    # -- orders of core --------------------------------------------------------------------

    def queue(self, jobs: Iterable[JobRecord]) -> list[JobRecord]:
        """Add these jobs; returns those that are new to the table."""
        fresh = [job for job in jobs if job.id not in self._entries]
        for job in fresh:
            self._entries[job.id] = Entry(job, self.name(job.id), Phase.QUEUED)
        return fresh

    def watch(self, jobs: Iterable[JobRecord], counts_from: float) -> None:
        """These jobs are on record, and no others. Their states are reported again. A job without a
        handle may have been submitted, even at this moment."""
        before, self._entries = self._entries, {}
        self.complete = True
        for job in jobs:
            entry = before.pop(job.id, None)
            if entry is None:
                since = -math.inf if job.handle else counts_from
                entry = Entry(job, self.name(job.id), Phase.UNSURE, job.handle, since)
            entry.reported, entry.suspended = None, False
            self._entries[job.id] = entry
        self._entries.update(
            (id_, entry) for id_, entry in before.items() if entry.phase is Phase.QUEUED
        )

    def forget(self, jobs: Iterable[JobId]) -> None:
        for job in jobs:
            self._entries.pop(job, None)

    def doom(self, jobs: Iterable[JobId]) -> None:
        for job in jobs:
            entry = self._entries.get(job)
            if entry is not None:
                entry.doomed, entry.cancelled_at = True, None

    # -- submissions -----------------------------------------------------------------------

    def queued(self, jobs: Iterable[JobId]) -> list[Entry]:
        entries = (self._entries.get(job) for job in jobs)
        return [entry for entry in entries if entry is not None and entry.phase is Phase.QUEUED]

    def withdraw(self, entries: Iterable[Entry]) -> list[Event]:
        """Remove jobs that were cancelled before they were submitted."""
        found: list[Event] = []
        for entry in entries:
            del self._entries[entry.job.id]
            found.append(JobEnded(entry.job.id, "cancelled before it was submitted"))
        return found

    def sent(self, entries: Iterable[Entry], counts_from: float) -> None:
        """The call that submits these jobs begins: from now on they may be at the site."""
        for entry in entries:
            entry.phase, entry.counts_from = Phase.UNSURE, counts_from

    def submitted(
        self, entries: Sequence[Entry], handles: Sequence[str], counts_from: float
    ) -> list[Event]:
        found: list[Event] = []
        for entry, handle in zip(entries, handles, strict=True):
            entry.phase, entry.handle, entry.counts_from = Phase.THERE, handle, counts_from
            entry.reported, entry.restarts = Stand.WAITING, 0
            found.append(JobSubmitted(entry.job.id, handle))
        return found

    def refused(self, entries: Iterable[Entry], reason: str) -> list[Event]:
        found: list[Event] = []
        for entry in entries:
            self._entries.pop(entry.job.id, None)
            found.append(JobRefused(entry.job.id, reason))
        return found

    # -- lists -----------------------------------------------------------------------------

    def listed(self, seen: Iterable[Seen], asked: float) -> list[Event]:
        """The news in a complete list, which was requested at the time `asked`."""
        events: list[Event] = []
        by_name: dict[str, list[Seen]] = {}
        for job in seen:
            by_name.setdefault(job.name, []).append(job)
        for entry in list(self._entries.values()):
            choice = _choose(by_name.get(entry.name, ()), entry.handle)
            if choice is not None:
                by_name[entry.name].remove(choice)
                events += self._seen(entry, choice, asked)
            elif entry.phase in (Phase.UNSURE, Phase.THERE) and asked >= entry.counts_from:
                if not entry.misses:
                    entry.missed_at = asked
                entry.misses += 1
            elif entry.phase is Phase.VANISHED and asked > entry.vanished_at + VANISHED_SECONDS:
                del self._entries[entry.job.id]
        self._note_strays((job for rest in by_name.values() for job in rest), asked)
        return events

    def _seen(self, entry: Entry, seen: Seen, asked: float) -> list[Event]:
        id_, events = entry.job.id, list[Event]()
        if seen.stand is Stand.ENDED:
            return [self._end(entry, entry.stuck or seen.reason or "it ended")]
        if entry.phase is Phase.VANISHED:
            entry.reported, entry.suspended = None, False
        entry.phase, entry.handle = Phase.THERE, seen.handle
        entry.misses = entry.asked = 0
        if entry.reported is None:
            entry.reported = Stand.WAITING
            events.append(JobSubmitted(id_, seen.handle))
        # It may have started and been requeued between two lists.
        restarted = 0 <= entry.restarts < seen.restarts
        if restarted or (entry.reported is Stand.RUNNING and seen.stand is Stand.WAITING):
            entry.reported, entry.suspended = Stand.WAITING, False
            events.append(JobRequeued(id_, seen.reason or "its site started it again"))
        if entry.reported is Stand.WAITING and seen.stand is Stand.RUNNING:
            entry.reported = Stand.RUNNING
            events.append(JobStarted(id_, seen.ran_seconds))
        if entry.reported is Stand.RUNNING and seen.suspended != entry.suspended:
            entry.suspended = seen.suspended
            events.append(JobSuspended(id_, seen.suspended))
        entry.restarts = max(entry.restarts, seen.restarts)
        if seen.stand is Stand.STUCK and not entry.stuck:
            entry.stuck, entry.doomed = seen.reason or "it will never run there", True
        if entry.cancelled_at is not None and asked >= entry.cancelled_at + AGAIN_SECONDS:
            entry.cancelled_at = None
        return events

    def _note_strays(self, seen: Iterable[Seen], asked: float) -> None:
        """Remember this server's jobs that are not on record, once all jobs on record are known."""
        before, self._strays = self._strays, {}
        for job in seen:
            if self.complete and job.stand is not Stand.ENDED and self._stray(job.name):
                at = before.get(job.handle)
                again = at is not None and asked >= at + AGAIN_SECONDS
                self._strays[job.handle] = None if again else at

    def _stray(self, name: str) -> bool:
        id_ = JobId(name.removeprefix(self.prefix))
        return name.startswith(self.prefix) and not self._on_record(id_)

    def _end(self, entry: Entry, reason: str) -> JobEnded:
        del self._entries[entry.job.id]
        return JobEnded(entry.job.id, reason)

    # -- jobs that are missing -------------------------------------------------------------

    def missing(self) -> list[Entry]:
        """Jobs that were not in the last lists, and whose end is not known yet."""
        return [entry for entry in self._entries.values() if entry.misses >= MISSES]

    def accounted(self, entries: Iterable[Entry], seen: Iterable[Seen], now: float) -> list[Event]:
        """What the site's accounts say about missing jobs. Accounts may be late, so they are asked
        several times."""
        by_handle = {job.handle: job for job in seen}
        events: list[Event] = []
        for entry in entries:
            account = by_handle.get(entry.handle)
            if account is not None and account.stand is Stand.ENDED:
                events.append(self._end(entry, entry.stuck or account.reason or "it ended"))
                continue
            entry.asked += 1
            entry.misses = MISSES - 1
            if entry.asked >= ASKED and now >= entry.missed_at + LAG_SECONDS:
                events.append(self._vanish(entry, now))
        return events

    def vanished(self, entries: Iterable[Entry], now: float) -> list[Event]:
        """Missing jobs that no accounts can explain."""
        return [self._vanish(entry, now) for entry in entries]

    def _vanish(self, entry: Entry, now: float) -> Event:
        if entry.stuck:
            return self._end(entry, entry.stuck)
        if not entry.handle:
            del self._entries[entry.job.id]
            return JobVanished(entry.job.id, "its site never listed it")
        entry.phase, entry.vanished_at = Phase.VANISHED, now
        entry.misses = entry.asked = 0
        entry.reported = None
        words = (
            "it was cancelled, and its site does not list it any more"
            if entry.doomed
            else "its site does not list it any more"
        )
        return JobVanished(entry.job.id, words)

    # -- jobs that must go -----------------------------------------------------------------

    def unwanted(self) -> list[str]:
        """Handles of the jobs that must be cancelled now."""
        doomed = [
            entry.handle
            for entry in self._entries.values()
            if entry.doomed and entry.handle and entry.cancelled_at is None
            if entry.phase is not Phase.VANISHED
        ]
        return doomed + self.strays()

    def strays(self) -> list[str]:
        return [handle for handle, at in self._strays.items() if at is None]

    def cancelled(self, handles: Iterable[str], now: float) -> None:
        """These were cancelled at that time."""
        handles = set(handles)
        for entry in self._entries.values():
            if entry.handle in handles:
                entry.cancelled_at = now
        for handle in handles & self._strays.keys():
            self._strays[handle] = now


def _choose(seen: Sequence[Seen], handle: str) -> Seen | None:
    """Of several jobs with one name: the one with this handle, else the liveliest."""
    matching = [job for job in seen if handle and job.handle == handle]
    return min(matching or seen, key=lambda job: _LIVELIEST.index(job.stand), default=None)
