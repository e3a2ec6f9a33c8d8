"""From a bag's command and a task's values to the words that are run.

Only `{name}` of a known parameter, `{task}` and `{bag}` are replaced; other braces are the
command's own, so that awk '{print $1}' means what it says.
"""

import re
from typing import Dict, List, Sequence, Tuple, Union

from covey.pilot.messages import Body, Scalar, Task

_WORD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

Part = Union[str, int]  # literal text, or the place of a value

# Where the task's and the bag's own numbers are found among the values.
_TASK, _BAG = -2, -1


class Template:
    """A body made ready to run many tasks."""

    def __init__(self, body: Body, environment: Dict[str, str]) -> None:
        places = {"task": _TASK, "bag": _BAG}
        places.update({name: index for index, name in enumerate(body.names)})
        self.body = body
        self._words = [_parse(word, places) for word in body.argv]
        self._environment = dict(environment)
        self._environment.update(body.env)
        self._environment["COVEY_BAG"] = str(body.bag)

    def argv(self, task: Task) -> List[str]:
        values: List[Scalar] = list(task.values)
        values += [task.task, task.bag]
        return [_render(parts, values) for parts in self._words]

    def environment(self, task: Task, key: str) -> Dict[str, str]:
        environment = self._environment.copy()
        environment["COVEY_TASK"] = str(task.task)
        environment["COVEY_ATTEMPT"] = key
        return environment


def _parse(word: str, places: Dict[str, int]) -> Tuple[Part, ...]:
    parts: List[Part] = []
    end = 0
    for match in _WORD.finditer(word):
        if match.group(1) in places:
            parts.append(word[end : match.start()])
            parts.append(places[match.group(1)])
            end = match.end()
    parts.append(word[end:])
    return tuple(part for part in parts if part != "")


def _render(parts: Tuple[Part, ...], values: Sequence[Scalar]) -> str:
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return "".join(part if isinstance(part, str) else str(values[part]) for part in parts)
