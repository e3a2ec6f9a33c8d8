"""A server's port, and bytes that are hardly HTTP: it stays up, refuses or hangs up, does not hang,
and never takes a part of one request for another."""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.fuzz import raw
from tests.fuzz.raw import Case, Line, Reply
from tests.fuzz.served import Pilot, Served, open_served

MUTATED = int(os.environ.get("FUZZ_RAW", "4000"))
# Another seed every day; FUZZ_SEED brings one back.
SEED = int(os.environ.get("FUZZ_SEED", datetime.now(UTC).date().toordinal()))
SYNC, LEAVE, PRINTED = "/pilot/v1/sync", "/pilot/v1/leave", "/pilot/v1/printed"
WAYS = {"the short way": SYNC, "the long way": PRINTED}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with open_served() as found:
        yield found


@pytest.fixture(scope="module")
def pilot(server: Served) -> Pilot:
    return server.pilot()


@pytest.fixture
def unchanged(server: Served, pilot: Pilot) -> Iterator[None]:
    """Whatever a test sends: nothing has come of it, and the next sync is answered."""
    before = everything(server)
    yield
    assert everything(server) == before
    other = server.pilot()
    body = json.loads(raw.sync(other.id)) | {"ends": [[1, 0, 0, 0, "returned"]]}
    assert server.ask("POST", SYNC, body, other.credential)["number"] == 1
    server.ask("POST", LEAVE, {"pilot": other.id, "epoch": 1}, other.credential)


def everything(server: Served) -> list[Any]:
    found = [server.ask("GET", f"/api/v1/{what}") for what in ("pilots", "bags", "tokens", "hosts")]
    for one in (*found[0], *found[3]):
        del one["heard"]
    return found


def hidden(pilot: Pilot) -> bytes:
    """What would end the pilot."""
    body = json.dumps({"pilot": pilot.id, "epoch": 1}).encode()
    return raw.request(LEAVE, body, secret=pilot.credential)


def told(server: Served, cases: Iterable[Case]) -> list[list[Reply]]:
    """The answers to each; all of them such as a server gives to what it does not take."""

    async def telling() -> list[list[Reply]]:
        line = Line(server.address)
        return await asyncio.gather(*(line.answers(case) for case in listed))

    listed = list(cases)
    found = asyncio.run(telling())
    for case, answers in zip(listed, found, strict=True):
        for answer in answers:
            later = answer.status == 503 and "retry-after" in answer.headers
            well = answer.status == 200 and b"/healthz" in b"".join(case.parts)
            assert 400 <= answer.status < 500 or later or well, (case, answers)
    print(len(found), Counter(tuple(one.status for one in answers) for answers in found))
    return found


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("path", WAYS.values(), ids=WAYS)
def test_a_request_whose_end_is_in_doubt_is_refused(
    server: Served, pilot: Pilot, path: str
) -> None:
    for answers in told(server, raw.framings(hidden(pilot), path)):
        assert [answer.status for answer in answers] in ([400], [400, 400])
        assert answers[-1].headers["connection"] == "close"


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("path", WAYS.values(), ids=WAYS)
def test_what_is_in_a_body_is_no_request(server: Served, pilot: Pilot, path: str) -> None:
    for answers in told(server, raw.whole_bodies(hidden(pilot), path)):
        assert [answer.status for answer in answers] == [401]


def test_such_a_request_would_have_been_acted_on(server: Served) -> None:
    """Else the tests above could not fail."""
    victim = server.pilot()
    case = Case("behind another", (raw.request(SYNC, b"{}"), hidden(victim)))
    answers = asyncio.run(Line(server.address).answers(case))
    assert [answer.status for answer in answers] == [401, 200]
    assert victim.id not in [one["id"] for one in everything(server)[0]]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("path", WAYS.values(), ids=WAYS)
def test_odd_requests_are_refused(server: Served, path: str) -> None:
    cases = [*raw.sizes(path), *raw.odd_lines(path), *raw.queues(path)]
    found = told(server, cases)
    assert sum(map(len, found)) > len(cases) / 2


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("path", WAYS.values(), ids=WAYS)
def test_half_a_request_is_none(server: Served, path: str) -> None:
    told(server, raw.cuts(path))


@pytest.mark.usefixtures("unchanged")
def test_answers_come_in_order(server: Served) -> None:
    there, here = raw.request("/healthz", b"", method="GET"), raw.request(SYNC)
    cases = [Case("many", (there * 20,)), Case("a sync behind them", (there * 20 + here,))]
    many, behind = told(server, cases)
    assert [answer.status for answer in many] == [200] * 20
    assert [answer.status for answer in behind] == [200] * 20 + [401]


@pytest.mark.usefixtures("unchanged")
def test_nothing_is_heard_behind_a_sync_that_waits(server: Served, pilot: Pilot) -> None:
    """It is answered, and whoever sent more has to connect again."""
    behind = [hidden(pilot), raw.request("/healthz", b"", method="GET"), b"\0", b"x", b"\r\n"]
    ways = [(b"", more) for more in behind] + [(more, b"") for more in behind]
    pilots = [server.pilot() for _ in ways]
    cases = []
    for one, (at_once, then) in zip(pilots, ways, strict=True):
        sync = raw.request(SYNC, raw.sync(one.id), secret=one.credential)
        cases.append(Case("behind a sync", (sync + at_once, then)))

    async def telling() -> list[list[Reply]]:
        line = Line(server.address, quiet_seconds=2.5)
        return await asyncio.gather(*map(line.answers, cases))

    for case, answers in zip(cases, asyncio.run(telling()), strict=True):
        assert [answer.status for answer in answers] == [200], case
    for one in pilots:
        server.ask("POST", LEAVE, {"pilot": one.id, "epoch": 1}, one.credential)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("path", WAYS.values(), ids=WAYS)
def test_mutated_requests_do_no_harm(server: Served, pilot: Pilot, path: str) -> None:
    print(f"FUZZ_SEED={SEED}")
    chance = random.Random(f"{SEED} {path}")
    found = told(server, raw.mutated(chance, MUTATED // 2, path, raw.sync(pilot.id)))
    assert sum(map(len, found)) > len(found) / 2
