"""What can be seen of a running server: health, metrics, and logs that name what they speak of."""

import json
import socket
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from covey.client.embedded import read_record
from tests.faults.world import World, open_world, wait_until


def get(world: World, path: str) -> tuple[str, str]:
    record = read_record(world.directory)
    assert record is not None
    with urllib.request.urlopen(record.address + path, timeout=30) as answer:
        return answer.headers["content-type"], answer.read().decode()


def send_garbage(world: World) -> None:
    record = read_record(world.directory)
    assert record is not None
    address = urlsplit(record.address)
    with socket.create_connection((address.hostname or "", address.port or 0), 30) as line:
        line.sendall(b"this is not HTTP\r\n\r\n")
        assert line.recv(1000).startswith(b"HTTP/1.1 400 ")


def samples(world: World) -> dict[tuple[str, str], float]:
    """By name and the value of its one label."""
    kind, text = get(world, "/metrics")
    assert kind.startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            found[sample.name, "".join(sample.labels.values())] = sample.value
    return found


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as found:
        found.serve("--slots", "3")
        yield found


def test_health_needs_no_token(world: World) -> None:
    kind, text = get(world, "/healthz")
    assert kind == "application/json"
    assert json.loads(text) == {"status": "ready"}


def test_metrics_count_what_happened(world: World) -> None:
    before = samples(world)
    assert before["covey_up", ""] == 1
    bag = world.submit("exit $(({i} % 2))", 10)
    world.wait_over(bag)
    long = world.submit("sleep 60", 3)
    wait_until(lambda: samples(world)["covey_tasks", "running"] == 3)
    after = samples(world)
    assert after["covey_attempts_ended_total", "ok"] == 5
    assert after["covey_attempts_ended_total", "failed"] == 5
    assert after["covey_epoch", ""] == 1
    assert after["covey_slots", ""] == 3
    assert after["covey_pilots", "active"] == 1
    assert after["covey_writes_total", ""] > before["covey_writes_total", ""]
    client = world.client()
    client.cancel(long)
    client.close()
    wait_until(lambda: samples(world)["covey_tasks", "running"] == 0)


def test_logs_are_json_and_name_bag_task_and_attempt(world: World) -> None:
    bag = world.submit("exit 3", 2)
    world.wait_over(bag)
    send_garbage(world)
    lines = world.log_file.read_text().splitlines()
    notes = [json.loads(line) for line in lines]
    assert all(note["time"].endswith("Z") and note["what"] for note in notes)
    failures = [note for note in notes if note["what"] == "attempt failed" and note["bag"] == bag]
    assert sorted(note.get("task", 0) for note in failures) == [0, 1]
    for note in failures:
        epoch, sequence = note["attempt"].split(".")
        assert (int(epoch), int(sequence) > 0) == (1, True)
        assert note["pilot"] == 1
        assert "exit" in note["detail"]
    assert not any("Invalid HTTP" in note.get("detail", "") for note in notes), "it fills disks"
    whats = [note["what"] for note in notes if note.get("bag") == bag]
    assert whats[0] == "bag submitted"
    assert "bag finished" in whats
