"""Pilots by hand: a command line, pasted on a bare host, starts a pilot there.

The line names an *invitation*: random, valid for an hour and for one use. It is exchanged for a
small program that contains the pilot and its start file, with the secret of a site job that is made
for this pilot alone. So the secret is in no shell history and in no list of processes, and the line
is worthless afterwards. Invitations are in memory only: they end with the server.
"""

import base64
import io
import json
import secrets
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from covey.core.protocol import tokens
from covey.core.record.model import Role
from covey.server.limits.shares import INVITATIONS, Shares, Who, asks_now
from covey.server.web import auth
from covey.server.web.auth import ACT
from covey.server.web.problems import HttpProblem, wrong_method
from covey.server.web.requests import ServerAccess, caller_of, order
from covey.server.web.route import Media, act, route
from covey.wire import Invitation

JOIN = "/join/"
PYTHON = Media("text/x-python")
UNIT_BYTES = 4096  # of setup and check; with more, an invitation counts as several
TOKEN_BYTES = 18
HOUR = 3600.0
DAY = 24 * HOUR
HANDOVER = "covey/pilot/single_file.py"  # in the pilot file
EMPTY_START, EMPTY_PILOT = '\nSTART = "{}"\n', '\nPILOT = ""\n'
REACH_SECONDS = 10.0  # how long such a pilot tries to reach the server at its start
PATIENCE_SECONDS = 10 * HOUR  # and later, since nobody would start it again (without ends: a tenth)

Text = Annotated[str, Meta(max_length=200)]


class NewInvitation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`seconds`: how long the invitation is valid; `life_seconds`: how long its pilot may enrol
    again. `owner`: whose tasks the pilot runs; `*`: anybody's; empty: the caller's. `slots`: 0
    means one for each core of the host."""

    owner: Text = ""
    seconds: Annotated[float, Meta(gt=0, le=7 * DAY)] = HOUR
    life_seconds: Annotated[float, Meta(gt=0, le=366 * DAY)] = 7 * DAY
    slots: Annotated[int, Meta(ge=0, le=100_000)] = 0
    site: Annotated[str, Meta(min_length=1, max_length=200)] = "hand"
    shared: bool = False
    background: bool = False
    setup: Annotated[str, Meta(max_length=65536)] = ""
    check: Annotated[str, Meta(max_length=65536)] = ""


class ServerAddress(NamedTuple):
    """The server's address for other machines, and the authority of its certificate (PEM)."""

    address: str
    ca: str


class _KeptInvitation(NamedTuple):
    asked: NewInvitation
    job: str
    until: float
    who: Who  # whose share it counts against
    units: int  # of that share


class Invitations:
    """`master` makes the secrets of site jobs; `pilot_file` is what hosts run."""

    def __init__(
        self,
        access: ServerAccess,
        master: str,
        whereabouts: Callable[[], ServerAddress],
        pilot_file: Path,
    ) -> None:
        self._access = access
        self._master = master
        self._whereabouts = whereabouts
        self._pilot_file = pilot_file
        self._kept: dict[str, _KeptInvitation] = {}
        self._shares = Shares(INVITATIONS)

    @act(
        "/invitations",
        "invite a pilot that somebody starts by hand",
        ACT,
        takes=NewInvitation,
        takes_nothing_too=True,
        status=201,
        refuses=(413, 429),
    )
    async def invite(self, request: Request) -> Invitation:
        caller, wanted = caller_of(request), await order(request, NewInvitation, NewInvitation())
        owner = wanted.owner or caller.owner or tokens.ANYBODY
        if owner == tokens.ANYBODY:
            auth.admit(caller, Role.ADMIN)
            if not wanted.shared:
                raise HttpProblem(400, "invalid", f"a pilot for {tokens.WALLS_NEEDED}")
        auth.admit_to(caller, owner, f"a pilot for {owner}")
        if not owner.isprintable():
            words = f"owner {owner[:100]!r}: a name must have printable characters only"
            raise HttpProblem(400, "invalid", words)
        now = self._access.clock.now()
        who, units = asks_now.get(), 1 + (len(wanted.setup) + len(wanted.check)) // UNIT_BYTES
        if not self._shares.take(who, units):
            self._forget_old(now)
            self._shares.demand(who, units)
        ends = now + wanted.life_seconds
        if caller.expires:  # the pilot's right ends with the caller's token
            ends = min(ends, caller.expires)
        job = tokens.hand_job(owner, ends, secrets.token_hex(8))
        invitation = secrets.token_urlsafe(TOKEN_BYTES)
        self._kept[tokens.digest(invitation)] = _KeptInvitation(
            wanted, job, now + wanted.seconds, who, units
        )
        where = self._whereabouts()
        return Invitation(
            path=JOIN + invitation,
            address=where.address,
            ca=where.ca,
            job=job,
            owner=owner,
            expires=now + wanted.seconds,
        )

    @route(
        "GET",
        JOIN + "{invitation}",
        "a program that starts a pilot; can be fetched once",
        None,
        shown="nothing",
        gives=PYTHON,
        refuses=(410,),
        refuses_with=PYTHON,
    )
    async def join(self, request: Request) -> Response:
        """The program; or a program that prints why there is none. The line runs either."""
        if request.method != "GET":  # HEAD must not use the invitation up
            raise wrong_method(request.method, "GET")
        digest = tokens.digest(request.path_params["invitation"])
        kept = self._kept.get(digest)
        if kept is None or kept.until < self._access.clock.now():
            words = (
                "covey: this invitation is not valid: it was used before, has expired, or has a "
                "typing error. Make a new one with 'covey pilot-command'."
            )
            return _python(f"import sys\nsys.exit({words!r})\n", 410)
        try:
            pilot = self._pilot_file.read_bytes()
        except OSError as error:
            words = f"the server cannot read its pilot file: {error.strerror}; restart the server"
            raise HttpProblem(503, "unavailable", words, 5) from error
        self._forget(digest)
        return _python(program(self._start(kept), pilot), 200)

    def _start(self, kept: _KeptInvitation) -> dict[str, Any]:
        wanted, where = kept.asked, self._whereabouts()
        start: dict[str, Any] = {
            "address": where.address,
            "ca": where.ca,
            "secret": tokens.job_secret(self._master, kept.job),
            "job": kept.job,
            "slots": wanted.slots,
            "site": wanted.site,
            "shared": wanted.shared,
            "setup": wanted.setup,
            "check": wanted.check,
            "reach_seconds": REACH_SECONDS,
            "patience_seconds": PATIENCE_SECONDS,
        }
        if wanted.background:
            start["background"] = True
        return start

    def _forget_old(self, now: float) -> None:
        for name in [name for name, kept in self._kept.items() if kept.until < now]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        kept = self._kept.pop(name)
        self._shares.give(kept.who, kept.units)


def program(start: dict[str, Any], pilot: bytes) -> str:
    """A Python program with the start file and the pilot inside, ready to run."""
    with zipfile.ZipFile(io.BytesIO(pilot)) as archive:
        text = archive.read(HANDOVER).decode()
    filled = {EMPTY_START: json.dumps(start), EMPTY_PILOT: base64.b64encode(pilot).decode()}
    for before, value in filled.items():
        assert text.count(before) == 1
        text = text.replace(before, f"{before.partition('=')[0]}= {value!r}\n")
    return "#!/usr/bin/env python3\n" + text


def _python(text: str, status: int) -> Response:
    headers = {"Cache-Control": "no-store", "Content-Type": "text/x-python; charset=utf-8"}
    return Response(text.encode(), status, headers)
