"""The composition root: the one module that imports everything, and connects it."""

import contextlib
import io
import json
import os
import secrets
import shlex
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from msgspec.structs import replace as changed

from covey import __version__, broker_plugins
from covey.client.authority import read_authority
from covey.client.embedded import prepare, refuse_inside_task
from covey.config import RECORD, Config, Serve
from covey.config_sites import LOCAL, local_site
from covey.core.errors import BadConfig, NotFound, StoreHeld
from covey.core.protocol import receipts
from covey.core.record.actions import Note
from covey.core.record.broker_rules import DRAWABLE, BrokerRules
from covey.core.record.model import Option, Settings, SiteRecord, SiteSpec, Snapshot
from covey.pilot.protocol.connection import split
from covey.ports import Post, Reader
from covey.replacing import PROGRAM, replace
from covey.sites import plugins
from covey.sites.driver import SiteContext
from covey.sites.drivers.local import Local
from covey.sites.drivers.local import end_orphans as end_local_orphans
from covey.sites.manager import Manager
from covey.sites.shell import Shells
from covey.sites.weight_services import WeightServices
from covey.store import filesystem
from covey.store.files.blobs import Blobs
from covey.store.files.holdings import Holdings
from covey.store.lock import Lock
from covey.store.results.row_tables import RowLoader, TableFiles
from covey.store.sqlite import integrity
from covey.store.sqlite.reading import SqliteReader, is_old
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.store.writer import Writer
from covey.whoami import user
from covey.wire import DriverView, Explanation

if TYPE_CHECKING:
    from covey.server.web.addresses import Door
    from covey.server.web.tls import Tls

CONVERT_SECONDS = 60.0  # how long to wait for a server that converts the record
FILES = "files"
CACHE = "cache"
SERVER = "server.json"
SECRETS = "secrets.json"
PILOT_FILE = "pilot.pyz"
PILOT_MAIN = "import sys\nfrom covey.pilot.__main__ import main\nsys.exit(main())\n"
PILOTS = "pilots"  # folders of the local site's pilots
PILOT_PACKAGES = ("pilot",)


def end_orphans(directory: Path, seconds: float) -> tuple[int, int]:
    """End the pilots on this machine that a killed server of the directory has left. Returns how
    many there were, and how many still run."""
    return end_local_orphans(directory / PILOTS, seconds)


def serve(config: Config, directory: Path, embedded: bool) -> int:
    """Run a server on this directory until it is asked to end. Raises StoreHeld if another server
    uses the directory, InsideTask inside a task."""
    from covey.server import process  # slow to import, and only a server needs it

    refuse_inside_task()
    prepare(directory)
    command = "covey serve --embedded" if embedded else "covey serve"
    with Lock(directory, command) as lock:
        warning = filesystem.warning(directory, filesystem.kind(directory))
        if warning:
            print(f"covey: {warning}", file=sys.stderr)
        return process.run(lambda: _Parts(config, directory, embedded, lock))


def _tell(text: str) -> None:
    print(f"covey: {text}", file=sys.stderr, flush=True)


def open_reader(directory: Path, tell: Callable[[str], None] = _tell) -> Reader:
    """The record, for reading without a server. A record of an earlier version is converted."""
    path = directory / RECORD
    if not path.exists():
        raise NotFound(f"there is no covey record in {directory}")
    if is_old(path):
        convert(directory, tell)
    return SqliteReader(path, tables=TableFiles(open_blobs(directory)))


def convert(directory: Path, tell: Callable[[str], None]) -> None:
    """Convert a record of an earlier version, or wait while a server converts it. Raises
    StoreError."""
    tell(f"converting {directory / RECORD}, which an earlier version of covey wrote")
    try:
        with Lock(directory, "covey, converting the record"):
            record = SqliteRecord(directory / RECORD)
            record.open()
            record.close()
    except StoreHeld:
        deadline = time.monotonic() + CONVERT_SECONDS
        while is_old(directory / RECORD):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def check_record(directory: Path) -> integrity.Finding | None:
    """Whether the record is sound; None if there is none."""
    path = directory / RECORD
    return integrity.look(path) if path.exists() else None


def recount(directory: Path, bag: int, task: int) -> Explanation | None:
    """Why a bag or a task is not running, without a server. Raises NotFound."""
    from covey.server.api import explanations

    return explanations.recount(open_reader(directory), bag, task)


def open_blobs(directory: Path) -> Blobs:
    """The files that bags use and tasks returned, for reading without a server."""
    return Blobs(directory / FILES)


def file_system(directory: Path) -> tuple[str, str]:
    """The kind of the directory's file system, and a warning if the record is slow or unsafe
    there."""
    kind = filesystem.kind(directory)
    return kind, filesystem.warning(directory, kind)


def check_site(spec: SiteSpec) -> SiteSpec:
    """The site, completed by its driver. Raises BadConfig if no installed driver can use it."""
    return plugins.described(spec, plugins.find())


def drivers() -> list[DriverView]:
    """The installed drivers and their options."""
    views = [
        DriverView(
            name=plugin.name,
            package=plugin.package,
            problem=plugin.problem,
            options=plugins.options_help(plugin.driver) if plugin.driver is not None else [],
        )
        for plugin in plugins.find().values()
    ]
    return sorted(views, key=lambda view: view.name)


class DescribedRecord(SqliteRecord):
    """The record, with its sites completed by the installed drivers: these may have another version
    than when a site was added."""

    def __init__(self, path: Path, describe: Callable[[SiteSpec], SiteSpec]) -> None:
        super().__init__(path)
        self._describe = describe

    def open(self) -> Snapshot:
        snapshot = super().open()
        sites = tuple(self._with_facts(record) for record in snapshot.sites)
        return changed(snapshot, sites=sites)

    def _with_facts(self, record: SiteRecord) -> SiteRecord:
        try:
            return changed(record, spec=self._describe(record.spec))
        except BadConfig:  # the error is shown when the site is used
            return record


class _Parts:
    """The parts of a server process (`ServerParts`)."""

    def __init__(self, config: Config, directory: Path, embedded: bool, lock: Lock) -> None:
        serve_ = config.serve
        self._directory = directory
        self._lock = lock
        self._greets = not embedded and sys.stderr.isatty()  # only people; programs read JSON logs
        self._of_thread = threading.local()
        self._readers: WeakSet[SqliteReader] = WeakSet()  # an ended thread's reader disappears
        self.token, self.secret, self._queue = _secrets(directory / SECRETS)
        self.store_name = str(directory / RECORD)
        self.pilot_file = directory / PILOT_FILE
        self.idle_exit_seconds = serve_.idle_exit_seconds if embedded else 0.0
        self.keep_logs_days = serve_.keep_logs_days
        self.keep_files_days = serve_.keep_files_days
        blobs = open_blobs(directory)
        self.holdings = Holdings(blobs)
        self.tables = TableFiles(blobs)
        self._plugins = {**plugins.find(), LOCAL: self._local_driver()}
        self._shells = Shells(_ssh(serve_.ssh))
        sites, self._retired = _sites(config, directory)
        self.settings = Settings(
            poll_seconds=serve_.poll_seconds,
            lease_seconds=serve_.lease_seconds,
            adopt_seconds=serve_.adopt_seconds,
            absent_seconds=serve_.absent_seconds,
            idle_seconds=serve_.pilot_idle_seconds,
            ban_seconds=config.policy.ban_seconds,
            ban_growth=config.policy.ban_growth_seconds,
            replicate_seconds=config.policy.replicate_seconds,
            buffer_seconds=config.policy.buffer_seconds,
            batch=config.policy.batch,
            broker=_broker(config),
            sites=tuple(self._described(spec) for spec in sites),
            receipt_key=receipts.derived_key(self.secret),
            user=user(),
        )
        self._given_ca = read_authority("serve.ca", serve_.ca)
        self._listen(serve_)

    def _listen(self, serve_: Serve) -> None:
        """Open the doors; set certificates and the addresses for clients and pilots. Raises
        BadConfig."""
        from covey.server.web import addresses

        addresses.allow_many_files()
        where = addresses.places(serve_.listen)
        kind = _tls_kind(serve_, addresses.is_local(where))
        names = addresses.Names(where, serve_.names, serve_.public)
        self.tls = _tls(kind, serve_, self._directory, names)
        last = _last_ports(self._directory / SERVER)
        secure = self.tls is not None
        self.doors: Sequence[Door] = addresses.open_doors(where, secure, serve_.port, last.port)
        self.port = self.doors[0].port
        self.address = addresses.url_of(addresses.seen_from_here(where), self.port, secure)
        self.public = serve_.public or self.address
        if not serve_.public and not addresses.is_local(where):
            self.public = addresses.url_of(names.public(), self.port, secure)
        if kind == "given":  # such a certificate does not name the loopback address
            own = addresses.places(addresses.LOOPBACK)
            self.doors = [*self.doors, *addresses.open_doors(own, False, 0, last.own)]
            self.address = addresses.url_of(addresses.LOOPBACK, self.doors[-1].port, False)

    @property
    def ca(self) -> str:
        """The authorities that clients and pilots must trust (PEM); empty: their system's."""
        return (self.tls.ca if self.tls is not None else "") + self._given_ca

    def store(self, post: Post, crashed: Callable[[Exception], None]) -> Writer:
        self._record = DescribedRecord(self._directory / RECORD, self.check_site)
        return Writer(self._record, post, crashed)

    def check_files(self) -> None:
        self._lock.check()
        self._record.check_files()

    def rows(self, post: Post) -> RowLoader:
        return RowLoader(self.tables, post)

    def sites(self, post: Post, note: Callable[[Note], None]) -> Manager:
        write_pilot_file(self.pilot_file)
        context = SiteContext(
            post=post,
            note=note,
            now=time.monotonic,
            queue=self._queue,
            master=self.secret,
            whereabouts=lambda: (self.public, self.ca),
            pilot_file=self.pilot_file,
            shells=self._shells,
        )
        driver_of = lambda spec: plugins.driver_of(spec, self._plugins)  # noqa: E731
        services = WeightServices(self.settings.broker.services, post)
        return Manager(context, driver_of, self._retired, services)

    def check_site(self, spec: SiteSpec) -> SiteSpec:
        return plugins.described(spec, self._plugins)

    def _described(self, spec: SiteSpec) -> SiteSpec:
        """The site, completed by its driver. If no driver can use it, print that and go on."""
        try:
            return self.check_site(spec)
        except BadConfig as error:
            print(f"covey: {error}", file=sys.stderr, flush=True)
            return spec

    def _local_driver(self) -> plugins.Plugin:
        folder, server = self._directory / PILOTS, self._directory / SERVER
        driver = Local(folder, server, (sys.executable, str(self.pilot_file)))
        return plugins.Plugin(LOCAL, plugins.OURS, driver)

    def reader(self) -> Reader:
        """One per thread: SQLite's connections are not shared."""
        if not hasattr(self._of_thread, "reader"):
            self._of_thread.reader = SqliteReader(self._directory / RECORD, tables=self.tables)
            self._readers.add(self._of_thread.reader)
        reader: Reader = self._of_thread.reader
        return reader

    def close_readers(self) -> None:
        """Close all readers, so that SQLite merges the record into one file."""
        for reader in list(self._readers):
            reader.close()
        self.holdings.close()

    def announce(self) -> None:
        self._lock.announce(self.address)
        self._write_server_file(os.getpid())
        if self._greets:
            self._greets = False
            print(f"covey: {self._greeting()}", file=sys.stderr, flush=True)

    def _greeting(self) -> str:
        words = f"this server is at {self.public}"
        if self.tls is not None and self.tls.ca:
            words += f", its certificate authority is {self._directory / 'tls' / 'ca.pem'}"
        elif self.public.startswith("http:"):
            words += ", for this machine only"
        return words + "; Ctrl-C ends it"

    def withdraw(self) -> None:
        with contextlib.suppress(OSError):
            self._write_server_file(0)

    def _write_server_file(self, pid: int) -> None:
        content = {
            "address": self.address,
            "public": self.public,
            "ca": self.ca,
            "port": self.port,
            "token": self.token,
            "pid": pid,
            "started": self._lock.holder.since,
            "version": __version__,
        }
        replace(self._directory / SERVER, json.dumps(content).encode())


def _sites(config: Config, directory: Path) -> tuple[tuple[SiteSpec, ...], tuple[SiteSpec, ...]]:
    """The sites that get pilots, this machine (`[local]`) among them; then those that get none. The
    pilots on this machine share its memory equally."""
    local = config.local
    options: dict[str, Option] = {
        "cache": str(directory / CACHE),
        "cache_mb": local.cache_mb,
        "gpus": local.gpus,
    }
    if local.memory_mb or local.pilots > 1:
        options["memory_mb"] = (local.memory_mb or _memory_mb()) // max(1, local.pilots)
    spec = local_site(local.pilots, config.local_slots, local.shared)
    here = changed(spec, setup=local.setup, check=local.check, options=options)
    return ((here, *config.sites), ()) if local.pilots else (config.sites, (here,))


def _broker(config: Config) -> BrokerRules:
    """Raises BadConfig for an algorithm that is not installed."""
    plugins_ = broker_plugins.find()
    rules = config.broker.rules(broker_plugins.usable(plugins_), config.services)
    for key, named, names in (
        ("algorithm", rules.algorithm, rules.names()),
        ("draw_by", rules.draw_by, DRAWABLE),
    ):
        if named not in names:
            known = plugins_.get(named) if key == "algorithm" else None
            why = f"{known.package}: {known.problem}" if known else f"there are {', '.join(names)}"
            raise BadConfig(f"broker.{key} = {named!r}: {why}")
    return rules


def _ssh(text: str) -> tuple[str, ...]:
    """The words of the SSH command. Raises BadConfig."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadConfig(f"serve.ssh = {text!r} is not a shell command: {error}") from error


def _memory_mb() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def write_pilot_file(path: Path) -> None:
    """Write the pilot as one file for any `python3`. The same version always gives the same bytes,
    and a file with these bytes is not written again, so that a full disk does not matter."""
    content = _pilot_content()
    try:
        if path.read_bytes() == content:
            return
    except OSError:
        pass
    replace(path, content, PROGRAM, durable=False)


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
            for module in sorted((source / package).rglob("*.py")):
                add(f"covey/{module.relative_to(source).as_posix()}", module.read_bytes())
    return content.getvalue()


def _tls_kind(serve_: Serve, local: bool) -> str:
    """`off`, `own` or `given`. Raises BadConfig for unsafe or contradictory settings."""
    if bool(serve_.certificate) != bool(serve_.key):
        missing = "serve.key" if serve_.certificate else "serve.certificate"
        raise BadConfig(
            f"{missing} is missing: give both serve.certificate and serve.key, or neither"
        )
    if serve_.public:
        try:
            split(serve_.public)
        except ValueError as error:
            hint = "give an address such as https://covey.example.org"
            raise BadConfig(f"serve.public = {serve_.public!r}: {error}; {hint}") from None
    if serve_.tls == "off":
        if not local:
            raise BadConfig(
                f"serve.listen = {serve_.listen!r} and serve.tls = 'off' would send tokens and "
                "results unencrypted over the network. Listen on 127.0.0.1, or set serve.tls to "
                "auto."
            )
        return "off"
    if serve_.tls == "auto" and serve_.certificate:
        return "given"
    return "own" if serve_.tls == "own" or not local else "off"


def _tls(kind: str, serve_: Serve, directory: Path, names: Callable[[], list[str]]) -> "Tls | None":
    from covey.server.web.tls import GivenCertificate, OwnCertificate, Tls

    if kind == "off":
        return None
    if kind == "own":
        return Tls(OwnCertificate(directory / "tls", names))
    certificate, key = (_expanded(path) for path in (serve_.certificate, serve_.key))
    try:
        return Tls(GivenCertificate(certificate, key))
    except OSError as error:
        setting = "serve.key" if error.filename == str(key) else "serve.certificate"
        words = f"{setting}: {error.filename} cannot be read: {error.strerror}"
        raise BadConfig(words) from error


def _expanded(name: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(name)))


class _Ports(NamedTuple):
    """The ports of the last server; 0: none. `own`: the port for clients on this machine."""

    port: int
    own: int


def _last_ports(server_file: Path) -> _Ports:
    try:
        content = json.loads(server_file.read_text())
        own = int(content["address"].rpartition(":")[2])
        return _Ports(int(content.get("port", own)), own)
    except (OSError, ValueError, KeyError):
        return _Ports(0, 0)


class _Secrets(NamedTuple):
    """The server's own token, the secret behind all secrets of pilots, and the id that is in the
    names of all site jobs."""

    token: str
    secret: str
    queue: str


def _secrets(path: Path) -> _Secrets:
    """The secrets in this file; missing ones are drawn and written. They survive restarts, so that
    clients and pilots are let in again, and site jobs are found again."""
    try:
        kept = dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        kept = {}
    drawn = {
        "token": secrets.token_urlsafe(24),
        "secret": secrets.token_urlsafe(24),
        "queue": secrets.token_hex(3),
    }
    complete = {**drawn, **{name: kept[name] for name in drawn if kept.get(name)}}
    if complete != kept:
        replace(path, json.dumps(complete).encode())
    return _Secrets(**complete)
