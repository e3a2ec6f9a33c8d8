"""All settings, in one frozen tree that is read once.

A setting's value comes from the first of: a flag, the environment, `covey.toml` in the current
directory, the user's own `covey.toml`, the default below. An unknown setting is refused, with the
place where it is written: a misspelt setting that is silently ignored costs its author a day. Each
setting is described here, next to its default; `docs/configuration.md` is made from these texts.
"""

import os
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta, Struct

from covey import config_broker, config_sites
from covey.config_broker import BrokerSettings
from covey.core.errors import BadConfig
from covey.core.record.broker_rules import WeightService
from covey.core.record.model import SiteSpec
from covey.core.values import toml_text
from covey.core.values.suggestions import nearest
from covey.core.values.type_problems import plain

RECORD = "covey.db"  # in the directory
_IN_TASK = {"COVEY_BAG", "COVEY_TASK"}  # variables in tasks; workers and setups have the first
Path_ = Annotated[str, Meta(min_length=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]


class Serve(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A server, embedded or not."""

    listen: Annotated[
        str,
        Meta(
            min_length=1,
            description="Addresses to listen on, with commas between them, such as 0.0.0.0 or ::; "
            "all but 127.0.0.1 and ::1 use TLS.",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Meta(ge=0, le=65535, description="Port to listen on; 0: the last one used, else any."),
    ] = 0
    public: Annotated[
        str,
        Meta(
            description="Address that others use to reach this server, if it is not the address "
            "it listens on (behind a proxy), such as https://covey.example.org; plain http:// "
            "works on this machine only."
        ),
    ] = ""
    tls: Annotated[
        Literal["auto", "own", "off"],
        Meta(
            description="own: covey makes its own certificates and keeps them in tls/ of the "
            "directory; auto: the given certificate, else own, except on 127.0.0.1 and ::1; off: "
            "no TLS."
        ),
    ] = "auto"
    certificate: Annotated[
        str,
        Meta(
            description="PEM file with the server's certificate and its chain; read again when "
            "it changes."
        ),
    ] = ""
    key: Annotated[str, Meta(description="PEM file with the key of that certificate.")] = ""
    ca: Annotated[
        str,
        Meta(
            description="PEM file with the certificate authority that pilots must trust, if "
            "their system does not know it: the authority of the certificate, or of the proxy in "
            "front."
        ),
    ] = ""
    names: Annotated[
        str,
        Meta(
            description="More names and addresses for covey's own certificate, with commas "
            "between them; it always has those of this host."
        ),
    ] = ""
    idle_exit_seconds: Annotated[
        Seconds,
        Meta(
            description="An embedded server ends this long after the last bag has finished and "
            "the last client has left."
        ),
    ] = 30.0
    poll_seconds: Annotated[
        Seconds, Meta(description="The longest that a pilot's request waits for an answer.")
    ] = 25.0
    lease_seconds: Annotated[
        Seconds,
        Meta(description="A pilot that sends nothing for this long is lost; its tasks run again."),
    ] = 60.0
    adopt_seconds: Annotated[
        Seconds,
        Meta(
            description="After a restart, how long earlier pilots have to report their tasks "
            "before these are run again."
        ),
    ] = 60.0
    absent_seconds: Annotated[
        Seconds,
        Meta(
            description="If a program with an Executor has not asked for the values of its calls "
            "for this long, its bag is paused until the program asks again."
        ),
    ] = 300.0
    pilot_idle_seconds: Annotated[
        Seconds, Meta(description="A pilot ends after this long without work.")
    ] = 20.0
    ssh: Annotated[
        str,
        Meta(
            min_length=1,
            description="The SSH command for sites, such as ssh -F FILE; it must not ask for a "
            "password.",
        ),
    ] = "ssh"
    keep_logs_days: Annotated[
        float,
        Meta(
            ge=0,
            description="Days after a bag's end that its logs are kept; 0: for ever.",
        ),
    ] = 0.0
    keep_files_days: Annotated[
        float,
        Meta(
            ge=0,
            description="Days after a bag's end that the files of its tasks are kept; 0: for ever.",
        ),
    ] = 0.0


class Local(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Pilots on the server's own machine."""

    slots: Annotated[
        int, Meta(ge=0, description="Tasks run at once by each pilot; 0: one per usable core.")
    ] = 0
    pilots: Annotated[
        int,
        Meta(
            ge=0,
            description="Pilots on this machine; 0: none. Once other people have tokens, these "
            "pilots run only the tasks of the server's own user, unless shared is set.",
        ),
    ] = 1
    memory_mb: Annotated[
        int,
        Meta(
            ge=0,
            description="Memory that all pilots here together give to tasks; 0: all of it.",
        ),
    ] = 0
    gpus: Annotated[
        str,
        Meta(
            description="GPUs that a pilot gives to tasks, such as 0,1, or none; empty: all "
            "that it finds."
        ),
    ] = ""
    cache_mb: Annotated[
        int,
        Meta(ge=1, description="Size of this machine's cache of input files."),
    ] = 10_240
    shared: Annotated[
        bool,
        Meta(
            description="Tasks of several owners run here, isolated from each other (bubblewrap "
            "or user namespaces); if that is impossible, or as root, pilots do not start."
        ),
    ] = False
    setup: Annotated[
        str, Meta(description="A shell command that each pilot here runs before anything else.")
    ] = ""
    check: Annotated[
        str,
        Meta(
            description="A shell command that checks this machine: if its exit status is not 0, "
            "a pilot takes no tasks."
        ),
    ] = ""


class Run(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `covey run` and `covey submit` assume."""

    retries: Annotated[
        int,
        Meta(
            ge=0,
            description="How often a failed task is tried again, unless the bag says otherwise.",
        ),
    ] = 0


class Policy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the server carries out what the policies of bags decide."""

    ban_seconds: Annotated[
        Seconds,
        Meta(
            description="The longest ban: a host on which an owner's tasks fail gets no tasks of "
            "that owner for this time. The first ban is a tenth of it."
        ),
    ] = 3600.0
    ban_growth_seconds: Annotated[
        Seconds,
        Meta(
            description="How fast bans become longer: after this time a ban has two "
            "thirds of its full length."
        ),
    ] = 650.0
    replicate_seconds: Annotated[
        Seconds,
        Meta(
            description="Time between two searches for running tasks that should get another "
            "attempt."
        ),
    ] = 1.0
    buffer_seconds: Annotated[
        Seconds,
        Meta(description="How long tasks that no host may run keep the tasks behind them waiting."),
    ] = 30.0
    batch: Annotated[
        bool,
        Meta(
            description="Give new tasks first to the hosts that their policy ranks best, not to "
            "the hosts that have waited longest."
        ),
    ] = False


class Config(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    dir: Annotated[
        Path_,
        Meta(description="Where the record, the lock and the log of the embedded server are."),
    ] = ".covey"
    server: Annotated[
        str,
        Meta(description="Address of a server to use instead of the embedded one; empty: none."),
    ] = ""
    token_file: Annotated[
        str,
        Meta(description="File (mode 0600) that holds the token for that server."),
    ] = ""
    ca: Annotated[
        str,
        Meta(
            description="PEM file with the certificate authority to trust for that server (its "
            "tls/ca.pem); empty: the authorities of this system."
        ),
    ] = ""
    serve: Serve = Serve()
    local: Local = Local()
    policy: Policy = Policy()
    broker: BrokerSettings = BrokerSettings()
    run: Run = Run()
    sites: tuple[SiteSpec, ...] = ()  # [sites.NAME], in their order; without this machine
    services: tuple[WeightService, ...] = ()  # [broker.services.NAME]
    stranger: str = ""  # why the token must not be sent to that server; empty: it may be sent

    @property
    def directory(self) -> Path:
        return Path(os.path.abspath(os.path.expanduser(self.dir)))

    @property
    def local_slots(self) -> int:
        return self.local.slots or len(os.sched_getaffinity(0))


class Setting(NamedTuple):
    """One leaf of the tree; `key` is its dotted name."""

    key: str
    kind: Any
    default: object
    text: str

    @property
    def variable(self) -> str:
        return "COVEY_" + self.key.replace(".", "_").upper()


class Settled(NamedTuple):
    """The settings, and where each value comes from."""

    config: Config
    origins: dict[str, str]
    above: str = ""  # the .covey of a parent directory, if that is used


class Source(NamedTuple):
    """Values by key, from one source; `place`: where a key is set, in words."""

    values: dict[str, object]
    place: dict[str, str]
    sites: tuple[SiteSpec, ...] = ()
    services: tuple[WeightService, ...] = ()


def _leaves(tree: type[Struct], prefix: str = "") -> Iterator[Setting]:
    hints = get_type_hints(tree, include_extras=True)
    for field in msgspec.structs.fields(tree):
        kind = hints[field.name]
        if isinstance(kind, type) and issubclass(kind, Struct):
            yield from _leaves(kind, f"{prefix}{field.name}.")
        elif get_origin(kind) is Annotated:
            meta = get_args(kind)[-1]
            yield Setting(prefix + field.name, kind, field.default, meta.description)


SETTINGS: dict[str, Setting] = {setting.key: setting for setting in _leaves(Config)}
SECTIONS = tuple(dict.fromkeys(key.partition(".")[0] for key in SETTINGS if "." in key))
SITES = "sites"  # a section that holds tables of sites instead of settings
SERVICES = "broker.services"  # tables of covey.toml, too
_RUNS_HERE = ("serve.", "local.")  # settings that run commands here, or let others run some
_OWN_FILE = "~/.config/covey/covey.toml"


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    here: Path | None = None,
    *,
    has_token: bool = False,
) -> Settled:
    """Read all settings once. `flags`: values by dotted key; None: not given. `has_token`: the
    caller already has a token, so none is read from a file."""
    environ = os.environ if environ is None else environ
    here = Path.cwd() if here is None else here
    sources = [
        _from_flags(flags or {}),
        _from_environment(environ),
        _from_file(here / "covey.toml"),
        _from_file(user_file(environ)),
    ]
    _check_author(here / "covey.toml", sources[2])
    values: dict[str, object] = {}
    origins = dict.fromkeys(SETTINGS, "default")
    for source in reversed(sources):
        for key, value in source.values.items():
            values[key] = value
            origins[key] = source.place[key]
    sites: dict[str, SiteSpec] = {}
    services: dict[str, WeightService] = {}
    for source in reversed(sources):  # a site in a nearer file replaces the whole site
        for spec in source.sites:
            sites[spec.name] = spec
            origins[f"{SITES}.{spec.name}"] = source.place[SITES]
        for service in source.services:
            services[service.name] = service
            origins[f"{SERVICES}.{service.name}"] = source.place[SITES]
    config = msgspec.convert(_nested(values), Config)
    config = msgspec.structs.replace(config, services=tuple(services.values()))
    above = ""
    if origins["dir"] == "default" and not config.server and not _IN_TASK & environ.keys():
        _check_owner(here / config.dir)
        above = directory_above(here, config.dir)
    if above:
        config = msgspec.structs.replace(config, dir=above)
        origins["dir"] = "a parent directory"
    stranger = _stranger(sources, config, here, has_token)
    config = msgspec.structs.replace(config, sites=tuple(sites.values()), stranger=stranger)
    return Settled(config, origins, above)


def directory_above(here: Path, name: str) -> str:
    """The nearest `.covey` in a parent directory, as git finds `.git`; empty if there is one here,
    or none above. It must be the user's own: others who can write to it could run commands here."""
    try:
        if (here / name).exists():
            return ""
        device = here.stat().st_dev
        for folder in here.resolve().parents:
            if folder.stat().st_dev != device:
                return ""
            candidate = folder / name
            if (candidate / RECORD).is_file() and _is_own(candidate):
                return str(candidate)
    except OSError:
        pass
    return ""


def _check_owner(folder: Path) -> None:
    """Raises BadConfig if the `.covey` of the current directory is another user's, as may happen in
    /tmp: its record says which commands run, and they would run as the present user."""
    if _is_anothers(folder):
        raise BadConfig(
            f"{folder} belongs to another user, who could have put commands into it that would run "
            f"as you. If you trust it, name it: --dir {shlex.quote(str(folder))}"
        )


def _check_author(file: Path, project: Source) -> None:
    """Raises BadConfig if a `covey.toml` of another user says what runs here, or where the record
    is."""
    named = [key for key in project.values if key == "dir" or key.startswith(_RUNS_HERE)]
    named += [f"{SITES}.{site.name}" for site in project.sites]
    if named and _is_anothers(file):
        raise BadConfig(
            f"{file} belongs to another user, and {named[0]} in it could run commands as you. If "
            "you trust it, replace it with a copy that belongs to you"
        )


def _is_anothers(path: Path) -> bool:
    """Whether the path, or the target of a link, belongs to neither this user nor root."""
    try:
        owners = {path.lstat().st_uid, path.stat().st_uid}
    except OSError:
        return False
    return bool(owners - {os.geteuid(), 0})


def _is_own(folder: Path) -> bool:
    about = folder.lstat()
    return (
        stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022
    )


def _stranger(sources: Sequence[Source], config: Config, here: Path, has_token: bool) -> str:
    """Why the token must not be sent; empty: it may be. A covey.toml in the current directory may
    have come with a download. It must not send the user's token to a server, or trust an authority,
    that the user did not name; nor may it choose a token file outside its directory."""
    flags, environment, project, own = (source.values for source in sources)
    by_user: dict[str, object] = {**own, **environment, **flags}
    file = here / "covey.toml"
    if not config.server:
        return ""
    if has_token or "token_file" in by_user or "token_file" not in project:
        named = [name for name in ("server", "ca") if name in project]
        changed = [name for name in named if getattr(config, name) != by_user.get(name, "")]
        if not changed:
            return ""
        return (
            f"{file} sets {changed[0]} = {getattr(config, changed[0])!r}, but your token is not "
            "from that file, and is sent only to a server that you named yourself. If you trust "
            f"this server, name it with --{changed[0]}, or in {_OWN_FILE}"
        )
    path = os.path.realpath(here / os.path.expanduser(config.token_file))
    if os.path.commonpath([path, os.path.realpath(here)]) == os.path.realpath(here):
        return ""
    return (
        f"{file} sets token_file = {config.token_file}, which is outside this directory. A "
        "covey.toml that may be another person's cannot choose which of your tokens is sent. If "
        f"you want this token, name it with --token-file, COVEY_TOKEN_FILE, or in {_OWN_FILE}"
    )


def value_of(config: Config, key: str) -> object:
    value: object = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def user_file(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(
        environ.get("HOME") or os.path.expanduser("~"), ".config"
    )
    return Path(base) / "covey" / "covey.toml"


def _from_flags(flags: Mapping[str, object]) -> Source:
    values = {key: value for key, value in flags.items() if value is not None}
    place = {key: "flag --" + key.rpartition(".")[2].replace("_", "-") for key in values}
    return Source(_checked(values, place), place)


def _from_environment(environ: Mapping[str, str]) -> Source:
    """Settings from the environment. An unknown name is an error only if it begins with a section:
    other COVEY_ names are ignored, since tasks have their own."""
    known = {setting.variable: key for key, setting in SETTINGS.items()}
    prefixes = tuple(f"COVEY_{section.upper()}_" for section in SECTIONS)
    values: dict[str, object] = {}
    place: dict[str, str] = {}
    for name, text in environ.items():
        if name in known:
            values[known[name]] = text
            place[known[name]] = f"environment, {name}"
        elif name.startswith(f"COVEY_{SITES.upper()}_"):
            raise BadConfig(
                f"environment: {name} is not possible: write sites into covey.toml, or use 'covey "
                "site add'"
            )
        elif name.startswith(prefixes):
            raise BadConfig(f"environment: unknown setting {name}{_suggest(name, list(known))}")
    return Source(_checked(values, place), place)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Warnings about unknown names that begin with COVEY_. Inside a task there are none: tasks have
    other such variables."""
    if "COVEY_BAG" in environ:
        return []
    known = [setting.variable for setting in SETTINGS.values()]
    return [
        f"unknown variable {name} is ignored{_suggest(name, known)}"
        for name in sorted(environ)
        if name.startswith("COVEY_") and name not in known
    ]


def _from_file(path: Path) -> Source:
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Source({}, {})
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path} cannot be read: {error}") from error
    try:
        tree = toml_text.parse(text, str(path))
    except toml_text.BadToml as error:
        raise BadConfig(str(error)) from None
    sites = _sites(path, tree.pop(SITES, {}))
    broker = tree.get("broker")
    tables = broker.pop("services", {}) if isinstance(broker, dict) else {}
    services = config_broker.services(tables, str(path))
    values = dict(_flattened(path, tree))
    place = dict.fromkeys([*values, SITES], str(path))
    return Source(_checked(values, place), place, sites, services)


def _sites(path: Path, tables: object) -> tuple[SiteSpec, ...]:
    if not isinstance(tables, dict):
        raise BadConfig(
            f"{path}: [sites] needs a name: write [sites.NAME], then the keys of that site"
        )
    return tuple(config_sites.read(name, table, str(path)) for name, table in tables.items())


def _flattened(path: Path, tree: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if name in SECTIONS and isinstance(value, dict):
            for inner, leaf in value.items():
                yield _known(path, f"{name}.{inner}"), leaf
        else:
            yield _known(path, name), value


def _known(path: Path, key: str) -> str:
    if key in SETTINGS:
        return key
    if key in SECTIONS:
        raise BadConfig(f"{path}: {key!r} is a section: write [{key}], then its settings")
    raise BadConfig(
        f"{path}: unknown setting {key!r}{_suggest(key, [*SETTINGS, *SECTIONS, SITES])}"
    )


def _suggest(name: str, known: list[str]) -> str:
    by_last = {key.rpartition(".")[2]: key for key in known}
    near = nearest(name, known) or by_last.get(nearest(name.rpartition(".")[2], by_last), "")
    return f"; did you mean '{near}'?" if near else "; 'covey config show' lists all settings"


def _checked(values: Mapping[str, object], place: Mapping[str, str]) -> dict[str, object]:
    """Values with the types of their settings. Text of flags and variables is converted; values in
    files must have the right type."""
    checked = {}
    for key, value in values.items():
        try:
            checked[key] = msgspec.convert(
                value, SETTINGS[key].kind, strict=not isinstance(value, str)
            )
        except msgspec.ValidationError as error:
            choices = [word for part in get_args(SETTINGS[key].kind) for word in get_args(part)]
            why = f"it must be one of {', '.join(choices)}" if choices else plain(error)
            raise BadConfig(f"{place[key]}: {key} = {value!r}: {why}") from error
    return checked


def _nested(values: Mapping[str, object]) -> dict[str, object]:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        section, dot, name = key.rpartition(".")
        (tree.setdefault(section, {}) if dot else tree)[name] = value
    return tree
