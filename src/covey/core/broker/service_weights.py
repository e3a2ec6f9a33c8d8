"""What resource priority services say: the weights that a service was asked for, or has sent."""

import math
from collections.abc import Mapping

from covey.core.after_commit import Replying
from covey.core.record.actions import Done, Note, Problem
from covey.core.record.broker_rules import MOST_WEIGHT, GivenWeights
from covey.core.record.events import WeightsFailed, WeightsGiven
from covey.core.turn import Turn

MOST_SITES = 10_000  # that one service may name
MOST_NAME = 100  # characters
_MOST_SOURCE = 200  # characters


def given(turn: Turn, event: WeightsGiven) -> None:
    """The last weights count; they are not in the record, since they are soon given again."""
    state, name = turn.state, event.service
    if all(service.name != name for service in state.settings.broker.services):
        _refuse(turn, event, Problem.NOT_FOUND, f"there is no service {name[:MOST_NAME]}")
        return
    if problem := problem_of(event.weights):
        _refuse(turn, event, Problem.INVALID, problem)
        return
    source = event.source[:_MOST_SOURCE]
    weights = dict(event.weights)
    state.broker.given[name] = GivenWeights(weights=weights, at=turn.now, source=source)
    state.broker.problems.pop(name, None)
    if event.request is not None:
        turn.when_durable(Replying(event.request, Done(len(weights))))


def failed(turn: Turn, event: WeightsFailed) -> None:
    problems = turn.state.broker.problems
    if problems.get(event.service) != event.reason:
        turn.note(Note("service gave no weights", detail=f"{event.service}: {event.reason}"))
    problems[event.service] = event.reason


def problem_of(weights: Mapping[str, float]) -> str:
    """Why such weights are not taken; nothing: they are."""
    if len(weights) > MOST_SITES:
        return f"weights for {len(weights):,} sites are too many: at most {MOST_SITES:,}"
    for site, weight in weights.items():
        if len(site) > MOST_NAME:
            return f"the name of a site has at most {MOST_NAME} characters: {site[:20]}…"
        if not math.isfinite(weight) or not 0.0 <= weight <= MOST_WEIGHT:
            return f"the weight of {site} is {weight:g}: it must be from 0 to {MOST_WEIGHT:g}"
    return ""


def _refuse(turn: Turn, event: WeightsGiven, problem: Problem, words: str) -> None:
    if event.request is not None:
        turn.refuse(event.request, problem, words)
    else:
        failed(turn, WeightsFailed(event.service, words))
