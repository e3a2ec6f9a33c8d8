"""Sites as people write them: `[sites.NAME]` in covey.toml, or the same keys sent to a server.

A table says times and sizes as people do, `wall = "2h"` and `memory = "4G"`; a `SiteSpec` is what
core uses. What is misspelt or makes no sense is refused with its place, and with what may be meant:
a site that quietly does something else costs other people's computing time. Each key is described
here, next to its default; `docs/configuration.md` is made from these words. What a driver's own
`options` may say, that driver knows.
"""

import math
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from covey.core.errors import BadConfig
from covey.core.model import Option, SiteSpec

LOCAL = "local"  # core.sites has it, too; but that takes long to load
Time: TypeAlias = float | str
Most = Annotated[int, Meta(ge=0, le=1_000_000)]


class SiteTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A site, in the keys of `[sites.NAME]`: times are seconds or 90s, 5m, 2h; sizes 500M, 4G."""

    driver: Annotated[
        str,
        Meta(
            min_length=1,
            description="What kind of site it is: slurm, gridengine, pbs, lsf, htcondor, ssh, "
            "manual, or one that a plugin brings.",
        ),
    ]
    host: Annotated[
        str,
        Meta(
            description="Where its commands run, by SSH: a name that your ssh knows; empty: here, "
            "on the server's machine."
        ),
    ] = ""
    options: Annotated[
        dict[str, Option],
        Meta(description="The driver's own, such as partition, queue or account (docs/sites.md)."),
    ] = {}
    environment: Annotated[
        dict[str, str], Meta(description="Variables for its commands, such as SLURM_CONF.")
    ] = {}
    directory: Annotated[
        str,
        Meta(
            description="Where pilots and their output go, there; shared by all of its hosts. "
            "Empty: ~/.covey/sites/NAME."
        ),
    ] = ""
    python: Annotated[
        str, Meta(min_length=1, description="The Python that pilots run with, there: 3.6 or later.")
    ] = "python3"
    setup: Annotated[
        str,
        Meta(description="Shell commands that a pilot runs first, such as module load python."),
    ] = ""
    check: Annotated[
        str,
        Meta(
            description="A shell command that says, by exit status 0, that a host is well: else "
            "its pilot takes no task."
        ),
    ] = ""
    slots: Annotated[
        int, Meta(ge=1, le=4096, description="Tasks that a pilot runs at once, at most.")
    ] = 1
    memory: Annotated[
        str, Meta(description="Memory of a pilot, all slots together; empty: nothing is asked for.")
    ] = ""
    disk: Annotated[str, Meta(description="Disk of a pilot; empty: nothing is asked for.")] = ""
    gpus: Annotated[int, Meta(ge=0, le=10_000, description="GPUs of a pilot.")] = 0
    wall: Annotated[
        Time, Meta(description="The longest that a pilot lives; 0: as long as it likes.")
    ] = "1h"
    idle: Annotated[
        Time,
        Meta(
            description="A pilot goes home after this long without work; 0: as "
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
        Most, Meta(description="… of these, for the tasks of one owner; 0: any number.")
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
            description="Pilots that may wait at first; twice as many with each that starts, half "
            "with each that fails.",
        ),
    ] = 4
    interval: Annotated[Time, Meta(description="Between two looks at its list of jobs.")] = "10s"
    pause: Annotated[Time, Meta(description="Between two commands, to be kind to it.")] = "0.2s"
    credentials: Annotated[
        tuple[str, ...],
        Meta(
            description="Files that must be readable where its commands run: without them the site "
            "is left out, and says so."
        ),
    ] = ()
    credential_check: Annotated[
        str,
        Meta(
            description="A shell command, run where the site's commands run, that says by exit "
            "status 0 that credentials are valid: klist -s."
        ),
    ] = ""
    users: Annotated[
        tuple[str, ...],
        Meta(description="Owners whose tasks may run there; none named: everybody's."),
    ] = ()
    price: Annotated[
        float, Meta(ge=0, description="Of an hour of a slot, in whatever you count in.")
    ] = 0.0
    preference: Annotated[
        str,
        Meta(
            description="What its owners prefer: an expression over Bag, User, Site and Queue; the "
            'higher it is for a bag the earlier it goes: member(User.Name, {"ann", "bob"})'
        ),
    ] = ""
    failover: Annotated[
        bool, Meta(description="Only for tasks that failed too often elsewhere: one more chance.")
    ] = False
    shared: Annotated[
        bool,
        Meta(
            description="Its pilots run tasks of several owners, each walled in; where that cannot "
            "be, they do not start."
        ),
    ] = False


class Key(NamedTuple):
    """`field` of SiteSpec that it becomes."""

    name: str
    kind: Any
    default: object
    text: str
    field: str


_SECONDS = ("wall", "idle", "interval", "pause")
_SIZES = ("memory", "disk", "all_memory", "all_disk")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MEGABYTES = {"m": 1.0, "g": 1024.0, "t": 1024.0**2}
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd]?)")
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([mgt])(?:i?b)?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_SECONDS = 10**8

# What others call our keys, and what belongs to a driver's options.
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


# -- reading ------------------------------------------------------------------------------------


def read(name: str, table: object, place: str = "") -> SiteSpec:
    """The site that a table describes. `place` says where it stands, such as a file. Raises
    BadConfig."""
    where = f"{place}: [sites.{name}]" if place else f"site {name}"
    if not _NAME.fullmatch(name):
        words = "a site's name has letters, digits, '-', '_' and '.', 40 at most"
        raise BadConfig(f"{where}: {words}")
    if not isinstance(table, Mapping):
        raise BadConfig(f"{where}: write a table [sites.{name}], then its keys")
    values = {key: _value(where, key, value) for key, value in table.items()}
    if "driver" not in values:
        raise BadConfig(f'{where}: driver is missing: what kind of site is it? Such as "slurm"')
    if name == LOCAL or values["driver"] == LOCAL:
        words = f"this machine is the site {LOCAL!r}; [local] says what may run here"
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
        found = msgspec.convert(value, KEYS[key].kind)
        if key in _SECONDS:
            return _seconds(found)
        return _megabytes(found) if key in _SIZES else found
    except msgspec.ValidationError as error:
        if key in _SIZES and isinstance(value, int | float):
            raise BadConfig(
                f"{where}: {key} = {value!r}: a size needs its unit: 500M, 4G"
            ) from None
        raise BadConfig(f"{where}: {key} = {_shown(value)}: {error}") from None
    except ValueError as error:
        raise BadConfig(f"{where}: {key} = {_shown(value)}: {error}") from None


def _suggest(key: str) -> str:
    close = get_close_matches(key, KEYS, 1) or get_close_matches(key, _MEANT, 1, 0.8)
    if not close:
        return f"; there are {', '.join(KEYS)}"
    meant = _MEANT.get(key) or (close[0] if close[0] in KEYS else _MEANT[close[0]])
    table, dot, _ = meant.partition(".")
    more = f" (what belongs to the driver stands in its {table})" if dot else ""
    return f"; did you mean {meant!r}?{more}"


def _seconds(value: Time) -> float:
    told = "a time is seconds, or 90s, 5m, 2h, 1d"
    if isinstance(value, str):
        match = _TIME.fullmatch(value.strip())
        if match is None:
            raise ValueError(told)
        value = float(match[1]) * _UNITS[match[2]]
    if not 0 <= value <= _MOST_SECONDS:
        raise ValueError(told)
    return float(value)


def _megabytes(value: str) -> int:
    if not value.strip():
        return 0
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a size is such as 500M, 4G or 1.5T")
    return math.ceil(float(match[1]) * _MEGABYTES[match[2].lower()])


def _check_environment(where: str, table: Mapping[Any, object]) -> None:
    for name, value in table.items():
        if not _VARIABLE.fullmatch(str(name)):
            raise BadConfig(f"{where}: environment: {name!r} is no name of a variable")
        if not isinstance(value, str) or "\0" in value:
            raise BadConfig(
                f"{where}: environment.{name} = {_shown(value)}: write a text in quotes"
            )


def _check_options(where: str, table: Mapping[Any, object]) -> None:
    for name, value in table.items():
        try:
            msgspec.convert(value, Option)
        except msgspec.ValidationError:
            words = "an option is a text, a number, true or false, or a list of texts"
            raise BadConfig(f"{where}: options.{name} = {_shown(value)}: {words}") from None


def _check(where: str, spec: SiteSpec) -> None:
    """What each key cannot see by itself."""
    for name in ("host", "directory", "python"):
        text: str = getattr(spec, name)
        if text.startswith("-") or not text.isprintable() or (name == "host" and " " in text):
            raise BadConfig(f"{where}: {name} = {text!r}: this is none")
    for each, whole in (("memory", "all_memory"), ("disk", "all_disk")):
        one, most = getattr(spec, KEYS[each].field), getattr(spec, KEYS[whole].field)
        if most and not one:
            words = f"{whole} limits nothing unless {each}, that of one pilot, is set"
            raise BadConfig(f"{where}: {words}")
        if most and one > most:
            raise BadConfig(f"{where}: {whole} is less than the {each} of one pilot")
    if spec.interval_seconds <= 0:
        raise BadConfig(f"{where}: interval = 0: the site would be asked without a pause")
    for owner in spec.users:
        if not owner or not owner.isprintable():
            raise BadConfig(f"{where}: users: {owner!r} is nobody's name")
    if spec.preference:
        _check_preference(where, spec.preference)


def _check_preference(where: str, text: str) -> None:
    from covey.core import preferring
    from covey.core.errors import InvalidBag

    try:
        problem = preferring.problem(text)
    except InvalidBag as error:
        raise BadConfig(f"{where}: {error}") from None
    if problem:
        raise BadConfig(f"{where}: preference: {problem}")


def _shown(value: object) -> str:
    text = "a table" if isinstance(value, Mapping) else repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


# -- writing ------------------------------------------------------------------------------------


def table_of(spec: SiteSpec) -> dict[str, Any]:
    """The keys that say something, as a person would write them."""
    standard = SiteSpec(name=spec.name, driver="")
    found: dict[str, Any] = {}
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
        found[key.name] = value
    return found


def _spelt(value: float, units: tuple[tuple[str, int], ...]) -> str:
    """In the largest unit of which it is a whole number; a unit is never left out."""
    for unit, size in units:
        if value and value % size == 0:
            return f"{value / size:.0f}{unit}"
    return f"{value:.9g}{units[-1][0]}"
