"""Pieces of files as they trickle in, from senders that stop, hang up, or send too much."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from covey.server import files
from covey.server.files import FileRoutes
from covey.server.problems import HttpProblem
from covey.store.blobs import Blobs
from covey.wire import Stored

DATA = bytes(range(256)) * 100
DIGEST = hashlib.sha256(DATA).hexdigest()
SILENCE, HANG_UP = object(), object()

Message = MutableMapping[str, Any]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STEP_BYTES", 1000)
    monkeypatch.setattr(files, "MOST_PIECE_BYTES", 30_000)
    monkeypatch.setattr(files, "PATIENCE_SECONDS", 0.05)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "files")


def receive_of(parts: list[Any]) -> Callable[[], Awaitable[Message]]:
    left = iter(parts)
    count = len(parts)

    async def receive() -> Message:
        nonlocal count
        part = next(left)
        count -= 1
        if part is SILENCE:
            await asyncio.sleep(60)
        if part is HANG_UP:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": count > 0}

    return receive


def put(blobs: Blobs, *parts: Any, offset: int = 0) -> Stored:
    async def call() -> Stored:
        routes = FileRoutes(blobs).routes(lambda handler, _: handler)
        [handler] = [route.endpoint for route in routes if route.methods == {"PUT"}]
        scope = {
            "type": "http",
            "method": "PUT",
            "headers": [],
            "query_string": f"offset={offset}&size={len(DATA)}".encode(),
            "path_params": {"digest": DIGEST},
        }
        found: Stored = await handler(Request(scope, receive_of(list(parts))))
        return found

    return asyncio.run(call())


def test_a_piece_in_any_parts(blobs: Blobs) -> None:
    parts = [DATA[start : start + 77] for start in range(0, len(DATA), 77)]
    assert put(blobs, *parts[:50]) == Stored(size=50 * 77, complete=False)
    assert put(blobs, b"", *parts[50:], b"", offset=50 * 77).complete
    assert blobs.open(DIGEST).read() == DATA


def test_an_empty_piece_asks_how_much_is_there(blobs: Blobs) -> None:
    put(blobs, DATA[:5000])
    assert put(blobs, b"") == Stored(size=5000, complete=False)


@pytest.mark.parametrize(("end", "status"), [(SILENCE, 503), (HANG_UP, 400), (bytes(30_000), 413)])
def test_what_had_arrived_is_kept(blobs: Blobs, end: Any, status: int) -> None:
    """In whole steps; whatever goes wrong then."""
    with pytest.raises(HttpProblem) as caught:
        put(blobs, DATA[:700], DATA[700:1400], DATA[1400:1500], end, b"")
    assert caught.value.status == status
    assert blobs.state(DIGEST) == Stored(size=1400, complete=False)
    assert put(blobs, DATA[1400:], offset=1400).complete
