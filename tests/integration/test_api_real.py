"""The API of a real server with a real pilot: from a submission to what is left of it."""

import csv
import hashlib
import io
import json
import subprocess
from collections.abc import Iterator

import pytest

from covey.client.client import Client
from covey.core.errors import Refused
from covey.core.record.model import BagSpec, Rows, Segment
from covey.core.values.space import Axis, Range
from covey.wire import BagView, ResultQuery
from tests.faults.world import World, open_world, wait_until

# Reports a value and returns a file; those from 3 on fail.
WORK = """echo "{\\"energy\\": $COVEY_TASK}"; echo hello > out.txt
[ $COVEY_TASK -lt 3 ] || { echo "bad value $COVEY_TASK" >&2; exit 1; }"""


@pytest.fixture(scope="module")
def served() -> Iterator[World]:
    with open_world() as found:
        found.serve("--slots", "2")
        yield found


@pytest.fixture
def client(served: World) -> Iterator[Client]:
    found = served.client()
    yield found
    found.close()


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


def over(client: Client, bag: int) -> BagView:
    seen = -1
    while True:
        found = client.bag(bag, wait_seconds=20, seen=seen)
        assert found is not None
        if found.over:
            return found
        seen = found.done + found.failed


def upload(client: Client, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    assert client.missing([digest]) == [digest]
    half = len(data) // 2
    assert not client.put_piece(digest, 0, len(data), data[:half]).complete
    at = client.file_state(digest).size
    assert client.put_piece(digest, at, len(data), data[at:]).complete
    assert client.missing([digest]) == []
    return digest


def test_results_failures_and_files(served: World, client: Client) -> None:
    bag = served.submit(WORK, 5, outputs=("out.txt",))
    view = over(client, bag)
    assert (view.done, view.failed, view.result_names) == (3, 2, ["energy"])
    found = client.results(bag, ResultQuery(where=("energy >= 1",), sort="-energy"))
    assert [row.result for row in found] == [{"energy": n} for n in (4, 3, 2, 1)]
    text = b"".join(client.export(bag, ResultQuery(), "csv")).decode()
    table = list(csv.DictReader(io.StringIO(text)))
    assert [line["energy"] for line in table] == ["0", "1", "2", "3", "4"]
    lines = b"".join(client.export(bag, ResultQuery(failed_only=True), "jsonl")).splitlines()
    assert [json.loads(line)["task"] for line in lines] == [3, 4]
    (group,) = client.failures(bag)
    assert (group.cause, group.count, group.host_count) == ("exit 1: bad value N", 2, 1)
    assert "bad value" in group.log
    files = client.files(bag)
    assert sorted((one.task, one.path, one.data) for one in files) == [
        (task, "out.txt", b"hello\n") for task in range(3)
    ]
    with pytest.raises(Refused, match="energi"):
        client.results(bag, ResultQuery(where=("energi >= 1",)))
    assert client.retry(bag, causes=["exit 1"]) == 2
    over(client, bag)
    assert client.retry(bag, tasks=[4], time=2.0) == 1
    over(client, bag)
    assert [len(client.attempts(bag, task)) for task in range(5)] == [1, 1, 1, 2, 3]
    with pytest.raises(Refused):
        client.retry(bag, causes=["exit 7"])
    (host,) = [host for host in client.hosts() if host.pilots]  # other owners had theirs before
    assert (host.pilots, host.slots, host.done > 0) == (1, 2, True)


def test_what_is_purged_is_gone(served: World, client: Client) -> None:
    bag = served.submit("echo hello", 1)
    over(client, bag)
    printed = client.output(bag, 0)
    assert printed is not None
    assert printed.stdout == "hello\n"
    client.purge(bag, "logs")
    printed = client.output(bag, 0)
    assert printed is None or printed.stdout == ""
    client.purge(bag, "all")
    assert client.bag(bag) is None
    assert bag not in [view.id for view in client.bags()]


def test_rows_of_a_file_appended_twice(client: Client) -> None:
    digest = upload(client, b"a,b\n1,x\n2,y\n")
    assert b"".join(client.read_file(digest)) == b"a,b\n1,x\n2,y\n"
    rows = Rows(digest=digest, form="csv", names=(), count=0)
    spec = BagSpec(argv=("echo", "{a}", "{b}"), rows=rows, open=True)
    bag = client.submit(spec).bag
    assert client.append(bag, Segment(rows=rows)).total == 4
    wait_until(lambda: len(client.results(bag, ResultQuery())) == 4)
    seen = client.bag(bag)
    assert seen is not None
    assert (seen.status, seen.open, seen.names) == ("running", True, ["a", "b"])
    client.close_bag(bag)
    assert over(client, bag).done == 4
    values = [row.values for row in client.results(bag, ResultQuery())]
    assert values == [[1, "x"], [2, "y"], [1, "x"], [2, "y"]]


def test_rows_that_cannot_be_used(client: Client) -> None:
    digest = upload(client, b"a,b\n1,x\n2\n")
    spec = BagSpec(argv=("echo",), rows=Rows(digest=digest, form="csv", names=(), count=0))
    with pytest.raises(Refused, match="row 2") as caught:
        client.submit(spec)
    assert caught.value.status == 400


def test_a_running_task_is_heard(client: Client) -> None:
    script = "for k in 1 2 3 4 5 6 7 8; do echo tick $k; sleep 0.4; done"
    bag = client.submit(BagSpec(argv=("sh", "-c", script))).bag
    heard, after = "", 0
    while True:
        found = client.live_output(bag, after=after, wait_seconds=10)
        after = found.next
        heard += "".join(piece.text for piece in found.pieces)
        if not found.pieces:
            break
    assert "tick 5\n" in heard
    over(client, bag)


def test_a_paused_bag_starts_nothing(served: World, client: Client) -> None:
    bag = served.submit("sleep 0.2", 12)
    client.pause(bag, "tea")

    def idle() -> bool:
        seen = client.bag(bag)
        assert seen is not None
        return seen.running == 0

    wait_until(idle)
    seen = client.bag(bag)
    assert seen is not None
    assert (seen.status, seen.reason, seen.over) == ("paused", "tea", False)
    client.resume(bag)
    assert over(client, bag).done == 12


@pytest.mark.parametrize("rest", ["paused", "open"])
def test_a_bag_that_rests_needs_no_server(world: World, rest: str) -> None:
    served = world.serve("--embedded", "--slots", "1", env={"COVEY_SERVE_IDLE_EXIT_SECONDS": "2"})
    client = world.client()
    if rest == "paused":
        bag = world.submit("true", 1000)
        client.pause(bag)
    else:
        bag = world.submit("true", 2, open=True)
    client.close()
    assert served.wait(60) == 0
    world.serve()
    assert world.bag(bag).status == ("paused" if rest == "paused" else "running")


def test_whoever_follows_keeps_the_server(world: World) -> None:
    served = world.serve("--embedded", "--slots", "1", env={"COVEY_SERVE_IDLE_EXIT_SECONDS": "2"})
    spec = BagSpec(argv=("true",), space=Axis("i", Range("0", "1", 1)), open=True)
    client = world.client()
    bag = client.submit(spec).bag
    client.live_output(bag)
    client.close()
    with pytest.raises(subprocess.TimeoutExpired):
        served.wait(4)


def test_old_bags_give_up_their_logs(world: World) -> None:
    world.serve("--slots", "1")
    bag = world.submit("echo hello", 2)
    world.wait_over(bag)
    assert world.covey("stop").returncode == 0
    world.serve(env={"COVEY_SERVE_KEEP_LOGS_DAYS": "0.0000001"})
    client = world.client()

    def purged() -> bool:
        found = client.output(bag, 0)
        return found is None or found.stdout == ""

    wait_until(purged)
    assert len(client.results(bag, ResultQuery())) == 2
    client.close()
