"""Work waits for threads that the system does not give, and is done when it does."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from covey.pilot.files.file_cache import FileCache, News
from covey.pilot.files.uploads import Uploads
from covey.pilot.protocol import thread_pool
from covey.pilot.protocol.messages import Input
from covey.pilot.protocol.request_threads import Address, RequestThreads
from covey.pilot.protocol.thread_pool import ThreadPool, started
from covey.pilot.slots.orders import Returned
from tests.unit.pilot.standin import Files, serving

Kind = TypeVar("Kind")


class Threads:
    """What the system gives: `left`, then none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int = 0) -> None:
        self.left = left

        def give(work: Callable[[], None], name: str) -> bool:
            if self.left == 0:
                return False
            self.left -= 1
            return started(work, name)

        monkeypatch.setattr(thread_pool, "started", give)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


def test_a_thread_that_cannot_be_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not started(lambda: None, "one")


def test_those_that_are_there_work_and_the_others_come_later(threads: Threads) -> None:
    at_work, over = threading.Semaphore(0), threading.Event()

    def work() -> None:
        at_work.release()
        over.wait(20)

    found = ThreadPool(work, 3, "crew")
    threads.left = 1
    found.want(2)
    assert at_work.acquire(timeout=20)
    threads.left = 9
    found.fill()
    assert at_work.acquire(timeout=20)
    found.want(9)
    found.want(9)
    assert at_work.acquire(timeout=20)
    assert threads.left == 7  # three are the most
    over.set()


def test_what_is_to_be_sent_waits_for_a_thread(threads: Threads, tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x" * 1000)
    with serving(Files()) as world:
        outbox = Uploads(world.courier, lambda: None)
        assert outbox.put("1.1", [Returned("big", 1000, False, b"", str(path))]) is None
        assert outbox.sent() == []
        threads.left = 1
        assert [sent.problem for sent in wait(outbox.sent)] == [""]


def test_what_is_to_be_fetched_waits_for_a_thread(threads: Threads, tmp_path: Path) -> None:
    with serving(Files()) as world:
        larder = FileCache(str(tmp_path), 1 << 40, "a", world.courier, lambda: None)
        item = Input("in", world.add(b"x"), 1)
        name = larder.name_of(item, 1, "")
        larder.request(item, name)
        assert larder.news() == []
        threads.left = 1
        assert wait(larder.news) == [News(name, "")]


def test_a_message_waits_for_a_thread(threads: Threads) -> None:
    lines = RequestThreads(Address("http://127.0.0.1:1"), 1.0)
    lines.post("ticket", "/x", {}, "")
    assert lines.replies() == []
    threads.left = 1
    assert [reply.ticket for reply in wait(lines.replies)] == ["ticket"]


def wait(look: Callable[[], list[Kind]]) -> list[Kind]:
    until = time.monotonic() + 20
    found = look()
    while not found and time.monotonic() < until:
        time.sleep(0.005)
        found = look()
    return found
