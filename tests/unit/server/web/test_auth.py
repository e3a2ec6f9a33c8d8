"""Who is let in, by what they show; and what a pilot's secret and credential are good for."""

import pytest

from covey.core.protocol.tokens import digest, hand_job, job_secret
from covey.core.record.events import TokenIssued, TokenRevoked
from covey.core.record.model import JobId, Role, Settings
from covey.core.scheduler import Scheduler
from covey.core.state import State
from covey.server.web import auth
from covey.server.web.auth import CREDENTIAL_SECONDS, Caller, Guard, PilotSecrets
from covey.server.web.problems import HttpProblem
from tests.unit.server.deciders import decider_of
from tests.unit.store.builders import pilot

OWN = "the server's own token"
MASTER = "master"
NOW = 1_000_000.0


class Clock:
    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state() -> State:
    return State(1, Settings(), NOW)


def issue(state: State, token: str, role: Role = Role.USER, expires: float = 0.0) -> None:
    event = TokenIssued(state.counters.next_token, "n", role, "ann", digest(token), expires)  # type: ignore[arg-type]
    Scheduler(state).handle(event, NOW)


def refused(guard: Guard, shown: str) -> HttpProblem:
    with pytest.raises(HttpProblem) as caught:
        guard.caller(shown)
    return caught.value


def test_tokens_are_long_random_and_easy_to_find() -> None:
    made = {auth.new_token() for _ in range(100)}
    assert len(made) == 100
    assert {(token[:6], len(token)) for token in made} == {("covey_", 38)}


def test_the_servers_own_token_stands_for_everybody(state: State, clock: Clock) -> None:
    for known in (Scheduler(state), None):
        guard = Guard(OWN, decider_of(known))
        found = guard.caller(f"Bearer {OWN}")
        assert (found.role, found.owner, found.trusted) == (Role.ADMIN, "", True)


def test_tokens_are_known_until_they_expire_or_are_revoked(state: State, clock: Clock) -> None:
    guard = Guard(OWN, decider_of(Scheduler(state), clock.now))
    token = auth.new_token()
    assert refused(guard, f"Bearer {token}").status == 401
    issue(state, token, Role.VIEWER, NOW + 10)
    for shown in (f"Bearer {token}", f"bearer {token}"):
        assert guard.caller(shown) == Caller(Role.VIEWER, "ann", "n", NOW + 10)
    clock.at += 9.9
    guard.caller(f"Bearer {token}")
    clock.at += 0.1
    assert refused(guard, f"Bearer {token}").status == 401
    clock.at = NOW
    Scheduler(state).handle(TokenRevoked(9, 1), NOW)  # type: ignore[arg-type]
    assert refused(guard, f"Bearer {token}").status == 401


@pytest.mark.parametrize(
    "shown",
    ["", "Bearer", "Bearer ", f"Basic {OWN}", OWN, "Bearer covey_", "Bearer \udce9", "Bearer é"],
)
def test_all_else_is_refused_in_the_same_words(state: State, clock: Clock, shown: str) -> None:
    guard = Guard(OWN, decider_of(Scheduler(state), clock.now))
    problem = refused(guard, shown)
    assert (problem.status, problem.detail) == (401, refused(guard, "Bearer covey_x").detail)


def test_a_digest_is_not_a_token(state: State, clock: Clock) -> None:
    token = auth.new_token()
    issue(state, token)
    guard = Guard(OWN, decider_of(Scheduler(state), clock.now))
    assert refused(guard, f"Bearer {digest(token)}").status == 401
    assert refused(guard, f"Bearer covey_{digest(token)}").status == 401


def test_before_the_record_is_read_nobody_is_refused_for_good(clock: Clock) -> None:
    guard = Guard(OWN, decider_of(None))
    assert refused(guard, f"Bearer {auth.new_token()}").status == 503
    assert refused(guard, "Bearer wrong").status == 401


def test_roles_and_owners() -> None:
    viewer, user, admin = (Caller(role, "ann", "") for role in Role)
    assert [viewer.may(role) for role in Role] == [True, False, False]
    assert [user.may(role) for role in Role] == [True, True, False]
    assert [admin.may(role) for role in Role] == [True, True, True]
    assert [caller.owns("bob") for caller in (viewer, user, admin)] == [False, False, True]
    assert [caller.owns("ann") for caller in (viewer, user, admin)] == [True, True, True]
    assert not Caller(Role.USER, "", "").owns(""), "what is nobody's is not theirs"
    auth.admit(user, Role.USER)
    with pytest.raises(HttpProblem, match="an admin token; yours is a user token") as caught:
        auth.admit(user, Role.ADMIN)
    assert caught.value.status == 403


# -- pilots' secrets -----------------------------------------------------------------------------

SITE_JOB = JobId("3-1")


def owner(clock: Clock, job: str, shown: str) -> str:
    state = State(1, Settings(), NOW)
    state.jobs[SITE_JOB] = None  # type: ignore[assignment]
    decider = decider_of(Scheduler(state))
    return PilotSecrets(MASTER, clock.now).owner(job, shown.encode(), decider)


def test_a_secret_is_bound_to_its_job(clock: Clock) -> None:
    assert owner(clock, SITE_JOB, job_secret(MASTER, SITE_JOB)) == ""
    for job, shown in (
        ("", job_secret(MASTER, "")),
        ("", MASTER),
        (SITE_JOB, job_secret("another master", SITE_JOB)),
        (SITE_JOB, job_secret(MASTER, "3-2")),
        (SITE_JOB, ""),
        (SITE_JOB, MASTER),
        ("3-2", job_secret(MASTER, "3-2")),  # it has ended, or never was
    ):
        with pytest.raises(HttpProblem) as caught:
            owner(clock, job, shown)
        assert caught.value.status == 401


def test_jobs_by_hand_have_an_owner_and_end(clock: Clock) -> None:
    for name, serves in (("ann", "ann"), ("a-b-c", "a-b-c"), ("*", "")):
        job = hand_job(name, NOW + 10, "r1")
        assert job == f"hand-{name}-1000010-r1"
        assert owner(clock, job, job_secret(MASTER, job)) == serves
    job, later = hand_job("ann", NOW + 10, "r1"), hand_job("ann", NOW + 99, "r1")
    with pytest.raises(HttpProblem, match="or to another site job"):
        owner(clock, later, job_secret(MASTER, job))
    clock.at += 10
    with pytest.raises(HttpProblem, match="expired"):
        owner(clock, job, job_secret(MASTER, job))


@pytest.mark.parametrize(
    "job", ["hand-", "hand-x", "hand-x-y", "hand--5-r", "hand-x-y-r", "hand-x-٣-r"]
)
def test_a_malformed_job_by_hand_is_none(clock: Clock, job: str) -> None:
    with pytest.raises(HttpProblem):
        owner(clock, job, job_secret(MASTER, job))


# -- credentials ---------------------------------------------------------------------------------


def test_a_credential_is_of_one_enrolment_and_ends(clock: Clock) -> None:
    secrets = PilotSecrets(MASTER, clock.now)
    record = pilot(7, credential="enrolment-1")
    given = secrets.credential(7, "enrolment-1").encode()
    left = secrets.left_seconds
    assert left(record, given) == CREDENTIAL_SECONDS
    assert left(pilot(8, credential="enrolment-1"), given) == 0
    assert left(pilot(7, credential="enrolment-2"), given) == 0
    assert PilotSecrets("another", clock.now).left_seconds(record, given) == 0
    clock.at += CREDENTIAL_SECONDS - 1
    assert left(record, given) == 1
    clock.at += 1
    assert left(record, given) <= 0


def test_a_credential_cannot_be_changed(clock: Clock) -> None:
    secrets = PilotSecrets(MASTER, clock.now)
    record = pilot(7, credential="enrolment-1")
    number, until, seal = secrets.credential(7, "enrolment-1").split(".")
    for wrong in (
        f"{number}.{int(until) + 1}.{seal}",
        f"{number}.{until}.{seal[:-1]}",
        f"{number}.{until}.",
        f"{number}.0{until}.{seal}x",
        f"8.{until}.{seal}",
        f"{number}.{'9' * 400}.{seal}",
        f"{number}.-1.{seal}",
        f"..{seal}",
        "..",
        "",
        "\xe9.\xe9.\xe9",
    ):
        assert secrets.left_seconds(record, wrong.encode("latin-1")) == 0
