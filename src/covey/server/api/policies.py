"""The API's policies: what they can look at, what decides for a bag, what is wrong with one; and
why a bag or a task stands as it does.

Core is asked in the event loop's thread, between two events; its answers are bounded by what they
may cost. What has ended is the record's to tell.
"""

from starlette.requests import Request

from covey.core.explain import catalogue, policy_check
from covey.core.explain.answers import Listed, PolicyReport, ShownPolicy
from covey.core.match.policies import PRESETS
from covey.core.record.actions import ReplyMessage
from covey.core.record.events import PolicyRequested
from covey.core.record.model import BagId, PolicySpec
from covey.core.state import Bag, State
from covey.server.api import explanations
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import Asking, caller_of, number, order
from covey.whoami import user
from covey.wire import Explanation


class PolicyCalls:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def attributes(self, request: Request) -> list[Listed]:
        """Examples are of what the caller may see: hosts, and their own bags."""
        caller = caller_of(request)
        owner = None if caller.trusted else caller.owner
        return catalogue.attributes_of(self._asking.state(), self._asking.clock.now(), owner)

    async def presets(self, request: Request) -> list[ShownPolicy]:
        return [catalogue.view(PolicySpec(preset=name)) for name in PRESETS]

    async def check(self, request: Request) -> PolicyReport:
        policy = await order(request, PolicySpec)
        now, owner = self._asking.clock.now(), caller_of(request).owner or user()
        return policy_check.examine(self._asking.state(), now, policy, owner=owner)

    async def check_of(self, request: Request) -> PolicyReport:
        """Without a body: of the policy that the bag has."""
        policy = await order(request, PolicySpec, await self._policy(request))
        live, state = self._live(request)
        owner = await self._asking.owner(self._asking.bag_id(request))
        return policy_check.examine(state, self._asking.clock.now(), policy, live, owner)

    async def one(self, request: Request) -> ShownPolicy:
        return catalogue.view(await self._policy(request), self._asking.bag_id(request))

    async def change(self, request: Request) -> ReplyMessage:
        policy, bag = await order(request, PolicySpec), self._asking.bag_id(request)
        return await self._asking.ask(lambda number: PolicyRequested(number, bag, policy))

    async def explain(self, request: Request) -> Explanation:
        bag, task = self._asking.bag_id(request), number(request, "task", -1)
        ended = await self._asking.read(lambda reader: explanations.ended(reader, bag, task))
        live, state = self._live(request)
        if live is None or state is None:
            found = await self._asking.read(lambda reader: explanations.recount(reader, bag, task))
            if found is None:
                raise HttpProblem(404, "not-found", f"there is no bag {bag}")
            return found
        if task >= live.total:
            raise HttpProblem(404, "not-found", explanations.no_task(bag, task, live.total))
        return explanations.explained(state, self._asking.clock.now(), live, task, ended)

    def _live(self, request: Request) -> tuple[Bag | None, State | None]:
        return self._asking.live(self._asking.bag_id(request)), self._asking.state()

    async def _policy(self, request: Request) -> PolicySpec:
        bag: BagId = self._asking.bag_id(request)
        live = self._asking.live(bag)
        if live is not None:
            return live.quarantine.held or live.policy.spec  # held: its bag is quarantined
        found = await self._asking.read(lambda reader: reader.policy(bag))
        if found is None:
            raise HttpProblem(404, "not-found", f"there is no bag {bag}")
        return found
