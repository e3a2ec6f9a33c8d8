"""Receipts: how a pilot proves which attempts it was given.

The server writes nothing down when it sends attempts. Instead every answer with tasks carries a
receipt: one line that lists these attempts, sealed with a key that only the server has. A pilot
shows its receipts when it lists everything that it holds. If core does not know an attempt as this
pilot's (it was sent before a restart, or given up), core believes only a receipt.

A receipt is ``EPOCH|RUN,RUN,…|SEAL``. A run is ``SEQUENCE.BAG.TASK.COUNT``: neighbouring sequence
numbers for neighbouring tasks of one bag. The seal covers the pilot's key, too, so that nobody
else can use the receipt. Decision 0017 has the rules.
"""

import hmac
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

from covey.core.record.attempts import Attempt

SEAL_BYTES = 16

Run = tuple[int, int, int, int]  # the first sequence number, bag, first task, count


class Given(Mapping[tuple[int, int], tuple[int, int]]):
    """The attempts (epoch, sequence) that receipts list, each with its bag and task. They are kept
    as runs: a run of a thousand attempts costs as much as a run of one. So a pilot that shows many
    receipts does not make the server count all attempts in them."""

    def __init__(self, runs: Iterable[tuple[int, Run]] = ()) -> None:
        """`runs`: each with its epoch. An attempt is sent once, so it is in one run only."""
        self._runs: dict[int, list[Run]] = {}
        for epoch, run in sorted(set(runs)):
            self._runs.setdefault(epoch, []).append(run)

    def __getitem__(self, attempt: tuple[int, int]) -> tuple[int, int]:
        epoch, sequence = attempt
        runs = self._runs.get(epoch, [])
        place = bisect_right(runs, sequence, key=_first) - 1
        if place >= 0:
            first, bag, task, count = runs[place]
            if sequence < first + count:
                return bag, task + sequence - first
        raise KeyError(attempt)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for epoch, runs in self._runs.items():
            for first, _, _, count in runs:
                yield from ((epoch, first + place) for place in range(count))

    def __len__(self) -> int:
        return sum(run[-1] for runs in self._runs.values() for run in runs)


def _first(run: Run) -> int:
    return run[0]


NOTHING_GIVEN = Given()


def derived_key(master: str) -> bytes:
    """The key for receipts of a server with this master secret."""
    return hmac.digest(master.encode(), b"receipts:", "sha256")


def write(key: bytes, pilot_key: str, attempts: Sequence[Attempt]) -> str:
    """The receipt for these attempts, which are all of one epoch; "" for none."""
    if not attempts:
        return ""
    (epoch, first), bag, task = attempts[0].id, attempts[0].bag, attempts[0].task
    runs, count = "", 1
    for attempt in attempts[1:]:
        same_bag = attempt.bag == bag and attempt.task == task + count
        if same_bag and attempt.id[1] == first + count:
            count += 1
        else:
            runs += f"{first}.{bag}.{task}.{count},"
            first, bag, task, count = attempt.id[1], attempt.bag, attempt.task, 1
    listed = f"{epoch}|{runs}{first}.{bag}.{task}.{count}"
    return f"{listed}|{_seal(key, pilot_key, listed)}"


def read(key: bytes, pilot_key: str, receipts: Iterable[str]) -> Given:
    """All attempts that these receipts list. A receipt with a wrong seal lists nothing."""
    runs: list[tuple[int, Run]] = []
    for receipt in dict.fromkeys(receipts):
        listed, _, seal = receipt.rpartition("|")
        whole = len(seal) == 2 * SEAL_BYTES and seal.isascii()
        if whole and hmac.compare_digest(seal, _seal(key, pilot_key, listed)):
            runs += _runs(listed)
    return Given(runs)


def _runs(listed: str) -> Iterator[tuple[int, Run]]:
    """`listed` is well formed: its seal proves that `write` made it."""
    epoch, _, runs = listed.partition("|")
    for run in runs.split(","):
        first, bag, task, count = map(int, run.split("."))
        yield int(epoch), (first, bag, task, count)


def _seal(key: bytes, pilot_key: str, listed: str) -> str:
    """`listed` has no line breaks, so the line break says where the pilot's key ends."""
    seal = _pilot_seal(key, pilot_key).copy()
    seal.update(listed.encode("utf-8", "surrogatepass"))
    return seal.hexdigest()


@lru_cache(maxsize=4096)  # each answer with tasks needs a seal; starting it is most of the work
def _pilot_seal(key: bytes, pilot_key: str) -> blake2b:
    """A seal that covers the pilot's key, before anything else is added to it."""
    start = f"{pilot_key}\n".encode("utf-8", "surrogatepass")
    return blake2b(start, digest_size=SEAL_BYTES, key=key)
