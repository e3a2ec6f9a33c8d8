"""Whatever can be asked of a real server, by people of every role and by pilots: it keeps to its
description, and lets in only those who may.

Requests come from the description, half of them as it says and half as it does not. Where they
name bags, tasks, tokens and pilots, these are mostly ones that there are.
"""

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckContext, CheckFunction, not_a_server_error
from schemathesis.core.result import Err
from schemathesis.core.transport import Response
from schemathesis.specs.openapi import checks

from covey.server.api.openapi import description
from tests.fuzz.served import ROLES, Pilot, Served, new_job, open_served

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "40"))  # of each call and mode
# Another seed every day; FUZZ_SEED brings one back.
SEED = int(os.environ.get("FUZZ_SEED", datetime.now(UTC).date().toordinal()))

SCHEMA = schemathesis.openapi.from_dict(description())
SCHEMA.config.generation.update(with_security_parameters=False)
ACCEPTED = SCHEMA.config.checks.positive_data_acceptance
REJECTED = SCHEMA.config.checks.negative_data_rejection
for one in (ACCEPTED, REJECTED):
    one.expected_statuses = [*one.expected_statuses, "410"]  # what may have been there once
OPERATIONS: dict[str, Any] = {}
for found in SCHEMA.get_all_operations():
    assert not isinstance(found, Err)
    OPERATIONS[found.ok().label] = found.ok()
LONGEST_WAIT = 0.05
LARGEST = 2**53
HOW = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
# Whether these accept something depends on more than can be described: what is there, and what
# the words mean.
MORE_TO_IT = {
    "POST /api/v1/tokens",
    "POST /api/v1/invitations",
    "POST /api/v1/bags",
    "POST /api/v1/bags/{bag}/append",
    "POST /api/v1/bags/{bag}/retry",
    "POST /api/v1/bags/{bag}/purge",
    "PUT /api/v1/bags/{bag}/policy",
    "PUT /api/v1/sites/{site}",
    "GET /api/v1/bags/{bag}/results",
    "POST /api/v1/files/missing",
    "PUT /api/v1/files/{digest}",
    "POST /pilot/v1/enrol",
    "POST /pilot/v1/sync",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with open_served() as found:
        yield found


def no_server_error(context: CheckContext, response: Response, case: Case) -> bool | None:
    """But for "come back later", which says when."""
    if response.status_code == 503 and "retry-after" in response.headers:
        return None
    return not_a_server_error(context, response, case)


def checks_of(label: str, mode: GenerationMode) -> list[CheckFunction]:
    found: list[CheckFunction] = [
        no_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]
    if label != "POST /pilot/v1/leave":  # whoever asks again is not known any more
        found.append(checks.ignored_auth)
    if mode is GenerationMode.NEGATIVE:
        found.append(checks.negative_data_rejection)
    elif label not in MORE_TO_IT:
        found.append(checks.positive_data_acceptance)
    return found


class Caller:
    """Fills in what there is, and shows what must be shown."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._bags = server.bags()
        self._pilot: Pilot | None = None

    def prepare(self, case: Case, role: str, chance: random.Random) -> dict[str, str]:
        """The headers to send with it."""
        for places in (case.path_parameters, case.query):
            for name in list(places or ()):
                self._fill(places, name, chance)
        shown: dict[str, Any] = next(iter(case.operation.definition.raw["security"]), {})
        if "secret" in shown:
            return _bearer(self._enrols(case.body))
        if "credential" in shown:
            return _bearer(self._speaks(case, chance))
        if "token" in shown:
            if case.operation.label == "POST /api/v1/stop":
                role = "user"  # it would
            return _bearer(self._server.tokens[role])
        return {}

    def heard(self, case: Case, response: Response) -> None:
        gone = case.path == "/pilot/v1/leave" and response.status_code == 200
        if gone or response.status_code in (401, 410):
            self._pilot = None

    def _fill(self, places: dict[str, Any], name: str, chance: random.Random) -> None:
        value, known = places[name], chance.random() < 0.7
        whole = type(value) is int and value <= LARGEST
        if name == "wait" and type(value) in (int, float) and LONGEST_WAIT < value <= LARGEST:
            places[name] = LONGEST_WAIT
        elif name == "bag" and whole and value > 0 and known:
            places[name] = chance.choice(self._bags)
        elif name == "task" and whole and value >= 0 and known:
            places[name] = chance.randrange(4)
        elif name == "token" and whole and (value in self._server.kept or (value > 0 and known)):
            places[name] = chance.choice(self._server.spare)

    def _enrols(self, body: Any) -> str:
        job = new_job()
        if isinstance(body, dict) and isinstance(body.get("job", ""), str):
            body["job"], body["shared"] = job, True
            if isinstance(body.get("key"), str):
                body["key"] = f"key {job}"
        return self._server.secret(job)

    def _speaks(self, case: Case, chance: random.Random) -> str:
        pilot = self._pilot = self._pilot or self._server.pilot()
        for said in (case.query, case.body):
            if isinstance(said, dict) and type(said.get("pilot")) is int and chance.random() < 0.9:
                said["pilot"] = pilot.id
        return pilot.credential


def _bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("label", OPERATIONS)
def test_the_server_keeps_to_its_description(
    server: Served, label: str, mode: GenerationMode
) -> None:
    caller = Caller(server)
    wanted = checks_of(label, mode)

    @seed(SEED)
    @HOW
    @given(
        case=OPERATIONS[label].as_strategy(generation_mode=mode),
        role=st.sampled_from(ROLES),
        chance=st.randoms(use_true_random=False),
    )
    def ask(case: Case, role: str, chance: random.Random) -> None:
        headers = caller.prepare(case, role, chance)
        response = case.call(server.address, server.session, headers, timeout=20)
        caller.heard(case, response)
        how = {"base_url": server.address, "session": server.session, "headers": headers}
        case.validate_response(response, wanted, headers=headers, transport_kwargs=how)

    print(f"FUZZ_SEED={SEED}")
    try:
        ask()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "nothing can be asked"
