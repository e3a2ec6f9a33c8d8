"""Little that is said once and answered many times: values that every task has, results, commands
of all bags. No answer holds the server, or takes much memory, however long it would be in full."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from covey.client.client import Client
from covey.frontend import bag_places
from covey.wire import ResultQuery
from tests.fuzz.hostile import Asked, Hostile
from tests.fuzz.mutations import encode
from tests.fuzz.test_hostile import hostile

RESULT = {f"key{number:05}": 0.5 for number in range(3500)}
REPORTED = 600
LONG = 500_000  # characters


@pytest.fixture(scope="module")
def fuzz() -> Iterator[Hostile]:
    with hostile("0") as found:
        yield found


def numbers(name: str, count: int) -> dict[str, Any]:
    values = {"type": "range", "start": "0", "step": "1", "count": count}
    return {"type": "axis", "name": name, "values": values}


def submit(fuzz: Hostile, **spec: Any) -> int:
    token = fuzz.server.tokens["user"]
    made: int = fuzz.server.ask("POST", "/api/v1/bags", {"argv": ["true"], **spec}, token)["bag"]
    return made


class Worker:
    """A pilot of many slots, which says of itself when it has what it was sent."""

    def __init__(self, fuzz: Hostile) -> None:
        self.fuzz, self.number = fuzz, 0
        self.pilot = fuzz.server.pilot(slots=4096)

    def sync(self, want: int, ends: list[Any] | None = None) -> Any:
        self.number += 1
        message = {"pilot": self.pilot.id, "epoch": 1, "number": self.number, "want": want,
                   "received": self.number - 1, "ends": ends or [],
                   "held": [] if self.number == 1 else None, "tags": {}}  # fmt: skip
        asked = Asked("POST", "/pilot/v1/sync", encode(message), self.pilot.credential)
        status, body = self.fuzz.ask(asked)
        assert status == 200, body
        return json.loads(body)

    def leave(self) -> None:
        message = {"pilot": self.pilot.id, "epoch": 1, "reason": ""}
        self.fuzz.server.ask("POST", "/pilot/v1/leave", message, self.pilot.credential)


def test_long_values_are_sent_a_few_tasks_at_a_time(fuzz: Hostile) -> None:
    long = {"type": "values", "items": ["x" * LONG + str(number) for number in range(20)]}
    axis = {"type": "axis", "name": "a", "values": long}
    space = {"type": "product", "parts": [axis, numbers("b", 1000)]}
    bag = submit(fuzz, argv=["true", "{a}"], space=space)
    worker = Worker(fuzz)
    first, second = (worker.sync(4096)["tasks"] for _ in range(2))
    assert 0 < len(first) < 50
    assert second, "the rest comes when it asks again"
    assert not {task[2] for task in first} & {task[2] for task in second}
    viewer = fuzz.server.tokens["viewer"]
    for what in ("/running?limit=10000", "/explain?task=1", "/unfinished", ""):
        status, _ = fuzz.ask(Asked("GET", f"/api/v1/bags/{bag}{what}", b"", viewer))
        assert status == 200
    worker.leave()
    fuzz.server.ask("POST", f"/api/v1/bags/{bag}/cancel")


def test_many_inputs_of_single_tasks_are_sent_a_few_tasks_at_a_time(fuzz: Hostile) -> None:
    token = fuzz.server.tokens["user"]
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert fuzz.ask(Asked("PUT", f"/api/v1/files/{digest}?size=0", b"", token))[0] == 200
    inputs = [{"source": "f", "path": f"{{n}}/{number}"} for number in range(5000)]
    manifest = {"f": {"digest": digest, "size": 0}}
    bag = submit(fuzz, space=numbers("n", 5000), task_inputs=inputs, manifest=manifest)
    worker = Worker(fuzz)
    assert 0 < len(worker.sync(4096)["tasks"]) < 50
    worker.leave()
    fuzz.server.ask("POST", f"/api/v1/bags/{bag}/cancel")


def test_long_results_come_in_pages_of_a_bounded_size(fuzz: Hostile) -> None:
    bag = submit(fuzz, space=numbers("n", REPORTED))
    worker, left = Worker(fuzz), REPORTED
    ends: list[Any] = []
    result = json.dumps(RESULT, separators=(",", ":"))
    while left or ends:
        tasks = worker.sync(min(100, left), ends)["tasks"]
        ends = [
            [1, task[0], task[1], task[2], "ok", 0, 0, 0.1, 1.0, 0.5, 1, 0.2, "", "", 0, 0, "",
             result]
            for task in tasks
        ]  # fmt: skip
        left -= len(tasks)
    worker.leave()
    viewer = fuzz.server.tokens["viewer"]
    for query in ("", "?limit=10000", "?sort=key00001", "?where=key00001%3D0.5", "?order=row"):
        status, body = fuzz.ask(Asked("GET", f"/api/v1/bags/{bag}/results{query}", b"", viewer))
        assert status == 413
        assert b"ask for at most" in body
    for form in ("csv", "jsonl"):
        address = f"/api/v1/bags/{bag}/results?format={form}&limit=200"
        assert fuzz.ask(Asked("GET", address, b"", viewer))[0] == 200
    client = Client(fuzz.server.address, viewer)
    for asked in (ResultQuery(), ResultQuery(by_row=True), ResultQuery(sort="-n")):
        rows = list(bag_places.all_results(client, bag, asked))
        assert sorted(row.task for row in rows) == list(range(REPORTED))
        assert all(row.result == RESULT for row in rows)
    assert len(client.results(bag, ResultQuery(limit=300), 1.0)) == 300


def test_a_list_of_bags_is_short_however_long_the_bags_are(fuzz: Hostile) -> None:
    bags = [
        submit(
            fuzz, argv=["true", "x" * 7_000_000], notes="n" * 1_000_000,
            labels={"a": "b" * 900_000}, name=f"long {number}", outputs=["o" * 1000] * 500,
        )
        for number in range(25)
    ]  # fmt: skip
    for again in range(2):
        for role in ("viewer", "user"):
            status, body = fuzz.ask(Asked("GET", "/api/v1/bags", b"", fuzz.server.tokens[role]))
            assert status == 200
            assert len(body) < 1_000_000
            assert {bag["id"] for bag in json.loads(body)} >= set(bags)
        for bag in bags if not again else ():  # then they are shown from the record
            fuzz.server.ask("POST", f"/api/v1/bags/{bag}/cancel")
    client = Client(fuzz.server.address, fuzz.server.tokens["user"])
    assert len(bag_places.find_bag(client, "long 7").notes) == 1_000_000, "of one bag all is shown"
