"""The files that tasks need, kept on this host for all pilots of one user, under a size bound.

    files/ab/abcdef…-SHELF     a file by its SHA-256 (mode 0444)
    files/ab/abcdef…-SHELF.x   the same, executable (0555)
    files/ab/url-ab…           a file whose SHA-256 nobody gave; for the pilot that fetched it
    incoming/…                 what is being fetched: the part that is here, and a lock
    leases/…                   which files each living pilot uses

Who may change a cached file, and why no task of another owner ever gets a changed one:

1. *What is on disk is not believed.* Every program of this Unix user can write here and can set any
   time of modification. So each pilot reads a file in full and compares its SHA-256 before the
   first use. Only the pilot's own memory says that it did (`_Seal`).
2. *No task gets a file that another owner's tasks get too.* A pilot with walls (`walled`) places
   copies only. Its files are on the shelf "shared", and no task can reach them. A pilot without
   walls places hard links, which a task can write to after a chmod. So it has a shelf for each
   owner: a task can spoil files of its own owner, of nobody else.
3. *A change is noticed.* Before it is placed a file must be the same inode with the same size and
   times as when it was read. Nobody can set the time of the inode's change (ctime). But making and
   removing a hard link sets it. So where files are linked, a new ctime means: read the file again,
   at most once in REREAD_SECONDS, and no more than 1 % of the time.

A file without a SHA-256 (of a URL) cannot be checked against anything. So each pilot fetches it
anew, and remembers the digest of what it got.

What this cannot prevent: without walls, tasks of one Unix user can do to each other what they like
while they run, whatever covey does (docs/decisions/0016).

A file is whole and verified before it gets its name. A file is fetched by one pilot at a time;
others wait for it. When there is too much, the least recently used go, never what any living
pilot's attempts need: for these the bound may be exceeded.

Everything here happens in a few threads; the main thread calls `request`, `release`, `intact` and
`news`.
"""

import hashlib
import heapq
import os
import random
import shutil
import stat
import threading
import time
from collections import deque
from functools import partial
from typing import BinaryIO, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

from covey.pilot.files.cache_leases import Leases, lock
from covey.pilot.files.downloads import (
    CHUNK_BYTES,
    Busy,
    Damaged,
    Missing,
    SourceSilent,
    Unreachable,
    WrongContent,
    fetch,
)
from covey.pilot.files.safe_paths import remove
from covey.pilot.files.transfers import Transfers
from covey.pilot.files.url_hosts import UrlHosts
from covey.pilot.protocol.messages import Input
from covey.pilot.protocol.thread_pool import Crew

MODIFIED = 1000000000  # seconds since 1970: the time of modification that all inputs have
THREADS = 2  # for files of the server
URL_THREADS = 4  # others may not answer: they keep nobody from the files of the server
MOST_SEALS = 100_000  # files that are known to be right without being read again
LOOK_SECONDS = 0.2  # at what another pilot fetches
FIRST_BACKOFF = 0.2
LAST_BACKOFF = 30.0
MOST_TRIES = 5  # unless it is the server that does not answer: it is waited for
LEFTOVER_SECONDS = 3600.0  # after which a part that nobody fetches is removed
TOUCH_SECONDS = 3600.0  # between notes that a file was used
REREAD_SECONDS = 20.0  # at least, between two readings of a file that is linked into directories
REREAD_SHARE = 100  # and as many times as long as the last reading took

SHARED = "shared"  # the shelf of pilots with walls


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


class _Seal(NamedTuple):
    """How a file looked when this pilot had just read it, and its content was right."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    reread_at: float  # monotonic time; only then a new ctime matters, where files are linked


class FileCache:
    """`courier` makes one for each thread; `wake` is called when there is news. A larder is
    `walled` if no task gets a hard link to its files. `say` is told of files that somebody
    changed. Raises OSError when the directory cannot be used."""

    def __init__(
        self,
        directory: str,
        limit_bytes: int,
        key: str,
        courier: Callable[[], Transfers],
        wake: Callable[[], None],
        walled: bool = False,
        say: Callable[[str], None] = lambda words: None,
    ) -> None:
        self._files = os.path.join(directory, "files")
        self._incoming = os.path.join(directory, "incoming")
        for path in (self._files, self._incoming):
            os.makedirs(path, 0o700, exist_ok=True)
        self._leases = Leases(os.path.join(directory, "leases"), key)
        self._limit = limit_bytes
        self._key = key
        self._walled = walled
        self._say = say
        self._seals: Dict[str, _Seal] = {}
        self._digests: Dict[str, str] = {}  # of files that have none of their own, by their name
        self._courier = courier
        self._wake = wake
        self._used = -1  # bytes; not known before the first look
        self._news: Deque[News] = deque()
        self._due: List[Tuple[float, int, _Wanted]] = []  # from the server
        self._due_urls: List[Tuple[float, int, _Wanted]] = []
        self._hosts = UrlHosts()
        self._count = 0
        self._change = threading.Condition()
        self._disk = threading.Lock()  # around what we know of the disk, and the leases
        self._crew = Crew(partial(self._run, self._due), THREADS, "larder")
        self._url_crew = Crew(partial(self._run, self._due_urls), URL_THREADS, "larder-url")
        self._url_count = 0
        self._closed = False

    # -- for the main thread ---------------------------------------------------------------

    def name_of(self, item: Input, bag: int, owner: str) -> str:
        """What the input of that owner's bag is called here. The server itself says whose bags
        may have a file of the server. A file from a URL is fetched for each owner: who knows the
        digest of another owner's file does not get that file by naming a URL."""
        if item.digest:
            shared = self._walled and not item.url
            name = item.digest + "-" + (SHARED if shared else _hashed(owner)[:16])
        else:
            name = "url-" + _hashed("%s %d %s" % (self._key, bag, item.url))
        return name + ".x" if item.executable else name

    def path(self, name: str) -> str:
        place = name[4:6] if name.startswith("url-") else name[:2]
        return os.path.join(self._files, place, name)

    def request(self, item: Input, name: str) -> None:
        """Have it here, and keep it until `release`; news will come in any case."""
        self._lease(self._leases.hold, name)
        self._add(_Wanted(item, name, 0), 0.0)
        if item.url:
            self._url_count += 1
            self._url_crew.want(self._url_count)
        else:
            self._crew.want(self._count)

    def release(self, name: str) -> None:
        self._lease(self._leases.drop, name)

    def _lease(self, change: Callable[[str], None], name: str) -> None:
        with self._disk:
            guard = self._leases.guard(shared=True)
            try:
                change(name)
            finally:
                guard.close()

    def intact(self, name: str) -> bool:
        """A quick look: this pilot has read the file, and nobody has changed it since. False if
        it must be read again: `request` it."""
        seal = self._seals.get(name)
        try:
            found = os.lstat(self.path(name))
        except OSError:
            return False
        if seal is None or _sealed(found, 0.0)[:4] != seal[:4]:
            return False
        if found.st_ctime_ns != seal.ctime_ns:
            if self._walled or time.monotonic() >= seal.reread_at:
                return False
        elif time.time() - found.st_atime > TOUCH_SECONDS:
            self._touch(name, seal)
        return True

    def news(self) -> List[News]:
        self._crew.fill()
        self._url_crew.fill()
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()
        for name in list(self._digests):  # nobody else can use those
            _remove(self.path(name))
        self._leases.close()

    # -- the threads -----------------------------------------------------------------------

    def _add(self, wanted: _Wanted, delay: float) -> None:
        with self._change:
            self._count += 1
            due = self._due_urls if wanted.item.url else self._due
            heapq.heappush(due, (time.monotonic() + delay, self._count, wanted))
            self._change.notify_all()

    def _next(self, due: List[Tuple[float, int, _Wanted]]) -> Optional[_Wanted]:
        with self._change:
            while not self._closed:
                now = time.monotonic()
                if due and due[0][0] <= now:
                    return heapq.heappop(due)[2]
                self._change.wait(due[0][0] - now if due else None)
        return None

    def _run(self, due: List[Tuple[float, int, _Wanted]]) -> None:
        courier = self._courier()
        with self._change:
            first = self._used < 0
            self._used = max(0, self._used)
        if first:
            self._clear_leftovers()
            self._make_room(0)
        while True:
            wanted = self._next(due)
            if wanted is None:
                courier.close()
                return
            self._serve(wanted, courier)

    def _serve(self, wanted: _Wanted, courier: Transfers) -> None:
        """Try once; then there is news, or it will be tried again."""
        if not self._leases.holds(wanted.name):
            return  # nobody waits for it any more
        try:
            there = self.intact(wanted.name) or self._is_right(wanted)
            if not there and wanted.item.url and self._host_rests(wanted):
                return
            there = there or self._tried(wanted, courier)
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
            self._tell(wanted.name, str(error), wrong=isinstance(error, WrongContent))
        except OSError as error:
            if wanted.tries < 2:
                self._make_room(max(wanted.item.size, 1 << 20))
                self._again(wanted, 0.0)
            else:
                self._tell(wanted.name, "the cache of this host cannot be used: %s" % error)
        except Exception as error:  # whoever waits must hear of it, whatever it was
            self._tell(wanted.name, "%s: %s: %s" % (wanted.item.path, type(error).__name__, error))

    def _host_rests(self, wanted: _Wanted) -> bool:
        """Whether the host of its URL is not to be asked now. Then it is tried again, or told."""
        with self._change:
            delay = self._hosts.begin(wanted.item.url, time.monotonic())
            problem = self._hosts.problem(wanted.item.url) if delay else ""
        if problem:
            self._tell(wanted.name, problem)
        elif delay:
            self._add(wanted, delay)
        return delay > 0

    def _tried(self, wanted: _Wanted, courier: Transfers) -> bool:
        try:
            return self._fetched(wanted, courier)
        finally:
            with self._change:
                self._hosts.leave(wanted.item.url)

    def _from_host(self, wanted: _Wanted, part: str, courier: Transfers) -> str:
        """Fetch it, and remember whether the host of its URL answers."""
        url = wanted.item.url
        if not url:
            return fetch(wanted.item, part, courier, self._limit)
        try:
            digest = fetch(wanted.item, part, courier, self._bound())
        except SourceSilent as error:
            with self._change:
                self._hosts.failed(url, str(error), time.monotonic())
            raise
        except BaseException:
            with self._change:
                self._hosts.answered(url)
            raise
        with self._change:
            self._hosts.answered(url)
        return digest

    def _again(self, wanted: _Wanted, delay: float) -> None:
        backoff = min(FIRST_BACKOFF * 2 ** min(wanted.tries, 10), LAST_BACKOFF)
        backoff *= random.uniform(0.5, 1.0)
        self._add(wanted._replace(tries=wanted.tries + 1), max(delay, backoff))

    def _tell(self, name: str, problem: str, wrong: bool = False) -> None:
        self._news.append(News(name, problem, wrong))
        self._wake()

    def _fetched(self, wanted: _Wanted, courier: Transfers) -> bool:
        """False while another pilot (or our other thread) fetches it."""
        part = os.path.join(self._incoming, wanted.name)
        claim = lock(part + ".lock")
        if claim is None:
            return False
        try:
            if not self._is_right(wanted):
                self._make_room(wanted.item.size)
                self._digests.pop(wanted.name, None)
                digest = self._from_host(wanted, part, courier)
                self._shelve(wanted, part)
                if not wanted.item.digest:
                    self._digests[wanted.name] = digest
            return True
        finally:
            claim.remove()

    def _is_right(self, wanted: _Wanted) -> bool:
        """Read the file that is there, in full; seal it if it is what it should be. One that is
        not is removed. Raises OSError."""
        item, path = wanted.item, self.path(wanted.name)
        digest = item.digest or self._digests.get(wanted.name, "")
        began = time.monotonic()
        try:
            with open(path, "rb", 0, opener=_open_plain) as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) != _mode(item):
                    os.fchmod(file.fileno(), _mode(item))
                before = os.fstat(file.fileno())
                if stat.S_ISREG(before.st_mode) and digest and _digest(file) == digest:
                    now = time.monotonic()
                    pause = max(REREAD_SECONDS, REREAD_SHARE * (now - began))
                    self._seal(wanted.name, _sealed(before, now + pause))
                    return True
        except FileNotFoundError:
            return False
        except OSError:
            pass  # a symbolic link or the like, which somebody put there
        words = "the cached file %s was changed; it is fetched again"
        self._say(words % path)
        self._seals.pop(wanted.name, None)
        remove(path)
        return False

    def _shelve(self, wanted: _Wanted, part: str) -> None:
        os.chmod(part, _mode(wanted.item))
        os.utime(part, (time.time(), MODIFIED))
        path = self.path(wanted.name)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        os.rename(part, path)
        found = os.lstat(path)
        self._seal(wanted.name, _sealed(found, time.monotonic() + REREAD_SECONDS))
        with self._disk:
            self._used += found.st_size

    def _seal(self, name: str, seal: _Seal) -> None:
        if len(self._seals) >= MOST_SEALS:
            self._seals.clear()  # files are then read once more
        self._seals[name] = seal

    def _touch(self, name: str, seal: _Seal) -> None:
        """Note the use of a file that has just been found intact."""
        path = self.path(name)
        try:
            os.utime(path, (time.time(), MODIFIED))
            self._seals[name] = seal._replace(ctime_ns=os.lstat(path).st_ctime_ns)
        except OSError:
            pass

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
                        self._seals.pop(os.path.basename(path), None)
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


def _sealed(found: os.stat_result, reread_at: float) -> _Seal:
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return _Seal(found.st_dev, found.st_ino, found.st_size, times[0], times[1], reread_at)


def _mode(item: Input) -> int:
    return 0o555 if item.executable else 0o444


def _open_plain(path: str, flags: int) -> int:
    """Open no symbolic link, and wait for nobody who might write to a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    data = file.read(CHUNK_BYTES)
    while data:
        digest.update(data)
        data = file.read(CHUNK_BYTES)
    return digest.hexdigest()


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
