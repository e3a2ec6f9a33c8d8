"""Bodies of bags that a pilot has been sent: how long both sides remember them."""

from covey.core.state import Pilot

MOST_BODIES = 200  # that a pilot keeps for bags of which it holds nothing


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
