"""`covey init` and `covey schema`: an example of a bag file, and the JSON Schema of bag files."""

import os
from pathlib import Path

import click

from covey.cli.shared.commands import FILE_NAME, Command, json_option, print_json
from covey.frontend.terminal import echo, say


@click.command(cls=Command)
@click.argument("file", default="bag.toml", metavar="[FILE]", type=FILE_NAME)
@json_option
def init(file: str, as_json: bool) -> None:
    """Write an example of a bag file, with comments, that can be run as it is.

    \b
    covey init sweep.toml
    covey run sweep.toml --dry-run
    """
    from covey.bagfile import example

    if not file.endswith(".toml"):
        raise click.UsageError(f"{file}: a bag file's name ends with .toml")
    if os.path.basename(file) == "covey.toml":
        raise click.UsageError("covey.toml is the file for settings; name another one")
    try:
        with Path(file).open("x", encoding="utf-8") as new:
            new.write(example(file))
    except FileExistsError:
        raise click.UsageError(f"{file} exists already; name another file") from None
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from None
    if as_json:
        print_json({"file": os.path.abspath(file)})
    else:
        say(f"wrote {file}; look at it, then: covey run {file}")


@click.command(cls=Command)
@json_option
def schema(as_json: bool) -> None:
    """Print the JSON Schema of bag files (with or without --json), for editors and programs.

    \b
    covey schema > bagfile.schema.json
    """
    import json

    from covey.bagfile import schema as make_schema

    echo(json.dumps(make_schema(), indent=2, ensure_ascii=False))
