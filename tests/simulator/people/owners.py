"""Owners of bags: they submit, submit again, append, resume paused bags, cancel, retry failed tasks
(some or all), and change policies.

A client asks again until it gets an answer, as people and scripts do.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from covey.core.record.actions import Done, Refuse, ReplyMessage, Submitted
from covey.core.record.events import (
    BagSubmitted,
    CancelRequested,
    CloseRequested,
    Event,
    PolicyRequested,
    ResumeRequested,
    RetryRequested,
    SegmentAppended,
)
from covey.core.record.model import BagId, PolicySpec, RequestId
from covey.lab.clock import START, Timeline
from tests.simulator.checkers.ledger import Ledger, Violation
from tests.simulator.checkers.promises import Judge
from tests.simulator.machines.network import Call, Network, Outcome
from tests.simulator.plan.workload import BagPlan

TIMEOUT_SECONDS = 15.0


class Owner:
    """The owner of one bag."""

    def __init__(
        self,
        plan: BagPlan,
        clock: Timeline,
        network: Network,
        ledger: Ledger,
        judge: Judge,
        random: Random,
    ) -> None:
        self.plan = plan
        self.asking = 0  # requests without an answer
        self.calm = False  # nothing breaks any more
        self.retries_left = plan.owner_retries
        self._to_append = list(enumerate(plan.more))
        self._closed = not plan.spec.open
        self._clock = clock
        self._network = network
        self._ledger = ledger
        self._judge = judge
        self._random = random
        self._cancelled = not plan.cancel_at
        clock.at(START + plan.at, self._submit)
        if plan.submit_again_at:
            clock.at(START + plan.submit_again_at, self._submit)
        if plan.cancel_at:
            clock.at(START + plan.cancel_at, self._cancel)
        if plan.impatient_at:
            clock.at(START + plan.impatient_at, self._retry_if_known)
        for change in plan.changes:
            clock.at(START + change.at, partial(self._govern, change.policy, change.valid))

    def bag(self) -> BagId | None:
        bag = self._ledger.submitted.get(self.plan.spec.key)
        return None if bag is None else BagId(bag)

    def look(self) -> None:
        """Called now and then: is there something that the owner wants to ask for?"""
        bag = self.bag()
        if bag is None or self.asking or self.plan.cancel_at:
            return
        notes, policy = self._ledger.bags[bag], self.plan.last_policy
        status = notes.status
        if self.calm and policy is not None and status == "running" and notes.policy != policy:
            self._govern(policy, valid=True)
        elif status == "paused":
            self._ask(lambda request: ResumeRequested(request, bag), lambda _: None)
        elif not self._closed and self._random.random() < 0.3:
            self._append(bag)
        elif status == "finished" and self.retries_left:
            self.retries_left -= 1
            self._retry_if_known()

    def satisfied(self) -> bool:
        if self.asking or not self._cancelled or self.bag() is None:
            return False
        over = self._ledger.status(self.plan.spec.key) not in ("running", "paused")
        return over and (not self.retries_left or bool(self.plan.cancel_at))

    # -- requests --------------------------------------------------------------------------

    def _ask(
        self,
        make: Callable[[RequestId], Event],
        answered: Callable[[ReplyMessage], None],
        *,
        nonsense: bool = False,
    ) -> None:
        self.asking += 1
        self._try(make, answered, nonsense)

    def _try(
        self,
        make: Callable[[RequestId], Event],
        answered: Callable[[ReplyMessage], None],
        nonsense: bool,
    ) -> None:
        def heard(outcome: Outcome) -> None:
            match outcome:
                case Submitted() | Done():
                    self.asking -= 1
                    answered(outcome)
                case Refuse():
                    self.asking -= 1
                    if not nonsense:
                        self._refused(outcome)
                case _:
                    again = self._random.uniform(0.2, 3.0)
                    self._clock.after(again, lambda: self._try(make, answered, nonsense))

        call = Call(f"owner-{self.plan.number}", "ask", make, heard)
        self._network.call(call, TIMEOUT_SECONDS)

    def _submit(self) -> None:
        spec = self.plan.spec

        def answered(reply: ReplyMessage) -> None:
            assert isinstance(reply, Submitted)
            self._judge.submission_acknowledged(spec, reply.bag, reply.total)

        self._ask(lambda request: BagSubmitted(request, spec), answered)

    def _cancel(self) -> None:
        bag = self.bag()
        if bag is None:
            self._clock.after(1.0, self._cancel)
            return

        def answered(reply: ReplyMessage) -> None:
            assert isinstance(reply, Done)
            self._cancelled = True
            self._judge.cancellation_acknowledged(bag, reply.count, self._clock.time)

        self._ask(lambda request: CancelRequested(request, bag), answered)

    def _append(self, bag: BagId) -> None:
        """Append the next segment; if there is none, close the bag."""
        if not self._to_append:

            def closed(_: ReplyMessage) -> None:
                self._closed = True

            self._ask(lambda request: CloseRequested(request, bag), closed)
            return
        number, segment = self._to_append[0]
        key = f"segment-{number}"

        def appended(reply: ReplyMessage) -> None:
            assert isinstance(reply, Submitted)
            self._judge.append_acknowledged(bag, reply.total)
            del self._to_append[0]

        self._ask(lambda request: SegmentAppended(request, bag, segment, key), appended)

    def _retry_if_known(self) -> None:
        bag = self.bag()
        if bag is None:
            return
        some = tuple(range(0, self.plan.tasks, 2)) if self._random.random() < 0.3 else None
        self._ask(lambda request: RetryRequested(request, bag, some), lambda _: None)

    def _govern(self, policy: PolicySpec, valid: bool) -> None:
        bag = self.bag()
        if bag is None:
            self._clock.after(1.0, lambda: self._govern(policy, valid))
            return
        if not valid:
            self._ledger.nonsense.setdefault(bag, []).append(policy)
        asked = self._clock.time

        def answered(reply: ReplyMessage) -> None:
            assert isinstance(reply, Done)
            self._judge.policy_acknowledged(bag, policy, reply.count, asked)

        self._ask(
            lambda request: PolicyRequested(request, bag, policy), answered, nonsense=not valid
        )

    def _refused(self, refuse: Refuse) -> None:
        """Only a retry of a cancelled bag may be refused."""
        if not self.plan.cancel_at:
            raise Violation(f"an owner was refused: {refuse}")
