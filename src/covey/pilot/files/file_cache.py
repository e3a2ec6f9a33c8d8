"""The files that tasks need, kept on this host for all pilots of one user, under a size bound.

    files/ab/abcdef…-SHELF     a file by its SHA-256 (mode 0444)
    files/ab/abcdef…-SHELF.x   the same file, executable (0555)
    files/ab/url-ab…           a file from a URL without a known SHA-256; only for one pilot
    incoming/…                 files that are being fetched: the part file and a lock
    leases/…                   which files each living pilot uses

Who may change a cached file, and why no task of another owner ever gets a changed one:

1. *What is on disk is not believed.* Every program of this Unix user can write here and can set any
   time of modification. So each pilot reads a file in full and compares its SHA-256 before the
   first use. Only the pilot's own memory says that it did (`_Seal`).
2. *No task gets a file that another owner's tasks get too.* A pilot with sandboxes (`walled`)
   places only copies. Its files are on the shelf "shared", and no task can reach them. A pilot
   without sandboxes places hard links, which a task can write to after a chmod. So it has a shelf
   for each owner: a task can damage only files of its own owner.
3. *A change is noticed.* Before a file is placed, it must be the same inode with the same size and
   times as when it was read. Nobody can set an inode's change time (ctime). But making and removing
   a hard link changes it. So where files are linked, a new ctime means: read the file again, at
   most once in REREAD_SECONDS, and for no more than 1 % of the time.

A file from a URL without a SHA-256 cannot be checked against anything. So each pilot fetches it
again, and remembers the digest of what it got.

What this cannot prevent: without sandboxes, tasks of one Unix user can do anything to each other
while they run (docs/decisions/0016).

A file is complete and verified before it gets its name. Only one pilot fetches a file at a time;
other pilots wait for it. If the cache is too large, the least recently used files are removed,
except those that an attempt of a living pilot needs: for these the bound may be exceeded.

The work is done in a few threads; the main thread calls `request`, `release`, `intact` and `news`.
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
from covey.pilot.protocol.thread_pool import ThreadPool

MODIFIED = 1000000000  # seconds since 1970: the modification time of all inputs
THREADS = 2  # for files of the server
URL_THREADS = 4  # separate threads: a URL that does not answer must not delay the server's files
MOST_SEALS = 100_000  # files that this pilot has verified
LOOK_SECONDS = 0.2  # between looks at a file that another pilot fetches
FIRST_BACKOFF = 0.2
LAST_BACKOFF = 30.0
MOST_TRIES = 5  # but a server that does not answer is asked without end
LEFTOVER_SECONDS = 3600.0  # age after which a part file that nobody fetches is removed
TOUCH_SECONDS = 3600.0  # between updates of a file's access time
REREAD_SECONDS = 20.0  # least time between two readings of a file that is linked into directories
REREAD_SHARE = 100  # and at least this many times the duration of the last reading

SHARED = "shared"  # the shelf of pilots with sandboxes


class News(NamedTuple):
    """A requested file is there, or cannot be fetched: then `problem` says why, and `wrong` says
    whether the bag is at fault."""

    name: str
    problem: str
    wrong: bool = False


class _Wanted(NamedTuple):
    item: Input
    name: str
    tries: int


class _Seal(NamedTuple):
    """What `lstat` said when this pilot had just read the file and verified its content."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    reread_at: float  # monotonic time; a new ctime before this is ignored where files are linked


class FileCache:
    """`connect` makes a connection for each thread; `wake` is called when there is news. A cache
    is `walled` if no task gets a hard link to its files. `say` reports files that somebody
    changed. Raises OSError if the directory cannot be used."""

    def __init__(
        self,
        directory: str,
        limit_bytes: int,
        key: str,
        connect: Callable[[], Transfers],
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
        self._digests: Dict[str, str] = {}  # by name, of files that came from a URL without one
        self._connect = connect
        self._wake = wake
        self._used = -1  # bytes; not known before the first scan
        self._news: Deque[News] = deque()
        self._due: List[Tuple[float, int, _Wanted]] = []  # from the server
        self._due_urls: List[Tuple[float, int, _Wanted]] = []
        self._hosts = UrlHosts()
        self._count = 0
        self._change = threading.Condition()
        self._disk = threading.Lock()  # protects the leases and what we know of the disk
        self._threads = ThreadPool(partial(self._run, self._due), THREADS, "file-cache")
        self._url_threads = ThreadPool(
            partial(self._run, self._due_urls), URL_THREADS, "file-cache-url"
        )
        self._url_count = 0
        self._closed = False

    # -- for the main thread ---------------------------------------------------------------

    def name_of(self, item: Input, bag: int, owner: str) -> str:
        """The file's name in the cache. The server itself decides which bags may have its files.
        A file from a URL is fetched for each owner: nobody gets another owner's file by naming
        its digest and a URL."""
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
        """Fetch the file and keep it until `release`. There will be news in any case."""
        self._lease(self._leases.hold, name)
        self._add(_Wanted(item, name, 0), 0.0)
        if item.url:
            self._url_count += 1
            self._url_threads.want(self._url_count)
        else:
            self._threads.want(self._count)

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
        """A quick check: this pilot has read the file, and nobody has changed it since. If False,
        the file must be read again with `request`."""
        seal = self._seals.get(name)
        try:
            about = os.lstat(self.path(name))
        except OSError:
            return False
        if seal is None or _sealed(about, 0.0)[:4] != seal[:4]:
            return False
        if about.st_ctime_ns != seal.ctime_ns:
            if self._walled or time.monotonic() >= seal.reread_at:
                return False
        elif time.time() - about.st_atime > TOUCH_SECONDS:
            self._touch(name, seal)
        return True

    def news(self) -> List[News]:
        self._threads.fill()
        self._url_threads.fill()
        news = []
        while self._news:
            news.append(self._news.popleft())
        return news

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()
        for name in list(self._digests):  # no other pilot can use these
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
        transfers = self._connect()
        with self._change:
            first = self._used < 0
            self._used = max(0, self._used)
        if first:
            self._clear_leftovers()
            self._make_room(0)
        while True:
            wanted = self._next(due)
            if wanted is None:
                transfers.close()
                return
            self._serve(wanted, transfers)

    def _serve(self, wanted: _Wanted, transfers: Transfers) -> None:
        """Try once. Afterwards there is news, or the next try is planned."""
        if not self._leases.holds(wanted.name):
            return  # nobody waits for the file any more
        try:
            there = self.intact(wanted.name) or self._is_right(wanted)
            if not there and wanted.item.url and self._host_rests(wanted):
                return
            there = there or self._tried(wanted, transfers)
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
        except Exception as error:  # the main thread must hear of any error
            self._tell(wanted.name, "%s: %s: %s" % (wanted.item.path, type(error).__name__, error))

    def _host_rests(self, wanted: _Wanted) -> bool:
        """Whether the URL's host must not be asked now. If so, plans the next try or reports the
        problem."""
        with self._change:
            delay = self._hosts.begin(wanted.item.url, time.monotonic())
            problem = self._hosts.problem(wanted.item.url) if delay else ""
        if problem:
            self._tell(wanted.name, problem)
        elif delay:
            self._add(wanted, delay)
        return delay > 0

    def _tried(self, wanted: _Wanted, transfers: Transfers) -> bool:
        try:
            return self._fetched(wanted, transfers)
        finally:
            with self._change:
                self._hosts.leave(wanted.item.url)

    def _from_host(self, wanted: _Wanted, part: str, transfers: Transfers) -> str:
        """Fetch the file, and remember whether the URL's host answers."""
        url = wanted.item.url
        if not url:
            return fetch(wanted.item, part, transfers, self._limit)
        problem = ""
        try:
            return fetch(wanted.item, part, transfers, self._bound())
        except SourceSilent as error:
            problem = str(error)
            raise
        finally:
            with self._change:
                if problem:
                    self._hosts.failed(url, problem, time.monotonic())
                else:
                    self._hosts.answered(url)

    def _again(self, wanted: _Wanted, delay: float) -> None:
        backoff = min(FIRST_BACKOFF * 2 ** min(wanted.tries, 10), LAST_BACKOFF)
        backoff *= random.uniform(0.5, 1.0)
        self._add(wanted._replace(tries=wanted.tries + 1), max(delay, backoff))

    def _tell(self, name: str, problem: str, wrong: bool = False) -> None:
        self._news.append(News(name, problem, wrong))
        self._wake()

    def _fetched(self, wanted: _Wanted, transfers: Transfers) -> bool:
        """False while another pilot, or another thread of ours, fetches the file."""
        part = os.path.join(self._incoming, wanted.name)
        claim = lock(part + ".lock")
        if claim is None:
            return False
        try:
            if not self._is_right(wanted):
                self._make_room(wanted.item.size)
                self._digests.pop(wanted.name, None)
                digest = self._from_host(wanted, part, transfers)
                self._shelve(wanted, part)
                if not wanted.item.digest:
                    self._digests[wanted.name] = digest
            return True
        finally:
            claim.remove()

    def _is_right(self, wanted: _Wanted) -> bool:
        """Read the whole file in the cache. If it is right, remember its seal; if it is wrong,
        remove it. Raises OSError."""
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
            pass  # somebody put a symbolic link or the like there
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
        about = os.lstat(path)
        self._seal(wanted.name, _sealed(about, time.monotonic() + REREAD_SECONDS))
        with self._disk:
            self._used += about.st_size

    def _seal(self, name: str, seal: _Seal) -> None:
        if len(self._seals) >= MOST_SEALS:
            self._seals.clear()  # then files are read once more
        self._seals[name] = seal

    def _touch(self, name: str, seal: _Seal) -> None:
        """Update the access time of a file that has just been found intact."""
        path = self.path(name)
        try:
            os.utime(path, (time.time(), MODIFIED))
            self._seals[name] = seal._replace(ctime_ns=os.lstat(path).st_ctime_ns)
        except OSError:
            pass

    # -- keeping within bounds -------------------------------------------------------------

    def _make_room(self, size: int) -> None:
        """Remove the least recently used files that nobody needs, if the cache is too large."""
        with self._disk:
            if self._used + size <= self._bound() and self._used > 0:
                return
            guard = self._leases.guard(shared=False)
            try:
                files = self._all_files()
                self._used = sum(bytes_ for _, bytes_, _ in files)
                excess = self._used + size - self._bound()
                needed = self._leases.everyone() if excess > 0 else set()
                for _, bytes_, path in sorted(files):
                    if excess <= 0:
                        break
                    if os.path.basename(path) not in needed and _remove(path):
                        self._seals.pop(os.path.basename(path), None)
                        excess -= bytes_
                        self._used -= bytes_
            finally:
                guard.close()

    def _bound(self) -> int:
        """The most bytes for the cache: never more than half of the disk space we could have."""
        free = shutil.disk_usage(self._files).free
        return min(self._limit, (free + self._used) // 2)

    def _all_files(self) -> List[Tuple[float, int, str]]:
        files = []
        for folder, _, names in os.walk(self._files):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    about = os.stat(path)
                except OSError:
                    continue
                files.append((about.st_atime, about.st_size, path))
        return files

    def _clear_leftovers(self) -> None:
        """Remove leases of dead pilots, and part files that nobody has written to for an hour."""
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


def _sealed(about: os.stat_result, reread_at: float) -> _Seal:
    times = (about.st_mtime_ns, about.st_ctime_ns)
    return _Seal(about.st_dev, about.st_ino, about.st_size, times[0], times[1], reread_at)


def _mode(item: Input) -> int:
    return 0o555 if item.executable else 0o444


def _open_plain(path: str, flags: int) -> int:
    """Follow no symbolic link, and do not block on a pipe."""
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
