"""Who may do what: every route of the real application, and the table in SECURITY.md row by row."""

import hashlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from starlette.routing import Route

from covey.client.client import Client
from covey.core.errors import NotFound, Refused
from covey.core.protocol.tokens import hand_job, job_secret, one_word
from covey.core.record.events import BagSubmitted, TokenIssued
from covey.core.record.model import BagId, BagSpec, Role
from covey.core.state.failures import Trouble
from covey.core.values.space import Axis, Range
from covey.server.api.pilots import SHOWN
from covey.server.web.auth import Needs
from covey.store.files.blobs import Blobs
from covey.store.files.holdings import Holdings
from covey.wire import BagView, ResultQuery
from tests.integration.api_harness import API, SECRET, TOKEN, Place, digest, open_place

SECURITY = Path(__file__).parents[2] / "SECURITY.md"
OPEN = {"/healthz", "/metrics", "/join/{invitation}"}
COLUMNS = ["viewer, own", "viewer, other's", "user, own", "user, other's", "admin"]
THREE = Axis("i", Range("0", "1", 3))


def file_of(owner: str) -> str:
    """The one that this owner holds."""
    return hashlib.sha256(owner.encode()).hexdigest()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    holdings = Holdings(Blobs(tmp_path_factory.mktemp("blobs")))
    for owner in ("ann", "bob"):
        content = owner.encode()
        assert holdings.put_piece(owner, file_of(owner), 0, len(content), content).complete
    with open_place(holdings) as found:
        yield found


class People(NamedTuple):
    viewer: str
    user: str
    admin: str
    bob: str  # a user, too


@pytest.fixture(scope="module")
def people(place: Place) -> People:
    return People(
        place.token(Role.VIEWER, "ann"),
        place.token(Role.USER, "ann"),
        place.token(Role.ADMIN, "root"),
        place.token(Role.USER, "bob"),
    )


def submitted(place: Place, token: str, **fields: Any) -> int:
    client = place.client(token)
    try:
        return client.submit(BagSpec(**{"argv": ("true",), "space": THREE, **fields})).bag
    finally:
        client.close()


def routes(place: Place) -> Iterator[tuple[str, str, Route]]:
    for route in place.app._rest.routes:
        assert isinstance(route, Route), f"{route} is not one that this test can see through"
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield method, route.path, route


def rows() -> dict[str, list[str]]:
    """The table: call -> what it says of each column."""
    lines = [line for line in SECURITY.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["call", *COLUMNS]
    return {row[0]: row[1:] for row in cells[2:]}


# -- every route ---------------------------------------------------------------------------------


def test_every_route_says_what_it_needs(place: Place) -> None:
    found = {path for _, path, route in routes(place) if not _needs(route)}
    assert found <= OPEN, "these let in whoever asks"


def _needs(route: Route) -> Needs | None:
    needs = getattr(route.endpoint, "needs", None)
    assert needs is None or isinstance(needs, Needs)
    return needs


def test_nobody_gets_in_without_a_token(place: Place) -> None:
    bag = submitted(place, TOKEN)
    expired = place.token(Role.ADMIN, "old", seconds=1000)
    revoked = place.client()
    gone = place.token(Role.ADMIN, "gone")
    revoked.revoke_token(max(one.id for one in revoked.tokens()))
    place.clock.ahead += 1001
    wrong = ["", "wrong", TOKEN + "x", SECRET, "covey_" + "x" * 32, expired, gone]
    words = set()
    try:
        for method, path, _ in routes(place):
            if path in OPEN:
                continue
            for token in wrong:
                words.add(place.refuses(401, method, _filled(path, bag), b"{}", token))
    finally:
        place.clock.ahead -= 1001
    assert len(words) == 1, "whoever guesses learns nothing"


def test_every_call_of_pilots_wants_to_be_shown_something(place: Place) -> None:
    pilot = place.enrol()
    before = place.call("GET", f"{API}/pilots").content
    job = "hand-x-99999999999-1"
    bodies = {
        "enrol": {"key": "a-long-enough-key", "host": "n", "slots": 1, "job": job},
        "sync": {"pilot": pilot.id, "epoch": 1, "number": 1, "received": 0, "want": 0},
        "leave": {"pilot": pilot.id, "epoch": 1},
        "printed": {"pilot": pilot.id, "pieces": []},
    }  # fmt: skip
    assert set(place.app._pilots._calls) <= set(SHOWN)
    for name, what in SHOWN.items():
        if what == "nothing":
            assert name == "pilot.pyz"
            continue
        path = f"/pilot/v1/{name}"
        method = "POST"
        if name == "files":
            method, path = "GET", f"{path}/{digest('a')}?pilot={pilot.id}"
        for wrong in ("", "wrong", TOKEN, place.enrol().credential):
            place.refuses(401, method, path, bodies.get(name), wrong)
    place.refuses(404, "POST", "/pilot/v1/anything", {}, pilot.credential)
    after = place.call("GET", f"{API}/pilots").content
    assert before[0] in after


def _filled(path: str, bag: int, owner: str = "ann", token: int = 1) -> str:
    named = {"{bag}": str(bag), "{task}": "0", "{digest}": file_of(owner), "{token}": str(token)}
    named["{pilot}"] = str(token)
    for name, value in named.items():
        path = path.replace(name, value)
    return path


# -- the table -----------------------------------------------------------------------------------


def test_the_table_has_every_call(place: Place) -> None:
    there = {f"{m} {p.removeprefix(API)}" for m, p, _ in routes(place) if p not in OPEN}
    assert set(rows()) == there


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("call", rows())
def test_the_table_in_security_md(place: Place, people: People, call: str, column: str) -> None:
    role, _, whose = column.partition(", ")
    token = getattr(people, role)
    owner = "bob" if whose == "other's" or role == "admin" else "ann"
    bag = submitted(place, TOKEN, owner=owner, argv=("secret-word",))
    place.shelf.views = {}
    method, path = call.split(" ")
    answer = _ask(place, token, method, path, bag, owner)
    allowed = answer.status not in (401, 403)
    if path == "/files/{digest}" and method == "GET":
        allowed = answer.status == 200
    if path == "/bags" and method == "POST":
        allowed = allowed and place.last(BagSubmitted).spec.owner == owner
    if path == "/tokens" and method == "GET":
        allowed = allowed and owner in {one["owner"] for one in answer.content}
    said = {True: "yes", False: "no"}[allowed]
    if allowed and path in ("/bags", "/bags/{bag}") and method == "GET":
        said = "yes" if b"secret-word" in answer.body else "in part"
    assert said == rows()[call][COLUMNS.index(column)]


def _ask(place: Place, token: str, method: str, path: str, bag: int, owner: str) -> Any:
    body: Any = None
    id_ = 0
    if path == "/tokens" and method == "POST":
        body = {"name": "n", "role": "user", "owner": owner}
    elif path == "/invitations":
        body = {"owner": owner}
    elif path == "/bags" and method == "POST":
        body = {"argv": ["true"], "owner": owner}
    elif path == "/bags":
        view = place.call("GET", f"{API}/bags/{bag}").content
        place.shelf.views = {bag: _view(view)}
    elif path.endswith("revoke"):
        place.token(Role.USER, owner)
        id_ = max(one["id"] for one in place.call("GET", f"{API}/tokens").content)
    elif path.endswith("dismiss"):
        job = hand_job(owner, time.time() + 600, f"{time.monotonic_ns()}")
        id_ = place.enrol(job=job).id
    elif path == "/files/missing":
        body = [digest("a")]
    elif path.endswith("append"):
        body = {"segment": {}}
    question = "?what=all" if path.endswith("purge") else "?size=5" if method == "PUT" else ""
    return place.call(method, API + _filled(path, bag, owner, id_) + question, body, token)


def _view(content: dict[str, Any]) -> BagView:
    return msgspec.convert(content, BagView)


def test_what_is_shown_of_others(place: Place, people: People) -> None:
    words = {
        "argv": ("w-argv",),
        "notes": "w-notes",
        "labels": {"w-label": "w-value"},
        "outputs": ("w-output",),
        "env": {"W": "w-env"},
        "space": Axis("w_name", Range("0", "1", 3)),
    }
    bag = submitted(place, people.bob, name="its name", **words)
    trouble = Trouble("cannot get an input: https://w-url", "host", place.clock.now(), 0)
    place.do(lambda: setattr(place.state.bags[BagId(bag)].failures, "trouble", trouble))
    own = place.call("GET", f"{API}/bags/{bag}", None, people.bob)
    other = place.call("GET", f"{API}/bags/{bag}", None, people.viewer)
    assert own.body.count(b"w-") == 6, own.body
    assert b"w_name" in own.body
    assert b"w-" not in other.body
    assert b"w_name" not in other.body
    shown = ("id", "name", "owner", "status", "total", "done", "failed", "running", "classes")
    assert [other.content[name] for name in shown] == [own.content[name] for name in shown]
    assert other.content["name"] == "its name"
    assert other.content["reason"] == "cannot get an input"
    assert place.call("GET", f"{API}/bags/{bag}", None, people.admin).body == own.body
    why = {"reason": "3 failures in a row, and no success; the last: exit 1: w-secret"}
    place.call("POST", f"{API}/bags/{bag}/pause", why, people.bob)
    own = place.call("GET", f"{API}/bags/{bag}", None, people.bob)
    other = place.call("GET", f"{API}/bags/{bag}", None, people.viewer)
    assert b"w-secret" in own.body
    assert other.content["reason"] == "3 failures in a row, and no success"


def test_a_bag_that_is_over_has_an_owner_still(place: Place, people: People) -> None:
    bag = submitted(place, people.bob)
    view = _view(place.call("GET", f"{API}/bags/{bag}").content)
    place.call("POST", f"{API}/bags/{bag}/cancel", None, people.bob)
    assert place.do(lambda: BagId(bag) not in place.state.bags)
    place.shelf.views = {bag: view}
    for _ in range(2):
        place.refuses(403, "GET", f"{API}/bags/{bag}/results", None, people.user)
        assert place.call("GET", f"{API}/bags/{bag}/results", None, people.bob).status == 200
    place.shelf.views = {}


def test_the_latest_bag_is_the_callers_own(place: Place, people: People) -> None:
    mine = submitted(place, people.user)
    theirs = submitted(place, people.bob)
    views = [place.call("GET", f"{API}/bags/{bag}").content for bag in (mine, theirs)]
    place.shelf.views = {view["id"]: _view(view) for view in views}
    found = {
        who: place.call("GET", f"{API}/bags/latest", None, token).content["id"]
        for who, token in (("ann", people.viewer), ("bob", people.bob), ("server", TOKEN))
    }
    assert found == {"ann": mine, "bob": theirs, "server": theirs}
    place.refuses(404, "GET", f"{API}/bags/latest", None, people.admin)
    place.shelf.views = {}


# -- submitting ----------------------------------------------------------------------------------


def test_a_bag_is_its_submitters(place: Place, people: People) -> None:
    def owner(token: str, said: str) -> str:
        submitted(place, token, owner=said)
        return place.last(BagSubmitted).spec.owner

    assert owner(people.user, "bob") == "ann"
    assert owner(people.user, "") == "ann"
    assert (owner(people.admin, "bob"), owner(people.admin, "")) == ("bob", "root")
    assert (owner(TOKEN, "carol"), owner(TOKEN, "")) == ("carol", "")
    first = submitted(place, people.user, key="k")
    assert submitted(place, people.user, key="k") == first
    assert submitted(place, people.bob, key="k") != first


# -- tokens --------------------------------------------------------------------------------------


def test_tokens_from_birth_to_end(place: Place) -> None:
    server = place.client()
    issued = server.create_token("laptop", role="user", owner="dan", seconds=3600)
    assert re.fullmatch(r"covey_[A-Za-z0-9_-]{32}", issued.token)
    kept = place.last(TokenIssued)
    assert issued.token not in repr(place.do(lambda: list(place.events)))
    assert issued.token not in repr(place.do(lambda: list(place.ports.writes)))
    assert len(kept.digest) == 64
    dan = place.client(issued.token)
    (seen,) = dan.tokens()
    assert (seen.id, seen.name, seen.role, seen.owner) == (issued.id, "laptop", "user", "dan")
    assert 3500 < seen.expires - seen.created <= 3600
    assert issued.id in [one.id for one in server.tokens()]
    dan.bags()
    assert (dan.revoke_token(issued.id), server.revoke_token(issued.id)) == (1, 0)
    with pytest.raises(Refused, match="token"):
        dan.bags()
    with pytest.raises(NotFound, match="no token 999999"):
        server.revoke_token(999_999)
    again = server.create_token("laptop", role="user", owner="dan", seconds=10)
    assert again.id == issued.id + 1
    dan = place.client(again.token)
    dan.bags()
    place.clock.ahead += 11
    try:
        with pytest.raises(Refused, match="token"):
            dan.bags()
        assert again.id not in [one.id for one in server.tokens()]
    finally:
        place.clock.ahead -= 11


def test_nobody_hands_out_more_than_they_have(place: Place, people: People) -> None:
    path = f"{API}/tokens"
    for wrong in ({"role": "admin"}, {"owner": "bob"}, {"role": "viewer", "owner": "root"}):
        place.refuses(403, "POST", path, {"name": "n", **wrong}, people.user)
    place.refuses(403, "POST", path, {"name": "n"}, people.viewer)
    short = place.token(Role.USER, "ann", seconds=100)
    place.refuses(403, "POST", path, {"name": "n", "seconds": 200}, short)
    made = place.client(short).create_token("heir", role="viewer")
    heir = next(one for one in place.client().tokens() if one.id == made.id)
    maker = next(one for one in place.client().tokens() if one.id == made.id - 1)
    assert (heir.role, heir.owner, heir.expires) == ("viewer", "ann", maker.expires)
    admin = place.client(people.admin).create_token("other", role="admin", owner="eve")
    assert place.call("POST", f"{API}/stop", None, admin.token).status == 200
    other = place.call("GET", path, None, people.user).content
    assert {one["owner"] for one in other} == {"ann"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""}, {"name": "x" * 300}, {"name": "a\nb"}, {"role": "king"}, {"seconds": -1},
        {"seconds": 1e300}, {"owner": "a\0b"}, {"unknown": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_token_is_not_made(place: Place, wrong: dict[str, Any]) -> None:
    place.refuses(400, "POST", f"{API}/tokens", {"name": "n", "owner": "o", **wrong})


# -- pilots by hand ------------------------------------------------------------------------------


def test_a_pilot_for_oneself(place: Place, people: People) -> None:
    path = f"{API}/invitations"
    for token, said, owner, serves in (
        (people.user, {}, "ann", "ann"),
        (people.admin, {"owner": "bob"}, "bob", "bob"),
        (people.admin, {"owner": "*", "shared": True}, "*", ""),
        (TOKEN, {"shared": True}, "*", ""),
    ):
        made = place.call("POST", path, said, token)
        assert (made.status, made.content["owner"]) == (201, owner)
        pilot = place.enrol(job=made.content["job"])
        record = place.do(lambda pilot=pilot: place.state.pilots[pilot.id].record)  # type: ignore[misc]
        assert record.owner == serves
        views = place.client().pilots()
        assert [view.owner for view in views if view.id == pilot.id] == [serves]
    place.refuses(403, "POST", path, {"owner": "*"}, people.user)
    assert "add --shared" in place.refuses(400, "POST", path, {"owner": "*"}, people.admin)
    assert "add --shared" in place.refuses(400, "POST", path, {}, TOKEN)
    assert b"not valid" in place.call("GET", "/join/anything", None, "").body


def test_a_pilot_for_everybody_must_wall_tasks_in(place: Place, people: People) -> None:
    """Whatever made its secret: one that says that it has no walls is not let in."""
    job = hand_job("*", time.time() + 600, f"{time.monotonic_ns()}")
    enrol = {"key": "a-long-enough-key", "host": "n", "slots": 1, "job": job}
    secret = one_word(job, job_secret(SECRET, job))
    words = place.refuses(400, "POST", "/pilot/v1/enrol", enrol, secret)
    assert "must run them in sandboxes" in words


def test_results_are_for_their_owner(place: Place, people: People) -> None:
    bag = submitted(place, people.bob)
    reader = place.client(people.user)
    with pytest.raises(Refused, match=rf"bag {bag} belongs to bob"):
        reader.results(bag, ResultQuery())
    with pytest.raises(Refused, match="belongs to bob"):
        list(reader.export(bag, ResultQuery(), "csv"))
    owner: Client = place.client(people.bob)
    assert owner.results(bag, ResultQuery()) == []
