"""Reading a site from KEY=VALUE words, or from a file; and writing it as in covey.toml."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from covey.cli.server.settings import spell
from covey.cli.shared.standard_input import read_toml
from covey.config_sites import KEYS

TABLES = ("options", "environment")
LISTS = ("credentials", "users")
# Keys whose value is always text: the 3 in python=3 is not a number.
TEXTS = tuple(
    key.name
    for key in KEYS.values()
    if isinstance(key.default, str) and key.name not in ("wall", "interval", "pause")
)


def changed(table: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The table with these words applied. An empty value removes a key. Whoever reads the table
    checks its keys and values. Raises UsageError for a word that is not KEY=VALUE."""
    result = {key: dict(value) if key in TABLES else value for key, value in table.items()}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise click.UsageError(f"{word!r}: write KEY=VALUE, such as wall=2h")
        key, dot, inner = name.strip().partition(".")
        place = result.setdefault(key, {}) if dot and key in TABLES else result
        if not dot and key in TABLES and text.strip():
            raise click.UsageError(f"{word!r}: {key} is a table; write {key}.NAME=VALUE")
        key = inner if place is not result else name.strip()
        if not text.strip():
            place.pop(key, None)
        elif place is result:
            place[key] = _value(key, text.strip())
        else:
            place[key] = text if name.startswith("environment.") else _plain(text.strip())
    return result


def _value(key: str, text: str) -> Any:
    if key in LISTS:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text if key in TEXTS else _plain(text)


def _plain(text: str) -> Any:
    """A TOML value, such as true, 4 or ["a", "b"]. If the word is not TOML, it is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def from_file(name: str, site: str) -> dict[str, Any]:
    """The keys of a site in a TOML file, or its table [sites.NAME] there. Raises UsageError."""
    found = read_toml(name)
    if "sites" not in found:
        return found
    tables = found["sites"]
    if not isinstance(tables, dict) or not isinstance(tables.get(site), dict):
        raise click.UsageError(f"{name}: there is no table [sites.{site}]")
    table: dict[str, Any] = tables[site]
    return table


def written(name: str, table: Mapping[str, Any]) -> list[str]:
    """The lines that describe the site in covey.toml."""
    lines = [f"[sites.{name}]"]
    lines += [f"{key} = {spell(value)}" for key, value in table.items() if key not in TABLES]
    for key in TABLES:
        if table.get(key):
            lines += ["", f"[sites.{name}.{key}]"]
            lines += [f"{inner} = {spell(value)}" for inner, value in table[key].items()]
    return lines
