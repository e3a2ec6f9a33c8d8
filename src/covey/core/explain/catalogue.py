"""Everything that a policy can look at, listed; and what a policy is, shown with its origins."""

from collections.abc import Iterator
from typing import Any

from covey.core.errors import InvalidBag
from covey.core.explain.answers import Expressed, Listed, ShownPolicy
from covey.core.explain.policy_view import shown
from covey.core.match.attributes import REPLICA, TABLE, Attribute, JobSubject, number_or_text
from covey.core.match.policies import (
    DEFAULT_PRESET,
    EXPRESSIONS,
    PRESETS,
    expand,
    sticks,
)
from covey.core.record.attempts import Attempt
from covey.core.record.model import BagStatus, PilotStatus, PolicySpec
from covey.core.state import Bag, Pilot, State
from covey.core.values.suggestions import did_you_mean

# In the order in which readers meet them.
TITLES = {
    "host": "Host", "pilot": "Pilot", "site": "Site", "job": "Job", "bag": "Bag", "user": "User",
    "queue": "Queue",
}  # fmt: skip
REPLICA_ROLE = "Job.Replica1"
LISTS = ("only_sites", "avoid_sites", "only_hosts", "avoid_hosts")
MOST_REPLICAS = 9  # that have a name of their own: Job.Replica9
TAG = "published by its pilot or by tasks there"
OWN_TAG = "published by your tasks; it replaces any other attribute of this name"
MOST_TAGS = 1000
MOST_PILOTS = 1000  # whose tags are looked at


# -- what there is -----------------------------------------------------------------------------


def attributes_of(state: State | None, now: float, owner: str | None) -> list[Listed]:
    """All attributes, with a live example if there is one: of a pilot that runs this owner's tasks
    (None: any pilot), and of one of the owner's bags."""
    pilot = _a_pilot(state, owner) if state is not None else None
    bag = _a_bag(state, owner) if state is not None else None
    attempt = _an_attempt(bag)
    job = (
        JobSubject(bag, 0, attempt.task if attempt is not None else -1) if bag is not None else None
    )
    things: dict[str, tuple[Any, str]] = {
        "host": (pilot, pilot.record.host if pilot is not None else ""),
        "pilot": (pilot, f"pilot {pilot.record.id}" if pilot is not None else ""),
        "site": (pilot and pilot.record.site, f"site {pilot.record.site}" if pilot else ""),
        "job": (job, _job_title(job)),
        "bag": (bag, f"bag {bag.id}" if bag is not None else ""),
        "user": (bag and bag.spec.owner, bag.spec.owner if bag is not None else ""),
        "queue": ("" if state is not None else None, "this server"),
    }
    found = []
    for role, title in TITLES.items():
        thing, of = things[role]
        found += [_listed(title, one, state, now, thing, of) for one in TABLE[role].values()]
        if role == "host" and state is not None:
            found += _tags(state, owner)
        if role == "job":
            found += _replicas(state, now, attempt)
    return found


def _listed(
    title: str, one: Attribute, state: State | None, now: float, thing: Any, of: str
) -> Listed:
    if state is None or thing is None:
        return Listed(role=title, name=one.name, text=one.text)
    example = shown(one.find(state, now, thing))
    return Listed(role=title, name=one.name, text=one.text, example=example, of=of)


def _replicas(state: State | None, now: float, attempt: Attempt | None) -> Iterator[Listed]:
    words = (
        "where the task runs now: a list of ads; each has Host, Pilot, Site and these attributes"
    )
    yield Listed(role="Job", name="Replicas", text=words)
    of = f"attempt {attempt.id}" if attempt is not None else ""
    for one in REPLICA:
        yield _listed(REPLICA_ROLE, one, state, now, attempt, of)


def _tags(state: State, owner: str | None) -> list[Listed]:
    found: dict[str, Listed] = {}
    for pilot in _pilots(state, owner):
        for name, text in sorted(pilot.record.tags.items()):
            whose, own, plain = name.rpartition(":")
            known = plain.lower() in found or (not own and plain.lower() in TABLE["host"])
            if known or (own and whose != owner) or len(found) >= MOST_TAGS:
                continue
            words, host = OWN_TAG if own else TAG, pilot.record.host
            example = shown(number_or_text(text))
            one = Listed(role="Host", name=plain, text=words, example=example, of=host)
            found[plain.lower()] = one
    return [found[name] for name in sorted(found)]


def tags(state: State, owner: str) -> list[str]:
    return [one.name for one in _tags(state, owner)]


def _pilots(state: State, owner: str | None) -> list[Pilot]:
    """The connected pilots, the latest first."""
    return [
        one
        for one in reversed(state.pilots.values())
        if one.status is PilotStatus.ACTIVE and (owner is None or one.record.owner in ("", owner))
    ][:MOST_PILOTS]


def _a_pilot(state: State, owner: str | None) -> Pilot | None:
    return next(iter(_pilots(state, owner)), None)


def _a_bag(state: State, owner: str | None) -> Bag | None:
    """A bag that runs; if none does, the latest bag."""
    theirs = [one for one in state.bags.values() if owner is None or one.spec.owner == owner]
    running = [one for one in theirs if one.status is BagStatus.RUNNING and one.places.live]
    return next(iter((running or theirs)[::-1]), None)


def _an_attempt(bag: Bag | None) -> Attempt | None:
    return next(iter(bag.places.live.values()))[0] if bag is not None and bag.places.live else None


def _job_title(job: JobSubject | None) -> str:
    if job is None:
        return ""
    return f"bag {job.bag.id}, " + (f"task {job.number}" if job.number >= 0 else "any task")


def known_names(tags: list[str], parameters: list[str], *, replicating: bool) -> list[str]:
    """The names as expressions spell them: `Host.NumCpus`, or `Tail` for the bag's own."""
    hosts = [one.name for one in TABLE["host"].values()] + tags
    own = [one.name for one in TABLE["bag"].values()]
    found = own + list(EXPRESSIONS.values()) + [f"Host.{name}" for name in hosts]
    for role in ("pilot", "site", "job", "user", "queue"):
        found += [f"{TITLES[role]}.{one.name}" for one in TABLE[role].values()]
    for role in ("Bag", "BOT"):
        found += [f"{role}.{name}" for name in (*own, *EXPRESSIONS.values())]
    found += [f"Job.{name}" for name in parameters]
    inner = [one.name for one in REPLICA] + ["Name", "Host", "Pilot", "Site", "Site.Name"]
    inner += [f"Host.{name}" for name in hosts]
    inner += [f"Pilot.{one.name}" for one in TABLE["pilot"].values()]
    for name in ("Replicas", *(f"Replica{number + 1}" for number in range(MOST_REPLICAS))):
        found += [f"Job.{name}", *(f"Job.{name}.{one}" for one in inner)]
    # Functions such as countMatches evaluate in the ad of each replica.
    return found + [one.name for one in REPLICA] if replicating else found


# -- what a policy is --------------------------------------------------------------------------


def preset_of(spec: PolicySpec) -> str:
    """Raises InvalidBag for an unknown name."""
    name = spec.preset or DEFAULT_PRESET
    if name not in PRESETS:
        hint = did_you_mean(name, PRESETS)
        raise InvalidBag(f"there is no preset {name!r}; presets: {', '.join(PRESETS)}{hint}")
    return name


def origin(spec: PolicySpec, field: str) -> str:
    """The origins of an expression."""
    written = getattr(spec, field)
    if written:
        plain = field == "deadline" and expand(PolicySpec(deadline=written))["Deadline"] != written
        return f"key {field}" if plain else "owner"
    name = preset_of(spec)
    return f"preset {name}" if getattr(PRESETS[name].policy, field) else "default"


def view(spec: PolicySpec, bag: int = 0) -> ShownPolicy:
    """Raises InvalidBag for an unknown preset."""
    preset = preset_of(spec)
    texts = expand(spec)
    lists = [f"key {name}" for name in LISTS if getattr(spec, name)]
    expressions = []
    for field, attribute in EXPRESSIONS.items():
        if attribute not in texts:
            continue
        origins = lists if field == "requirements" else []
        if field != "requirements" or spec.requirements or PRESETS[preset].policy.requirements:
            origins = [*origins, origin(spec, field)]
        expressions.append(Expressed(name=attribute, text=texts[attribute], origins=origins))
    return ShownPolicy(
        bag=bag,
        policy=spec,
        preset=preset,
        description=PRESETS[preset].text,
        expressions=expressions,
        sticky_tail=sticks(spec),
    )
