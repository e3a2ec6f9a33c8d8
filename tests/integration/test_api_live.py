"""What running tasks print, from a pilot to whoever follows."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from covey.client.client import Client
from covey.core.record.events import FollowRequested
from covey.core.record.model import BagSpec
from covey.core.values.space import Axis, Range
from covey.wire import LiveOutput
from tests.integration.api_harness import API, TOKEN, Pilot, Place, open_place


@pytest.fixture
def place() -> Iterator[Place]:
    with open_place() as found:
        yield found


@pytest.fixture
def client(place: Place) -> Iterator[Client]:
    found = place.client()
    found.submit(BagSpec(argv=("true",), space=Axis("i", Range("0", "1", 3))))
    yield found
    found.close()


@pytest.fixture
def pilot(place: Place, client: Client) -> Pilot:
    """It holds two tasks."""
    found = place.enrol()
    assert len(found.sync(want=2)["tasks"]) == 2
    return found


def piece(task: int, text: str, bag: int = 1, sequence: int = 1, start: int = 0) -> list[Any]:
    return [bag, task, 1, sequence, 1, start, text]


def texts(found: LiveOutput) -> list[str]:
    return [one.text for one in found.pieces]


def test_nothing_is_kept_for_nobody(place: Place, client: Client, pilot: Pilot) -> None:
    assert pilot.printed(piece(0, "unheard")).status == 200
    assert client.live_output(1).pieces == []


def test_followers_see_what_they_follow(place: Place, client: Client, pilot: Pilot) -> None:
    first = client.live_output(1)
    assert place.last(FollowRequested) == FollowRequested(1, -1)  # type: ignore[arg-type]
    pilot.printed(piece(0, "zero"), piece(1, "one", sequence=2))
    all_ = client.live_output(1, after=first.next)
    assert texts(all_) == ["zero", "one"]
    assert texts(client.live_output(1, task=1, after=first.next)) == ["one"]
    assert place.last(FollowRequested).task == 1
    pilot.printed(piece(0, " and more", start=4))
    found = client.live_output(1, after=all_.next)
    assert [(one.task, one.start, one.text) for one in found.pieces] == [(0, 4, " and more")]
    assert texts(client.live_output(1, after=found.next)) == []
    assert texts(client.live_output(1, after=2**53)) == ["zero", "one", " and more"]


def test_news_wakes_those_who_wait(place: Place, client: Client, pilot: Pilot) -> None:
    client.live_output(1)
    timer = threading.Timer(0.2, lambda: pilot.printed(piece(0, "at last")))
    timer.start()
    began = time.monotonic()
    assert texts(client.live_output(1, wait_seconds=20)) == ["at last"]
    assert time.monotonic() - began < 10
    timer.join()


def test_a_wait_without_news_ends(place: Place, client: Client, pilot: Pilot) -> None:
    began = time.monotonic()
    assert texts(client.live_output(1, wait_seconds=0.3)) == []
    assert 0.3 <= time.monotonic() - began < 10


def test_what_is_over_is_not_waited_for(place: Place, client: Client, pilot: Pilot) -> None:
    timer = threading.Timer(0.2, lambda: pilot.sync(ends=[[1, 1, 1, 0, "ok"]]))
    timer.start()
    client.live_output(1, task=0, wait_seconds=20)
    timer.join()
    timer = threading.Timer(0.2, lambda: place.client().cancel(1))
    timer.start()
    client.live_output(1, wait_seconds=20)
    timer.join()
    events = len(place.events)
    client.live_output(1, wait_seconds=20)
    new = place.do(lambda: place.events[events:])
    assert not [event for event in new if isinstance(event, FollowRequested)]


def test_a_follower_keeps_the_server(place: Place, client: Client) -> None:
    assert not place.do(place.tails.followed)
    client.live_output(1)
    assert place.do(place.tails.followed)


def test_pilots_speak_of_their_own_bags_only(place: Place, client: Client, pilot: Pilot) -> None:
    client.live_output(1)
    stranger = place.enrol()
    assert stranger.printed(piece(0, "lies")).status == 200
    pilot.printed(piece(0, "of another", bag=2), piece(0, "truth"))
    assert texts(client.live_output(1)) == ["truth"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        {"pilot": 1},
        {"pilot": 1, "pieces": [[1, 2]]},
        {"pilot": 1, "pieces": [["1", 0, 1, 1, 1, 0, "x"]]},
        {"pilot": 1, "pieces": [[1, 0, 1, 1, 1, 0, 5]]},
        {"pilot": "1", "pieces": []},
    ],
    ids=str,
)
def test_what_is_no_output_is_refused(place: Place, pilot: Pilot, body: Any) -> None:
    place.refuses(400, "POST", "/pilot/v1/printed", body, pilot.credential)


def test_output_needs_a_credential(place: Place, client: Client, pilot: Pilot) -> None:
    client.live_output(1)
    body = {"pilot": pilot.id, "pieces": [piece(0, "hush")]}
    for wrong in ("", TOKEN, place.enrol().credential):
        place.refuses(401, "POST", "/pilot/v1/printed", body, wrong)
    place.refuses(401, "POST", "/pilot/v1/printed", {**body, "pilot": 99}, pilot.credential)
    place.refuses(405, "GET", "/pilot/v1/printed", None, pilot.credential)
    large = {"pilot": pilot.id, "pieces": [piece(0, "x" * (3 << 20))]}
    place.refuses(413, "POST", "/pilot/v1/printed", large, pilot.credential)
    assert client.live_output(1).pieces == []


@pytest.mark.parametrize("query", ["task=x", "after=x", "wait=x", "after=1e400"])
def test_wrong_questions_are_refused(place: Place, client: Client, query: str) -> None:
    place.refuses(400, "GET", f"{API}/bags/1/live?{query}")
