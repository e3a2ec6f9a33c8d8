"""The description of the API: of what is really there, all of it, and as it is."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import schemathesis
from starlette.routing import Route

from covey.core.record.model import Role
from covey.server.api.openapi import description, text
from covey.server.api.pilots import PREFIX, SHOWN
from covey.server.api.routes import all_calls
from covey.server.web.auth import Needs
from covey.server.web.route import RouteDescription
from covey.store.files.blobs import Blobs
from covey.store.files.holdings import Holdings
from tests.integration.api_harness import Place, open_place

PUBLISHED = Path(__file__).parents[2] / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with open_place(Holdings(Blobs(tmp_path_factory.mktemp("blobs")))) as found:
        yield found


def routes(place: Place) -> dict[tuple[str, str], Needs | None]:
    """What people can ask, and what it takes."""
    found = {}
    for route in place.app._rest.routes:
        assert isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}:
            found[method, route.path] = getattr(route.endpoint, "needs", None)
    return found


def described() -> dict[tuple[str, str], RouteDescription]:
    return {(call.method, call.path): call for call in all_calls()}


def test_every_route_is_described_with_what_it_takes_and_no_other(place: Place) -> None:
    people = {key: call for key, call in described().items() if not key[1].startswith(PREFIX)}
    assert {key: call.needs for key, call in people.items()} == routes(place)
    for call in people.values():
        assert call.shown == ("nothing" if call.needs is None else "token"), call.path


def test_every_call_of_pilots_is_described_with_what_it_is_shown() -> None:
    shown = {
        call.path.removeprefix(PREFIX).removesuffix("/{digest}"): call.shown
        for call in all_calls()
        if call.path.startswith(PREFIX)
    }
    assert shown == SHOWN


def test_no_call_is_described_twice() -> None:
    assert len(described()) == len(all_calls())
    operations = [one for path in description()["paths"].values() for one in path.values()]
    assert len(operations) == len(all_calls())
    assert len({one["operationId"] for one in operations}) == len(operations)


def test_the_description_is_a_valid_one() -> None:
    schemathesis.openapi.from_dict(description()).validate()
    for name, schema in description()["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert "." not in name


def test_what_is_referred_to_is_there_and_everything_there_is_referred_to() -> None:
    names: set[str] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            reference = value.get("$ref", "")
            if isinstance(reference, str) and reference:
                names.add(reference.removeprefix("#/components/schemas/"))
            for one in value.values():
                look(one)
        elif isinstance(value, list):
            for one in value:
                look(one)

    look(description())
    assert names == set(description()["components"]["schemas"])


def test_the_server_tells_it_to_those_who_may_look(place: Place) -> None:
    path = "/api/v1/openapi.json"
    place.refuses(401, "GET", path, None, "")
    found = place.call("GET", path, None, place.token(Role.VIEWER, "ann"))
    assert (found.status, found.kind) == (200, "application/json")
    assert found.body.decode() == text()


def test_the_description_is_published() -> None:
    words = "python -m covey.server.api.openapi > docs/openapi.json"
    assert PUBLISHED.read_text("utf-8") == text(), words


def test_it_can_be_printed() -> None:
    command = [sys.executable, "-m", "covey.server.api.openapi"]
    assert subprocess.run(command, check=True, capture_output=True).stdout.decode() == text()
