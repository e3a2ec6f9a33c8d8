"""Sites as people write them: `[sites.NAME]` in covey.toml, or the same keys sent to a server.

A table has times and sizes as text, `wall = "2h"` and `memory = "4G"`; core uses a `SiteSpec`. An
unknown key or a bad value is refused, with its place and a suggestion: a site that silently does
something else costs other people's computing time. Each key is described here, next to its default;
`docs/configuration.md` is made from these texts. The driver knows which `options` it has.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from covey.core.errors import BadConfig
from covey.core.record.model import Option, SiteSpec
from covey.core.values.amounts import BadAmount, Seconds, Size
from covey.core.values.suggestions import nearest
from covey.core.values.type_problems import plain

LOCAL = "local"  # the name of this machine's site, and of its driver
Time: TypeAlias = float | str
Most = Annotated[int, Meta(ge=0, le=1_000_000)]


class SiteTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A site, in the keys of `[sites.NAME]`: times are seconds or 90s, 1h30m; sizes 500M, 4G."""

    driver: Annotated[
        str,
        Meta(
            min_length=1,
            description="The kind of site: slurm, gridengine, pbs, lsf, htcondor, ssh, manual, "
            "or the driver of a plugin.",
        ),
    ]
    host: Annotated[
        str,
        Meta(
            description="Host on which the site's commands run, by SSH: a name that your ssh "
            "knows; empty: the server's machine."
        ),
    ] = ""
    options: Annotated[
        dict[str, Option],
        Meta(
            description="Options of the driver, such as partition, queue or account "
            "(covey help sites)."
        ),
    ] = {}
    environment: Annotated[
        dict[str, str],
        Meta(description="Environment variables for the site's commands, such as SLURM_CONF."),
    ] = {}
    directory: Annotated[
        str,
        Meta(
            description="Directory at the site for pilots and their output; all hosts of the "
            "site must share it. Empty: ~/.covey/sites/NAME."
        ),
    ] = ""
    python: Annotated[
        str, Meta(min_length=1, description="The Python of the site's pilots: 3.6 or later.")
    ] = "python3"
    setup: Annotated[
        str,
        Meta(description="Shell commands that a pilot runs first, such as module load python."),
    ] = ""
    check: Annotated[
        str,
        Meta(
            description="A shell command that checks a host: if its exit status is not 0, the "
            "pilot takes no tasks."
        ),
    ] = ""
    slots: Annotated[
        int, Meta(ge=1, le=4096, description="Tasks that a pilot runs at once, at most.")
    ] = 1
    memory: Annotated[
        str,
        Meta(description="Memory of a pilot, all slots together; empty: no memory is requested."),
    ] = ""
    disk: Annotated[str, Meta(description="Disk of a pilot; empty: no disk is requested.")] = ""
    gpus: Annotated[int, Meta(ge=0, le=10_000, description="GPUs of a pilot.")] = 0
    wall: Annotated[Time, Meta(description="The longest time that a pilot runs; 0: no limit.")] = (
        "1h"
    )
    idle: Annotated[
        Time,
        Meta(
            description="A pilot ends after this long without work; 0: as "
            "serve.pilot_idle_seconds says."
        ),
    ] = 0.0
    queued: Annotated[
        Most, Meta(description="Pilots that may wait there, at most; 0: any number.")
    ] = 10
    running: Annotated[
        Most, Meta(description="Pilots that may run or wait there, at most; 0: any number.")
    ] = 100
    per_user: Annotated[
        Most,
        Meta(
            description="Pilots that may run or wait there for one owner, at most; 0: any number."
        ),
    ] = 0
    all_memory: Annotated[
        str, Meta(description="Memory of all pilots there together, at most; empty: any.")
    ] = ""
    all_disk: Annotated[
        str, Meta(description="Disk of all pilots there together, at most; empty: any.")
    ] = ""
    ramp: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Pilots that may wait at first; the number doubles with each pilot that "
            "starts, and halves with each that fails.",
        ),
    ] = 4
    interval: Annotated[Time, Meta(description="Time between two queries of its list of jobs.")] = (
        "10s"
    )
    pause: Annotated[
        Time, Meta(description="Time between two commands, to limit the load on the site.")
    ] = "0.2s"
    credentials: Annotated[
        tuple[str, ...],
        Meta(
            description="Files that must be readable where its commands run; without them the "
            "site is not used, and says so."
        ),
    ] = ()
    credential_check: Annotated[
        str,
        Meta(
            description="A shell command, run where the site's commands run, whose exit status "
            "is 0 if credentials are valid: klist -s."
        ),
    ] = ""
    users: Annotated[
        tuple[str, ...],
        Meta(description="Owners whose tasks may run there; empty: all owners."),
    ] = ()
    price: Annotated[
        float, Meta(ge=0, description="Price of one slot for an hour, in any unit.")
    ] = 0.0
    weight: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            description="The site's part of the pilots, for the broker static; 0: no broker "
            "starts pilots there.",
        ),
    ] = 1.0
    preference: Annotated[
        str,
        Meta(
            description="What the site's owners prefer: an expression over Bag, User, Site and "
            'Queue. Bags with a higher value go first: member(User.Name, {"ann", "bob"})'
        ),
    ] = ""
    failover: Annotated[
        bool,
        Meta(
            description="The site is only for tasks that failed too often elsewhere; they "
            "get one more attempt here."
        ),
    ] = False
    shared: Annotated[
        bool,
        Meta(
            description="Its pilots run tasks of several owners, isolated from each other; if "
            "that is impossible, they do not start. Without it, a site serves one owner once "
            "tokens exist."
        ),
    ] = False


class Key(NamedTuple):
    """A key of a site's table; `field`: its field in SiteSpec."""

    name: str
    kind: Any
    default: object
    text: str
    field: str


_SECONDS = ("wall", "idle", "interval", "pause")
_SIZES = ("memory", "disk", "all_memory", "all_disk")
_TIME = Seconds(high=10**8)
_SIZE = Size("m", "900 TB", least=0)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Other names of our keys, and keys that belong into a driver's options.
_MEANT = {
    "type": "driver", "kind": "driver", "ssh": "host", "login": "host", "hostname": "host",
    "env": "environment", "dir": "directory", "folder": "directory", "cores": "slots",
    "cpus": "slots", "ram": "memory", "mem": "memory", "gpu": "gpus", "time": "wall",
    "walltime": "wall", "max_queued": "queued", "max_running": "running", "limit": "running",
    "owners": "users",
    "partition": "options.partition", "queue": "options.queue", "account": "options.account",
    "project": "options.project", "qos": "options.qos", "whole_nodes": "options.whole_nodes",
    "hosts": "options.hosts",
}  # fmt: skip


def _keys() -> Iterator[Key]:
    hints = get_type_hints(SiteTable, include_extras=True)
    for field in msgspec.structs.fields(SiteTable):
        kind, name = hints[field.name], field.name
        units = "_seconds" if name in _SECONDS else "_mb" if name in _SIZES else ""
        default: object = "" if field.required else field.default
        if default is msgspec.NODEFAULT:
            default = field.default_factory()
        yield Key(name, kind, default, get_args(kind)[-1].description, name + units)


KEYS: dict[str, Key] = {key.name: key for key in _keys()}


def local_site(pilots: int, slots: int, shared: bool = False) -> SiteSpec:
    """The site of this machine: all its pilots are started at once."""
    return SiteSpec(
        name=LOCAL,
        driver=LOCAL,
        slots=slots,
        wall_seconds=0.0,
        queued=pilots,
        running=pilots,
        ramp=pilots,
        pause_seconds=0.0,
        shared=shared,
    )


# -- reading ------------------------------------------------------------------------------------


def read(name: str, table: object, place: str = "") -> SiteSpec:
    """The site that a table describes. `place`: where the table is, such as a file. Raises
    BadConfig."""
    where = f"{place}: [sites.{name}]" if place else f"site {name}"
    if not _NAME.fullmatch(name):
        words = (
            f"{name[:100]!r} is not a site's name: use at most 40 letters, digits, '-', '_' and "
            "'.', beginning with a letter or digit"
        )
        raise BadConfig(f"{where}: {words}")
    if not isinstance(table, Mapping):
        raise BadConfig(f"{where}: this must be a table: write [sites.{name}], then its keys")
    values = {key: _value(where, key, value) for key, value in table.items()}
    if "driver" not in values:
        words = 'driver is missing; say what kind of site it is, such as driver = "slurm"'
        raise BadConfig(f"{where}: {words}")
    if name == LOCAL or values["driver"] == LOCAL:
        words = f"{LOCAL!r} is the server's own machine; its settings are in [local]"
        raise BadConfig(f"{where}: {words}")
    spec = SiteSpec(name=name, **{KEYS[key].field: value for key, value in values.items()})
    _check(where, spec)
    return spec


def _value(where: str, key: str, value: object) -> Any:
    if key not in KEYS:
        raise BadConfig(f"{where}: unknown key {key!r}{_suggest(key)}")
    if key == "environment" and isinstance(value, Mapping):
        _check_environment(where, value)
    if key == "options" and isinstance(value, Mapping):
        _check_options(where, value)
    try:
        if key in _SECONDS:
            return _TIME.read(value)
        if key in _SIZES:
            return 0 if value == "" else _SIZE.read(value)
        return msgspec.convert(value, KEYS[key].kind)
    except BadAmount as error:
        raise BadConfig(f"{where}: {key}: {error}") from None
    except msgspec.ValidationError as error:
        raise BadConfig(f"{where}: {key} = {_shown(value)}: {plain(error)}") from None


def _suggest(key: str) -> str:
    meant = _MEANT.get(key) or nearest(key, KEYS) or _MEANT.get(nearest(key, _MEANT, least=0.8), "")
    if not meant:
        return f"; the keys are {', '.join(KEYS)}"
    table, dot, _ = meant.partition(".")
    more = f" (a key that belongs to the driver goes into {table})" if dot else ""
    return f"; did you mean '{meant}'?{more}"


def _check_environment(where: str, table: Mapping[Any, object]) -> None:
    for name, value in table.items():
        if not _VARIABLE.fullmatch(str(name)):
            raise BadConfig(
                f"{where}: environment: {name!r} is not the name of a variable: letters, digits "
                "and '_', and no digit at the beginning"
            )
        if not isinstance(value, str) or "\0" in value:
            raise BadConfig(
                f"{where}: environment.{name} = {_shown(value)} is not a text: put it in quotes"
            )


def _check_options(where: str, table: Mapping[Any, object]) -> None:
    for name, value in table.items():
        if not _is_option(value):
            words = "an option is a text, a number, true or false, or a list or table of these"
            raise BadConfig(f"{where}: options.{name} = {_shown(value)}: {words}")


def _is_option(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_option(inner) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return all(_is_option(inner) for inner in value)
    return isinstance(value, bool | int | float | str)


def _check(where: str, spec: SiteSpec) -> None:
    """Raises BadConfig for values that do not fit together, and for unsafe ones."""
    for name in ("host", "directory", "python"):
        text: str = getattr(spec, name)
        if text.startswith("-") or not text.isprintable() or (name == "host" and " " in text):
            rule = "must not begin with '-' or contain control characters"
            if name == "host":
                rule = "must not begin with '-' or contain spaces or control characters"
            raise BadConfig(f"{where}: {name} = {text!r}: the value {rule}")
    for each, whole in (("memory", "all_memory"), ("disk", "all_disk")):
        per_pilot, most = getattr(spec, KEYS[each].field), getattr(spec, KEYS[whole].field)
        if most and not per_pilot:
            words = f"{whole} has no effect unless {each} (of one pilot) is set"
            raise BadConfig(f"{where}: {words}")
        if most and per_pilot > most:
            words = f"{whole} is less than the {each} of one pilot, so no pilot could start"
            raise BadConfig(f"{where}: {words}")
    if spec.interval_seconds <= 0:
        words = 'the site would be queried without a pause; give a time, such as "10s"'
        raise BadConfig(f"{where}: interval = 0: {words}")
    for owner in spec.users:
        if not owner or not owner.isprintable():
            words = "a name must have printable characters only, and at least one"
            raise BadConfig(f"{where}: users: {owner!r} is not a user name: {words}")
    if spec.preference:
        _check_preference(where, spec.preference)


def _check_preference(where: str, text: str) -> None:
    from covey.core.errors import InvalidBag
    from covey.core.match import site_preference

    try:
        problem = site_preference.problem(text)
    except InvalidBag as error:
        raise BadConfig(f"{where}: {error}") from None
    if problem:
        raise BadConfig(f"{where}: preference: {problem}")


def _shown(value: object) -> str:
    text = "a table" if isinstance(value, Mapping) else repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


# -- writing ------------------------------------------------------------------------------------


def table_of(spec: SiteSpec) -> dict[str, Any]:
    """The site as a person would write it, without keys that have their default."""
    standard = SiteSpec(name=spec.name, driver="")
    table: dict[str, Any] = {}
    for key in KEYS.values():
        value = getattr(spec, key.field)
        if value == getattr(standard, key.field):
            continue
        if key.name in _SECONDS:
            value = _spelt(value, (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)))
        elif key.name in _SIZES:
            value = _spelt(value, (("T", 1024**2), ("G", 1024), ("M", 1)))
        elif isinstance(value, tuple):
            value = list(value)
        table[key.name] = value
    return table


def _spelt(value: float, units: tuple[tuple[str, int], ...]) -> str:
    """The value with the largest unit that makes it a whole number; always with a unit."""
    for unit, size in units:
        if value and value % size == 0:
            return f"{value / size:.0f}{unit}"
    return f"{value:.9g}{units[-1][0]}"
