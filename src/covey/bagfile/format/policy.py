"""A bag's policy as people write it: `policy = "fast-tail"`, or a table whose keys are the fields
of `core.model.PolicySpec`. docs/policies.md teaches it.

A text that is not an expression is refused here, before anything is sent. Whether the names in it
mean something is for `covey policy check`: a host may publish any tag.
"""

import math
from typing import Any

from covey.bagfile.format.kinds import (
    Flag,
    Key,
    Schema,
    Table,
    Wrong,
    check_plain,
)
from covey.bagfile.format.lines import KeyPath
from covey.bagfile.format.sheet import Sheet, suggest
from covey.classad import ClassAdError, parse
from covey.core.errors import InvalidBag
from covey.core.match import bag_policy
from covey.core.match.policies import (
    DEFAULT_PRESET,
    LONGEST,
    PRESETS,
)
from covey.core.record.model import BagSpec, PolicySpec, Segment
from covey.core.values import time_spans
from covey.core.values.amounts import show
from covey.core.values.space import is_text


class PresetOf:
    """The name of a preset."""

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> str:
        if not isinstance(value, str) or value not in PRESETS:
            hint = suggest(str(value), PRESETS, f"; there are {', '.join(PRESETS)}")
            raise Wrong(f"there is no preset {show(value)}{hint}")
        return value

    def schema(self) -> Schema:
        return {"enum": list(PRESETS)}


class ExpressionOf:
    """A ClassAd expression. Numbers, true and false need no quotes."""

    def __init__(self, low: float = -math.inf) -> None:
        self.low = low  # of a plain number

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int | float):
            if not math.isfinite(value) or value < self.low:
                least = f" from {self.low:g}" if self.low > -math.inf else ""
                raise Wrong(f"expected a number{least}, or an expression; not {show(value)}")
            return str(value)
        if not isinstance(value, str):
            raise Wrong(f"expected an expression in quotes, not {show(value)}")
        if not value.strip():
            raise Wrong("it is empty; leave it out, or write something")
        self.check(value)
        return value.strip()

    def check(self, text: str) -> None:
        if len(text) > LONGEST:
            raise Wrong(f"an expression has at most {LONGEST:,} characters")
        try:
            parse(text)
        except ClassAdError as error:
            raise Wrong(str(error)) from None

    def schema(self) -> Schema:
        number: Schema = {"type": "number"}
        if self.low > -math.inf:
            number["minimum"] = self.low
        return {"anyOf": [{"type": "string", "minLength": 1}, {"type": "boolean"}, number]}


class DeadlineOf(ExpressionOf):
    """A time, or an expression that gives seconds."""

    def check(self, text: str) -> None:
        if time_spans.parse_seconds(text, bare=False) is not None:
            return
        if time_spans.is_misspelt(text):
            expected = "expected a time: 90s, 30m, 2h, 1d, or an expression"
            raise Wrong(f"{expected}; not {show(text)}")
        super().check(text)


class NamesOf:
    """Names of sites or hosts: a list of them, or text with commas between them."""

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> tuple[str, ...]:
        listed = value.split(",") if isinstance(value, str) else value
        if not isinstance(listed, list):
            raise Wrong(f"expected names in quotes, not {show(value)}")
        names = [self._name(name) for name in listed]
        if len(names) > bag_policy.MOST_NAMES:
            raise Wrong(f"a policy names at most {bag_policy.MOST_NAMES:,} sites and hosts")
        return tuple(dict.fromkeys(names))

    def _name(self, value: Any) -> str:
        check_plain(value)
        if not isinstance(value, str):
            raise Wrong(f"expected names in quotes, not {show(value)}")
        name = value.strip()
        if not name or not is_text(name) or not name.isprintable():
            raise Wrong(f"{show(value)} is not a name: it is empty or has unprintable characters")
        return name

    def schema(self) -> Schema:
        name: Schema = {"type": "string", "minLength": 1}
        return {"anyOf": [name, {"type": "array", "items": name}]}


_SITES, _HOSTS = "names of sites", "names of hosts"

POLICY: dict[str, Key] = {
    "preset": Key(PresetOf(), f"One of {', '.join(PRESETS)}. Default: '{DEFAULT_PRESET}'."),
    "requirements": Key(ExpressionOf(), "Where a task may run (JobRequirements)."),
    "rank": Key(ExpressionOf(), "Which of your bags goes first there; more is better (Rank)."),
    "concurrency": Key(
        ExpressionOf(0), "How many tasks a pilot holds, running and sent ahead (Concurrency)."
    ),
    "deadline": Key(
        DeadlineOf(0),
        "After this time a task is also sent to another host: '30m', seconds, or an expression.",
    ),
    "replication": Key(
        ExpressionOf(),
        "Whether a running task gets one more attempt, in the tail (ReplicationRequirements).",
    ),
    "tail": Key(ExpressionOf(), "Whether the bag is in its tail (TailCondition)."),
    "sticky_tail": Key(Flag(), "Once in its tail, the bag stays there."),
    "max_replicas": Key(ExpressionOf(1), "Attempts of a task at a time, at most. Default: 2."),
    "grid": Key(ExpressionOf(), "Whether a site may have pilots for the bag (GridPolicy)."),
    "only_sites": Key(NamesOf(), f"Run there only: {_SITES}."),
    "avoid_sites": Key(NamesOf(), f"Never run there: {_SITES}."),
    "only_hosts": Key(NamesOf(), f"Run there only: {_HOSTS}."),
    "avoid_hosts": Key(NamesOf(), f"Never run there: {_HOSTS}."),
    "failover_sites": Key(
        NamesOf(), f"Where a task that failed for good elsewhere is tried once more: {_SITES}."
    ),
}


class PolicyOf:
    """The name of a preset, or a table."""

    table = Table(POLICY)

    def read(self, sheet: Sheet, path: KeyPath, value: Any) -> PolicySpec:
        if isinstance(value, str):
            return PolicySpec(preset=PresetOf().read(sheet, path, value))
        if not isinstance(value, dict):
            raise Wrong(f"expected the name of a preset, or a table [policy]; not {show(value)}")
        return PolicySpec(**self.table.read(sheet, path, value))

    def schema(self) -> Schema:
        return {"anyOf": [PresetOf().schema(), self.table.schema()]}


def check_policy(sheet: Sheet, spec: BagSpec) -> None:
    """Complain of a policy that does not fit the bag."""
    try:
        bag_policy.check(spec.policy, spec, Segment(space=spec.space))
    except InvalidBag as error:
        sheet.complain(("policy",), str(error))


def policy_value(name: str, text: str) -> object:
    """The value of a policy's key that was given as text, as in `--policy KEY=VALUE`."""
    flags: dict[str, object] = {"true": True, "false": False}
    return flags.get(text.strip().lower(), text) if name == "sticky_tail" else text
