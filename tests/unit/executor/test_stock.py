"""Large calls that wait: each content once, in memory or not, and gone when it is sent."""

import os
from typing import Any

import pytest

from covey.core.record.model import Blob
from covey.executor.packing import Large, Packer
from covey.executor.stock import Dropped, Stock

PACKER = Packer()  # of one program: equal calls are equal bytes


def large(number: int, size: int = 300_000) -> Large:
    made = PACKER.call(len, (bytes(size), number), {})
    assert isinstance(made, Large)
    return made


class Client:
    """Takes what it is sent, as a server does."""

    def __init__(self) -> None:
        self.got: dict[str, bytes] = {}
        self.pieces = 0

    def missing(self, digests: list[str]) -> list[str]:
        return [one for one in digests if one not in self.got]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Client()

    def run(sending: Any) -> None:
        while not sending._waiting.empty():
            blob: Blob = sending._waiting.get()
            source = sending._sources[blob.digest]
            found.got[blob.digest] = b"".join(
                source.read(start, 100_000) for start in range(0, blob.size, 100_000)
            )[: blob.size]
            found.pieces += 1

    monkeypatch.setattr("covey.client.upload._Sending.run", run)
    return found


def test_the_same_bytes_are_here_once_and_sent_once(client: Any) -> None:
    kept, one = Stock(), large(1)
    blobs = [kept.put(large(1)) for _ in range(5)]
    assert (len(kept), kept.memory) == (1, one.blob.size)
    kept.send(client, blobs[:3])
    assert (len(kept), client.pieces) == (1, 1)
    kept.send(client, blobs[3:])
    assert (len(kept), kept.memory, client.pieces) == (0, 0, 1)
    assert client.got == {one.blob.digest: one.data}


def test_what_is_too_much_for_memory_waits_in_files_without_a_name(
    client: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = Stock(most_memory=700_000, reel_bytes=1_000_000)
    calls = [large(number) for number in range(10)]
    blobs = [kept.put(one) for one in calls]
    assert kept.memory < 700_000
    assert len(kept) == 10
    assert not list(tmp_path.iterdir())
    descriptors = len(os.listdir("/proc/self/fd"))
    kept.drop(blobs.pop())
    for blob in blobs:
        kept.send(client, [blob])
    assert client.got == {one.blob.digest: one.data for one in calls[:-1]}
    assert (len(kept), kept.memory) == (0, 0)
    assert len(os.listdir("/proc/self/fd")) < descriptors


def test_a_single_call_may_be_larger_than_all_of_memory() -> None:
    kept = Stock(most_memory=1000)
    kept.put(large(1))
    assert kept.memory > 1000


def test_a_full_disk_takes_no_call(monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    kept = Stock(most_memory=1000)
    first = kept.put(large(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            kept.put(large(2))
    assert len(kept) == 1
    second = kept.put(large(2))
    kept.send(client, [first, second])
    assert client.got[second.digest] == large(2).data


def test_nothing_is_left_when_all_is_dropped(client: Any) -> None:
    kept = Stock(most_memory=1000)
    blobs = [kept.put(large(number)) for number in range(3)]
    read = [kept._kept[blob.digest].read for blob in blobs]
    kept.clear()
    assert (len(kept), kept.memory) == (0, 0)
    for one in read:
        with pytest.raises(Dropped):
            one(0, 10)
    with pytest.raises(Dropped):
        kept.send(client, blobs)
    for blob in blobs:
        kept.drop(blob)
    kept.put(large(1))
    assert len(kept) == 1
