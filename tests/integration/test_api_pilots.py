"""What pilots are given when they enrol, and how it is renewed: while it is half good, in answers
to whatever they say."""

import hashlib
import json
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from covey import __version__
from covey.core.protocol.tokens import hand_job, job_secret, one_word
from covey.server.web.auth import CREDENTIAL_SECONDS
from covey.server.web.quick_syncs import Response
from tests.integration.api_harness import SECRET, Answer, Pilot, Place, digest, open_place

RENEWED = "x-covey-credential"
HALF = CREDENTIAL_SECONDS / 2


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with open_place() as found:
        path: Path = tmp_path_factory.mktemp("pilot") / "pilot.pyz"
        path.write_bytes(b"a pilot file")
        found.pilots._pilot_file = path
        yield found


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    yield shared
    shared.clock.ahead = 0.0


def sync(place: Place, pilot: Pilot, credential: str) -> Answer:
    """One that is answered at once."""
    pilot.number += 1
    message = {
        "pilot": pilot.id, "epoch": pilot.epoch, "number": pilot.number,
        "received": pilot.number - 1, "want": 0,
        "ends": [[pilot.epoch, 10**6, 10**6, 0, "returned"]],
    }  # fmt: skip
    return place.call("POST", "/pilot/v1/sync", message, credential)


def test_a_credential_is_renewed_long_before_it_ends(place: Place) -> None:
    pilot = place.enrol()
    assert RENEWED not in sync(place, pilot, pilot.credential).headers
    place.clock.ahead = HALF - 60
    assert RENEWED not in sync(place, pilot, pilot.credential).headers
    place.clock.ahead = HALF + 1
    new = sync(place, pilot, pilot.credential).headers[RENEWED]
    assert new != pilot.credential
    assert RENEWED not in sync(place, pilot, new).headers
    assert sync(place, pilot, pilot.credential).status == 200, "both are good for a while"
    place.clock.ahead = CREDENTIAL_SECONDS + 1
    refused = sync(place, pilot, pilot.credential)
    assert (refused.status, RENEWED in refused.headers) == (401, False)
    pilot.number -= 1
    assert sync(place, pilot, new).status == 200
    place.clock.ahead = CREDENTIAL_SECONDS + HALF + 2
    assert sync(place, pilot, new).status == 401


def test_it_comes_with_any_answer(place: Place) -> None:
    pilot = place.enrol()
    place.clock.ahead = HALF + 1
    asked: list[tuple[str, str, Any]] = [
        ("GET", f"files/{digest('a')}?pilot={pilot.id}", None),
        ("POST", "printed", {"pilot": pilot.id, "pieces": []}),
        ("POST", "leave", {"pilot": pilot.id, "epoch": pilot.epoch}),
    ]
    for method, name, body in asked:
        found = place.call(method, f"/pilot/v1/{name}", body, pilot.credential)
        assert found.status == 200, found.body
        assert found.headers[RENEWED].startswith(f"{pilot.id}."), name


def test_syncs_that_take_the_short_way(place: Place) -> None:
    pilot = place.enrol()
    told: list[Response] = []
    message = {
        "pilot": pilot.id, "epoch": pilot.epoch, "number": 1, "received": 0, "want": 0,
        "ends": [[pilot.epoch, 10**6, 10**6, 0, "returned"]],
    }  # fmt: skip
    headers = [(b"authorization", b"Bearer " + pilot.credential.encode())]
    place.clock.ahead = HALF + 1
    body = json.dumps(message).encode()
    pilots = place.pilots
    place.do(lambda: pilots.take_sync(pilots.let_in(headers), body, told.append))
    place.do(lambda: None)
    (answer,) = told
    assert (answer.status, json.loads(answer.body)["number"]) == (200, 1)
    assert dict(answer.headers)[RENEWED.encode()].startswith(f"{pilot.id}.".encode())


def test_the_clock_of_a_pilot_does_not_matter(place: Place) -> None:
    """Nothing that it says has a date in it; the server's own clock decides."""
    pilot = place.enrol()
    number, until, seal = pilot.credential.split(".")
    forged = f"{number}.{int(until) + 86400}.{seal}"
    assert sync(place, pilot, forged).status == 401


def test_an_enrolment_says_which_pilot_the_server_has(place: Place) -> None:
    known = hashlib.sha256(b"a pilot file").hexdigest()
    job = hand_job("*", time.time() + 60, "r")
    enrol = {"key": "a-long-enough-key", "host": "n", "slots": 1, "job": job, "shared": True}
    secret = one_word(job, job_secret(SECRET, job))
    found = place.call("POST", "/pilot/v1/enrol", enrol, secret)
    assert found.headers["x-covey-version"] == __version__
    assert found.headers["x-covey-pilot"] == known
    file = place.call("GET", "/pilot/v1/pilot.pyz", None, "")
    assert (file.status, file.body) == (200, b"a pilot file")
    assert hashlib.sha256(file.body).hexdigest() == file.headers["x-covey-pilot"]
    place.refuses(405, "POST", "/pilot/v1/pilot.pyz", {}, "")
    shown = parsedate_to_datetime(file.headers["date"]).timestamp()
    assert abs(shown - time.time()) < 60, "so that a pilot can say how far its clock is off"
