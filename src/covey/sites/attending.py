"""One site whose jobs are submitted, listed and cancelled by commands, and the thread that does so.

The thread does one thing after another, each time the most urgent: the list when it is due, then
how missing jobs ended (but not twice in a row while others wait: accounts may be slow), what is to
be cancelled, what is to be submitted. Between two commands it pauses, for the site's sake. Nothing
that a command or a driver does ends it. Orders may come from any thread; they only leave a word.

Lists are asked for while there are jobs to tell of, or the site does not answer (then ever more
rarely): that it answers again is news; now and then, too, if all that is left has vanished, since
it may be back. A submission that failed tells of the site, not of the job, so the others that wait
are given back rather than tried in vain.
"""

import hashlib
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from covey.core.record.actions import Note
from covey.core.record.events import Event, SiteAnswered, SiteFailed
from covey.core.record.model import JobId, JobRecord, SiteSpec
from covey.ports import Post
from covey.sites.driver import Away, Batch, Command, Driver, Output, Refused, Shape, Unclear, runs
from covey.sites.roll import Entry, Roll
from covey.sites.script import Told, job_script
from covey.sites.shell import Shell, Unreached, put

GRACE_SECONDS = 90.0  # in which a submission may arrive: longer than its command may take
CHECK_SECONDS = 60.0  # between two looks at credentials
STAGE_SECONDS = 600.0  # between two looks at the directory
SLOWEST_SECONDS = 60.0  # between two tries of a site that does not answer
DOUBT_SECONDS = 600.0  # between two lists if all that is left has vanished
MOST_CANCELLED = 100  # at once
MOST_ACCOUNTED = 200
HURRY_SECONDS = 30.0  # for small commands of our own

# A path as people write it: below the home of whoever runs the commands, unless it is absolute.
PLACE = 'case $1 in /*) d=$1;; "~/"*) d=$HOME/${1#"~/"};; *) d=$HOME/$1;; esac; '
# The directory, and where it really is; whether the pilot file is there, and its SHA-256 if the
# site can tell. (The job's script looks at it, too.) What pilots print is kept for a month
# (PBS calls it NUMBER.SERVER.OU).
STAGE = (
    PLACE + 'umask 077; mkdir -p "$d/log" && cd "$d" && pwd -P || exit 1; '
    "find log -type f '(' -name 'covey-*' -o -name '*.OU' ')' -mtime +30 "
    "-exec rm -f {} + 2>/dev/null; "
    'if test -s "$2"; then sum=$(sha256sum "$2" 2>/dev/null); echo "there ${sum%% *}"; '
    "else echo missing; fi"
)
CREDENTIALS = (
    'for f; do case $f in "~/"*) f=$HOME/${f#"~/"};; esac; '
    'test -r "$f" || { echo "$f"; exit 1; }; done'
)
SETTINGS = "SLURM_CONF"  # a file: without it, commands of Slurm wait for a minute


class Desk(NamedTuple):
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
    grace_seconds: float = GRACE_SECONDS
    on_record: Callable[[JobId], bool] = lambda _: False

    @property
    def prefix(self) -> str:
        return f"covey-{self.queue}-"


def directory_of(spec: SiteSpec) -> str:
    """As it is written; `PLACE` tells where that is."""
    return spec.directory or f"~/.covey/sites/{spec.name}"


class Attendant:
    """`make_shell` gives the shell that a site's commands run in."""

    def __init__(
        self, spec: SiteSpec, driver: Driver, make_shell: Callable[[SiteSpec], Shell], desk: Desk
    ) -> None:
        self.spec = spec
        self._driver = driver
        self._make_shell = make_shell
        self._shell = make_shell(spec)
        self._desk = desk
        self._roll = Roll(desk.prefix, desk.on_record)
        self._batches: deque[tuple[JobId, ...]] = deque()
        self._look_at = math.inf
        self._free_at = self._checked_at = self._staged_at = -math.inf
        self._place = self._pilot = self._digest = ""
        self._failures = 0
        self._heard = False
        self._accounted = False  # when it last did anything but look
        self._orders: deque[Callable[[], None]] = deque()
        self._awake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    # -- orders, from any thread -----------------------------------------------------------

    def submit(self, jobs: Sequence[JobRecord]) -> None:
        self._order(lambda: self._queue(jobs))

    def watch(self, jobs: Sequence[JobRecord]) -> None:
        self._order(lambda: self._watch(jobs))

    def cancel(self, jobs: Sequence[JobRecord]) -> None:
        self._order(lambda: self._roll.doom(job.id for job in jobs))

    def forget(self, jobs: Sequence[JobId]) -> None:
        """They are somewhere else."""
        self._order(lambda: self._roll.forget(jobs))

    def change(self, spec: SiteSpec) -> bool:
        self.spec = spec
        self._order(lambda: self._changed(spec))
        return True

    def jobs(self) -> tuple[JobRecord, ...]:
        return self._roll.jobs()

    def start(self) -> None:
        name = f"site-{self.spec.name}"
        self._thread = threading.Thread(target=self.run, daemon=True, name=name)
        self._thread.start()

    def close(self, seconds: float = 0.0) -> None:
        """Begin nothing more. A command that runs longer than this is left to itself."""
        self._closed = True
        self._awake.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        self._awake.set()

    def _queue(self, jobs: Sequence[JobRecord]) -> None:
        ids = {self._roll.name(job.id): job.id for job in self._roll.queue(jobs)}
        for names in runs(tuple(ids), max(1, self._driver.most_elements)):
            self._batches.append(tuple(ids[name] for name in names))

    def _watch(self, jobs: Sequence[JobRecord]) -> None:
        self._roll.watch(jobs, self._now() + self._desk.grace_seconds)
        self._look_at = self._now()

    def _changed(self, spec: SiteSpec) -> None:
        self._shell.close()
        self._shell = self._make_shell(spec)
        self._checked_at = self._staged_at = -math.inf
        self._look_at = self._now()

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
        """What was not begun is surely not there."""
        while self._orders:
            self._orders.popleft()()
        waiting = [entry for ids in self._batches for entry in self._roll.queued(ids)]
        self._say(self._roll.refused(waiting, f"site {self.spec.name} was closed"))
        self._shell.close()

    def turn(self) -> float:
        """Do what is most urgent; the seconds until there is more to do."""
        try:
            while self._orders:
                self._orders.popleft()()
            now = self._now()
            if now < self._free_at:
                return self._free_at - now
            if not self._act(now):
                return self._look_at - now
        except Exception as error:  # a bug of ours: it must not silence the site
            self._failed(error)
        self._free_at = self._now() + self.spec.pause_seconds
        return self.spec.pause_seconds

    def _act(self, now: float) -> bool:
        missing, unwanted = self._roll.missing(), self._roll.unwanted()
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
            self._submit(self._roll.queued(self._batches.popleft()))
        else:
            return False
        return True

    def _now(self) -> float:
        return self._desk.now()

    def _say(self, events: Sequence[Event]) -> None:
        for event in events:
            self._desk.post(event)

    def _ask(self, command: Command) -> Output:
        environment = {**self._driver.environment, **self.spec.environment}
        return self._shell.run(command, environment)

    def _failed(self, error: Exception) -> None:
        words = str(error)
        if not isinstance(error, Unclear | Unreached | Refused):
            words = f"driver {self._driver.name}: {type(error).__name__}: {error}"
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
        if self._roll.waits():
            return self._now() + interval
        return self._now() + max(interval, DOUBT_SECONDS) if self._roll.doubts() else math.inf

    # -- lists -----------------------------------------------------------------------------

    def _look(self) -> None:
        asked, driver, prefix = self._now(), self._driver, self._desk.prefix
        try:
            self._check_credentials()
            output = self._ask(driver.status(self.spec, prefix))
            seen = driver.listed(self.spec, prefix, output)
        except Exception as error:
            self._failed(error)
            return
        self._answered()
        self._say(self._roll.listed(seen, asked))
        if strays := self._roll.strays():
            words = f"{len(strays)} at {self.spec.name}: {', '.join(strays[:10])}"
            self._desk.note(Note("site jobs that are not on record", detail=words))
        self._look_again()

    def _account(self, missing: list[Entry]) -> None:
        """How those ended that are no longer listed. Of those that we cancelled nobody needs to
        know more, and of those without a handle nobody can."""
        gone = [one for one in missing if not one.handle or one.cancelled_at is not None]
        if gone:
            self._say(self._roll.vanished(gone, self._now()))
            return
        known = missing[:MOST_ACCOUNTED]
        try:
            command = self._driver.accounting(self.spec, [entry.handle for entry in known])
            if command is None:
                self._say(self._roll.vanished(known, self._now()))
                return
            seen = self._driver.accounted(self.spec, self._ask(command))
        except Exception as error:  # the lists are good: it can do without
            words = f"{self.spec.name}: {type(error).__name__}: {error}"
            self._desk.note(Note("the site's accounting cannot be read", detail=words))
            seen = []
        self._say(self._roll.accounted(known, seen, self._now()))

    def _cancel(self, handles: list[str]) -> None:
        """What is still listed later is cancelled again: whether it worked, the list tells."""
        self._roll.cancelled(handles, self._now())
        try:
            self._ask(self._driver.cancel(self.spec, handles))
        except Exception as error:
            self._failed(error)
        self._look_at = min(self._look_at, self._due())

    # -- submissions -----------------------------------------------------------------------

    def _submit(self, entries: list[Entry]) -> None:
        if all(entry.doomed for entry in entries):
            self._say(self._roll.withdraw(entries))
            return
        try:
            self._check_credentials()
            self._stage()
            batch = self._batch(entries)
            command = self._driver.submit(self.spec, batch)
        except Exception as error:
            self._give_back(entries, error)
            return
        self._roll.sent(entries, math.inf)
        try:
            handles = self._driver.submitted(self.spec, batch, self._ask(command))
            if len(handles) != len(entries):
                raise Unclear(
                    f"{len(entries)} jobs were submitted, but the site named {len(handles)}"
                )
        except (Unreached, Away) as error:
            self._give_back(entries, error)
        except Refused as error:
            self._answered()
            self._say(self._roll.refused(entries, str(error)))
        except Exception as error:
            self._roll.sent(entries, self._now() + self._desk.grace_seconds)
            self._give_back([], error)
        else:
            self._answered()
            since = self._now() + self.spec.interval_seconds
            self._say(self._roll.submitted(entries, handles, since))
        self._look_at = min(self._look_at, self._due())

    def _give_back(self, entries: list[Entry], error: Exception) -> None:
        """These are surely not there, and others need not be tried now."""
        self._failed(error)
        waiting = [entry for ids in self._batches for entry in self._roll.queued(ids)]
        self._batches.clear()
        self._say(self._roll.refused([*entries, *waiting], f"{self.spec.name}: {error}"))

    def _batch(self, entries: list[Entry]) -> Batch:
        address, ca = self._desk.whereabouts()
        told = Told(address, ca, self._desk.master, self._pilot, self._digest)
        jobs = [entry.job for entry in entries]
        first = jobs[0]
        shape = Shape(first.slots, first.wall_seconds, first.memory_mb, first.disk_mb, first.gpus)
        return Batch(
            entries[0].name,
            tuple(entry.name for entry in entries),
            shape,
            job_script(self.spec, jobs, self._driver.index, told),
            f"{self._place}/log",
        )

    def _check_credentials(self) -> None:
        """… and the settings of the site's commands. Raises Unreached."""
        spec = self.spec
        if self._now() < self._checked_at + CHECK_SECONDS:
            return
        settings = spec.environment.get(SETTINGS, "")
        if settings:
            command = Command(("/bin/sh", "-c", CREDENTIALS, "sh", settings), b"", HURRY_SECONDS)
            if self._ask(command).status:
                told = f"{SETTINGS} = '{settings}': there is no such file, or it is unreadable"
                raise Unreached(told)
        if spec.credentials:
            words = ("/bin/sh", "-c", CREDENTIALS, "sh", *spec.credentials)
            output = self._ask(Command(words, b"", HURRY_SECONDS))
            if output.status:
                raise Unreached(f"the credential {output.words} is missing, or cannot be read")
        if spec.credential_check:
            words = ("/bin/sh", "-c", spec.credential_check)
            output = self._ask(Command(words, b"", HURRY_SECONDS))
            if output.status:
                raise Unreached(f"the credential check failed: {output.words}")
        self._checked_at = self._now()

    def _stage(self) -> None:
        """The directory and the pilot file, if that has not been seen to lately. Raises Unreached
        and Unclear."""
        if self._now() < self._staged_at + STAGE_SECONDS:
            return
        try:
            data = self._desk.pilot_file.read_bytes()
        except OSError as error:
            raise Unreached(f"the server's pilot file cannot be read: {error}") from error
        self._digest = hashlib.sha256(data).hexdigest()
        name = f"pilot-{self._digest[:16]}.pyz"
        words = ("/bin/sh", "-c", STAGE, "sh", directory_of(self.spec), name)
        output = self._ask(Command(words, b"", HURRY_SECONDS))
        lines = output.stdout.splitlines()
        if output.status or len(lines) != 2:
            raise Unreached(
                f"cannot use the directory {directory_of(self.spec)} there: {output.words}"
            )
        self._place = lines[0]
        self._pilot = f"{self._place}/{name}"
        there, _, digest = lines[1].partition(" ")
        changed = there == "there" and digest not in ("", self._digest)
        if changed:
            detail = f"{self._pilot} at {self.spec.name}; covey writes it again"
            self._desk.note(Note("the pilot file at a site was changed", detail=detail))
        if changed or there != "there":
            put(self._shell, self._pilot, data)
        self._staged_at = self._now()
