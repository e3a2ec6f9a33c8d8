"""`covey run` and `covey submit`."""

from typing import TYPE_CHECKING, Any

import click

from covey.cli.bags.submission import BAG, Option, SubmissionCommand, build, submission_options
from covey.cli.shared.commands import json_option, leave, print_json, settings
from covey.frontend.terminal import echo, say

if TYPE_CHECKING:
    from covey.bagfile import Gathered
    from covey.client.client import Submitted
    from covey.config import Config

NO_INTERSPERSED = {"allow_interspersed_args": False}

slots_option = click.option(
    "--slots",
    cls=Option,
    group=BAG,
    type=int,
    metavar="N",
    help="Tasks to run at once on this machine, if a server has to be started.",
)
dry_option = click.option(
    "--dry-run", is_flag=True, help="Show what would be submitted, and do nothing."
)


@click.command(cls=SubmissionCommand, context_settings=NO_INTERSPERSED)
@submission_options
@slots_option
@click.option("--detach", is_flag=True, help="Do not wait: same as 'covey submit'.")
@dry_option
@json_option
def run(slots: int | None, detach: bool, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Run COMMAND once for every combination of the parameters, and watch; or run a bag file.

    {NAME} in the command stands for a parameter's value, {task} and {bag} for
    their numbers. Each task runs in an empty directory of its own, with its inputs in it.

    \b
    covey run -p seed=1..100 -p rate=0.1,0.5 -- python3 fit.py {seed} {rate}
    covey run --rows cases.csv --input fit.py --output 'out/*' -- python3 fit.py {case}
    covey run -p n=1..3 --memory 2GB --time 5m --retries 2 -- sh -c 'echo {n} | wc -c'
    covey run -p seed=1..100 --policy fast-tail --deadline 30m -- ./simulate {seed}
    covey run sweep.toml --first 3
    covey run sweep.toml --where 'seed == 1 && rate < 0.3'
    covey init sweep.toml; covey run sweep.toml --dry-run; covey run sweep.toml

    Ctrl-C stops the watching, not the bag. The exit status is 1 if a task failed.
    """
    config = settings(local__slots=slots)
    gathered = build(options, config.run.retries)
    if dry_run:
        _show(config, gathered, as_json)
        return
    from covey.frontend.submitting import send

    say_taken(gathered)
    client, submitted = send(config, gathered, slots, options.get("key"))
    if detach:
        report(submitted, as_json)
        return
    from covey.cli.bags.watch import follow

    leave(follow(client, submitted.bag, as_json=as_json))


@click.command(cls=SubmissionCommand, context_settings=NO_INTERSPERSED)
@submission_options
@slots_option
@dry_option
@json_option
def submit(slots: int | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Submit a bag like 'covey run' does, print its number, and return at once.

    \b
    covey submit -p seed=1..100 -- python3 fit.py --seed {seed}
    covey submit sweep.toml -p seed=1..10
    covey watch
    """
    config = settings(local__slots=slots)
    gathered = build(options, config.run.retries)
    if dry_run:
        _show(config, gathered, as_json)
        return
    from covey.frontend.submitting import send

    say_taken(gathered)
    report(send(config, gathered, slots, options.get("key"))[1], as_json)


def _show(config: "Config", gathered: "Gathered", as_json: bool) -> None:
    from covey.cli.shared.dryrun import show
    from covey.frontend import bag_places

    show(gathered, bag_places.running_client(config), as_json)


def say_taken(gathered: "Gathered") -> None:
    if gathered.draft.taken is not None:
        say(f"submitting {gathered.draft.taken.words}")


def report(submitted: "Submitted", as_json: bool) -> None:
    if as_json:
        print_json(submitted)
    else:
        echo(submitted.bag)
