"""The base classes of questions. msgspec can encode questions and answers, so that later several
front ends can ask one decider in another process."""

from typing import Generic, TypeVar

from msgspec import Struct

from covey.core.explain.steps import Steps
from covey.core.state import State

A_co = TypeVar("A_co", covariant=True)


class Question(Struct, Generic[A_co], frozen=True, tag=True):
    """Answered at once, between two events."""

    def answer(self, state: State, now: float) -> A_co:
        raise NotImplementedError


class LongQuestion(Struct, Generic[A_co], frozen=True, tag=True):
    """Answered in short steps; events are handled between two steps."""

    def steps(self, state: State, now: float) -> Steps[A_co]:
        raise NotImplementedError
