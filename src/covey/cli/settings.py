"""`covey config`: the settings, and the page that describes them."""

from typing import get_type_hints

import click

from covey import config as configuration
from covey.cli.base import Command, json_option, print_json, settle
from covey.cli.tables import Column, render

PAGE_HEAD = """\
# Configuration

covey works without any. A setting comes from the first of these that has it:

1. a flag of the command;
2. the environment: `COVEY_DIR`, `COVEY_SERVE_PORT`, …;
3. `covey.toml` in the current directory;
4. your own file, `$XDG_CONFIG_HOME/covey/covey.toml` or `~/.config/covey/covey.toml`;
5. the default.

A setting that covey does not know is refused. `covey config show` prints every setting, its value,
and where that comes from. In paths `~` is your home; relative ones start at the current directory.

```toml
# covey.toml
dir = "/scratch/me/covey"

[local]
slots = 4
```
"""


@click.group()
def config() -> None:
    """Show the settings and where they come from."""


@config.command(cls=Command, epilog="Each setting is described in docs/configuration.md.")
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
    if as_json:
        print_json(
            {
                setting.key: {"value": value, "origin": origin, "meaning": setting.text}
                for setting, value, origin in rows
            }
        )
        return
    columns = (Column("setting"), Column("value"), Column("from"), Column("meaning"))
    cells = [[setting.key, spell(value), origin, setting.text] for setting, value, origin in rows]
    click.echo(render(columns, cells))


def spell(value: object) -> str:
    """As it is written in covey.toml."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def page() -> str:
    """docs/configuration.md."""
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
    return "\n".join(lines)


def _headings() -> dict[str, str]:
    """Sections in their order, with what they are about."""
    hints = get_type_hints(configuration.Config)
    kinds = {name: hints[name] for name in configuration.SECTIONS}
    about = {name: f"[{name}]: {(kind.__doc__ or '').rstrip('.')}" for name, kind in kinds.items()}
    return {"": "At the top", **about}


if __name__ == "__main__":
    print(page(), end="")
