"""A bag's policy: its presets and plain keys become expressions, and these one compiled policy. All
of it can be shown (`covey policy show`).

The expressions stand in the bag's own ad, as in GridBot. So the bag's attributes, such as `Tail`
and `JobsUnsent`, need no prefix. The other ads are the `ROLES`. `BOT` is another name of `Bag`, for
policies from the paper.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from covey.classad import Ad, ClassAdError, Expression, Policy, parse
from covey.classad.ads import as_node
from covey.classad.depends import needs
from covey.classad.evaluation import compiled as make_code
from covey.core.errors import InvalidBag
from covey.core.record.model import PolicySpec
from covey.core.values.time_spans import parse_seconds

ROLES = ("Host", "Pilot", "Site", "Job", "User", "Queue", "Bag", "BOT")
DISPATCH = ("JobRequirements", "Rank", "Concurrency", "Deadline")
REPLICATION = ("ReplicationRequirements", "MaxReplicas")
TAIL = "TailCondition"
GRID = "GridPolicy"
FACE = ("host", "pilot")
TIMED = {"bag": {"age", "besterrorrate", "*"}, "job": {"*"}}
NAMES = (*DISPATCH, *REPLICATION, TAIL, GRID)
LONGEST = 5_000  # characters of one expression: one that is compiled while others wait
EACH = 10  # units of work of an evaluation, besides its operations (`budget`)
MOST_WORK = 900  # operations and names in one expression
# The place of each of DISPATCH among the values of an evaluation; None: the policy lacks it.
Places: TypeAlias = tuple[int | None, int | None, int | None, int | None]
_ROLES = frozenset(role.lower() for role in ROLES)
_ERRATIC = frozenset(("time", "random", "formattime"))

MOST_LATE = 10  # attempts of a task, all past their deadline, where MaxReplicas is not set
# Expressions of policies for which neither the owner nor the preset sets another.
DEFAULTS = {
    "ReplicationRequirements": "false",
    "MaxReplicas": "2",
    "TailCondition": "!Open && JobsUnsent < Queue.Slots",
}

_LATE = (
    "Job.Suspected || "
    "(Job.Measured >= 3 && Job.RunningTime > 1.5 * Job.MeanTime + 2 * Job.TimeDeviation)"
)
_UNSOUND = "Host.ErrorRate > 0.1 || Host.ConsecutiveFailures > 1"


class Preset(Struct, frozen=True):
    text: str
    policy: PolicySpec


PRESETS = {
    "throughput": Preset(
        "as many tasks as possible: no replicas, and tasks are sent ahead",
        PolicySpec(sticky_tail=False),
    ),
    "fast-tail": Preset(
        "the bag ends early: late tasks at its end get up to two more attempts, and "
        "no tasks are sent ahead then",
        PolicySpec(
            concurrency="Tail ? Pilot.Slots : undefined",
            replication=_LATE,
            max_replicas="3",
            sticky_tail=False,
        ),
    ),
    "reliable-tail": Preset(
        "at the bag's end only hosts that are nearly as reliable as the best one get tasks, and "
        "a task that is late or on an unreliable host gets another attempt",
        PolicySpec(
            requirements="!Tail || Host.ErrorRate <= BestErrorRate + 0.05",
            concurrency="Tail ? Pilot.Slots : undefined",
            replication=f"countMatches({_UNSOUND}, Job.Replicas) > 0 || {_LATE}",
            max_replicas="2",
            sticky_tail=True,
        ),
    ),
    "frugal": Preset(
        "no task runs twice: no replicas, no tasks sent ahead, and no hosts on "
        "which most tasks fail",
        PolicySpec(
            requirements="Host.ErrorRate < 0.5 || Host.ErrorRate <= BestErrorRate + 0.05",
            concurrency="Pilot.Slots",
            sticky_tail=False,
        ),
    ),
}
DEFAULT_PRESET = "throughput"

# Field of PolicySpec, by which people call it -> attribute of the bag's ad.
EXPRESSIONS = {
    "requirements": "JobRequirements",
    "rank": "Rank",
    "concurrency": "Concurrency",
    "deadline": "Deadline",
    "replication": "ReplicationRequirements",
    "tail": "TailCondition",
    "max_replicas": "MaxReplicas",
    "grid": GRID,
}
KEYS = {name: key for key, name in EXPRESSIONS.items()}
_THIS_HOST = "member(Host.Name, {%(names)s}) || member(Host.CalledName, {%(names)s})"
_LISTS = {
    "only_sites": "member(Site.Name, {%(names)s})",
    "avoid_sites": "!member(Site.Name, {%(names)s})",
    "only_hosts": f"({_THIS_HOST})",
    "avoid_hosts": f"!({_THIS_HOST})",
}

_WHOLE = re.compile(r"job|host|pilot|site|replica\d+")


def expand(spec: PolicySpec) -> dict[str, str]:
    """The policy's expressions, by the name of their attribute. Raises InvalidBag for an unknown
    preset."""
    preset = PRESETS.get(spec.preset or DEFAULT_PRESET)
    if preset is None:
        raise InvalidBag(f"there is no preset {spec.preset!r}; presets: {', '.join(PRESETS)}")
    texts: dict[str, str] = {}
    for name, attribute in EXPRESSIONS.items():
        text = getattr(spec, name) or getattr(preset.policy, name) or DEFAULTS.get(attribute, "")
        if text:
            texts[attribute] = _plain(name, text)
    parts = list(_conditions(spec))
    if parts:
        if "JobRequirements" in texts:
            parts.append(f"({texts['JobRequirements']})")
        texts["JobRequirements"] = " && ".join(parts)
    return texts


def _gives_replicas(spec: PolicySpec) -> bool:
    preset = PRESETS[spec.preset or DEFAULT_PRESET]
    return bool(spec.max_replicas or preset.policy.max_replicas)


def sticks(spec: PolicySpec) -> bool:
    if spec.sticky_tail is not None:
        return spec.sticky_tail
    preset = PRESETS[spec.preset or DEFAULT_PRESET]
    return bool(preset.policy.sticky_tail)


def _plain(name: str, text: str) -> str:
    """A time such as 30m is a number of seconds."""
    seconds = parse_seconds(text, bare=False) if name == "deadline" else None
    return text.strip() if seconds is None else f"{seconds:.12g}"


def _conditions(spec: PolicySpec) -> Iterator[str]:
    for name, form in _LISTS.items():
        names = getattr(spec, name)
        if names:
            yield form % {"names": ", ".join(map(_quoted, names))}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Compiled:
    """A policy that can be evaluated. The attributes of the bag are written into `ad` whenever they
    have changed (`match_cache`)."""

    def __init__(self, spec: PolicySpec) -> None:
        """Raises InvalidBag for text that is not an expression."""
        self.spec = spec
        self.texts = expand(spec)
        self.sticky = sticks(spec)
        self.ad = Ad({name: parsed(name, text) for name, text in self.texts.items()})
        self.asked = tuple(name for name in DISPATCH if name in self.texts)
        self.plain = not self.asked  # nothing to evaluate when its tasks go out
        self.anywhere = not self.texts.keys() & {"JobRequirements", GRID}  # any site will do
        # MaxReplicas, if it is a plain number; None if it must be evaluated.
        self.most_replicas = _whole(self.texts["MaxReplicas"])
        # The same for a task whose attempts are all past their deadline. If MaxReplicas
        # is not set, late attempts may be on hosts that are gone, and more attempts are allowed.
        self.most_late = self.most_replicas if _gives_replicas(spec) else MOST_LATE
        self.replicates = self.texts["ReplicationRequirements"] != "false"
        self.looks = self._looks(NAMES)  # by role: the attributes that it uses; "*": all
        self.at_dispatch = self._looks(self.asked)
        self.mentioned = self._mentioned()  # every name in any path; "*": also whole ads
        self.said = "\n".join(f"{name} = {self.texts[name]}" for name in self.asked)
        self.inward = bool(self.at_dispatch.keys() & {"bag", "job"})  # looks at its own bag
        self.outward = bool(self.at_dispatch.keys() & {"site", "user", "queue"})
        self.sees = frozenset(
            f"{role}.{name}" for role in FACE for name in self.at_dispatch.get(role, ())
        )  # of the pilot
        self.static = EACH + sum(as_node(self.ad[name]).work for name in self.asked)
        self.places: Places = tuple(  # type: ignore[assignment] # one for each
            self.asked.index(name) if name in self.asked else None for name in DISPATCH
        )
        # Its requirements look at the host: without one, nothing is known of them beforehand.
        self.hosted = bool(self._looks(("JobRequirements",)).keys() & {"host", "pilot"})
        self.limiting = "Concurrency" in self.texts  # says how many tasks a pilot holds
        self.erratic = bool(self._calls(self.asked) & _ERRATIC)
        # Its answer about a running task holds for all tasks of the class.
        self.by_class = not self.erratic and "job" not in self.at_dispatch
        self.timed = any(
            names & self.looks.get(role, set()) for role, names in TIMED.items()
        )  # some attribute of its bag changes with time alone
        # Its answer about a site may change although nothing around it has changed.
        self.moody = "bag" in self._looks((GRID,)) or bool(self._calls((GRID,)) & _ERRATIC)
        # Only attributes of the bag are written into its ad, and only an inward policy sees them.
        self.dispatch = Policy(self.ad, self.asked, ROLES, fixed=not self.inward)
        self.replication = Policy(self.ad, REPLICATION, ROLES)
        self.tail = Policy(self.ad, (TAIL,), ROLES)
        self.grid = Policy(self.ad, (GRID,) if GRID in self.texts else (), ROLES)

    def prepare(self) -> None:
        """Make the code that asks about sites, where no host is known: else the first decision on
        pilots makes it for all bags at once."""
        if "JobRequirements" in self.texts:
            make_code(as_node(self.ad["JobRequirements"]))

    def parameters(self, names: Sequence[str]) -> tuple[int, ...]:
        """The places of the parameters that it uses when tasks are sent."""
        looked = self.at_dispatch.get("job", set())
        return tuple(k for k, name in enumerate(names) if name.lower() in looked or "*" in looked)

    def _looks(self, names: Sequence[str]) -> dict[str, set[str]]:
        return looks_of(self.ad, [name for name in names if name in self.texts])

    def _mentioned(self) -> frozenset[str]:
        """All names in its paths: what it may see of a replica."""
        named = [name for name in NAMES if name in self.texts]
        paths = {path for name in named for path in needs(as_node(self.ad[name]), self.ad)[0]}
        found = {part for path in paths for part in path.split(".")}
        if any(_WHOLE.fullmatch(path.rpartition(".")[2]) for path in paths):
            found.add("*")
        return frozenset(found)

    def _calls(self, names: Sequence[str]) -> set[str]:
        there = [name for name in names if name in self.texts]
        return {call for name in there for call in needs(as_node(self.ad[name]), self.ad)[1]}


def _whole(text: str) -> int | None:
    """The number, at least 1; None if the text is not a plain number."""
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def looks_of(ad: Ad, names: Sequence[str]) -> dict[str, set[str]]:
    """The attributes that these expressions of a bag's ad use, by role, in small letters; "*": all
    attributes of the role."""
    found: dict[str, set[str]] = {}
    for name in names:
        for path in needs(as_node(ad[name]), ad)[0]:
            role, _, attribute = path.partition(".")
            if not attribute and role not in _ROLES:
                role, attribute = "bag", role
            role = "bag" if role == "bot" else role
            found.setdefault(role, set()).add(attribute.partition(".")[0] or "*")
    return found


def parsed(name: str, text: str) -> Expression:
    """Raises InvalidBag."""
    if len(text) > LONGEST:
        raise InvalidBag(f"{name} has more than {LONGEST:,} characters")
    try:
        found = parse(text)
    except ClassAdError as error:
        raise InvalidBag(f"{name}: {error}") from error
    if found.node.work > MOST_WORK:
        raise InvalidBag(f"{name} has more than {MOST_WORK} operations and names")
    return found
