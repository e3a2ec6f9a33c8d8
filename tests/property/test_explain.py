"""What `explain` says is what `dispatch` does, whatever has happened before.

`tests.simulator.checkers.explain_check` has the comparison. If an obstacle is taken away, in a copy
of the state, explain no longer names it, and agrees with dispatch about what is left.
"""

import math
from copy import deepcopy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from covey.core.explain.obstacles import ENDING, FILES, SHORT, SILENT, SMALL, Obstacle
from covey.core.record.model import BagSpec, Need, PilotId, PilotStatus, PolicySpec
from covey.core.state import Bag, State
from covey.core.values.space import Axis, Range
from covey.pilot.protocol.messages import FAILED, OK, WaitingBag
from tests.property.test_scheduler import MOST_BAGS, SchedulerMachine
from tests.simulator.checkers.explain_check import (
    can_be_compared,
    disagreement,
    disorder,
    obstacles,
)

REMOVABLE = (SHORT, FILES, SMALL, ENDING, SILENT)


def without(obstacle: Obstacle, state: State) -> State:
    """A copy of the state in which the pilot does not have this obstacle, if that can be done."""
    copy = deepcopy(state)
    pilot = copy.pilots[obstacle.pilot.record.id]
    if obstacle.kind == SHORT:
        pilot.shortage = ""
    elif obstacle.kind == FILES:
        pilot.set_aside({})
    elif obstacle.kind == SMALL:
        pilot.record = replace(pilot.record, slots=100, memory_mb=0, disk_mb=0, gpus=100)
    elif obstacle.kind == ENDING:
        pilot.until = math.inf
    elif obstacle.kind == SILENT:
        pilot.status = PilotStatus.ACTIVE
    return copy


class ExplainMachine(SchedulerMachine):
    @precondition(lambda self: self.hands)
    @rule(data=st.data(), short=st.booleans(), bag=st.integers(1, 3))
    def something_is_missing_there(self, data: st.DataObject, short: bool, bag: int) -> None:
        """The host has no disk space, or it waits for the files of a bag."""
        hand = self.a_hand(data)
        if len(hand.open) < 2:
            sync = hand.sync(3, 6)
            waiting = [] if short else [WaitingBag(bag, 1)]
            sync = sync._replace(shortage="no disk space" if short else "", waiting=waiting)
            hand.open[sync.number] = sync
            self.send(hand, sync)

    @rule(rounds=st.integers(1, 6))
    def one_host_fails(self, rounds: int) -> None:
        """All tasks fail on one host, and end well on the others."""
        state = self.bench.scheduler.state
        for _ in range(rounds):
            self.hear_answers(lost=False)
            for hand in list(self.hands.values()):
                pilot = state.pilots.get(PilotId(hand.id))
                bad = pilot is not None and pilot.record.host == "host-1"
                for key in list(hand.holding):
                    hand.end(key, FAILED if bad else OK)
                if len(hand.open) < 2:
                    self.send(hand, hand.sync(3, 6))
            self.settle()

    @rule(count=st.integers(1, 12), cores=st.integers(2, 3), hours=st.integers(0, 2))
    def submit_large_tasks(self, count: int, cores: int, hours: int) -> None:
        need = Need(cores=cores, limit_seconds=hours * 3600.0)
        space = Axis("i", Range("0", "1", count))
        spec = BagSpec(argv=("work",), space=space, need=need, retries=2)
        if self.bench.scheduler.state.counters.next_bag <= MOST_BAGS:
            self.submit(spec)

    @rule(
        owner=st.sampled_from(("ann", "bob")),
        rank=st.sampled_from(("", "Host.speed", "-JobsLeft", "Job.i % 2")),
        concurrency=st.sampled_from(("", "1")),
    )
    def submit_for_an_owner(self, owner: str, rank: str, concurrency: str) -> None:
        space = Axis("i", Range("0", "1", 6))
        policy = PolicySpec(rank=rank, concurrency=concurrency)
        spec = BagSpec(argv=("work",), space=space, owner=owner, policy=policy)
        if self.bench.scheduler.state.counters.next_bag <= MOST_BAGS:
            self.submit(spec)

    @rule()
    def explanations_agree_with_dispatch(self) -> None:
        state, now = self.bench.scheduler.state, self.bench.now
        for bag in can_be_compared(state, now):
            for obstacle in obstacles(state, now, bag):
                assert not disagreement(state, now, bag, obstacle)
                assert not disorder(state, now, bag, obstacle)
                if obstacle.kind in REMOVABLE:
                    self.compare_without(state, now, bag, obstacle)

    def compare_without(self, state: State, now: float, bag: Bag, obstacle: Obstacle) -> None:
        copy = without(obstacle, state)
        bag, pilot = copy.bags[bag.id], copy.pilots[obstacle.pilot.record.id]
        [again] = [one for one in obstacles(copy, now, bag) if one.pilot is pilot]
        assert again.kind != obstacle.kind, "the obstacle was taken away"
        assert not disagreement(copy, now, bag, again)


ExplainMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestExplain = ExplainMachine.TestCase
