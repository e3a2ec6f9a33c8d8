"""Every setting, in one frozen tree that is read once.

A setting comes from the first of: a flag, the environment, `covey.toml` in the current directory,
the user's own `covey.toml`, the default below. Anything covey does not know is refused, with the
place where it stands: a misspelt setting that is silently ignored costs its author a day. Each
setting is described here, next to its default; `docs/configuration.md` is made from these words.
"""

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
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

from covey import config_sites
from covey.core.errors import BadConfig
from covey.core.model import SiteSpec

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
            description="Address that others use to reach this server, where it is not the one "
            "it listens on (a proxy), such as https://covey.example.org."
        ),
    ] = ""
    tls: Annotated[
        Literal["auto", "own", "off"],
        Meta(
            description="own: certificates of our own authority, kept in tls/ of the directory; "
            "auto: the certificate given, else own, except on 127.0.0.1 and ::1; off: none."
        ),
    ] = "auto"
    certificate: Annotated[
        str,
        Meta(
            description="PEM file with the server's certificate and those above it; read again "
            "when it changes."
        ),
    ] = ""
    key: Annotated[str, Meta(description="PEM file with the key of that certificate.")] = ""
    ca: Annotated[
        str,
        Meta(
            description="PEM file with the authority that pilots are told to trust, where their "
            "system does not know it: that of the certificate, or of the proxy in front."
        ),
    ] = ""
    names: Annotated[
        str,
        Meta(
            description="More names and addresses for our own certificate, with commas between "
            "them; this host's own are in it."
        ),
    ] = ""
    idle_exit_seconds: Annotated[
        Seconds,
        Meta(description="An embedded server ends this long after the last bag and client."),
    ] = 30.0
    poll_seconds: Annotated[
        Seconds, Meta(description="How long a pilot's question may wait for an answer.")
    ] = 25.0
    lease_seconds: Annotated[
        Seconds, Meta(description="A pilot that is silent this long is lost; its tasks run again.")
    ] = 60.0
    adopt_seconds: Annotated[
        Seconds,
        Meta(
            description="After a restart, how long earlier pilots may take to say what they run "
            "before it is run again."
        ),
    ] = 60.0
    absent_seconds: Annotated[
        Seconds,
        Meta(
            description="A program that has not waited for the values of its calls (Executor) this "
            "long is gone: its bag is paused until it does."
        ),
    ] = 300.0
    pilot_idle_seconds: Annotated[
        Seconds, Meta(description="A pilot goes home after this long without work.")
    ] = 20.0
    ssh: Annotated[
        str,
        Meta(
            min_length=1,
            description="How SSH to sites is called, such as ssh -F FILE; it must ask nobody.",
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
        Meta(ge=0, description="Days that the files its tasks returned are kept; 0: for ever."),
    ] = 0.0


class Local(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Pilots on the server's own machine."""

    slots: Annotated[
        int, Meta(ge=0, description="Tasks run at once by each pilot; 0: one per usable core.")
    ] = 0
    pilots: Annotated[
        int, Meta(ge=0, description="Pilots on this machine; 0: none, others bring them.")
    ] = 1
    memory_mb: Annotated[
        int,
        Meta(
            ge=0,
            description="Memory that pilots here hand out to tasks, all together; 0: all there is.",
        ),
    ] = 0
    gpus: Annotated[
        str,
        Meta(description="GPUs that a pilot hands out, such as 0,1; none; empty: all it finds."),
    ] = ""
    cache_mb: Annotated[
        int,
        Meta(ge=1, description="Size of this machine's cache of input files."),
    ] = 10_240
    shared: Annotated[
        bool,
        Meta(
            description="Tasks of several owners run here, each walled in (bubblewrap or user "
            "namespaces); where that cannot be, or for root, pilots do not start."
        ),
    ] = False
    setup: Annotated[
        str, Meta(description="A shell command that each pilot here runs before anything else.")
    ] = ""
    check: Annotated[
        str,
        Meta(
            description="A shell command that says, by exit status 0, that this machine is well: "
            "else a pilot takes no task."
        ),
    ] = ""


class Run(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `covey run` and `covey submit` assume."""

    retries: Annotated[
        int,
        Meta(ge=0, description="How often a task that failed is tried again, unless told."),
    ] = 0


class Policy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the server carries out what the policies of bags decide."""

    ban_seconds: Annotated[
        Seconds,
        Meta(
            description="The longest that a host on which an owner's tasks fail gets none of them; "
            "the first ban is a tenth of it."
        ),
    ] = 3600.0
    ban_growth_seconds: Annotated[
        Seconds, Meta(description="How fast bans become longer: two thirds of the way in this.")
    ] = 650.0
    replicate_seconds: Annotated[
        Seconds,
        Meta(description="Between two looks for running tasks that should get another attempt."),
    ] = 1.0
    buffer_seconds: Annotated[
        Seconds,
        Meta(description="How long tasks that no host may run stand in the way of those behind."),
    ] = 30.0
    batch: Annotated[
        bool,
        Meta(
            description="When work comes, give it first to those hosts that its policy ranks best, "
            "not to those that have waited longest."
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
            description="PEM file with the authority to trust for that server (its tls/ca.pem); "
            "empty: those of the system."
        ),
    ] = ""
    serve: Serve = Serve()
    local: Local = Local()
    policy: Policy = Policy()
    run: Run = Run()
    sites: tuple[SiteSpec, ...] = ()  # beside this machine: [sites.NAME], in their order

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
    """The settings, and for each key where its value comes from."""

    config: Config
    origins: dict[str, str]


class Source(NamedTuple):
    """Values by key, all from one place; `place` of a key is for people."""

    values: dict[str, object]
    place: dict[str, str]
    sites: tuple[SiteSpec, ...] = ()


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
SITES = "sites"  # tables of tables, which are no settings


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    here: Path | None = None,
) -> Settled:
    """Read everything once. `flags` are dotted keys; a None among them was not given."""
    environ = os.environ if environ is None else environ
    here = Path.cwd() if here is None else here
    sources = [
        _from_flags(flags or {}),
        _from_environment(environ),
        _from_file(here / "covey.toml"),
        _from_file(user_file(environ)),
    ]
    values: dict[str, object] = {}
    origins = dict.fromkeys(SETTINGS, "default")
    for source in reversed(sources):
        for key, value in source.values.items():
            values[key] = value
            origins[key] = source.place[key]
    sites: dict[str, SiteSpec] = {}
    for source in reversed(sources):  # the nearer file has the last word on a site, all of it
        for spec in source.sites:
            sites[spec.name] = spec
            origins[f"{SITES}.{spec.name}"] = source.place[SITES]
    config = msgspec.convert(_nested(values), Config)
    return Settled(msgspec.structs.replace(config, sites=tuple(sites.values())), origins)


def value_of(config: Config, key: str) -> object:
    found: object = config
    for part in key.split("."):
        found = getattr(found, part)
    return found


def user_file(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(
        environ.get("HOME") or os.path.expanduser("~"), ".config"
    )
    return Path(base) / "covey" / "covey.toml"


def _from_flags(flags: Mapping[str, object]) -> Source:
    given = {key: value for key, value in flags.items() if value is not None}
    place = {key: "flag --" + key.rpartition(".")[2].replace("_", "-") for key in given}
    return Source(_checked(given, place), place)


def _from_environment(environ: Mapping[str, str]) -> Source:
    """Only names that begin like a section of ours can be misspelt: tasks see other COVEY_…"""
    known = {setting.variable: key for key, setting in SETTINGS.items()}
    prefixes = tuple(f"COVEY_{section.upper()}_" for section in SECTIONS)
    found: dict[str, object] = {}
    place: dict[str, str] = {}
    for name, text in environ.items():
        if name in known:
            found[known[name]] = text
            place[known[name]] = f"environment, {name}"
        elif name.startswith(f"COVEY_{SITES.upper()}_"):
            raise BadConfig(f"environment: {name}: sites come from covey.toml, or covey site add")
        elif name.startswith(prefixes):
            raise BadConfig(f"environment: unknown setting {name}{_suggest(name, list(known))}")
    return Source(_checked(found, place), place)


def _from_file(path: Path) -> Source:
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Source({}, {})
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path}: cannot be read: {error}") from error
    import tomllib

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(f"{path}: {error}") from error
    sites = _sites(path, tree.pop(SITES, {}))
    found = dict(_flattened(path, tree))
    place = dict.fromkeys([*found, SITES], str(path))
    return Source(_checked(found, place), place, sites)


def _sites(path: Path, tables: object) -> tuple[SiteSpec, ...]:
    if not isinstance(tables, dict):
        raise BadConfig(f"{path}: sites have names: write [sites.NAME], then the keys of that site")
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
    close = get_close_matches(name, known, 1) or [
        by_last[last] for last in get_close_matches(name.rpartition(".")[2], by_last, 1)
    ]
    if close:
        return f"; did you mean {close[0]!r}?"
    return "; 'covey config show' lists what there is"


def _checked(values: Mapping[str, object], place: Mapping[str, str]) -> dict[str, object]:
    """Text (flags, environment) becomes what the setting needs; files must have the right type."""
    checked = {}
    for key, value in values.items():
        try:
            checked[key] = msgspec.convert(
                value, SETTINGS[key].kind, strict=not isinstance(value, str)
            )
        except msgspec.ValidationError as error:
            choices = [word for part in get_args(SETTINGS[key].kind) for word in get_args(part)]
            why = f"one of {', '.join(choices)}" if choices else str(error)
            raise BadConfig(f"{place[key]}: {key} = {value!r}: {why}") from error
    return checked


def _nested(values: Mapping[str, object]) -> dict[str, object]:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        section, dot, name = key.rpartition(".")
        (tree.setdefault(section, {}) if dot else tree)[name] = value
    return tree
