"""How tasks of one bag fare on pilots and hosts."""

from msgspec import Struct


class Rest(Struct):
    """How tasks of one bag fare on a pilot, since one was last done well there."""

    failures: int = 0
    times: int = 0  # that it has rested
    until: float = 0.0


class Tally(Rest):
    """How they fare on one host."""

    done: int = 0
    since: float = 0.0  # when the first of these failures was
    rate: float = 0.0  # part of them that fail, lately
    weight: int = 0  # ends that this is known from


class FailedOn(Struct, eq=False):
    """Where a task that waits or runs has failed, and when it last did (`retry_hosts`)."""

    hosts: tuple[str, ...] = ()
    at: float = 0.0


class Trouble(Struct, frozen=True):
    """Why an attempt of a bag could not be made, though it may be the next time."""

    words: str
    host: str
    at: float
    ends: int  # the bag's then: one more, and it is over
