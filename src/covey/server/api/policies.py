"""Policies in the API: their attributes, the policy of a bag, checks; and why a bag or a task is
not running.

The decider answers in slices, and the cost of each answer is bounded. What has ended comes from the
record.
"""

from starlette.requests import Request

from covey.core.explain import catalogue, policy_check
from covey.core.explain.answers import Listed, PolicyReport, ShownPolicy
from covey.core.explain.steps import finish
from covey.core.match.policies import PRESETS
from covey.core.record.actions import ReplyMessage
from covey.core.record.events import PolicyRequested
from covey.core.record.model import BagId, PolicySpec
from covey.questions.bag_questions import PolicyOfBag
from covey.questions.policy_questions import AttributesNow, CheckPolicy, WhyBag
from covey.server.api import explanations
from covey.server.web.auth import ACT, ACT_ON_OWN, SEE, SEE_OWN
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import ServerAccess, caller_of, number, order
from covey.server.web.route import API, BAG, act, look, route
from covey.whoami import user
from covey.wire import Explanation

POLICY = f"{BAG}/policy"


class PolicyCalls:
    def __init__(self, access: ServerAccess) -> None:
        self._access = access

    @look("/policy/attributes", "what policies can look at", SEE)
    async def attributes(self, request: Request) -> list[Listed]:
        """With examples that the caller may see: hosts, and the caller's own bags."""
        caller = caller_of(request)
        owner = None if caller.trusted else caller.owner
        attributes = self._access.decider.ask_if_ready(AttributesNow(owner))
        return catalogue.attributes_of(None, 0.0, owner) if attributes is None else attributes

    @look("/policy/presets", "the presets: policies that have a name", SEE)
    async def presets(self, request: Request) -> list[ShownPolicy]:
        return [catalogue.view(PolicySpec(preset=name)) for name in PRESETS]

    @act("/policy/check", "check a policy", ACT, takes=PolicySpec, refuses=(413,))
    async def check(self, request: Request) -> PolicyReport:
        policy = await order(request, PolicySpec)
        return await self._check(policy, caller_of(request).owner or user())

    @act(
        f"{POLICY}/check",
        "check a policy for this bag; without a body, the bag's own policy",
        ACT_ON_OWN,
        takes=PolicySpec,
        takes_nothing_too=True,
        refuses=(404, 413),
    )
    async def check_of(self, request: Request) -> PolicyReport:
        policy = await order(request, PolicySpec, await self._policy(request))
        bag = self._access.bag_id(request)
        return await self._check(policy, await self._access.owner(bag), bag)

    async def _check(
        self, policy: PolicySpec, owner: str, bag: BagId | None = None
    ) -> PolicyReport:
        if not self._access.decider.ready:  # then without pilots and bags
            return finish(policy_check.examine(None, 0.0, policy, owner=owner))
        return await self._access.decider.ask_long(CheckPolicy(policy, owner, bag))

    @look(POLICY, "the policy of a bag", SEE_OWN)
    async def one(self, request: Request) -> ShownPolicy:
        return catalogue.view(await self._policy(request), self._access.bag_id(request))

    @route(
        "PUT",
        API + POLICY,
        "change the policy of a bag",
        ACT_ON_OWN,
        takes=PolicySpec,
        refuses=(404, 409, 413),
    )
    async def change(self, request: Request) -> ReplyMessage:
        policy, bag = await order(request, PolicySpec), self._access.bag_id(request)
        return await self._access.ask(lambda number: PolicyRequested(number, bag, policy))

    @look(f"{BAG}/explain", "why a bag, or one of its tasks, is not running", SEE_OWN, "of")
    async def explain(self, request: Request) -> Explanation:
        bag, task = self._access.bag_id(request), number(request, "task", -1)
        ended = await self._access.read(lambda reader: explanations.ended(reader, bag, task))
        decider, live = self._access.decider, None
        if decider.ready:
            live = await decider.ask_long(WhyBag(bag, task))
        if live is None:
            return await self._access.read_of(
                bag, lambda reader: explanations.recount(reader, bag, task)
            )
        if task >= live.total:
            raise HttpProblem(404, "not-found", explanations.no_task(bag, task, live.total))
        return explanations.explained(bag, live, ended)

    async def _policy(self, request: Request) -> PolicySpec:
        bag: BagId = self._access.bag_id(request)
        policy = self._access.decider.ask_if_ready(PolicyOfBag(bag))
        if policy is None:
            policy = await self._access.read_of(bag, lambda reader: reader.policy(bag))
        return policy
