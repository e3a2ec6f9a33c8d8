"""`covey config`, and the page docs/configuration.md, which is made from the settings."""

import json
from collections.abc import Iterator
from typing import get_type_hints

import click
import msgspec

from covey import config as configuration
from covey import config_broker, config_sites
from covey.cli.shared.commands import Command, json_option, print_json, settle
from covey.frontend.tables import Column, render
from covey.frontend.terminal import echo

PAGE_HEAD = """\
# Configuration

covey works without any settings. A setting comes from the first of these that has it:

1. a flag of the command;
2. the environment: `COVEY_DIR`, `COVEY_SERVE_PORT`, …;
3. `covey.toml` in the current directory;
4. your own file, `$XDG_CONFIG_HOME/covey/covey.toml` or `~/.config/covey/covey.toml`;
5. the default.

A setting that covey does not know is refused; other variables that begin with `COVEY_` are
ignored with a warning, and `covey doctor` lists them. `covey config show` prints every setting, its
value, and where the value comes from. In paths `~` is your home directory; relative paths start at
the current directory.

Unless `dir` or a server is set, covey uses the nearest `.covey`, as git does with `.git`: the one
in this directory, else the one in the nearest parent directory. A parent must be on the same file
system, and only you may be able to write to it. Every command does this, also `covey run`, and
says which one it uses. To keep a separate record in this directory, use `--dir .covey` once; from
then on it is the nearest one. Tasks never use the `.covey` of a parent directory.

```toml
# covey.toml
dir = "/scratch/me/covey"

[local]
slots = 4

[sites.cluster]
driver = "slurm"
host = "login.example.org"
slots = 8
wall = "4h"

[sites.cluster.options]
partition = "short"
```
"""

SERVICES_HEAD = """\
## [broker.services.NAME]: Resource priority services

Each service has a table of its own, in `covey.toml` only. Bags name it as their broker, or
`broker.algorithm` does. [Sites](sites.md#the-broker-which-site-gets-how-many) says how it is asked.
The default of each key counts if the table does not have it.

| key | default | meaning |
|---|---|---|
"""

SITES_HEAD = """\
## [sites.NAME]: Other places where pilots can be started

Each site has a table of its own, in `covey.toml` only. If both files describe a site, the file in
the current directory counts. [Sites](sites.md) explains them, and the `options` of each driver.
Times are seconds or `90s`, `5m`, `2h`, `1d`; sizes need a unit: `500M`, `4G`. This machine is the
site `local`, which `[local]` describes. Sites can also be added to a running server, with the same
keys: `covey site add`.

| key | default | meaning |
|---|---|---|
"""


@click.group()
def config() -> None:
    """Show the settings and where they come from."""


@config.command(cls=Command, epilog="Each setting is described by: covey help configuration.")
@json_option
def show(as_json: bool) -> None:
    """Print each setting, its value, and where it comes from.

    \b
    covey config show
    COVEY_LOCAL_SLOTS=2 covey config show --json
    """
    settled = settle()
    rows = [
        (setting, configuration.value_of(settled.config, key), settled.origins[key])
        for key, setting in configuration.SETTINGS.items()
    ]
    facts = [(setting.key, value, origin, setting.text) for setting, value, origin in rows]
    facts += [*_of_services(settled), *_of_sites(settled)]
    if as_json:
        print_json(
            {
                key: {"value": value, "origin": origin, "meaning": text}
                for key, value, origin, text in facts
            }
        )
        return
    columns = (Column("setting"), Column("value"), Column("from"), Column("meaning"))
    cells = [[key, spell(value), origin, text] for key, value, origin, text in facts]
    echo(render(columns, cells))


def _of_services(settled: configuration.Settled) -> Iterator[tuple[str, object, str, str]]:
    for service in settled.config.services:
        name = f"{configuration.SERVICES}.{service.name}"
        for key, value in config_broker.table_of(service).items():
            yield f"{name}.{key}", value, settled.origins[name], config_broker.SERVICE_KEYS[key]


def _of_sites(settled: configuration.Settled) -> Iterator[tuple[str, object, str, str]]:
    """The keys that are set for each site. All others have the defaults of the documentation."""
    for spec in settled.config.sites:
        name = f"{configuration.SITES}.{spec.name}"
        for key, value in config_sites.table_of(spec).items():
            yield f"{name}.{key}", value, settled.origins[name], config_sites.KEYS[key].text


def spell(value: object) -> str:
    """The value as it is written in covey.toml."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        inner = ", ".join(f"{_bare(key)} = {spell(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(spell, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # every JSON string is a TOML string
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _bare(key: str) -> str:
    return key if key.replace("-", "_").isidentifier() and key.isascii() else spell(key)


def page() -> str:
    """The text of docs/configuration.md."""
    lines = [PAGE_HEAD]
    for section, heading in _headings().items():
        lines += [
            f"## {heading}\n",
            "| setting | default | environment | meaning |",
            "|---|---|---|---|",
        ]
        for key, setting in configuration.SETTINGS.items():
            if key.rpartition(".")[0] == section:
                default = spell(setting.default)
                lines.append(
                    f"| `{key.rpartition('.')[2]}` | `{default}` | `{setting.variable}` "
                    f"| {setting.text} |"
                )
        lines.append("")
    rows = []
    for key_of_site in config_sites.KEYS.values():
        name, text = key_of_site.name, key_of_site.text
        default = "needed" if name == "driver" else f"`{spell(key_of_site.default)}`"
        rows.append(f"| `{name}` | {default} | {text} |")
    services = [
        f"| `{field.name}` | `{spell(field.default)}` | {config_broker.SERVICE_KEYS[field.name]} |"
        for field in msgspec.structs.fields(config_broker.ServiceTable)
    ]
    lines.append(SERVICES_HEAD + "\n".join(services) + "\n")
    return "\n".join(lines) + "\n" + SITES_HEAD + "\n".join(rows) + "\n"


def _headings() -> dict[str, str]:
    """The heading of each section, in order."""
    hints = get_type_hints(configuration.Config)
    kinds = {name: hints[name] for name in configuration.SECTIONS}
    about = {name: f"[{name}]: {(kind.__doc__ or '').rstrip('.')}" for name, kind in kinds.items()}
    return {"": "At the top", **about}


if __name__ == "__main__":
    echo(page(), nl=False)
