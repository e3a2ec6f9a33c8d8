"""`covey run` and `covey submit`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from covey.cli.base import Command, json_option, leave, print_json, say, settings
from covey.cli.submission import build, split_request, submission_options

if TYPE_CHECKING:
    from covey.client.client import Client, Submitted
    from covey.config import Config
    from covey.core.model import BagSpec

NO_INTERSPERSED = {"allow_interspersed_args": False}

slots_option = click.option(
    "--slots",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tasks to run at once on this machine, if a server has to be started.",
)


@click.command(cls=Command, context_settings=NO_INTERSPERSED)
@submission_options
@slots_option
@click.option("--detach", is_flag=True, help="Do not wait: same as 'covey submit'.")
@json_option
def run(slots: int | None, detach: bool, as_json: bool, **options: Any) -> None:
    """Run COMMAND once for every combination of the parameters, and watch.

    {NAME} in the command stands for a parameter's value, {task} and {bag} for
    their numbers. Each task runs in an empty directory of its own.

    \b
    covey run -p seed=1..100 -p rate=0.1,0.5 -- python3 fit.py {seed} {rate}
    covey run -p file=@files.txt --limit 5m --retries 2 -- ./convert {file}
    covey run -p n=1..3 -- sh -c 'echo {n} | wc -c'

    Ctrl-C stops the watching, not the bag. The exit status is 1 if a task failed.
    """
    config = settings(local__slots=slots)
    spec = build(split_request(options), config.run.retries)
    client, submitted = send(config, spec, slots)
    if detach:
        report(submitted, as_json)
        return
    from covey.cli.watch import follow

    leave(follow(client, submitted.bag, as_json=as_json))


@click.command(cls=Command, context_settings=NO_INTERSPERSED)
@submission_options
@slots_option
@json_option
def submit(slots: int | None, as_json: bool, **options: Any) -> None:
    """Submit a bag like 'covey run' does, print its number, and return at once.

    \b
    covey submit -p seed=1..100 -- python3 fit.py --seed {seed}
    covey watch
    """
    config = settings(local__slots=slots)
    spec = build(split_request(options), config.run.retries)
    report(send(config, spec, slots)[1], as_json)


def send(config: "Config", spec: "BagSpec", slots: int | None) -> tuple["Client", "Submitted"]:
    """Submit to a server that runs, or to a new one; also if it ends at this very moment. The key
    makes both tries one submission."""
    import secrets

    import msgspec

    from covey.cli import places
    from covey.client.embedded import is_held
    from covey.core.errors import ServerAway

    spec = msgspec.structs.replace(spec, key=secrets.token_hex(16))
    options = server_options(slots)
    running = places.running_client(config)
    client = running or places.client(config, options)
    if running is not None and slots is not None:
        _tell_slots(running, slots)
    try:
        return client, client.submit(spec)
    except ServerAway:
        if config.server or is_held(config.directory):
            raise
    client = places.client(config, options)
    return client, client.submit(spec)


def server_options(slots: int | None) -> Sequence[str]:
    return () if slots is None else ("--slots", str(slots))


def _tell_slots(client: "Client", slots: int) -> None:
    have = client.server().slots
    if have != slots:
        say(f"note: the server runs already, with {have} slots; for --slots, 'covey stop' it first")


def report(submitted: "Submitted", as_json: bool) -> None:
    if as_json:
        print_json(submitted)
    else:
        click.echo(submitted.bag)
