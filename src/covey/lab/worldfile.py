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
from msgspec.structs import replace

from covey.core.errors import BadConfig, InvalidBag
from covey.core.match.policies import Compiled
from covey.core.record.broker_rules import ALGORITHMS
from covey.core.record.model import PolicySpec
from covey.core.values import toml_text
from covey.core.values.suggestions import did_you_mean
from covey.core.values.type_problems import plain
from covey.lab.draws import Draw, draw, seconds
from covey.lab.figures import FIGURES, WORDS
from covey.lab.world_parts import (
    BackgroundPart,
    BagPart,
    QueuePart,
    Seconds,
    ServerPart,
    SitePart,
    Variant,
    WorldFile,
)

MOST_TASKS = 10_000_000
MOST_PILOTS = 100_000
MOST_COPIES = 1000


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
        raise BadConfig(f"{where}: {_plain(plain(error))}") from None
    for complaint in _complaints(world):
        raise BadConfig(f"{where}: {complaint}")
    return replace(world, sites=tuple(_copies(world.sites)))


def _copies(sites: Sequence[SitePart]) -> Iterator[SitePart]:
    for site in sites:
        for number in range(1, site.copies + 1):
            yield replace(site, name=f"{site.name}-{number}") if site.copies > 1 else site


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
    "sites.queue": QueuePart,
    "sites.queue.background": BackgroundPart,
    "bags": BagPart,
    "variants": Variant,
}


def _plain(words: str) -> str:
    """msgspec's message in the words of world files."""
    unknown = _UNKNOWN.fullmatch(words)
    if unknown is None:
        return words.replace("`$.", "`").replace("`$`", "the file")
    key, place = unknown[1], unknown[2] or ""
    table = ".".join(word.partition("[")[0] for word in place.split("."))
    keys = _KEYS.get(table, WorldFile).__struct_fields__
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
    for name in world.columns:
        if name not in FIGURES:
            yield f"columns: there is no figure {name!r}{_hint(name, tuple(FIGURES))}"
    papers = {bag.name: bag.paper for bag in world.bags}
    papers |= {f"variant {variant.name}": variant.paper for variant in world.variants}
    for owner, paper in papers.items():
        for name in paper:
            if name not in FIGURES and name != WORDS:
                hint = _hint(name, tuple(FIGURES))
                yield f"{owner}: paper: there is no figure {name!r}{hint}"
    brokers = {bag.name: bag.broker for bag in world.bags}
    brokers |= {f"variant {variant.name}": variant.broker for variant in world.variants}
    for owner, broker in brokers.items():
        if broker and broker not in ALGORITHMS:
            yield f"{owner}: there is no broker {broker!r}{_hint(broker, ALGORITHMS)}"
    if not 0.0 < world.tail < 1.0:
        yield "tail is a share: above 0 and below 1"
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
    if not 1 <= site.copies <= MOST_COPIES:
        yield f"copies must be from 1 to {MOST_COPIES}"
    if not 1 <= site.slots <= 4096:
        yield "slots must be from 1 to 4096"
    if site.queue is not None:
        if site.pilots:
            yield "either it has pilots, or a queue to which pilots are submitted"
        if site.availability:
            yield "availability is for sites with pilots; a queue has a load"
        yield from _about_queue(site.queue)
    elif not 1 <= site.pilots <= MOST_PILOTS:
        yield f"it needs a queue, or pilots from 1 to {MOST_PILOTS:,}"
    if site.hosts and site.hosts < site.most_pilots:
        yield f"{site.most_pilots} pilots need as many hosts, not {site.hosts}"
    for name in ("preempted", "failed", "black_holes", "stragglers"):
        if not 0.0 <= getattr(site, name) <= 1.0:
            yield f"{name} is a share: from 0 to 1, not {getattr(site, name)}"
    if site.preempted >= 1.0 or (site.preempted > 0) != (site.preempted_over > 0):
        yield "preempted (below 1) and preempted_over belong together: 0.2 of tasks of 40m"
    if min(site.speed.first, site.slowdown.first) <= 0:
        yield "speed and slowdown must be above 0"
    if not _are_steps(site.availability) or any(part > 1 for _, part in site.availability):
        yield "availability is a list of [time, share of the pilots], the earliest first"


def _about_queue(queue: QueuePart) -> Iterator[str]:
    most = f"from 1 to {MOST_PILOTS:,}"
    for name in ("running", "queued", "ramp"):
        if not 1 <= getattr(queue, name) <= MOST_PILOTS:
            yield f"queue: {name} must be {most}"
    if not 0.0 <= queue.start_failures <= 1.0:
        yield f"queue: start_failures is a share: from 0 to 1, not {queue.start_failures}"
    if queue.weight < 0:
        yield "queue: weight cannot be below 0"
    if queue.wall <= 0:
        yield "queue: wall must be above 0"
    if not _are_steps(queue.load):
        yield "queue: load is a list of [time, factor], the earliest first"
    if queue.background is not None and not queue.cores:
        yield "queue: a background needs cores"
    if queue.cores and (queue.load or queue.wait.first):
        yield "queue: with cores, waits follow from the background; it has no wait and no load"
    part = queue.background
    if part is None:
        return
    if bool(part.trace) == bool(part.every.first):
        yield "background: either a trace, or jobs that come every so many seconds"
    if part.trace and part.load:
        yield "background: the load of a trace is its own"
    if not _are_steps(part.load):
        yield "background: load is a list of [time, factor], the earliest first"


def _are_steps(steps: Sequence[tuple[float, float]]) -> bool:
    times = [time for time, _ in steps]
    return times == sorted(times) and all(value >= 0 for _, value in steps)


def _about_bag(bag: BagPart, before: list[str], variants: Sequence[Variant]) -> Iterator[str]:
    if not 1 <= bag.tasks <= MOST_TASKS:
        yield f"tasks must be from 1 to {MOST_TASKS:,}"
    if not 1 <= bag.cores <= 4096:
        yield "cores must be from 1 to 4096"
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
            yield f"{place}policy: {plain(error)}"
