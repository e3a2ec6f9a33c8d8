"""A site that keeps a list of jobs, and the thread that makes the calls to it.

The thread makes one call after another, each time the most urgent one: the list if it is due; how
missing jobs ended (but not twice in a row while other calls wait: accounts may be slow); then
cancellations, then submissions, then, now and then after a list, how much of the site is free. It
pauses between two calls to spare the site. No failure of a call or a driver ends the thread. Orders
may come from any thread; the site's own thread carries them out.

Lists are requested while there are jobs to watch. They are also requested, less and less often,
while the site does not answer, to see when it answers again; and now and then if all jobs have
vanished, since they may come back. After a submission that failed because of the site, all waiting
jobs are refused: another try would fail, too.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence

from covey.core.record.actions import Note
from covey.core.record.events import Event, SiteAnswered, SiteFailed, SiteMeasured
from covey.core.record.model import JobId, JobRecord, SiteSpec
from covey.sites.driver import OpenSite, Queue, SiteContext, Submission, runs
from covey.sites.errors import Refused, SiteError, Unclear
from covey.sites.job_table import Entry, JobTable

SLOWEST_SECONDS = 60.0  # between two tries of a site that does not answer
DOUBT_SECONDS = 600.0  # between two lists if all jobs have vanished
MEASURE_SECONDS = 60.0  # between two questions how much is free
UNMEASURED_SECONDS = 600.0  # … if there was no answer
MOST_CANCELLED = 100  # at once
MOST_ACCOUNTED = 200


class QueueSite(OpenSite):
    """`open_queue` gives the queue of a site, without I/O."""

    def __init__(
        self, spec: SiteSpec, open_queue: Callable[[SiteSpec], Queue], context: SiteContext
    ) -> None:
        self.spec = spec
        self._open_queue = open_queue
        self._queue = open_queue(spec)
        self._context = context
        self._table = JobTable(context.prefix, context.on_record)
        self._batches: deque[tuple[JobId, ...]] = deque()
        self._look_at = math.inf
        self._free_at = -math.inf
        self._failures = 0
        self._heard = False
        self._listed = False  # since the batch system was last asked how much is free
        self._measure_at = -math.inf
        self._accounted = False  # whether the last call, lists aside, was for accounts
        self._orders: deque[Callable[[], None]] = deque()
        self._awake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    # -- orders, from any thread -----------------------------------------------------------

    def submit(self, jobs: Sequence[JobRecord]) -> None:
        self._order(lambda: self._enqueue(jobs))

    def watch(self, jobs: Sequence[JobRecord]) -> None:
        self._order(lambda: self._watch(jobs))

    def cancel(self, jobs: Sequence[JobRecord]) -> None:
        self._order(lambda: self._table.doom(job.id for job in jobs))

    def forget(self, jobs: Sequence[JobId]) -> None:
        """These jobs turned out to be somewhere else."""
        self._order(lambda: self._table.forget(jobs))

    def change(self, spec: SiteSpec) -> bool:
        self.spec = spec
        self._order(lambda: self._changed(spec))
        return True

    def jobs(self) -> tuple[JobRecord, ...]:
        return self._table.jobs()

    def start(self) -> "QueueSite":
        """Start the site's thread."""
        name = f"site-{self.spec.name}"
        self._thread = threading.Thread(target=self.run, daemon=True, name=name)
        self._thread.start()
        return self

    def close(self, seconds: float = 0.0) -> None:
        """A call that takes longer than `seconds` is not waited for."""
        self._closed = True
        self._awake.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        self._awake.set()

    def _enqueue(self, jobs: Sequence[JobRecord]) -> None:
        ids = {self._table.name(job.id): job.id for job in self._table.queue(jobs)}
        for names in runs(tuple(ids), max(1, self._queue.most_jobs)):
            self._batches.append(tuple(ids[name] for name in names))

    def _watch(self, jobs: Sequence[JobRecord]) -> None:
        self._table.watch(jobs, self._now() + self._context.grace_seconds)
        self._look_at = self._now()

    def _changed(self, spec: SiteSpec) -> None:
        before, self._queue = self._queue, self._open_queue(spec)
        before.close()
        self._look_at = self._now()
        self._measure_at = -math.inf

    # -- its own thread --------------------------------------------------------------------

    def run(self) -> None:
        while True:
            self._awake.clear()
            if self._closed:
                break
            seconds = self.turn()
            self._awake.wait(seconds if seconds < threading.TIMEOUT_MAX else None)
        self._give_up()

    def _give_up(self) -> None:
        """Jobs that wait to be submitted are refused: they are surely not at the site."""
        while self._orders:
            self._orders.popleft()()
        waiting = [entry for ids in self._batches for entry in self._table.queued(ids)]
        self._say(self._table.refused(waiting, f"site {self.spec.name} was closed"))
        self._queue.close()

    def turn(self) -> float:
        """Make the most urgent call. Returns the seconds until the next."""
        try:
            while self._orders:
                self._orders.popleft()()
            now = self._now()
            if now < self._free_at:
                return self._free_at - now
            if not self._act(now):
                return self._look_at - now
        except Exception as error:  # a bug in covey: the site's thread must go on
            self._failed(error)
        self._free_at = self._now() + self.spec.pause_seconds
        return self.spec.pause_seconds

    def _act(self, now: float) -> bool:
        missing, unwanted = self._table.missing(), self._table.unwanted()
        others_first = self._accounted and bool(unwanted or self._batches)
        if now >= self._look_at:
            self._look()
            return True
        self._accounted = bool(missing) and not others_first
        if self._accounted:
            self._account(missing)
        elif unwanted:
            self._cancel(unwanted[:MOST_CANCELLED])
        elif self._batches:
            self._submit(self._table.queued(self._batches.popleft()))
        elif self._listed and now >= self._measure_at:
            self._measure()
        else:
            return False
        return True

    def _now(self) -> float:
        return self._context.now()

    def _say(self, events: Sequence[Event]) -> None:
        for event in events:
            self._context.post(event)

    def _failed(self, error: Exception) -> None:
        words = str(error)
        if not isinstance(error, SiteError):
            words = f"driver {self.spec.driver}: {type(error).__name__}: {error}"
        self._failures += 1
        self._look_again()
        self._say([SiteFailed(self.spec.name, words)])

    def _answered(self) -> None:
        if self._failures or not self._heard:
            self._failures, self._heard = 0, True
            self._say([SiteAnswered(self.spec.name)])

    def _look_again(self) -> None:
        self._look_at = self._due()

    def _due(self) -> float:
        """When the next list is due, if any is needed."""
        interval = self.spec.interval_seconds
        if self._failures:
            slower = interval * 2.0 ** min(self._failures - 1, 10)
            return self._now() + min(slower, max(interval, SLOWEST_SECONDS))
        if self._table.waits():
            return self._now() + interval
        return self._now() + max(interval, DOUBT_SECONDS) if self._table.doubts() else math.inf

    # -- lists -----------------------------------------------------------------------------

    def _look(self) -> None:
        asked = self._now()
        try:
            seen = self._queue.listed(self._context.prefix)
        except Exception as error:
            self._failed(error)
            return
        self._answered()
        self._listed = True
        self._say(self._table.listed(seen, asked))
        if strays := self._table.strays():
            words = f"{len(strays)} at {self.spec.name}: {', '.join(strays[:10])}"
            self._context.note(Note("site jobs that are not on record", detail=words))
        self._look_again()

    def _account(self, missing: list[Entry]) -> None:
        """Find out how missing jobs ended. Accounts are not asked about jobs that covey cancelled,
        or that have no handle: these have vanished."""
        gone = [entry for entry in missing if not entry.handle or entry.cancelled_at is not None]
        if gone:
            self._say(self._table.vanished(gone, self._now()))
            return
        known = missing[:MOST_ACCOUNTED]
        try:
            seen = self._queue.accounts([entry.handle for entry in known])
        except Exception as error:  # without accounts, lists are enough
            words = f"{self.spec.name}: {type(error).__name__}: {error}"
            self._context.note(Note("the site's accounting cannot be read", detail=words))
            seen = []
        if seen is None:
            self._say(self._table.vanished(known, self._now()))
        else:
            self._say(self._table.accounted(known, seen, self._now()))

    def _cancel(self, handles: list[str]) -> None:
        """A job that is still in a later list is cancelled again."""
        self._table.cancelled(handles, self._now())
        try:
            self._queue.cancel(handles)
        except Exception as error:
            self._failed(error)
        self._look_at = min(self._look_at, self._due())

    def _measure(self) -> None:
        """Ask for the size of the site. A failure here is not a failure of the site's jobs."""
        self._listed = False
        try:
            capacity = self._queue.capacity()
        except Exception as error:
            self._measure_at = self._now() + UNMEASURED_SECONDS
            words = f"{self.spec.name}: {type(error).__name__}: {error}"
            self._context.note(Note("the site's free cores cannot be read", detail=words))
            return
        self._measure_at = self._now() + (MEASURE_SECONDS if capacity else UNMEASURED_SECONDS)
        if capacity:
            self._say([SiteMeasured(self.spec.name, capacity)])

    # -- submissions -----------------------------------------------------------------------

    def _submit(self, entries: list[Entry]) -> None:
        if all(entry.doomed for entry in entries):
            self._say(self._table.withdraw(entries))
            return
        names = tuple(entry.name for entry in entries)
        try:
            submit = self._queue.prepare(Submission(names, tuple(entry.job for entry in entries)))
        except Exception as error:
            self._give_back(entries, error)
            return
        self._table.sent(entries, math.inf)
        try:
            handles = submit()
            if len(handles) != len(entries):
                raise Unclear(
                    f"{len(entries)} jobs were submitted, but the site returned {len(handles)} ids"
                )
        except Refused as error:
            if error.transient:
                self._give_back(entries, error)
            else:
                self._answered()
                self._say(self._table.refused(entries, str(error)))
        except Exception as error:
            self._table.sent(entries, self._now() + self._context.grace_seconds)
            self._give_back([], error)
        else:
            self._answered()
            since = self._now() + self.spec.interval_seconds
            self._say(self._table.submitted(entries, handles, since))
        self._look_at = min(self._look_at, self._due())

    def _give_back(self, entries: list[Entry], error: Exception) -> None:
        """Refuse these jobs, which are surely not at the site, and all waiting jobs: the site does
        not work now."""
        self._failed(error)
        waiting = [entry for ids in self._batches for entry in self._table.queued(ids)]
        self._batches.clear()
        self._say(self._table.refused([*entries, *waiting], f"{self.spec.name}: {error}"))
