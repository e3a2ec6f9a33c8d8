"""Policies over HTTP: seen, checked, changed; and why bags and tasks stand as they do."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from covey.client.client import Client
from covey.core.errors import NotFound, Refused
from covey.core.match.policies import PRESETS
from covey.core.record.events import PolicyRequested
from covey.core.record.model import BagSpec, PolicySpec, Role
from covey.core.values.space import Axis, Range
from covey.whoami import user
from tests.integration.api_harness import API, Place, open_place
from tests.unit.cli.builders import bag as view
from tests.unit.cli.builders import row

THREE = Axis("i", Range("0", "1", 3))
POLICY = PolicySpec(requirements="Host.cpu_mhz > 2500", rank="Host.NumCpus")


@pytest.fixture
def place() -> Iterator[Place]:
    with open_place() as found:
        yield found


@pytest.fixture
def client(place: Place) -> Iterator[Client]:
    found = place.client()
    yield found
    found.close()


def submit(client: Client, **fields: Any) -> int:
    return client.submit(BagSpec(**{"argv": ("true",), "space": THREE, **fields})).bag


def test_a_policy_is_seen_and_changed(place: Place, client: Client) -> None:
    bag = submit(client, policy=POLICY)
    seen = client.policy(bag)
    assert (seen.bag, seen.policy, seen.preset) == (bag, POLICY, "throughput")
    assert seen.expressions[0].origins == ["owner"]
    after = PolicySpec(preset="fast-tail", avoid_hosts=("n1",))
    assert client.set_policy(bag, after) == 1
    assert place.last(PolicyRequested).policy == after
    assert client.policy("latest").policy == after


def test_what_is_no_policy_changes_nothing(place: Place, client: Client) -> None:
    bag = submit(client, policy=POLICY)
    path = f"{API}/bags/{bag}/policy"
    assert "Rank" in place.refuses(400, "PUT", path, {"rank": "1 +"})
    assert "no preset" in place.refuses(400, "PUT", path, {"preset": "fats"})
    place.refuses(400, "PUT", path, {"rank": 3})
    assert client.policy(bag).policy == POLICY
    with pytest.raises(Refused, match="expected"):
        client.set_policy(bag, PolicySpec(tail="("))


def test_of_a_bag_that_is_over_the_record_knows(place: Place, client: Client) -> None:
    bag = submit(client, policy=POLICY)
    client.cancel(bag)
    with pytest.raises(NotFound):
        client.policy(bag)
    place.shelf.policies[bag] = POLICY
    assert client.policy(bag).policy == POLICY
    assert client.set_policy(bag, PolicySpec()) == 0


def test_only_the_owner_and_admins(place: Place, client: Client) -> None:
    bag = submit(client, owner="ann")
    path = f"{API}/bags/{bag}/policy"
    ann, bob = place.token(Role.USER, "ann"), place.token(Role.USER, "bob")
    assert "belongs to ann" in place.refuses(403, "PUT", path, {"rank": "1"}, bob)
    place.refuses(403, "GET", f"{API}/bags/{bag}/explain", None, bob)
    assert place.call("PUT", path, {"rank": "1"}, ann).status == 200
    assert place.call("PUT", path, {"rank": "2"}, place.token(Role.ADMIN, "root")).status == 200


def test_checking(place: Place, client: Client) -> None:
    assert client.check_policy(PolicySpec(rank="Host.cpu_mz")).faults == []
    place.enrol(tags={"cpu_mhz": "2000"})
    (fault,) = client.check_policy(PolicySpec(rank="Host.cpu_mz")).faults
    assert (fault.kind, fault.near[0]) == ("unknown", "Host.cpu_mhz")
    bag = submit(client, policy=POLICY)
    own = client.check_policy(None, bag)
    assert [one.kind for one in own.faults] == ["never"]
    assert (own.hosts, own.meeting, own.parts[0].hosts) == (1, 0, 0)
    assert client.check_policy(PolicySpec(rank="Job.i"), bag).faults == []
    place.refuses(400, "POST", f"{API}/policy/check", {"rank": 3})


def test_without_a_bag_it_is_tried_on_the_pilots_of_whoever_serves(
    place: Place, client: Client
) -> None:
    place.enrol(tags={"cpu_mhz": "2000"})
    (pilot,) = place.state.pilots.values()
    pilot.record = replace(pilot.record, owner=user())
    report = client.check_policy(PolicySpec(requirements="Host.ErorRate < 0.1"))
    assert (report.hosts, [one.kind for one in report.faults]) == (1, ["unknown", "never"])


def test_attributes_have_examples_of_what_the_caller_may_see(place: Place, client: Client) -> None:
    place.enrol(host="n7", tags={"bob:score": "3", "gpu_model": "A100"})
    submit(client, owner="ann", name="secret")
    bob = place.client(place.token(Role.VIEWER, "bob"))
    shown = {f"{one.role}.{one.name}": one.example for one in bob.attributes()}
    assert (shown["Host.Name"], shown["Host.score"]) == ('"n7"', "3")
    assert (shown["Host.gpu_model"], shown["Bag.Name"]) == ('"A100"', "")
    ours = {f"{one.role}.{one.name}": one.example for one in client.attributes()}
    assert ours["Bag.Name"] == '"secret"'
    assert "Host.score" not in ours


def test_presets(place: Place) -> None:
    found = place.call("GET", f"{API}/policy/presets").content
    assert [one["preset"] for one in found] == list(PRESETS)


def test_why_a_bag_waits(place: Place, client: Client) -> None:
    bag = submit(client, policy=POLICY, name="fits")
    place.enrol(tags={"cpu_mhz": "2000"})
    found = client.explain(bag)
    assert (found.bag, found.name, found.status) == (bag, "fits", "running")
    assert found.answer is not None
    assert found.answer.near[0].values == {"Host.cpu_mhz": "2000"}
    assert found.summary == found.answer.summary
    assert found.waste.lost == 0
    of_task = client.explain(bag, 2)
    assert of_task.task is not None
    assert (of_task.task.state, of_task.task.values) == ("waiting", {"i": "2"})
    assert of_task.answer is not None, "what holds up its bag holds it up"
    with pytest.raises(NotFound, match="no task 3: its tasks are 0 to 2"):
        client.explain(bag, 3)
    with pytest.raises(NotFound):
        client.explain(999)


def test_why_a_task_is_where_it_is(place: Place, client: Client) -> None:
    bag = submit(client)
    pilot = place.enrol(slots=1)
    assert len(pilot.sync(want=1)["tasks"]) == 1
    found = client.explain(bag, 0)
    assert found.task is not None
    assert found.task.running[0].host == "n1"
    assert found.summary == "it runs on n1"
    assert found.answer is None


def test_what_is_over_is_told_from_the_record(place: Place, client: Client) -> None:
    bag = submit(client)
    client.cancel(bag)
    place.shelf.views = {bag: view(id=bag, status="cancelled", total=3, done=1, failed=1)}
    assert client.explain(bag).summary == "it is cancelled: 1 of 3 tasks done, 1 given up"
    place.shelf.rows = [
        row(0, outcome="lost", counted=False, host="n1"),
        row(0, host="n2", attempt="1.9"),
    ]
    told = client.explain(bag, 0)
    assert told.summary == "it is done: attempt 1.9 on n2; 1 other attempt did not count"
    assert len(told.attempts) == 2
    place.shelf.rows[0].message = "its pilot left: asked to end"
    place.shelf.job_ended = "PREEMPTED"
    why = [attempt.message for attempt in client.explain(bag, 0).attempts]
    assert why == ["its pilot left: asked to end (its site job ended: PREEMPTED)", ""]
    place.shelf.rows = [row(0, outcome="failed", cause="exit 1: bad")]
    assert client.explain(bag, 0).summary == "it was given up: exit 1: bad, on node1"
    place.shelf.rows = []
    assert client.explain(bag, 0).summary == "it has no result: its bag is cancelled"
    with pytest.raises(NotFound, match="no task 3"):
        client.explain(bag, 3)
