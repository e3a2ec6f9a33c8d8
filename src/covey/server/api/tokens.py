"""Tokens in the API: make, list, revoke.

The rule: nobody can give more rights than they have. A token makes tokens of the same owner (an
admin's token: of any owner), with the same role or a lower one, which expire no later.
"""

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request

from covey.core.protocol import tokens
from covey.core.record.actions import Issued, ReplyMessage
from covey.core.record.events import TokenIssued, TokenRevoked
from covey.core.record.model import Role, TokenRecord
from covey.questions.server_questions import AllTokens
from covey.server.web import auth
from covey.server.web.auth import ACT
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import ServerAccess, caller_of, number, order
from covey.server.web.route import act, look
from covey.wire import Issued as IssuedView
from covey.wire import TokenView

LONGEST = 100 * 366 * 24 * 3600.0
Seconds = Annotated[float, Meta(ge=0, le=LONGEST)]
Text = Annotated[str, Meta(max_length=tokens.MOST_NAME)]


class NewToken(Struct, frozen=True, forbid_unknown_fields=True):
    """`seconds`: how long the token is valid; 0: as long as the caller's token."""

    name: Annotated[Text, Meta(min_length=1)]
    role: Role = Role.USER
    owner: Text = ""  # empty: the caller's own
    seconds: Seconds = 0.0


class TokenCalls:
    def __init__(self, access: ServerAccess) -> None:
        self._access = access

    @act(
        "/tokens",
        "a new token, with no more rights than the caller's",
        ACT,
        takes=NewToken,
        status=201,
        refuses=(413, 429),
    )
    async def issue(self, request: Request) -> IssuedView:
        caller, new = caller_of(request), await order(request, NewToken)
        auth.admit(caller, new.role)
        owner = new.owner or caller.owner
        auth.admit_to(caller, owner, f"a token for {owner}")
        expires = self._expires(caller, new.seconds)
        token = auth.new_token()
        digest = tokens.digest(token)
        issued = await self._access.ask(
            lambda number: TokenIssued(
                number, new.name, new.role, owner, digest, expires, caller.may(Role.ADMIN)
            )
        )
        assert isinstance(issued, Issued)
        return IssuedView(id=issued.id, token=token)

    @look("/tokens", "the valid tokens of the caller's owner", ACT)
    async def all(self, request: Request) -> list[TokenView]:
        """Valid tokens that the caller may see."""
        caller, now = caller_of(request), self._access.clock.now()
        return [
            _view(token)
            for token in self._access.decider.ask(AllTokens())
            if caller.owns(token.owner) and not 0 < token.expires <= now
        ]

    @act("/tokens/{token}/revoke", "revoke a token", ACT, refuses=(404,))
    async def revoke(self, request: Request) -> ReplyMessage:
        caller, id_ = caller_of(request), number(request, "token", 0)
        for token in self._access.decider.ask(AllTokens()):
            if token.id == id_:
                auth.admit_to(caller, token.owner, f"token {id_}")
        return await self._access.ask(lambda number: TokenRevoked(number, id_))

    def _expires(self, caller: auth.Caller, seconds: float) -> float:
        expires = self._access.clock.now() + seconds if seconds else caller.expires
        if caller.expires and expires > caller.expires:
            left = caller.expires - self._access.clock.now()
            words = (
                "the new token would expire later than your own token; ask for at most "
                f"{max(0, int(left)):,} seconds"
            )
            raise HttpProblem(403, "not-yours", words)
        return expires


def _view(token: TokenRecord) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.name,
        role=token.role.value,
        owner=token.owner,
        created=token.created,
        expires=token.expires,
        revoked=token.revoked,
    )
