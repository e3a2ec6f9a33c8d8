"""World files: sites, what goes wrong there, and the bags to run (docs/lab.md).

Everything is checked before anything runs. A message names the place of the mistake.
"""

import re
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from covey.core.errors import BadConfig, InvalidBag
from covey.core.match.policies import Compiled
from covey.core.record.model import PolicySpec
from covey.core.values import toml_text
from covey.core.values.suggestions import did_you_mean
from covey.lab.draws import Draw, constant, draw, seconds

MOST_TASKS = 10_000_000
MOST_PILOTS = 100_000


class Seconds(float):
    """A time in a world file: 90, or 30s, 10m, 2h, 1d."""


class ServerPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server, and its connections to pilots."""

    latency: Draw = constant(0.1)  # there and back; drawn once for each pilot
    lease: Seconds = Seconds(60.0)  # from the end of a pilot until the server gives it up
    connected: bool = True  # whether busy pilots hear of cancellations at once
    tick: Seconds = Seconds(1.0)  # how often core handles what depends on time
    cycle: Seconds = Seconds(1.0)  # how often replicas are drawn


class SitePart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    pilots: int  # running, or waiting in its queue
    hosts: int = 0  # machines for pilots; 0: as many as pilots
    slots: int = 1
    speed: Draw = constant(1.0)
    wait: Draw = constant(0.0)  # in the site's queue
    preempted: float = 0.0  # share of tasks that are lost because their pilot is preempted …
    preempted_over: Seconds = Seconds(0.0)  # … if tasks take this long
    failed: float = 0.0  # share of tasks that fail
    differ: bool = False  # whether each host has its own rates of preemption and failures
    black_holes: float = 0.0  # share of hosts on which every task fails …
    black_hole_time: Draw = constant(1.0)  # … after this time
    stragglers: float = 0.0  # share of tasks that take longer …
    slowdown: Draw = constant(3.0)  # … by this factor
    availability: tuple[tuple[Seconds, float], ...] = ()  # time, share of pilots from then on


class BagPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    tasks: int
    time: Draw  # of a task, at speed 1
    policy: dict[str, Any] = {}
    retries: int = 100
    at: Seconds = Seconds(0.0)  # time of submission …
    after: str = ""  # … or the bag after whose end it is submitted
    shown: bool = True  # in the tables
    paper: dict[str, float | str] = {}  # what somebody else measured


class Variant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same world under another policy."""

    name: str
    about: str = ""
    policy: dict[str, Any] = {}  # overrides keys of every bag's policy
    paper: dict[str, float | str] = {}


class WorldFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str = ""
    about: str = ""
    seeds: int = 5
    limit: Seconds = Seconds(30 * 86400.0)  # a run that takes longer is given up
    server: ServerPart = ServerPart()
    sites: tuple[SitePart, ...]
    bags: tuple[BagPart, ...]
    variants: tuple[Variant, ...] = ()


def policy_of(bag: BagPart, variant: Variant | None) -> PolicySpec:
    return msgspec.convert(_policy_keys(bag, variant), PolicySpec)


def _policy_keys(bag: BagPart, variant: Variant | None) -> dict[str, Any]:
    return {**bag.policy, **(variant.policy if variant is not None else {})}


# -- reading ---------------------------------------------------------------------------------


def built_in() -> dict[str, str]:
    """The worlds that come with covey: their names and their texts."""
    folder = resources.files("covey.lab") / "worlds"
    texts = {
        file.name.removesuffix(".toml"): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    }
    return dict(sorted(texts.items()))


def find(name: str) -> WorldFile:
    """The world of this name, or of this file. Raises BadConfig."""
    worlds = built_in()
    if name in worlds:
        return parse(worlds[name], name)
    path = Path(name)
    if not path.is_file():
        hint = did_you_mean(name, worlds, f"; there are {', '.join(worlds)}")
        raise BadConfig(f"{name}: no such world, and no such file{hint}")
    return parse(path.read_text(encoding="utf-8"), name)


def parse(text: str, where: str) -> WorldFile:
    """Raises BadConfig. Its message names the place in the file."""
    try:
        tree = toml_text.parse(text, where)
        world = msgspec.convert(tree, WorldFile, dec_hook=_converted)
    except toml_text.BadToml as error:
        raise BadConfig(str(error)) from None
    except msgspec.ValidationError as error:
        raise BadConfig(f"{where}: {_plain(str(error))}") from None
    for complaint in _complaints(world):
        raise BadConfig(f"{where}: {complaint}")
    return world


def _converted(kind: type, value: object) -> object:
    if kind is Draw:
        return draw(value)
    if kind is Seconds:
        return Seconds(seconds(value))
    raise NotImplementedError(kind)


_UNKNOWN = re.compile(r"Object contains unknown field `([^`]+)`(?: - at `\$\.?(.*)`)?")
_KEYS: dict[str, type[Struct]] = {
    "server": ServerPart,
    "sites": SitePart,
    "bags": BagPart,
    "variants": Variant,
}


def _plain(words: str) -> str:
    """msgspec's message in the words of world files."""
    unknown = _UNKNOWN.fullmatch(words)
    if unknown is None:
        return words.replace("`$.", "`").replace("`$`", "the file")
    key, place = unknown[1], unknown[2] or ""
    keys = _KEYS.get(place.partition("[")[0], WorldFile).__struct_fields__
    return f"there is no key {key!r}{f' in {place}' if place else ''}{_hint(key, keys)}"


def _names(table: type[Struct]) -> tuple[str, ...]:
    return table.__struct_fields__


def _hint(key: str, known: Sequence[str]) -> str:
    return did_you_mean(key, known, f"; there are {', '.join(known)}")


# -- checking ----------------------------------------------------------------------------------


def _complaints(world: WorldFile) -> Iterator[str]:
    for kind, parts in (("sites", world.sites), ("variants", world.variants), ("bags", world.bags)):
        names = [part.name for part in parts]
        for place, name in enumerate(names):
            if not name or name in names[:place]:
                yield f"{kind}[{place}]: the name {name!r} is empty or taken; give it its own name"
    if not world.sites or not world.bags:
        yield "at least one site and one bag are needed"
    if world.seeds < 1:
        yield "seeds must be at least 1"
    if world.server.tick <= 0 or world.server.cycle <= 0:
        yield "server: tick and cycle must be above 0"
    for site in world.sites:
        for words in _about_site(site):
            yield f"site {site.name}: {words}"
    bag_names = [bag.name for bag in world.bags]
    for place, bag in enumerate(world.bags):
        for words in _about_bag(bag, bag_names[:place], world.variants):
            yield f"bag {bag.name}: {words}"


def _about_site(site: SitePart) -> Iterator[str]:
    if not 1 <= site.pilots <= MOST_PILOTS or not 1 <= site.slots <= 4096:
        yield f"pilots must be from 1 to {MOST_PILOTS:,}, slots from 1 to 4096"
    if site.hosts and site.hosts < site.pilots:
        yield f"{site.pilots} pilots need as many hosts, not {site.hosts}"
    for name in ("preempted", "failed", "black_holes", "stragglers"):
        if not 0.0 <= getattr(site, name) <= 1.0:
            yield f"{name} is a share: from 0 to 1, not {getattr(site, name)}"
    if site.preempted >= 1.0 or (site.preempted > 0) != (site.preempted_over > 0):
        yield "preempted (below 1) and preempted_over belong together: 0.2 of tasks of 40m"
    if min(site.speed.first, site.slowdown.first) <= 0:
        yield "speed and slowdown must be above 0"
    times = [time for time, _ in site.availability]
    if times != sorted(times) or any(not 0 <= part <= 1 for _, part in site.availability):
        yield "availability is a list of [time, share of the pilots], the earliest first"


def _about_bag(bag: BagPart, before: list[str], variants: Sequence[Variant]) -> Iterator[str]:
    if not 1 <= bag.tasks <= MOST_TASKS:
        yield f"tasks must be from 1 to {MOST_TASKS:,}"
    if not 0 <= bag.retries <= 1000:
        yield "retries must be from 0 to 1000"
    if bag.after and (bag.after not in before or bag.at):
        yield f"after = {bag.after!r} must be a bag before this one in the file, without at"
    for variant in variants or (None,):
        place = f"variant {variant.name}: " if variant is not None else ""
        fields = PolicySpec.__struct_fields__
        for key in _policy_keys(bag, variant):
            if key not in fields:
                yield f"{place}there is no key {key!r} in a policy{_hint(key, fields)}"
        try:
            Compiled(policy_of(bag, variant))
        except (InvalidBag, msgspec.ValidationError) as error:
            yield f"{place}policy: {error}"
