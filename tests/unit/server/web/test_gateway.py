"""Between requests that wait and an engine that answers."""

import asyncio
import time
from typing import Any

import pytest

from covey.core.record.actions import Problem, Refuse, Reply
from covey.core.record.events import Event, PilotEnrolled, PilotLeft, RequestDropped, SyncReceived
from covey.core.record.model import PilotId, RequestId
from covey.pilot.protocol.messages import Answer, End, Enrol, Leave, Left, Sync
from covey.server.web import gateway as module
from covey.server.web.gateway import Gateway, Outcome, Unavailable
from covey.server.web.load import SAMPLE_SECONDS, Bounds, Load, RequestKind

BOUNDS = Bounds(lag_seconds=0.3, writes=100, bytes=1 << 20, waiting=1000, memory=1 << 40)


def sync(pilot: int, *ends: int) -> Any:
    rows = [End(1, one, 1, one, "ok") for one in ends]
    return lambda request: SyncReceived(request, Sync(pilot, 1, 1, 0, 1, rows))


def enrol(key: str) -> Any:
    return lambda request: PilotEnrolled(request, Enrol(key, "host", 1), "", "")


class Desk:
    """A gateway whose engine only listens."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.backlog = 0
        self.gateway = Gateway(self.events.append, lambda: self.backlog, Load(BOUNDS))
        self.told: list[Outcome] = []

    def put(self, event_for: Any, size: int = 0) -> RequestId:
        return self.gateway.put(event_for, self.told.append, size)


def test_each_is_told_its_own_answer_once() -> None:
    async def main() -> None:
        desk = Desk()
        first, second = desk.put(sync(1)), desk.put(sync(2))
        assert first != second
        assert desk.gateway.waiting() == 2
        desk.gateway.refuse(Refuse(second, Problem.STALE, "no"))
        desk.gateway.reply(Reply(first, Left(1)))
        desk.gateway.reply(Reply(first, Left(2)))
        assert desk.told == [Refuse(second, Problem.STALE, "no"), Left(1)]
        assert desk.gateway.waiting() == 0

    asyncio.run(main())


def test_asking_gives_a_future() -> None:
    async def main() -> None:
        desk = Desk()
        request, answering = desk.gateway.ask(sync(1))
        assert not answering.done()
        answering.cancel()
        desk.gateway.reply(Reply(request, Answer(1, 1)))
        request, answering = desk.gateway.ask(sync(1))
        desk.gateway.unavailable(None, "the disk is full")
        outcome = await answering
        assert isinstance(outcome, Unavailable)
        assert outcome.reason == "the disk is full"

    asyncio.run(main())


def test_of_a_pilot_that_hangs_up_the_engine_hears() -> None:
    async def main() -> None:
        desk = Desk()
        request = desk.put(sync(7), 1000)
        desk.gateway.hung_up(request, PilotId(7))
        desk.gateway.hung_up(request, PilotId(7))
        assert desk.events[1:] == [RequestDropped(request, PilotId(7))]
        assert desk.gateway.waiting() == 0

    asyncio.run(main())


def test_a_server_that_starts_spreads_those_who_come() -> None:
    async def main() -> None:
        desk = Desk()
        delays = [desk.gateway.away("the server is starting").retry_seconds for _ in range(50)]
        assert 0.5 < min(delays) < max(delays) < 5
        assert len(set(delays)) > 40

    asyncio.run(main())


def test_people_have_a_share_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    monkeypatch.setattr(module, "MOST_FOR_PEOPLE", 5)

    async def main() -> None:
        desk = Desk()
        for one in range(12):
            desk.put(sync(one))
        assert len(desk.told) == 2
        for _ in range(6):
            desk.put(lambda request: RequestDropped(request, PilotId(1)))
        assert len(desk.told) == 3
        assert len(desk.events) == 15

    asyncio.run(main())


@pytest.mark.parametrize(
    ("level", "away"),
    [(0, []), (1, [RequestKind.ENROL]), (2, [RequestKind.ENROL, RequestKind.ASK])],
)
def test_who_is_turned_away_goes_by_the_load(level: int, away: list[RequestKind]) -> None:
    async def main() -> None:
        desk = Desk()
        desk.gateway.load.level, desk.gateway.load.calm = level, not level
        goodbye = lambda request: PilotLeft(request, Leave(5, 1))  # noqa: E731
        for event in (enrol("a key of it"), sync(2), sync(3, 1), goodbye):
            desk.put(event)
        assert len(desk.told) == len(away)
        assert len(desk.events) == 4 - len(away)
        for kind in RequestKind:
            assert desk.gateway.load.turned_away[kind] == (kind in away)
        for one in desk.told:
            assert isinstance(one, Unavailable)
            assert 0 < one.retry_seconds < 1

    asyncio.run(main())


def test_an_enrolment_told_to_come_again_comes_in_at_its_time() -> None:
    async def main() -> None:
        desk = Desk()
        load = desk.gateway.load
        load.level, load.calm = 1, False
        desk.put(enrol("the key"))
        (told,) = desk.told
        assert isinstance(told, Unavailable)
        await asyncio.sleep(told.retry_seconds)
        desk.put(enrol("the key"))
        assert len(desk.events) == 1

    asyncio.run(main())


def test_it_measures_while_requests_come_and_rests_after() -> None:
    async def main() -> None:
        desk = Desk()
        desk.backlog = 130
        desk.put(sync(1, 1), 5000)
        desk.put(sync(2), 100)
        await asyncio.sleep(2.5 * SAMPLE_SECONDS)
        sample = desk.gateway.load.sample
        assert (sample.writes, sample.bytes, sample.waiting) == (130, 5100, 1)
        assert sample.memory > 1 << 20
        assert desk.gateway.load.level == 1
        desk.gateway.reply(Reply(RequestId(1), Answer(1, 1)))
        desk.backlog = 0
        await asyncio.sleep(2.5 * SAMPLE_SECONDS)
        assert desk.gateway.load.sample.bytes == 100
        assert desk.gateway.load.level == 0

    asyncio.run(main())


def test_a_loop_that_is_late_is_noticed() -> None:
    async def main() -> None:
        desk = Desk()
        desk.put(sync(1))
        for _ in range(2):
            await asyncio.sleep(0.01)
            time.sleep(SAMPLE_SECONDS + 0.5)  # noqa: ASYNC251
        await asyncio.sleep(0.01)
        assert desk.gateway.load.lag_seconds > 0.3
        assert desk.gateway.load.level >= 1
        async with asyncio.timeout(10):
            while desk.gateway.load.level:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    asyncio.run(main())


def test_nobody_measures_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESTING_SAMPLES", 2)

    async def main() -> None:
        desk = Desk()
        desk.put(sync(1))
        await asyncio.sleep(5 * SAMPLE_SECONDS)
        assert desk.gateway._timer is None
        desk.put(sync(1))
        assert desk.gateway._timer is not None

    asyncio.run(main())
