"""One owner never has all of anything: the next one gets in at once."""

import asyncio
import threading

import pytest

from covey.server.limits.shares import Shares, Supply, Turns, Who, Workers
from covey.server.web.problems import HttpProblem

ALICE, BOB, CAROL, ADMIN = Who("alice"), Who("bob"), Who("carol"), Who("", admin=True)
CAKES = Supply("cakes", 100, reserve=4, remedy="eat those that you have")


def fill(shares: Shares, who: Who) -> int:
    count = 0
    while shares.take(who):
        count += 1
    return count


def test_each_gets_half_of_what_the_others_have_left() -> None:
    shares = Shares(CAKES)
    assert fill(shares, ALICE) == 48
    assert fill(shares, BOB) == 24
    assert fill(shares, CAROL) == 12
    assert shares.used == 84


def test_many_owners_get_one_each_while_there_is_any() -> None:
    shares = Shares(Supply("cakes", 4))
    assert [fill(shares, Who(f"u{number}")) for number in range(5)] == [2, 1, 1, 0, 0]


def test_an_administrator_finds_the_reserve_when_all_else_is_taken() -> None:
    shares = Shares(Supply("cakes", 4, reserve=1))
    assert sum(fill(shares, Who(f"u{number}")) for number in range(9)) == 3
    assert shares.take(ADMIN)
    assert not shares.take(ADMIN)


def test_what_is_given_back_can_be_had_by_others() -> None:
    shares = Shares(CAKES)
    fill(shares, ALICE)
    before = fill(shares, BOB)
    for _ in range(48):
        shares.give(ALICE)
    assert shares.held("alice") == 0
    assert before + fill(shares, BOB) == 48


def test_a_refusal_says_what_is_full_whose_share_and_what_to_do() -> None:
    shares = Shares(CAKES)
    fill(shares, ALICE)
    with pytest.raises(HttpProblem) as caught:
        shares.demand(ALICE)
    assert caught.value.status == 429
    assert caught.value.retry_seconds > 0
    words = "cakes: you have 48, your share is now 48 of the 100 that all owners share; eat"
    assert caught.value.detail.startswith(words)
    small = Shares(Supply("cakes", 1))
    small.demand(ALICE)
    with pytest.raises(HttpProblem) as caught:
        small.demand(BOB)
    assert caught.value.status == 503
    assert "other owners use all 1 now" in caught.value.detail
    assert (shares.refused, small.refused) == (1, 1)


def test_counts_may_be_larger_than_one() -> None:
    shares = Shares(CAKES)
    assert shares.take(ALICE, 48)
    assert not shares.take(ALICE, 1)
    assert not shares.take(BOB, 25)
    assert shares.take(BOB, 24)
    shares.give(ALICE, 48)
    shares.give(BOB, 24)
    assert shares.used == 0


def test_whoever_waits_comes_in_when_one_of_its_own_has_ended() -> None:
    async def play() -> list[str]:
        turns, order = Turns(Supply("ovens", 2)), []
        await turns.take(ALICE)

        async def bake(who: Who) -> None:
            async with turns.turn(who):
                order.append(who.owner)
                await asyncio.sleep(0)

        waiting = [asyncio.create_task(bake(ALICE)) for _ in range(3)]
        await asyncio.sleep(0)
        assert order == []  # her share is one, although another is free
        assert turns.waited_for()
        await bake(BOB)
        assert order == ["bob"]
        turns.give(ALICE)
        await asyncio.gather(*waiting)
        assert not turns.waited_for()
        assert turns.shares.used == 0
        return order

    assert asyncio.run(play()) == ["bob", "alice", "alice", "alice"]


def test_owners_take_turns_in_a_line() -> None:
    async def play() -> list[str]:
        turns, order = Turns(Supply("ovens", 1)), []
        await turns.take(ADMIN)

        async def bake(who: Who) -> None:
            async with turns.turn(who):
                order.append(who.owner)

        tasks = [asyncio.create_task(bake(who)) for who in (ALICE, ALICE, ALICE, BOB, CAROL)]
        await asyncio.sleep(0)
        turns.give(ADMIN)
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(play()) == ["alice", "bob", "carol", "alice", "alice"]


def test_whoever_waits_too_long_or_goes_away_holds_nothing() -> None:
    async def play() -> None:
        turns = Turns(Supply("ovens", 1), patience_seconds=0.01)
        await turns.take(ALICE)
        with pytest.raises(HttpProblem) as caught:
            await turns.take(BOB)
        assert caught.value.status == 503
        turns.patience_seconds = 60.0
        gone = asyncio.create_task(turns.take(BOB))
        stays = asyncio.create_task(turns.take(BOB))
        await asyncio.sleep(0)
        gone.cancel()
        turns.give(ALICE)  # before the one that goes has noticed
        await stays
        assert turns.shares.held("bob") == 1
        turns.give(BOB)
        assert (turns.shares.used, turns.waited_for()) == (0, False)

    asyncio.run(play())


def test_one_owners_long_work_leaves_a_thread_for_others() -> None:
    async def play() -> None:
        workers, gate = Workers(Supply("workers", 2), "test"), threading.Event()
        slow = [asyncio.create_task(workers.run(ALICE, gate.wait)) for _ in range(5)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(workers.run(BOB, lambda: 7), 10) == 7
        slow[0].cancel()  # its thread goes on
        await asyncio.sleep(0)
        assert workers.turns.shares.held("alice") == 1
        gate.set()
        await asyncio.gather(*slow[1:])
        with pytest.raises(ZeroDivisionError):
            await workers.run(BOB, lambda: 1 // 0)

    asyncio.run(play())
