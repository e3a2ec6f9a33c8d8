"""The files that tasks need, kept on this host for all pilots of one user, under a size bound.

    files/ab/abcdef…     a file by its SHA-256 (mode 0444), or by its URL and bag if it has none
    files/ab/abcdef….x   the same, executable (0555)
    incoming/…           what is being fetched: the part that is here, and a lock
    leases/…             which files each living pilot uses

The rules: a file is whole and verified before it gets its name. Its time of change is then set to
one moment, VERIFIED, long ago: whoever writes into it later (a task may; it is linked into its
directory) betrays that, and it is fetched again. A file is fetched by one pilot at a time; others
wait for it. When there is too much, the least recently used go, never what any living pilot's
attempts need: for these the bound may be exceeded.

Everything here happens in a few threads; the main thread calls `request`, `release`, `intact` and
`news`.
"""

import hashlib
import heapq
import os
import random
import shutil
import threading
import time
from collections import deque
from typing import Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

from covey.pilot.courier import Courier
from covey.pilot.crew import Crew
from covey.pilot.fetching import Busy, Damaged, Missing, Unreachable, Wrong, fetch
from covey.pilot.leases import Leases, lock
from covey.pilot.messages import Input

VERIFIED = 1000000000  # seconds since 1970
THREADS = 2
LOOK_SECONDS = 0.2  # at what another pilot fetches
FIRST_BACKOFF = 0.2
LAST_BACKOFF = 30.0
MOST_TRIES = 5  # unless it is the server that does not answer: it is waited for
LEFTOVER_SECONDS = 3600.0  # after which a part that nobody fetches is removed
TOUCH_SECONDS = 60.0


class News(NamedTuple):
    """The file is there now, or cannot be had: then `problem` says why, and `wrong` whether the
    bag is at fault."""

    name: str
    problem: str
    wrong: bool = False


class _Wanted(NamedTuple):
    item: Input
    name: str
    tries: int


def name_of(item: Input, bag: int) -> str:
    """What a file is called here. One whose content nobody knows is fetched anew for each bag."""
    name = item.digest
    if not name:
        name = "url-" + hashlib.sha256(("%d %s" % (bag, item.url)).encode("utf-8")).hexdigest()
    return name + ".x" if item.executable else name


class Larder:
    """`courier` makes one for each thread; `wake` is called when there is news. Raises OSError
    when the directory cannot be used."""

    def __init__(
        self,
        directory: str,
        limit_bytes: int,
        key: str,
        courier: Callable[[], Courier],
        wake: Callable[[], None],
    ) -> None:
        self._files = os.path.join(directory, "files")
        self._incoming = os.path.join(directory, "incoming")
        for path in (self._files, self._incoming):
            os.makedirs(path, 0o700, exist_ok=True)
        self._leases = Leases(os.path.join(directory, "leases"), key)
        self._limit = limit_bytes
        self._courier = courier
        self._wake = wake
        self._used = -1  # bytes; not known before the first look
        self._touched: Dict[str, float] = {}
        self._news: Deque[News] = deque()
        self._due: List[Tuple[float, int, _Wanted]] = []
        self._count = 0
        self._change = threading.Condition()
        self._disk = threading.Lock()  # around what we know of the disk, and the leases
        self._crew = Crew(self._run, THREADS, "larder")
        self._closed = False

    # -- for the main thread ---------------------------------------------------------------

    def path(self, name: str) -> str:
        place = name[4:6] if name.startswith("url-") else name[:2]
        return os.path.join(self._files, place, name)

    def request(self, item: Input, name: str) -> None:
        """Have it here, and keep it until `release`; news will come in any case."""
        self._lease(self._leases.hold, name)
        self._add(_Wanted(item, name, 0), 0.0)
        self._crew.want(self._count)

    def release(self, name: str) -> None:
        self._lease(self._leases.drop, name)
        self._touched.pop(name, None)

    def _lease(self, change: Callable[[str], None], name: str) -> None:
        with self._disk:
            guard = self._leases.guard(shared=True)
            try:
                change(name)
            finally:
                guard.close()

    def intact(self, item: Input, name: str) -> bool:
        """A quick look: it is there, and as it was when it was verified."""
        try:
            found = os.stat(self.path(name))
        except OSError:
            return False
        if int(found.st_mtime) != VERIFIED or (not item.url and found.st_size != item.size):
            return False
        now = time.monotonic()
        if now - self._touched.get(name, -TOUCH_SECONDS) >= TOUCH_SECONDS:
            self._touched[name] = now
            _touch(self.path(name))
        return True

    def news(self) -> List[News]:
        self._crew.fill()
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._leases.close()

    # -- the threads -----------------------------------------------------------------------

    def _add(self, wanted: _Wanted, delay: float) -> None:
        with self._change:
            self._count += 1
            heapq.heappush(self._due, (time.monotonic() + delay, self._count, wanted))
            self._change.notify()

    def _next(self) -> Optional[_Wanted]:
        with self._change:
            while not self._closed:
                now = time.monotonic()
                if self._due and self._due[0][0] <= now:
                    return heapq.heappop(self._due)[2]
                self._change.wait(self._due[0][0] - now if self._due else None)
        return None

    def _run(self) -> None:
        courier = self._courier()
        with self._change:
            first = self._used < 0
            self._used = max(0, self._used)
        if first:
            self._clear_leftovers()
            self._make_room(0)
        while True:
            wanted = self._next()
            if wanted is None:
                courier.close()
                return
            self._serve(wanted, courier)

    def _serve(self, wanted: _Wanted, courier: Courier) -> None:
        """Try once; then there is news, or it will be tried again."""
        if not self._leases.holds(wanted.name):
            return  # nobody waits for it any more
        try:
            there = self.intact(wanted.item, wanted.name) or self._fetched(wanted, courier)
            if there:
                self._tell(wanted.name, "")
            else:
                self._add(wanted, LOOK_SECONDS)
        except Busy as error:
            self._again(wanted, error.delay)
        except Unreachable as error:
            url, damaged = wanted.item.url, isinstance(error, Damaged)
            patient = not url and not damaged
            if patient or wanted.tries + 1 < MOST_TRIES:
                self._again(wanted, 0.0)
            else:
                self._tell(wanted.name, str(error), wrong=bool(url) and damaged)
        except Missing as error:
            self._tell(wanted.name, str(error), wrong=isinstance(error, Wrong))
        except OSError as error:
            if wanted.tries < 2:
                self._make_room(max(wanted.item.size, 1 << 20))
                self._again(wanted, 0.0)
            else:
                self._tell(wanted.name, "the cache of this host fails: %s" % error)
        except Exception as error:  # whoever waits must hear of it, whatever it was
            self._tell(wanted.name, "%s: %s: %s" % (wanted.item.path, type(error).__name__, error))

    def _again(self, wanted: _Wanted, delay: float) -> None:
        backoff = min(FIRST_BACKOFF * 2 ** min(wanted.tries, 10), LAST_BACKOFF)
        backoff *= random.uniform(0.5, 1.0)
        self._add(wanted._replace(tries=wanted.tries + 1), max(delay, backoff))

    def _tell(self, name: str, problem: str, wrong: bool = False) -> None:
        self._news.append(News(name, problem, wrong))
        self._wake()

    def _fetched(self, wanted: _Wanted, courier: Courier) -> bool:
        """False while another pilot (or our other thread) fetches it."""
        part = os.path.join(self._incoming, wanted.name)
        claim = lock(part + ".lock")
        if claim is None:
            return False
        try:
            if not self.intact(wanted.item, wanted.name):
                self._make_room(wanted.item.size)
                fetch(wanted.item, part, courier)
                self._shelve(wanted, part)
            return True
        finally:
            claim.remove()

    def _shelve(self, wanted: _Wanted, part: str) -> None:
        os.chmod(part, 0o555 if wanted.item.executable else 0o444)
        os.utime(part, (time.time(), VERIFIED))
        path = self.path(wanted.name)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        size = os.stat(part).st_size
        os.rename(part, path)
        with self._disk:
            self._used += size

    # -- keeping within bounds -------------------------------------------------------------

    def _make_room(self, size: int) -> None:
        """Throw away the least recently used that nobody needs, if there would be too much."""
        with self._disk:
            if self._used + size <= self._bound() and self._used > 0:
                return
            guard = self._leases.guard(shared=False)
            try:
                found = self._all_files()
                self._used = sum(one[1] for one in found)
                excess = self._used + size - self._bound()
                needed = self._leases.everyone() if excess > 0 else set()
                for _, bytes_, path in sorted(found):
                    if excess <= 0:
                        break
                    if os.path.basename(path) not in needed and _remove(path):
                        excess -= bytes_
                        self._used -= bytes_
            finally:
                guard.close()

    def _bound(self) -> int:
        """Never more than half of what the disk could give us."""
        free = shutil.disk_usage(self._files).free
        return min(self._limit, (free + self._used) // 2)

    def _all_files(self) -> List[Tuple[float, int, str]]:
        found = []
        for folder, _, names in os.walk(self._files):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    about = os.stat(path)
                except OSError:
                    continue
                found.append((about.st_atime, about.st_size, path))
        return found

    def _clear_leftovers(self) -> None:
        """Leases of the dead; parts that nobody fetches, nor has gone on with for an hour."""
        with self._disk:
            self._leases.everyone()
        for name in os.listdir(self._incoming):
            path = os.path.join(self._incoming, name)
            part = path[:-5] if name.endswith(".lock") else path
            try:
                if time.time() - os.stat(path).st_mtime < LEFTOVER_SECONDS:
                    continue
                claim = lock(part + ".lock")
            except OSError:
                continue
            if claim is not None:
                _remove(part)
                claim.remove()


def _touch(path: str) -> None:
    """Note the use. The time of change stays: that is the seal."""
    try:
        os.utime(path, (time.time(), VERIFIED))
    except OSError:
        pass


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
