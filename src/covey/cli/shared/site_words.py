"""A site as a person writes it: KEY=VALUE words, or a file; and as it stands in covey.toml."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from covey.cli.server.settings import spell
from covey.cli.shared.standard_input import toml_table
from covey.config_sites import KEYS

TABLES = ("options", "environment")
LISTS = ("credentials", "users")
# What is text whatever it looks like: python=3 is no number.
TEXTS = tuple(
    key.name
    for key in KEYS.values()
    if isinstance(key.default, str) and key.name not in ("wall", "interval", "pause")
)


def changed(table: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """With these words; an empty value removes what was there. What is wrong with keys and values
    is for whoever reads the table. Raises UsageError."""
    found = {key: dict(value) if key in TABLES else value for key, value in table.items()}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise click.UsageError(f"{word!r}: write KEY=VALUE, such as wall=2h")
        key, dot, inner = name.strip().partition(".")
        place = found.setdefault(key, {}) if dot and key in TABLES else found
        if not dot and key in TABLES and text.strip():
            raise click.UsageError(f"{word!r}: say which, such as {key}.NAME=VALUE")
        key = inner if place is not found else name.strip()
        if not text.strip():
            place.pop(key, None)
        elif place is found:
            place[key] = _value(key, text.strip())
        else:
            place[key] = text if name.startswith("environment.") else _plain(text.strip())
    return found


def _value(key: str, text: str) -> Any:
    if key in LISTS:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text if key in TEXTS else _plain(text)


def _plain(text: str) -> Any:
    """What TOML makes of it, as true, 4 or ["a", "b"]; a word that is no TOML is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def from_file(name: str, site: str) -> dict[str, Any]:
    """The keys of a site in a TOML file, or its table [sites.NAME] there. Raises UsageError."""
    found = toml_table(name)
    if "sites" not in found:
        return found
    tables = found["sites"]
    if not isinstance(tables, dict) or not isinstance(tables.get(site), dict):
        raise click.UsageError(f"{name}: there is no table [sites.{site}]")
    table: dict[str, Any] = tables[site]
    return table


def written(name: str, table: Mapping[str, Any]) -> list[str]:
    """As it would stand in covey.toml."""
    lines = [f"[sites.{name}]"]
    lines += [f"{key} = {spell(value)}" for key, value in table.items() if key not in TABLES]
    for key in TABLES:
        if table.get(key):
            lines += ["", f"[sites.{name}.{key}]"]
            lines += [f"{inner} = {spell(value)}" for inner, value in table[key].items()]
    return lines
