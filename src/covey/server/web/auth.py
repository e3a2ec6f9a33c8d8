"""Who calls, and what they may do. Every address says what it needs; nothing is open by default.

People show a token. The server's own token, which lies in its directory, may do everything, for any
owner. Any other token belongs to one owner: it shows the progress of all bags, but the content of
that owner's bags only. SECURITY.md has the whole table, and a test checks it.

A pilot shows the secret of its site job once, and gets a credential that lasts an hour. The server
stores no credentials: each names its enrolment and its end, and has a seal that only the server can
make. The pilot gets a new one long before the end.
"""

import hmac
import secrets
from collections.abc import Callable

from msgspec import Struct

from covey.core.protocol import tokens
from covey.core.record.model import JobId, PilotRecord, Role
from covey.questions.pilot_questions import JobLives
from covey.questions.server_questions import ValidToken
from covey.server.decider import Decider
from covey.server.web.problems import HttpProblem

CREDENTIAL_SECONDS = 3600
MOST_SEEN = 10_000
TOKEN_PREFIX = "covey_"  # tools that search for leaked secrets can find it
TOKEN_BYTES = 24  # 32 characters
_RANK = {Role.VIEWER: 0, Role.USER: 1, Role.ADMIN: 2}


class Needs(Struct, frozen=True):
    """What an address needs of its caller: at least this role and, with `own`, that the bag in the
    address is the caller's."""

    role: Role
    own: bool = False


SEE = Needs(Role.VIEWER)
SEE_OWN = Needs(Role.VIEWER, own=True)
ACT = Needs(Role.USER)
ACT_ON_OWN = Needs(Role.USER, own=True)
MANAGE = Needs(Role.ADMIN)


class Caller(Struct, frozen=True):
    """Who sent a valid token. `trusted`: it was the server's own token, which may act for all."""

    role: Role
    owner: str
    name: str
    expires: float = 0.0  # 0: never
    trusted: bool = False

    @property
    def holder(self) -> str | None:
        """The owner whose files the caller uses; None: everybody's."""
        return None if self.trusted else self.owner

    @property
    def viewer(self) -> str | None:
        """The owner whose pilots, hosts and files the caller sees; None: an admin, who sees all."""
        return None if self.may(Role.ADMIN) else self.owner

    def may(self, role: Role) -> bool:
        return _RANK[self.role] >= _RANK[role]

    def owns(self, owner: str) -> bool:
        """Whether the caller may manage what belongs to this owner."""
        return self.role is Role.ADMIN or (self.owner == owner and bool(owner))


class Guard:
    """Finds the caller that a token belongs to."""

    def __init__(self, own_token: str, decider: Decider) -> None:
        self._own = b"Bearer " + own_token.encode()
        self._decider = decider

    def caller(self, authorization: str) -> Caller:
        """Raises HttpProblem, with the same words whatever is wrong with the token."""
        shown = authorization.encode("utf-8", "surrogateescape")
        if hmac.compare_digest(shown, self._own):
            return Caller(Role.ADMIN, "", "the server's own", trusted=True)
        kind, _, token = authorization.partition(" ")
        if kind.lower() == "bearer" and token.startswith(TOKEN_PREFIX):
            if not self._decider.ready:
                words = "the server is starting and has not read its tokens yet; try again"
                raise HttpProblem(503, "unavailable", words, 1)
            record = self._decider.ask(ValidToken(token))
            if record is not None:
                return Caller(record.role, record.owner, record.name, record.expires)
        words = "a valid token is needed, in the header Authorization: Bearer TOKEN"
        raise HttpProblem(401, "unauthorized", words)


def admit(caller: Caller, role: Role) -> None:
    """Raises HttpProblem if the caller does not have this role or a higher one."""
    if not caller.may(role):
        article = "an" if role is Role.ADMIN else "a"
        words = f"this needs {article} {role} token; yours is a {caller.role} token"
        raise HttpProblem(403, "not-yours", words)


def admit_to(caller: Caller, owner: str, what: str) -> None:
    """Raises HttpProblem if the caller may not manage what belongs to this owner."""
    if not caller.owns(owner):
        words = f"{what} belongs to {owner or 'nobody'}: only its owner and admins may do this"
        raise HttpProblem(403, "not-yours", words)


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


class PilotSecrets:
    """Checks pilots' secrets and credentials, which are all made from one secret of the server."""

    def __init__(self, master: str, now: Callable[[], float]) -> None:
        self._master = master
        self._key = master.encode()
        self._now = now
        self._seen: dict[int, tuple[bytes, str, int]] = {}  # the last good one of each pilot

    def owner(self, job: str, shown: bytes, decider: Decider) -> str:
        """Whose tasks a pilot of this site job may run (empty: anybody's). Raises HttpProblem if
        the secret is not the job's, or the job has ended."""
        expected = tokens.job_secret(self._master, job).encode()
        if not job or not hmac.compare_digest(shown, expected):
            words = "this secret belongs to another server, or to another site job"
            raise HttpProblem(401, "unauthorized", words)
        hand = tokens.read_hand_job(job)
        if hand is not None and self._now() >= hand.expires:
            words = "this secret has expired; make a new one with 'covey pilot-command'"
            raise HttpProblem(401, "unauthorized", words)
        if hand is None and not decider.ask(JobLives(JobId(job))):
            words = f"site job {job[:100]} has ended, so no pilot of it may enrol"
            raise HttpProblem(401, "unauthorized", words)
        return hand.owner if hand is not None and hand.owner != tokens.ANYBODY else ""

    def credential(self, pilot: int, enrolment: str) -> str:
        """A new credential for this enrolment of a pilot."""
        expires = int(self._now()) + CREDENTIAL_SECONDS
        return f"{pilot}.{expires}.{self._seal(pilot, enrolment, expires)}"

    def left_seconds(self, record: PilotRecord, credential: bytes) -> float:
        """For how many seconds this credential of the pilot is valid; 0 or less: it is invalid."""
        seen = self._seen.get(record.id)  # to check a seal is a tenth of the cost of a sync
        if seen and hmac.compare_digest(credential, seen[0]) and seen[1] == record.credential:
            return seen[2] - self._now()
        parts = credential.split(b".")
        if len(parts) != 3:
            return 0.0
        number, until, seal = parts
        if not (until.isdigit() and len(until) < 16 and number == b"%d" % record.id):
            return 0.0
        expected = self._seal(record.id, record.credential, int(until))
        if not hmac.compare_digest(seal, expected.encode()):
            return 0.0
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen[record.id] = credential, record.credential, int(until)
        return int(until) - self._now()

    def _seal(self, pilot: int, enrolment: str, expires: int) -> str:
        message = b"pilot:%d|%s|%d" % (pilot, enrolment.encode(), expires)
        return hmac.digest(self._key, message, "sha256").hex()
