"""`covey pilot-command`: one line, or one file, that starts a pilot on a host that has only Python.

The line holds an invitation and the fingerprint of the server's key, so nobody else can answer in
the server's place. The invitation works only once.
"""

import base64
import hashlib
import shlex
import ssl
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from covey.cli.bags.purge import seconds_option
from covey.cli.shared.commands import FILE_NAME, Command, json_option, print_json, settings
from covey.client.client import API, Client
from covey.core.errors import CoveyError
from covey.frontend import bag_places, formats
from covey.frontend.terminal import echo, say
from covey.pilot.protocol.connection import open_socket, split
from covey.replacing import PRIVATE_PROGRAM, replace
from covey.whoami import user
from covey.wire import Invitation

CONNECT_SECONDS = 10.0
PYTHON = (
    "import hashlib,http.client as h,ssl,sys;"
    "c=h.HTTPSConnection({host!r},{port},timeout=30,context=ssl.{context}());"
    "c.connect();{check}"
    "c.request('GET',{path!r});exec(c.getresponse().read())"
)
CHECK = (
    "hashlib.sha256(c.sock.getpeercert(True)).hexdigest()=={fingerprint!r}"
    " or sys.exit('covey: that is another server');"
)
PLAIN = (
    "import http.client as h;c=h.HTTPConnection({host!r},{port},timeout=30);"
    "c.request('GET',{path!r});exec(c.getresponse().read())"
)


class ServerIdentity(NamedTuple):
    """How programs name the server's key and certificate."""

    pin: str  # digest of the public key, as curl writes it
    fingerprint: str  # SHA-256 of the certificate


@click.command("pilot-command", cls=Command)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tasks at a time.  [default: all cores]",
)
@click.option(
    "--site",
    default="hand",
    metavar="NAME",
    show_default=True,
    help="Name of its site, as 'covey pilots' shows it.",
)
@click.option(
    "--expires",
    default="1h",
    show_default=True,
    callback=seconds_option,
    metavar="TIME",
    help="How long the command is valid.",
)
@click.option(
    "--life",
    default="7d",
    show_default=True,
    callback=seconds_option,
    metavar="TIME",
    help="How long the pilot may stay, or come back after a loss of contact.",
)
@click.option(
    "--owner",
    default="",
    metavar="NAME",
    help="Whose tasks it runs.  [default: yours; with --shared everybody's]",
)
@click.option(
    "--shared",
    is_flag=True,
    help="Isolate the owners' tasks from each other; if that is impossible, do not start.",
)
@click.option(
    "--setup", default="", metavar="COMMAND", help="A shell command that the pilot runs first."
)
@click.option(
    "--check",
    default="",
    metavar="COMMAND",
    help="A shell command that must then succeed; else the pilot takes no tasks.",
)
@click.option("--background", is_flag=True, help="Start it in the background.")
@click.option("--python", is_flag=True, help="Print a command for hosts without curl.")
@click.option(
    "--file",
    "path",
    metavar="FILE",
    type=FILE_NAME,
    help="Write the pilot into a file instead, to copy to the host.",
)
@json_option
def pilot_command(
    slots: int | None,
    site: str,
    expires: float,
    life: float,
    owner: str,
    shared: bool,
    setup: str,
    check: str,
    background: bool,
    python: bool,
    path: str | None,
    as_json: bool,
) -> None:
    """Print a command that starts a pilot on any machine that has Python 3 and can reach
    the server. It works once; run this again for the next machine (covey help pilots).

    \b
    covey pilot-command
    covey pilot-command --slots 4 --expires 10m
    covey pilot-command --site lab --check 'test -d /data'
    covey pilot-command --file covey-pilot
    """
    if expires <= 0 or life <= 0:
        raise click.UsageError("--expires and --life must be longer than zero: 1h, 7d")
    config = settings()
    if not owner:  # another server knows from our token who we are
        owner = "*" if shared else "" if config.server else user()
    client = bag_places.client(config)
    order = {
        "owner": owner, "seconds": expires, "life_seconds": life, "slots": slots or 0,
        "site": site, "shared": shared, "background": background,
        "setup": setup, "check": check,
    }  # fmt: skip
    sent = msgspec.json.encode(order)
    answer = client.connection.request("POST", API + "/invitations", None, sent)
    invitation = msgspec.json.decode(answer, type=Invitation)
    if path is not None:
        _write_file(client, invitation, path, as_json)
        return
    line = python_line(invitation) if python else curl_line(invitation)
    if as_json:
        print_json({"command": line, "expires": invitation.expires, "owner": invitation.owner})
        return
    echo(line)
    say(f"paste it on the other machine within {formats.duration(expires)}; it works once")
    _warn_of_loopback(invitation)


def curl_line(invitation: Invitation) -> str:
    words = ["curl", "-sS"]
    if invitation.ca:
        words += ["--insecure", "--pinnedpubkey", "sha256//" + server_identity(invitation).pin]
    words.append(invitation.address.rstrip("/") + invitation.path)
    return f"{shlex.join(words)} | python3 -"


def python_line(invitation: Invitation) -> str:
    parts = split(invitation.address)
    path = parts.path.rstrip("/") + invitation.path
    where = {"host": parts.hostname, "port": parts.port, "path": path}
    if parts.scheme == "http":
        text = PLAIN.format(**where)
    elif invitation.ca:
        check = CHECK.format(fingerprint=server_identity(invitation).fingerprint)
        text = PYTHON.format(context="_create_unverified_context", check=check, **where)
    else:
        text = PYTHON.format(context="create_default_context", check="", **where)
    return f"python3 -c {shlex.quote(text)}"


def server_identity(invitation: Invitation) -> ServerIdentity:
    """Connect to the server and read its certificate. The server must prove that it is the one that
    made the invitation. Raises CoveyError."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        with open_socket(split(invitation.address), invitation.ca, CONNECT_SECONDS) as connection:
            assert isinstance(connection, ssl.SSLSocket)
            certificate = connection.getpeercert(True) or b""
    except (OSError, ValueError) as error:
        raise CoveyError(
            f"the server cannot be reached at its public address, {invitation.address}: {error}. "
            "Set the right address with serve.public, or use --file."
        ) from error
    key = x509.load_der_x509_certificate(certificate).public_key()
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    pin = base64.b64encode(hashlib.sha256(info).digest()).decode()
    return ServerIdentity(pin, hashlib.sha256(certificate).hexdigest())


def _write_file(client: Client, invitation: Invitation, path: str, as_json: bool) -> None:
    target = Path(path)
    content = b"".join(client.connection.stream(invitation.path))
    try:
        replace(target, content, PRIVATE_PROGRAM)
    except OSError as error:
        raise CoveyError(f"{target}: {error.strerror}") from error
    if as_json:
        print_json({"file": str(target), "expires": invitation.expires, "owner": invitation.owner})
        return
    say(
        f"{target} is one pilot, with its secret inside: copy it to the host, run it there, and "
        "show it to nobody"
    )
    _warn_of_loopback(invitation)


def _warn_of_loopback(invitation: Invitation) -> None:
    if invitation.address.startswith("http:"):
        say(
            "it works on this machine only, because the server listens only here; see "
            "serve.listen in: covey help server"
        )
