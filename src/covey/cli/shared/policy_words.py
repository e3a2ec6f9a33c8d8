"""Reading a policy from KEY=VALUE words, or from a file."""

from collections.abc import Sequence
from typing import Any

import click
from msgspec.structs import fields, replace

from covey.cli.shared.standard_input import read_toml
from covey.core.match.policies import EXPRESSIONS
from covey.core.record.model import PolicySpec
from covey.core.values.suggestions import nearest

KEYS = tuple(field.name for field in fields(PolicySpec))
LISTS = tuple(field.name for field in fields(PolicySpec) if field.default == ())
# The names of ClassAd attributes are keys, too: Rank=… means rank=…
_NAMES = {
    **{key.lower(): key for key in KEYS},
    **{attribute.lower(): key for key, attribute in EXPRESSIONS.items()},
}
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def split(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The bag, if the first word names one, and the KEY=VALUE words."""
    if words and "=" not in words[0]:
        return words[0], list(words[1:])
    return None, list(words)


def changed(policy: PolicySpec, words: Sequence[str]) -> PolicySpec:
    """The policy with these words applied. An empty value removes a key. Raises UsageError."""
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise click.UsageError(f"{word!r}: write KEY=VALUE, such as rank=Host.NumCpus")
        key = _key(name)
        changes[key] = _value(key, text.strip())
    return replace(policy, **changes)


def from_file(name: str) -> PolicySpec:
    """A TOML file of these keys; of one with a table [policy], such as a bag file, that table.
    Raises UsageError."""
    found = read_toml(name)
    table = found.get("policy", found)
    if not isinstance(table, dict):
        table = {"preset": table}  # policy = "fast-tail"
    values: dict[str, Any] = {}
    for written, value in table.items():
        try:
            key = _key(written)
            values[key] = _of_toml(key, value)
        except click.UsageError as error:
            raise click.UsageError(f"{name}: {error.message}") from None
    return PolicySpec(**values)


def _key(name: str) -> str:
    key = _NAMES.get(name.strip().lower())
    if key is None:
        near = _NAMES.get(nearest(name.strip(), _NAMES))
        hint = f"; did you mean '{near}'?" if near else f"; there are {', '.join(KEYS)}"
        raise click.UsageError(f"a policy has no key {name.strip()!r}{hint}")
    return key


def _value(key: str, text: str) -> Any:
    if key in LISTS:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if key == "sticky_tail":
        if not text:
            return None
        if text.lower() not in _TRUTHS:
            raise click.UsageError(f"sticky_tail is true or false, not {text!r}")
        return _TRUTHS[text.lower()]
    return text


def _of_toml(key: str, value: Any) -> Any:
    """The value of a key. Numbers and flags are expressions, too: max_replicas = 3."""
    if key in LISTS:
        parts = [value] if isinstance(value, str) else value
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise click.UsageError(f"{key} is a list of names")
        return tuple(parts)
    if key == "sticky_tail":
        if not isinstance(value, bool):
            raise click.UsageError("sticky_tail is true or false")
        return value
    if not isinstance(value, str | int | float):
        raise click.UsageError(f"{key} is an expression, in quotes")
    return str(value).lower() if isinstance(value, bool) else str(value)
