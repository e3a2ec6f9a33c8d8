"""The embedded server of a directory: find it, start it, and find it again after a restart.

A running server holds a lock on the file `lock`. It writes its address to `server.json` when it is
ready. `covey stop` creates the file `stopped` first. So a client can tell the difference: a server
that was killed is started again in the middle of a `watch`, and a stopped server is left alone.

Inside a task no server is ever started. Otherwise a module that uses an Executor when it is
imported would start a server in each worker, whose workers would start servers, without end.
"""

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path

import msgspec
from msgspec import Struct

from covey.client.client import Client
from covey.client.http import Connection, Endpoint, Tell, quiet
from covey.core.errors import BadConfig, CoveyError, InsideTask, ServerAway, ServerStopped

START_SECONDS = 20.0
PING = "/api/v1/server"
PING_SECONDS = 2.0
POLL_SECONDS = 0.02
STOPPED = "stopped"
LOG_LINES = 5
MOST_STARTS = 6  # in a row, if something kills the server while it starts
FIRST_PAUSE_SECONDS = 0.1  # between two starts; doubled each time
IN_TASK = "COVEY_BAG"  # an environment variable of every task, worker and setup script
NO_SERVER_IN_TASK = (
    "this runs inside a task of covey, which must not start a server. If a module does this when "
    'it is imported, guard it as for multiprocessing: if __name__ == "__main__":. To submit work '
    "from a task, name a server and a token: covey.connect(server=..., token_file=...) or "
    "COVEY_SERVER and COVEY_TOKEN_FILE"
)

Spawn = Callable[[Path, Sequence[str]], "subprocess.Popen[bytes]"]


class Record(Struct, kw_only=True):
    """`server.json`: what a client needs to know about the server."""

    address: str
    token: str
    pid: int
    started: float
    version: str
    public: str = ""  # the address for other machines
    ca: str = ""  # PEM

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.address, self.token, self.ca)


def is_held(directory: Path) -> bool:
    """Whether a server uses this directory, on any machine."""
    try:
        with open(directory / "lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def read_record(directory: Path) -> Record | None:
    try:
        return msgspec.json.decode((directory / "server.json").read_bytes(), type=Record)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def attach(directory: Path, tell: Tell = quiet) -> Client | None:
    """A client of this directory's server; None if no server answers."""
    record = _answering(directory)
    if record is None:
        return None
    return Client(*record.endpoint, find=partial(_find_again, directory), tell=tell)


def attach_or_start(directory: Path, options: Sequence[str] = (), tell: Tell = quiet) -> Client:
    """A client of this directory's server, which is started with `options` if there is none.

    Raises ServerAway, with the end of the server's log, if the server does not start; InsideTask if
    it would have to be started inside a task."""
    record = _answering(directory) or _start(directory, options)
    return Client(*record.endpoint, find=partial(_revive, directory, options), tell=tell)


def start_background(directory: Path, options: Sequence[str]) -> tuple[Record, bool]:
    """Start a server for `covey serve --background`. Returns its record, and whether it is new.
    Raises ServerAway as `attach_or_start` does."""
    running = _answering(directory)
    if running is not None:
        return running, False
    return _start(directory, options, _spawn_service), True


def _answering(directory: Path) -> Record | None:
    record = read_record(directory)
    return record if record is not None and is_held(directory) and _answers(record) else None


def _answers(record: Record) -> bool:
    """Whether our server answers there. The answer 503 (busy) counts, too."""
    connection = Connection(record.endpoint, timeout_seconds=PING_SECONDS)
    try:
        return connection.exchange("GET", PING).status in (200, 503)
    except (OSError, HTTPException, BadConfig):
        return False
    finally:
        connection.close()


def note_stop(directory: Path) -> None:
    """Tell all clients that the server is stopped on purpose, so that they do not start it
    again."""
    (directory / STOPPED).touch()


def _was_stopped(directory: Path, record: Record) -> bool:
    try:
        return (directory / STOPPED).stat().st_mtime >= record.started
    except OSError:
        return False


def _find_again(directory: Path) -> Endpoint:
    """The server's present endpoint. Never starts a server. Raises ServerStopped."""
    record = read_record(directory)
    if record is None and not is_held(directory):
        raise ServerStopped(f"no server runs in {directory} any more")
    if record is None or (_was_stopped(directory, record) and not is_held(directory)):
        raise ServerStopped("the server was stopped; 'covey watch' starts one and goes on")
    return record.endpoint


def _revive(directory: Path, options: Sequence[str]) -> Endpoint:
    """The server's present endpoint. A server that died is started again. Raises ServerStopped."""
    endpoint = _find_again(directory)
    return endpoint if is_held(directory) else _start(directory, options).endpoint


def refuse_inside_task() -> None:
    """Raises InsideTask if this process is a task, a worker or a setup script."""
    if os.environ.get(IN_TASK):
        raise InsideTask(NO_SERVER_IN_TASK)


def _start(directory: Path, options: Sequence[str], spawn: Spawn | None = None) -> Record:
    """Start the server. If something kills it while it starts, start it again."""
    refuse_inside_task()
    prepare(directory)
    pause = FIRST_PAUSE_SECONDS
    for starts_left in reversed(range(MOST_STARTS)):
        deadline = time.monotonic() + START_SECONDS
        with _start_guard(directory, deadline):
            record = _wait_for_slow(directory, deadline)
            if record is not None:
                return record
            child = (spawn or _spawn)(directory, options)
            record = _wait_until_ready(directory, child, deadline)
        if record is not None:
            return record
        if starts_left:
            time.sleep(pause)
            pause *= 2
    raise ServerAway(
        f"the server did not start: it was killed {MOST_STARTS} times in a row:\n"
        + last_lines(directory / "server.log")
    )


def prepare(directory: Path) -> None:
    """Create the directory. Only its owner can read it, and git ignores it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignore = directory / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise CoveyError(
            f"cannot write in {directory}: {error.strerror}. "
            "Choose another place with --dir or COVEY_DIR."
        ) from error


def _wait_for_slow(directory: Path, deadline: float) -> Record | None:
    """The record of a server that another process has just started, or that answers slowly. None if
    no server holds the directory."""
    while is_held(directory):
        record = read_record(directory)
        if record is not None and _answers(record):
            return record
        if time.monotonic() > deadline:
            log = directory / "server.log"
            raise ServerAway(
                f"a server uses {directory}, but does not answer. See {log} and 'covey doctor'"
            )
        time.sleep(POLL_SECONDS)
    return None


@contextmanager
def _start_guard(directory: Path, deadline: float) -> Iterator[None]:
    """Allow one start at a time, so that two `covey run` share one server."""
    with open(directory / "start.lock", "a") as guard:
        while True:
            try:
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline + START_SECONDS:
                    raise ServerAway(
                        "another covey process has been starting a server here for too long; try "
                        "again"
                    ) from None
                time.sleep(POLL_SECONDS)
            except OSError:
                break  # the file system has no locks; the lock of the record still works
        yield


def _spawn(directory: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    return _spawn_service(directory, ["--embedded", *options])


def _spawn_service(directory: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the server in its own session, so that Ctrl-C or a closed terminal does not end it.
    With `-P`, Python does not import a `random.py` of the current directory."""
    command = [sys.executable, "-P", "-m", "covey", "serve", "--dir", str(directory)]
    with open(directory / "server.log", "ab", opener=_private) as log:
        child = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    threading.Thread(target=child.wait, daemon=True).start()  # else it would become a zombie
    return child


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _wait_until_ready(
    directory: Path, child: subprocess.Popen[bytes], deadline: float
) -> Record | None:
    """The record of the new server; None if a signal ended it, so that it may be started again.
    Raises ServerAway if the server ended by itself, or does not answer in time."""
    log = directory / "server.log"
    while time.monotonic() < deadline:
        status = child.poll()
        record = _answering(directory)
        if record is not None and (record.pid == child.pid or status is not None):
            return record  # written by this server, not by an earlier one
        if status is not None and status < 0:
            return None
        if status is not None:
            raise ServerAway(f"the server did not start:\n{last_lines(log)}")
        time.sleep(POLL_SECONDS)
    raise ServerAway(
        f"the server (process {child.pid}) did not answer within {START_SECONDS:.0f} seconds. "
        f"See {log}"
    )


def last_lines(path: Path, count: int = LOG_LINES) -> str:
    try:
        lines = path.read_bytes()[-10_000:].decode("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    return "\n".join("  " + line for line in lines[-count:]) or f"  ({path} is empty)"
