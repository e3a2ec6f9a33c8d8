"""The composition root: the one module that sees everything, and puts it together."""

import contextlib
import io
import json
import os
import secrets
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

from covey import __version__
from covey.client.embedded import prepare
from covey.config import Config
from covey.core.errors import CoveyError, NotFound
from covey.core.model import Settings
from covey.ports import Post, Reader
from covey.sites.local import LocalSite
from covey.store import filesystem
from covey.store.blobs import Blobs
from covey.store.lock import Lock
from covey.store.reading import SqliteReader
from covey.store.sqlite import SqliteRecord
from covey.store.tables import RowLoader, TableFiles
from covey.store.writer import Writer

STORE = "covey.db"
FILES = "files"
CACHE = "cache"
SERVER = "server.json"
SECRETS = "secrets.json"
PILOT_FILE = "pilot.pyz"
PILOT_MAIN = "import sys\nfrom covey.pilot.__main__ import main\nsys.exit(main())\n"
PILOT_PACKAGES = ("classad", "peers", "pilot")


def serve(config: Config, directory: Path, embedded: bool) -> int:
    """Run a server on this directory until it is asked to end. Raises StoreHeld if another
    one has it."""
    from covey.server import process  # heavy, and only a server needs it

    prepare(directory)
    command = "covey serve --embedded" if embedded else "covey serve"
    with Lock(directory, command) as lock:
        warning = filesystem.warning(directory, filesystem.kind(directory))
        if warning:
            print(f"covey: {warning}", file=sys.stderr)
        return process.run(lambda: _Parts(config, directory, embedded, lock))


def open_reader(directory: Path) -> Reader:
    """The record, read without a server."""
    path = directory / STORE
    if not path.exists():
        raise NotFound(f"there is no covey store in {directory}")
    return SqliteReader(path, tables=TableFiles(open_blobs(directory)))


def open_blobs(directory: Path) -> Blobs:
    """The files that bags use and tasks returned, without a server."""
    return Blobs(directory / FILES)


def file_system(directory: Path) -> tuple[str, str]:
    """Its kind, and a warning if a store is slow or unsafe there."""
    kind = filesystem.kind(directory)
    return kind, filesystem.warning(directory, kind)


class _Parts:
    """What a server process is made of."""

    def __init__(self, config: Config, directory: Path, embedded: bool, lock: Lock) -> None:
        serve_ = config.serve
        self._directory = directory
        self._lock = lock
        self._mine = threading.local()
        self._readers: list[SqliteReader] = []
        self.token, self.secret = _secrets(directory / SECRETS)
        self.store_name = str(directory / STORE)
        self.idle_exit_seconds = serve_.idle_exit_seconds if embedded else 0.0
        self.keep_logs_days = serve_.keep_logs_days
        self.keep_files_days = serve_.keep_files_days
        self.blobs = open_blobs(directory)
        self.tables = TableFiles(self.blobs)
        self._pilot_options = _pilot_options(config, directory)
        self.settings = Settings(
            poll_seconds=serve_.poll_seconds,
            lease_seconds=serve_.lease_seconds,
            adopt_seconds=serve_.adopt_seconds,
            idle_seconds=serve_.pilot_idle_seconds,
            local_pilots=config.local.pilots,
            local_slots=config.local_slots,
        )
        self.listening = _listen(serve_.port, directory / SERVER)
        host, port = self.listening.getsockname()
        self.address = f"http://{host}:{port}"

    def store(self, post: Post, crashed: Callable[[Exception], None]) -> Writer:
        return Writer(SqliteRecord(self._directory / STORE), post, crashed)

    def rows(self, post: Post) -> RowLoader:
        return RowLoader(self.tables, post)

    def sites(self, post: Post) -> LocalSite:
        pilot_file = self._directory / PILOT_FILE
        write_pilot_file(pilot_file)
        command = [sys.executable, str(pilot_file)]
        folder = self._directory / "pilots"
        server = self._directory / SERVER
        return LocalSite(folder, server, self.secret, command, post, self._pilot_options)

    def reader(self) -> Reader:
        """One per thread: SQLite's connections are not shared."""
        if not hasattr(self._mine, "reader"):
            self._mine.reader = SqliteReader(self._directory / STORE, tables=self.tables)
            self._readers.append(self._mine.reader)
        reader: Reader = self._mine.reader
        return reader

    def close_readers(self) -> None:
        """The last one who closes the record leaves it as one file."""
        for reader in self._readers:
            reader.close()

    def announce(self) -> None:
        self._lock.announce(self.address)
        self._write_server_file(os.getpid())

    def withdraw(self) -> None:
        with contextlib.suppress(OSError):
            self._write_server_file(0)

    def _write_server_file(self, pid: int) -> None:
        found = {
            "address": self.address,
            "token": self.token,
            "pid": pid,
            "started": self._lock.holder.since,
            "version": __version__,
        }
        write_private(self._directory / SERVER, json.dumps(found))


def _pilot_options(config: Config, directory: Path) -> dict[str, object]:
    """What pilots of this machine are told, beside what they need to find the server."""
    local = config.local
    found: dict[str, object] = {"cache": str(directory / CACHE), "cache_mb": local.cache_mb}
    if local.memory_mb or local.pilots > 1:  # each of several takes its share
        found["memory_mb"] = (local.memory_mb or _memory_mb()) // max(1, local.pilots)
    if local.gpus:
        found["gpus"] = local.gpus
    return found


def _memory_mb() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner may read, all at once."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def write_pilot_file(path: Path) -> None:
    """The pilot with all it needs, as one file for any `python3`. Equal pilots are equal files,
    and one that is there already is left alone: a full disk does not matter then."""
    content = _pilot_content()
    try:
        if path.read_bytes() == content:
            return
    except OSError:
        pass
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o755)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _pilot_content() -> bytes:
    source = Path(__file__).parent
    content = io.BytesIO()
    content.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, text: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)

        add("covey/__init__.py", f'__version__ = "{__version__}"\n'.encode())
        add("__main__.py", PILOT_MAIN.encode())
        for package in PILOT_PACKAGES:
            for module in sorted((source / package).glob("*.py")):
                add(f"covey/{package}/{module.name}", module.read_bytes())
    return content.getvalue()


def _listen(port: int, server_file: Path) -> socket.socket:
    """On the given port; else on the one used before, so that pilots find us again; else any."""
    wanted = [port] if port else [_last_port(server_file), 0]
    for one in wanted:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", one))
        except OSError as error:
            listening.close()
            if port:
                raise CoveyError(f"port {port} cannot be used: {error}. Choose another.") from None
            continue
        listening.listen(1024)
        return listening
    raise CoveyError("no port on 127.0.0.1 can be used")


def _last_port(server_file: Path) -> int:
    try:
        return int(json.loads(server_file.read_text())["address"].rpartition(":")[2])
    except (OSError, ValueError, KeyError):
        return 0


def _secrets(path: Path) -> tuple[str, str]:
    """The clients' token and the pilots' secret. They stay the same over restarts, so that
    whoever waits for the server is let in again."""
    try:
        found = json.loads(path.read_text())
        return found["token"], found["secret"]
    except (OSError, ValueError, KeyError):
        token, secret = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        write_private(path, json.dumps({"token": token, "secret": secret}))
        return token, secret
