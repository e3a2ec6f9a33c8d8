"""Pieces of files as they trickle in, from senders that stop, hang up, or send too much."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from covey.core.record.model import Role
from covey.server.api import files
from covey.server.api.files import FileRoutes
from covey.server.limits.shares import UNFINISHED_UPLOADS, Who, asks_now
from covey.server.limits.uploads import UNFINISHED_SECONDS, Uploads
from covey.server.web.auth import Caller
from covey.server.web.problems import HttpProblem
from covey.store.files.blobs import Blobs
from covey.store.files.holdings import Holdings
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
    monkeypatch.setattr(files, "TURN_SECONDS", 0.05)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "files")


def receive_of(parts: list[Any]) -> Callable[[], Awaitable[Message]]:
    left = iter(parts)
    count = len(parts)

    async def receive() -> Message:
        nonlocal count, left
        part = next(left)
        count -= 1
        if part is SILENCE:
            left = iter([SILENCE] * 10)
            await asyncio.sleep(60)
        if part is HANG_UP:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": count > 0}

    return receive


def put(blobs: Blobs, *parts: Any, offset: int = 0) -> Stored:
    async def call() -> Stored:
        handler = FileRoutes(Holdings(blobs)).put
        scope = {
            "type": "http",
            "method": "PUT",
            "headers": [],
            "query_string": f"offset={offset}&size={len(DATA)}".encode(),
            "path_params": {"digest": DIGEST},
            "state": {"caller": Caller(Role.ADMIN, "", "the server's own", trusted=True)},
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


@pytest.mark.parametrize(
    ("end", "status", "kept"),
    [(SILENCE, 503, 1500), (HANG_UP, 400, 1400), (bytes(30_000), 413, 1400)],
)
def test_what_had_arrived_is_kept(blobs: Blobs, end: Any, status: int, kept: int) -> None:
    """In whole steps; of one that falls silent, all."""
    with pytest.raises(HttpProblem) as caught:
        put(blobs, DATA[:700], DATA[700:1400], DATA[1400:1500], end, b"")
    assert caught.value.status == status
    assert blobs.state(DIGEST) == Stored(size=kept, complete=False)
    assert put(blobs, DATA[kept:], offset=kept).complete


class Crowd:
    """Uploads of several owners to one server."""

    def __init__(self, blobs: Blobs, uploads: Uploads) -> None:
        self._handler = FileRoutes(Holdings(blobs), uploads).put

    def begin(
        self, owner: str, digest: str, parts: list[Any], size: int = len(DATA), admin: bool = False
    ) -> "asyncio.Task[Stored]":
        async def send() -> Stored:
            asks_now.set(Who(owner, admin))
            scope = {
                "type": "http",
                "method": "PUT",
                "headers": [],
                "query_string": f"offset=0&size={size}".encode(),
                "path_params": {"digest": digest},
                "state": {"caller": Caller(Role.ADMIN if admin else Role.USER, owner, "a token")},
            }
            found: Stored = await self._handler(Request(scope, receive_of(parts)))
            return found

        return asyncio.create_task(send())


def digest_of(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


def test_slow_uploads_of_one_keep_nobody_else_out(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(files, "TURN_SECONDS", 60.0)

    async def play() -> None:
        uploads = Uploads()
        crowd = Crowd(blobs, uploads)
        slow = [crowd.begin("mallory", digest_of(n), [b"x", SILENCE]) for n in range(64)]
        while uploads.turns.shares.held("mallory") < 31:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for owner, admin in (("alice", False), ("", True)):
            sent = crowd.begin(owner, DIGEST, [DATA], admin=admin)
            assert (await asyncio.wait_for(sent, 10)).complete
        assert not any(one.done() for one in slow)
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        assert (uploads.turns.shares.used, uploads.requests.used) == (0, 0)

    asyncio.run(play())


def test_an_upload_that_falls_silent_gives_its_turn_to_the_next(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same owner, too."""
    monkeypatch.setattr(files, "PATIENCE_SECONDS", 60.0)

    async def play() -> None:
        crowd = Crowd(blobs, Uploads())
        slow = [crowd.begin("alice", digest_of(n), [b"x", SILENCE]) for n in range(64)]
        await asyncio.sleep(0)
        sent = crowd.begin("alice", DIGEST, [DATA])
        assert (await asyncio.wait_for(sent, 20)).complete
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(play())


def test_one_byte_of_many_files(blobs: Blobs) -> None:
    """Whoever begins many files and ends none is told so; others go on."""
    now = 0.0

    async def play() -> None:
        nonlocal now
        uploads = Uploads(lambda: now)
        crowd, most = Crowd(blobs, uploads), uploads.unfinished.most(Who("mallory"))
        assert 1000 < most < UNFINISHED_UPLOADS.total / 2
        for number in range(3):
            await crowd.begin("mallory", digest_of(number), [b"x"], size=2)
        for number in range(3, most):
            uploads.begin(Who("mallory"), digest_of(number))
        with pytest.raises(HttpProblem) as caught:
            await crowd.begin("mallory", digest_of(most), [b"x"], size=2)
        assert caught.value.status == 429
        assert caught.value.detail.startswith(f"unfinished uploads: you have {most:,}")
        assert not (await crowd.begin("mallory", digest_of(1), [b""], size=2)).complete
        for owner, admin in (("alice", False), ("", True)):
            assert (await crowd.begin(owner, DIGEST, [DATA], admin=admin)).complete
        assert uploads.unfinished.held("alice") == 0
        now = UNFINISHED_SECONDS + 1.0
        assert not (await crowd.begin("mallory", digest_of(most), [b"x"], size=2)).complete
        assert uploads.unfinished.held("mallory") == 1

    asyncio.run(play())


def test_what_was_spoilt_is_not_counted(blobs: Blobs) -> None:
    async def play() -> None:
        uploads = Uploads()
        with pytest.raises(HttpProblem, match="another digest"):
            await Crowd(blobs, uploads).begin("alice", DIGEST, [bytes(len(DATA))])
        assert uploads.unfinished.used == 0

    asyncio.run(play())
