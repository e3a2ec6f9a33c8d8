"""How many of joblib's calls travel as one."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("joblib")

from covey.executor.joblib import BATCH_BYTES, CoveyBackend


class Workers:
    """Stands for an executor: of every item it says that it has so many bytes."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._lane = SimpleNamespace(latest_bytes=0)

    def submit(self, items: list[Any]) -> "Future[Any]":
        self._lane.latest_bytes = self._each * len(items)
        return Future()


def batches(each: int) -> list[int]:
    """Of calls that take no time at all."""
    backend: Any = CoveyBackend()
    backend._workers = Workers(each)
    backend.parallel = SimpleNamespace(verbose=0)
    found = []
    for _ in range(6):
        size = backend.compute_batch_size()
        backend.submit([None] * size)
        backend._smoothed_batch_duration = 0.001
        found.append(size)
    return found


def test_short_calls_travel_together() -> None:
    assert batches(0) == [1, 2, 4, 8, 16, 32]


def test_large_ones_no_more_than_is_good_for_them() -> None:
    assert batches(BATCH_BYTES // 5) == [1, 2, 4, 5, 5, 5]
    assert batches(30_000_000) == [1] * 6
