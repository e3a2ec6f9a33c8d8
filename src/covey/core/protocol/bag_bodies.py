"""Bodies of bags: how large they are, and how long pilots that were sent one, and the server,
remember it."""

import msgspec

from covey.core.state import Bag, Pilot
from covey.pilot.protocol.messages import Body

MOST_BODIES = 200  # that a pilot keeps for bags of which it holds nothing


def size_of(body: Body) -> int:
    """In characters, when it is sent."""
    return len(msgspec.json.encode(body))


def change(bag: Bag, body: Body) -> None:
    bag.body, bag.body_size = body, size_of(body)


def make_room(pilot: Pilot) -> list[int]:
    """Bags whose bodies the pilot may drop before it gets another one: those of which it holds no
    attempt. A dropped body is sent again with the next task of its bag. So neither side keeps
    something for every bag it ever saw."""
    if len(pilot.bodies) < MOST_BODIES:
        return []
    held = {attempt.bag for attempt in pilot.attempts.values()}
    unused = sorted(pilot.bodies.keys() - held)
    for bag in unused:
        del pilot.bodies[bag]
    return list(unused)
