"""What the brain of a pilot tells the rest of it to do."""

from typing import List, NamedTuple, Tuple, Union

from covey.pilot.protocol.messages import Body, Sync, Task

BodyKey = Tuple[int, int]  # a bag, and which version of its inputs


def body_key(body: Body) -> BodyKey:
    return body.bag, body.inputs_version


class Send(NamedTuple):
    """Send this sync; report `answered`, `failed` or `refused` with its number and try."""

    sync: Sync
    attempt: int


class Start(NamedTuple):
    key: str
    body: Body
    task: Task


class Prepare(NamedTuple):
    """Get the files of this attempt, and have its bag's setup run; then call `prepared`, or
    `ended` if that cannot be."""

    start: Start


class Stop(NamedTuple):
    """Kill this attempt if it runs; its end follows in any case."""

    key: str


class Recall(NamedTuple):
    """Take these back if they have not started."""

    keys: List[str]


class EnrolAgain(NamedTuple):
    """The server does not know us any more; call `enrolled` when it does."""


class Depart(NamedTuple):
    """Nothing is left to do: say goodbye and end."""

    reason: str


Command = Union[Send, Prepare, Stop, Recall, EnrolAgain, Depart]
