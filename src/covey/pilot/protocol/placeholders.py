"""{NAME} in a command, a path or a pattern: the place of a value of the task.

Defined once: the pilot fills in commands, the server fills in the inputs and the resources of
tasks, and clients check what people write. Names are those of parameters, `task` and `bag`; other
braces mean themselves, so that awk '{print $1}' means what it says.
"""

import re
from typing import Dict, List, Sequence, Tuple, Union

from covey.pilot.protocol.messages import Scalar

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
PLACEHOLDER = re.compile(r"\{(" + NAME + r")\}")
NUMBERS = ("task", "bag")  # names that stand for the numbers of the task and of its bag

Part = Union[str, int]  # literal text, or the place of a value
Parts = Tuple[Part, ...]


def places_of(names: Sequence[str]) -> Dict[str, int]:
    """Where each name is found among a task's values, to which the two numbers were appended."""
    places = {"task": -2, "bag": -1}
    places.update({name: index for index, name in enumerate(names)})
    return places


def parse(text: str, places: Dict[str, int]) -> Parts:
    parts: List[Part] = []
    end = 0
    for match in PLACEHOLDER.finditer(text):
        if match.group(1) in places:
            parts.append(text[end : match.start()])
            parts.append(places[match.group(1)])
            end = match.end()
    parts.append(text[end:])
    return tuple(part for part in parts if part != "")


def render(parts: Parts, values: Sequence[Scalar]) -> str:
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return "".join(part if isinstance(part, str) else str(values[part]) for part in parts)
