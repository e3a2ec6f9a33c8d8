"""`covey token`: who may use this server, and as which owner.

A token is printed once, when it is made. The server keeps only its digest.
"""

import click

from covey.cli.bags.purge import seconds_option
from covey.cli.shared.commands import Command, json_option, print_json, settings
from covey.frontend import bag_places, formats
from covey.frontend.tables import Column, render
from covey.frontend.terminal import echo, say
from covey.whoami import user

ROLES = ("viewer", "user", "admin")
COLUMNS = (
    Column("token", right=True),
    Column("name"),
    Column("role"),
    Column("owner"),
    Column("made"),
    Column("expires"),
)


@click.group()
def token() -> None:
    """Make, list and revoke tokens. People need a token to use a shared server.

    \b
    covey token create laptop --owner ann
    covey token list
    """


@token.command(cls=Command)
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="user",
    show_default=True,
    help="viewer: look; user: run bags; admin: everything.",
)
@click.option("--owner", metavar="NAME", help="Whose bags these are.  [default: you]")
@click.option(
    "--expires",
    callback=seconds_option,
    metavar="TIME",
    help="How long it is valid: 30d, 12h.  [default: for ever]",
)
@json_option
def create(name: str, role: str, owner: str | None, expires: float | None, as_json: bool) -> None:
    """Make a token and print it, once. NAME says what it is for.

    \b
    covey token create laptop --owner ann --expires 30d
    covey token create dashboard --role viewer > dashboard.token
    """
    config = settings()
    if expires == 0:
        raise click.BadParameter("a token must be valid for some time: 30d, 12h")
    if owner is None:  # another server knows from our token who we are
        owner = "" if config.server else user()
    client = bag_places.client(config)
    made = client.create_token(name, role=role, owner=owner, seconds=expires or 0.0)
    if as_json:
        print_json(made)
        return
    echo(made.token)
    say(f"this is token {made.id}; it is not shown again: keep it in a file that only you can read")


@token.command("list", cls=Command)
@json_option
def list_(as_json: bool) -> None:
    """List the tokens that are valid, without the tokens themselves.

    \b
    covey token list
    """
    tokens = bag_places.client(settings()).tokens()
    if as_json:
        print_json(tokens)
    elif tokens:
        rows = [
            [
                str(token_view.id),
                token_view.name,
                token_view.role,
                token_view.owner,
                formats.ago(token_view.created),
                formats.clock(token_view.expires) if token_view.expires else "never",
            ]
            for token_view in tokens
        ]
        echo(render(COLUMNS, rows))
    else:
        say("no tokens yet; make one with: covey token create NAME")


@token.command(cls=Command)
@click.argument("number", metavar="[TOKEN]", type=int, required=False)
@click.option("--owner", metavar="NAME", help="All tokens of this person.")
@json_option
def revoke(number: int | None, owner: str | None, as_json: bool) -> None:
    """Make a token invalid at once. TOKEN is its number in 'covey token list'.

    \b
    covey token revoke 3
    covey token revoke --owner ann
    """
    if (number is None) == (owner is None):
        raise click.UsageError("name one TOKEN, or an owner: covey token revoke --owner NAME")
    client = bag_places.client(settings())
    if number is not None:
        revoked = [number] if client.revoke_token(number) else []
    else:
        wanted = [token_view.id for token_view in client.tokens() if token_view.owner == owner]
        revoked = [id_ for id_ in wanted if client.revoke_token(id_)]
    if as_json:
        print_json({"count": len(revoked)})
    elif owner is not None:
        say(f"{formats.count(len(revoked), 'token')} of {owner} revoked")
    elif revoked:
        say(f"token {number} is revoked")
    else:
        say(f"token {number} was not valid any more")
