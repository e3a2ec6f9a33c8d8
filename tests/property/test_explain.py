"""What `explain` says is what `dispatch` does, whatever has happened before.

`tests.simulator.checkers.explain_check` has the comparison. If the obstacles that explain names are
taken away, in a copy of the state, dispatch sends a task.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from covey.core.record.model import BagSpec, Need, PilotId, PolicySpec
from covey.core.values.space import Axis, Range
from covey.pilot.protocol.messages import FAILED, OK, WaitingBag
from tests.property.test_scheduler import MOST_BAGS, SchedulerMachine
from tests.simulator.checkers.explain_check import (
    can_be_compared,
    disagreement,
    disorder,
    obstacles,
)
from tests.unit.core.explain.obstacle_removal import KINDS, remove_all

POLICIES = (
    PolicySpec(),
    PolicySpec(rank="-JobsLeft", concurrency="1"),
    PolicySpec(rank="Job.i % 2", concurrency="Job.i % 2 + 1"),
    PolicySpec(requirements="!Tail || Pilot.Slots > 2", tail="JobsUnsent < Queue.Slots"),
    PolicySpec(requirements="Tail", tail="Bag.Age > 1.5", sticky_tail=True),
    PolicySpec(requirements="Queue.FreeSlots > 2 || User.RunningJobs < 2", rank="Queue.Pilots"),
    PolicySpec(requirements="Bag.Age < 2 || time() % 2 < 1"),
    PolicySpec(requirements="Host.ErrorRate < 0.2 && Host.SinceFailure > 1"),
)


class ExplainMachine(SchedulerMachine):
    def __init__(self) -> None:
        super().__init__()
        self.removed: list[str] = []  # kinds of obstacles: each once in an example

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
            self.explanations_agree_with_dispatch()

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
        self.explanations_agree_with_dispatch()

    @rule(count=st.integers(1, 12), cores=st.integers(2, 3), hours=st.integers(0, 2))
    def submit_large_tasks(self, count: int, cores: int, hours: int) -> None:
        need = Need(cores=cores, limit_seconds=hours * 3600.0)
        space = Axis("i", Range("0", "1", count))
        spec = BagSpec(argv=("work",), space=space, need=need, retries=2)
        if self.bench.scheduler.state.counters.next_bag <= MOST_BAGS:
            self.submit(spec)

    @rule(owner=st.sampled_from(("ann", "bob")), policy=st.sampled_from(POLICIES))
    def submit_for_an_owner(self, owner: str, policy: PolicySpec) -> None:
        space = Axis("i", Range("0", "1", 6))
        spec = BagSpec(argv=("work",), space=space, owner=owner, policy=policy, retries=3)
        if self.bench.scheduler.state.counters.next_bag <= MOST_BAGS:
            self.submit(spec)

    @rule(seconds=st.sampled_from((0.2, 0.5)))
    def a_moment_passes(self, seconds: float) -> None:
        """Less than the second for which dispatch keeps what it sees."""
        self.bench.now += seconds
        self.explanations_agree_with_dispatch()

    @rule()
    def explanations_agree_with_dispatch(self) -> None:
        state, now = self.bench.scheduler.state, self.bench.now
        for bag in can_be_compared(state, now):
            for obstacle in obstacles(state, now, bag):
                assert not disagreement(state, now, bag, obstacle)
                assert not disorder(state, now, bag, obstacle)
                if obstacle.kind in KINDS and obstacle.kind not in self.removed:
                    remove_all(state, now, bag, obstacle)
                    self.removed.append(obstacle.kind)


ExplainMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestExplain = ExplainMachine.TestCase
