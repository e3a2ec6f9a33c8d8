"""`covey append` and `covey close`: add tasks to an open bag, and close it."""

import secrets
from typing import Any

import click

from covey.cli.bags.submission import SubmissionCommand, apply_options, parameter_options
from covey.cli.shared.commands import Command, bag_argument, json_option, print_json, settings
from covey.frontend import bag_places
from covey.frontend.formats import count
from covey.frontend.terminal import say


@click.command(cls=SubmissionCommand)
@click.argument("bag")
@parameter_options
@json_option
def append(bag: str, as_json: bool, **options: Any) -> None:
    """Add tasks to an open BAG. They have the same parameters as its first tasks.

    \b
    covey submit --open -p seed=1..100 -- python3 fit.py {seed}
    covey append latest -p seed=101..200
    covey close latest
    """
    import msgspec

    from covey.bagfile import Sheet, empty_rows, found_rows, read_segment
    from covey.frontend.submitting import upload

    sheet = Sheet()
    apply_options(sheet, options)
    if not sheet.tree:
        raise click.UsageError("say which tasks: -p NAME=VALUES, --rows FILE or --lines FILE")
    segment, rows = read_segment(sheet)
    client = bag_places.client(settings())
    number = bag_places.find_bag(client, bag).id
    if rows is not None:
        file = found_rows(rows.path)
        blob = upload(client, [file])[file]
        segment = msgspec.structs.replace(segment, rows=empty_rows(blob, rows.form))
    answer = client.append(number, segment, secrets.token_hex(16))
    if as_json:
        print_json(answer)
    else:
        say(f"bag {number} has {count(answer.total, 'task')} now; it is still open")


@click.command(cls=Command)
@bag_argument
@json_option
def close(bag: str, as_json: bool) -> None:
    """Close an open bag: no more tasks will follow, so the bag can finish.

    \b
    covey close latest
    covey close 3 --json
    """
    client = bag_places.client(settings())
    view = bag_places.find_bag(client, bag)
    client.close_bag(view.id)
    if as_json:
        print_json({"bag": view.id, "closed": True})
    else:
        say(f"bag {view.id} is closed, with {count(view.total, 'task')}")
