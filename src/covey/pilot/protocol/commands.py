"""The commands that the pilot's state gives to the rest of the pilot."""

from typing import List, NamedTuple, Tuple, Union

from covey.pilot.protocol.messages import Body, Sync, Task

BodyKey = Tuple[int, int]  # a bag, and the version of its inputs


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
    """Get the files of this attempt, and run its bag's setup; then call `prepared`, or `ended` if
    that is impossible."""

    start: Start


class Stop(NamedTuple):
    """Kill this attempt if it runs; its end follows in any case."""

    key: str


class Recall(NamedTuple):
    """Take these attempts back if they have not started."""

    keys: List[str]


class EnrolAgain(NamedTuple):
    """The server does not know this pilot any more: enrol, then call `enrolled`."""


class Depart(NamedTuple):
    """Nothing is left to do: take leave of the server and end."""

    reason: str


Command = Union[Send, Prepare, Stop, Recall, EnrolAgain, Depart]
