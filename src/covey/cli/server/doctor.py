"""`covey doctor`: run the checks of `covey.cli.server.checks`, and print a line for each."""

import click

from covey.cli.shared.commands import Command, json_option, leave, print_json, settle
from covey.frontend.tables import Column, render
from covey.frontend.terminal import echo


@click.command(cls=Command)
@json_option
def doctor(as_json: bool) -> None:
    """Check that covey can work here. For each problem, say what to do.

    The exit status is 1 if a check failed; warnings do not count.

    \b
    covey doctor
    """
    from covey.cli.server import checks

    results = checks.run_all(settle())
    if as_json:
        print_json(results)
    else:
        rows = [[check.verdict, check.name, check.told] for check in results]
        columns = (Column(""), Column("check"), Column("finding"))
        echo(render(columns, rows).partition("\n")[2])
    leave(1 if any(check.verdict == checks.FAIL for check in results) else 0)
