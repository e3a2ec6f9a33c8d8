"""Tokens: who may call the API, and as whom; and the secrets that let site jobs' pilots in.

Only the digest of a token is kept: it is enough to recognise the token, and useless to a thief. A
revoked token is forgotten at once, an expired token when room is needed. The secret of a site job
is computed from the server's own secret and the job's id. So nothing has to be kept for it, and it
lets in the pilots of that job only.
"""

import hashlib
import hmac
import math

from msgspec import Struct
from msgspec.structs import replace

from covey.core.after_commit import Replying
from covey.core.record.actions import Done, Issued, Note, Problem, SaveToken
from covey.core.record.events import TokenIssued, TokenRevoked
from covey.core.record.model import TokenRecord
from covey.core.state import State
from covey.core.turn import Turn
from covey.pilot.protocol.messages import life_of

MOST_TOKENS = 100_000
MOST_OF_AN_OWNER = 1000
RESERVED_TOKENS = 1000  # that only administrators can make
MOST_NAME = 200
ANYBODY = "*"
WALLS_NEEDED = (
    "everybody's tasks (owner *) must run them in sandboxes: add --shared, or name one owner"
)
HAND = "hand-"
_LATEST = 2.0**40  # seconds since 1970 that every part can show as a date


# -- tokens --------------------------------------------------------------------------------


def change(turn: Turn, event: TokenIssued | TokenRevoked) -> None:
    if isinstance(event, TokenIssued):
        issue(turn, event)
    else:
        revoke(turn, event)


def issue(turn: Turn, event: TokenIssued) -> None:
    state = turn.state
    problem = _problem(event, turn.now)
    if problem:
        turn.refuse(event.request, Problem.INVALID, problem)
        return
    if _too_many(state, event):
        _forget_expired(state, turn.now)
        if words := _too_many(state, event):
            turn.refuse(event.request, Problem.TOO_MANY, words)
            return
    record = TokenRecord(
        id=state.counters.next_token,
        name=event.name,
        role=event.role,
        owner=event.owner,
        digest=event.digest,
        created=turn.now,
        expires=event.expires,
    )
    state.counters.next_token += 1
    state.access.tokens[record.digest] = record
    words = f"{record.id} {record.name!r}: {record.role} {record.owner}"
    turn.note(Note("token issued", detail=words))
    turn.write(SaveToken(record), Replying(event.request, Issued(record.id)))


def revoke(turn: Turn, event: TokenRevoked) -> None:
    """Revoking a token that is not valid any more does nothing, and is no error."""
    state = turn.state
    tokens = state.access.tokens
    token = next((token for token in tokens.values() if token.id == event.token), None)
    if token is not None:
        del tokens[token.digest]
        turn.note(Note("token revoked", detail=f"{token.id} {token.name!r}"))
        turn.write(SaveToken(replace(token, revoked=turn.now)))
        turn.when_durable(Replying(event.request, Done(1)))
    elif 0 < event.token < state.counters.next_token:
        turn.when_durable(Replying(event.request, Done(0)))
    else:
        words = f"there is no token {event.token}; 'covey token list' shows them"
        turn.refuse(event.request, Problem.NOT_FOUND, words)


def find(state: State, token: str, now: float) -> TokenRecord | None:
    """The record of this token if it is valid, else None."""
    record = state.access.tokens.get(digest(token))
    return record if record is not None and not _expired(record, now) else None


def restore(state: State, tokens: tuple[TokenRecord, ...], next_token: int) -> None:
    state.access.tokens = {token.digest: token for token in tokens}
    state.counters.next_token = next_token


def digest(token: str) -> str:
    """Tokens are long and random, so a plain hash is as good as a slow one."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _problem(event: TokenIssued, now: float) -> str:
    for what, text in (("name", event.name), ("owner", event.owner)):
        if not 0 < len(text) <= MOST_NAME or not text.isprintable():
            return f"the {what} of a token must have 1 to {MOST_NAME} printable characters"
    if event.expires and not now < event.expires < _LATEST:
        return "a token must expire in the future, or never"
    return ""


def _too_many(state: State, event: TokenIssued) -> str:
    """Why no more tokens can be issued; "" if one can."""
    count = len(state.access.tokens)
    if count >= MOST_TOKENS - (0 if event.by_admin else RESERVED_TOKENS):
        return f"there are {count:,} tokens: revoke some first"
    if event.by_admin or count < MOST_OF_AN_OWNER:
        return ""
    held = sum(token.owner == event.owner for token in state.access.tokens.values())
    if held < MOST_OF_AN_OWNER:
        return ""
    return (
        f"{event.owner} has {held:,} tokens, and no owner may have more: revoke some first, or let "
        "an administrator make this one"
    )


def _expired(token: TokenRecord, now: float) -> bool:
    return 0 < token.expires <= now


def _forget_expired(state: State, now: float) -> None:
    tokens = state.access.tokens
    state.access.tokens = {
        digest_: token for digest_, token in tokens.items() if not _expired(token, now)
    }


# -- secrets of site jobs ------------------------------------------------------------------


class HandJob(Struct, frozen=True):
    """A job that a person starts by hand, on any machine: what its id says."""

    owner: str  # `*`: anybody
    expires: float


def job_secret(master: str, job: str) -> str:
    """The secret that the pilots of this site job show when they enrol."""
    return hmac.digest(master.encode(), b"job:" + job.encode(), "sha256").hex()


def hand_job(owner: str, expires: float, random: str) -> str:
    """The id of a job for a pilot that somebody starts by hand, valid until `expires`; `random`
    makes every id different."""
    return f"{HAND}{owner}-{int(expires)}-{random}"


def one_word(job: str, secret: str) -> str:
    """Job and secret as one word, for a pilot that is given only a secret."""
    return f"{job}:{secret}"


def read_hand_job(job: str) -> HandJob | None:
    """None if it is not a job started by hand. The secret proves that the id was not changed."""
    if not job.startswith(HAND):
        return None
    owner, _, rest = job[len(HAND) :].rpartition("-")[0].rpartition("-")
    if not owner or not (rest.isascii() and rest.isdecimal()) or len(rest) > 12:
        return None
    return HandJob(owner, float(rest))


def end_of(job: str, enrolled: float, wall_seconds: float) -> float:
    """When the pilots of this job must leave; infinity if the job has no time limit."""
    hand = read_hand_job(job)
    if hand is not None:
        return hand.expires
    return enrolled + life_of(wall_seconds) if wall_seconds else math.inf
